"""Attention whose scores have a body, as Triton kernels."""
