"""Ops of neural networks: matmul, attention, convolution, pooling, dropout, losses."""
