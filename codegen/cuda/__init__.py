"""GPUs: driver, launches, random numbers, Triton's compiler."""
