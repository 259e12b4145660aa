"""Passes, from a graph to kernels with a memory plan and code, and what they know of both."""
