"""What capture relies on of PyTorch's private Python: one file for each thing that it gives, with what happens without it."""
