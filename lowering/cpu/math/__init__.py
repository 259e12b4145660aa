"""Scalar work on vectors, and the elementary functions."""
