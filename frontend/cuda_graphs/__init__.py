"""Recorded CUDA graphs."""
