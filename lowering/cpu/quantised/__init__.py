"""Gemm of a few rows by quantised weights: dequantised in registers, or integers by integers."""
