"""Scaling over the cores of a processor."""
