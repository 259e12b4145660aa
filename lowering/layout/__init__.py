"""Channels-last regions, and what follows from them."""
