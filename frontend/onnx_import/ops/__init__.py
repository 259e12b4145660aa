"""Operators of ONNX as functions of PyTorch's, in files by kind; all are scanned."""
