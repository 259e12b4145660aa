"""Where PyTorch comes in: the backend of torch.compile, and of its aot_compile."""
