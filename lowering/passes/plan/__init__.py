"""The pass of the stage plan: kernels to memory."""
