"""Matmul kernels on matrix units."""
