"""Reads ONNX protobufs (TensorProto, NodeProto) as tensors and Python values."""

from typing import Any

import torch

from mlirc.frontend.onnx_import.package import onnx
from mlirc.frontend.onnx_import.values import Known, Value, dtype_of, torch_tensor

SMALL = 4096
"""The most elements of a constant whose numbers are known while the graph is traced, as those of shapes must be."""
AT_HAND = (torch.int64, torch.int32, torch.bool, torch.float32, torch.float64)


def few(x: torch.Tensor) -> bool:
    """Whether the numbers of a constant are known while the graph is traced."""
    return x.numel() <= SMALL and x.dtype in AT_HAND


def label(proto: Any) -> str:
    """How an error names a node: "node 'name' (Op)"."""
    first = next((name for name in proto.output if name), "")
    name = f"node '{proto.name}'" if proto.name else f"the node that gives '{first}'"
    return f"{name} ({f'{proto.domain}.' if proto.domain else ''}{proto.op_type})"


def constant_tensor(proto: Any) -> torch.Tensor:
    """A TensorProto as a tensor. Raises OnnxValueError for a dtype that PyTorch lacks."""
    dtype_of(proto.data_type)
    return torch_tensor(onnx().numpy_helper.to_array(proto), proto.data_type)


def constant_of(proto: Any) -> Value:
    """A TensorProto as a Known value if it is small, else as a tensor. Raises OnnxValueError for a dtype that PyTorch lacks."""
    dtype = dtype_of(proto.data_type)
    array = onnx().numpy_helper.to_array(proto)
    if array.size <= SMALL and dtype in AT_HAND:
        return Known(array, dtype)
    return torch_tensor(array, proto.data_type)


def attributes(proto: Any) -> dict[str, Any]:
    """A node's attributes by name: str, int, float, lists of them, GraphProto, TensorProto."""
    found: dict[str, Any] = {}
    for a in proto.attribute:
        value = onnx().helper.get_attribute_value(a)
        if isinstance(value, bytes):
            value = value.decode()
        elif isinstance(value, list) or (hasattr(value, "__len__") and not isinstance(value, str)):
            value = [v.decode() if isinstance(v, bytes) else v for v in value]
        found[a.name] = value
    return found
