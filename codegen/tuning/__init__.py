"""Modes that measure: kernels, matmuls, algorithms of cuBLASLt."""
