"""What code relies on of PyTorch's and llvmlite's native parts: the C shim, layouts of objects, symbols, functions that nobody promised."""
