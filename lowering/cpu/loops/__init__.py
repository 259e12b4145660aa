"""Loops of a kernel: passes over rows, vectors, threads."""
