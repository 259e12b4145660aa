"""Native code that all host programs share: memory, values of Python, whether tensors changed."""
