"""A kernel as Triton text."""
