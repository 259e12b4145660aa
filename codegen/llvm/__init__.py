"""Machine code: MLIR to LLVM IR, and LLVM through llvmlite."""
