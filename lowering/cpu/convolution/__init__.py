"""Convolutions of channels-last images, Winograd's and depthwise ones, and their gradients."""
