"""Passes of the stage simplify that run for GPUs alone."""
