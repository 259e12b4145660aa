"""Ops over rows: reductions, scans, softmax and norms, with their gradients."""
