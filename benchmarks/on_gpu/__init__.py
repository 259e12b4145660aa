"""What benchmarks.gpu measures: models, kernels, flex_attention, first calls, and the limits that a GPU sets."""
