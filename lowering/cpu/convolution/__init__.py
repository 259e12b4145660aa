"""Convolutions of channels-last images, Winograd's, depthwise ones and those in groups, and their gradients."""
