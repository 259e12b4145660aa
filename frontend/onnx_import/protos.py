"""What nodes and tensors of an ONNX file say, as Python's values."""

from typing import Any

import torch

from mlirc.frontend.onnx_import.package import onnx
from mlirc.frontend.onnx_import.values import Known, Value, dtype_of, torch_tensor

SMALL = 4096
"""Elements of a constant whose numbers are kept at hand for shapes."""
AT_HAND = (torch.int64, torch.int32, torch.bool, torch.float32, torch.float64)


def few(x: torch.Tensor) -> bool:
    """Whether the numbers of a constant are kept at hand."""
    return x.numel() <= SMALL and x.dtype in AT_HAND


def label(proto: Any) -> str:
    """A node as an error names it."""
    first = next((name for name in proto.output if name), "")
    name = f"node '{proto.name}'" if proto.name else f"the node that gives '{first}'"
    return f"{name} ({f'{proto.domain}.' if proto.domain else ''}{proto.op_type})"


def constant_tensor(proto: Any) -> torch.Tensor:
    """A TensorProto. Raises OnnxValueError for a dtype that PyTorch has not."""
    dtype_of(proto.data_type)
    return torch_tensor(onnx().numpy_helper.to_array(proto), proto.data_type)


def constant_of(proto: Any) -> Value:
    """A TensorProto, as numbers where they are few."""
    dtype = dtype_of(proto.data_type)
    array = onnx().numpy_helper.to_array(proto)
    if array.size <= SMALL and dtype in AT_HAND:
        return Known(array, dtype)
    return torch_tensor(array, proto.data_type)


def attributes(proto: Any) -> dict[str, Any]:
    """A node's attributes: texts, numbers, lists, and onnx's own graphs and tensors."""
    found: dict[str, Any] = {}
    for a in proto.attribute:
        value = onnx().helper.get_attribute_value(a)
        if isinstance(value, bytes):
            value = value.decode()
        elif isinstance(value, list) or (hasattr(value, "__len__") and not isinstance(value, str)):
            value = [v.decode() if isinstance(v, bytes) else v for v in value]
        found[a.name] = value
    return found
