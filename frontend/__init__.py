"""PyTorch's side: capture, import, what is kept between calls and processes, what a user sees."""
