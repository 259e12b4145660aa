"""Native code that all programs share: kernels, memory, values of Python, whether tensors changed."""
