"""The strides and dtypes that eager gives to results, where PyTorch's fake tensors have others."""
