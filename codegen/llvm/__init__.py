"""Machine code: MLIR to LLVM IR, LLVM through llvmlite, on threads."""
