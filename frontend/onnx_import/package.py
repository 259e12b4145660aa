"""The package onnx, which is optional: imported where a model is given."""

import importlib
from functools import cache
from typing import Any

from mlirc.frontend.errors import UnsupportedGraph


@cache
def onnx() -> Any:
    """The package, with the modules that are used of it. Raises UnsupportedGraph where it is not installed."""
    try:
        for name in ("defs", "helper", "numpy_helper", "shape_inference"):
            importlib.import_module(f"onnx.{name}")
        return importlib.import_module("onnx")
    except ImportError as error:
        raise UnsupportedGraph("an ONNX model needs the package onnx: pip install 'mlirc[onnx]'") from error
