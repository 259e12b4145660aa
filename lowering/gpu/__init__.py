"""Kernels for NVIDIA GPUs: what is written for one, and what else to try."""
