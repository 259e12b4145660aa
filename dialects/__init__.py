"""What ops are and mean: types, sizes, one class an op, builders, an interpreter."""
