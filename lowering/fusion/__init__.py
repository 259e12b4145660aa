"""Which kernels merge, and how."""
