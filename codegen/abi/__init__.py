"""What code relies on of PyTorch's and llvmlite's private parts: layouts of objects, symbols, functions that nobody promised."""
