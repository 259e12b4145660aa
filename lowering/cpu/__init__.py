"""Kernels for CPUs, as MLIR text."""
