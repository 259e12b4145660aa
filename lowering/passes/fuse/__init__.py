"""Passes of the stage fuse: graph to kernels, and kernels merged."""
