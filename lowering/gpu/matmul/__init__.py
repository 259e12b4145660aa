"""Matmul kernels on tensor cores."""
