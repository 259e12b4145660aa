"""Gemm: tiles, packing, panels, and the choice among them."""
