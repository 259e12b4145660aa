"""mlirc: `torch.compile(model, backend="mlirc")`, a compiler on MLIR, LLVM and Triton."""
