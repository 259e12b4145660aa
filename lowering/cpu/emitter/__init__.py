"""A point of a kernel's loops as MLIR text: values, loads and stores."""
