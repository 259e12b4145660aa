"""Tensor types of the dialect: dtype, sizes, strides, device, as PyTorch sees them.

A static row-major CPU tensor is MLIR's plain `tensor<2x128xf32>`. Anything else is said in the encoding, which is a dictionary:

    tensor<?x128xf32, {size = "s0, 128"}>                       a symbolic size
    tensor<4x8xf32, {stride = "1, 4"}>                          strides in elements, if not row-major
    tensor<4x8xf32, {device = "cuda:0"}>
    tensor<4x8xf32, {layout = "mkldnn"}>            memory that only its library can read: oneDNN's packed weights

A value's strides are those that eager PyTorch gives it. Its storage offset is not part of the type: views carry it.
"""

import re
from collections.abc import Callable
from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.tensor_info import DTYPE_TEXT, TEXT_DTYPE, TensorInfo, contiguous

# dtypes that kernels compute with; every other dtype goes through ATen
KERNEL_DTYPES = frozenset(
    (torch.float64, torch.float32, torch.float16, torch.bfloat16)
    + (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
)


def opmath(dtype: torch.dtype) -> torch.dtype:
    """The dtype that scalar work on `dtype` is done in: half types compute in float32, as eager does."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


_DEVICE = re.compile(r"cpu|cuda(:\d{1,3})?")
_info_of_type: dict[ir.Type, TensorInfo] = {}
_type_of_info: dict[TensorInfo, ir.Type] = {}
_element_types: dict[torch.dtype, ir.Type] = {}


def element_type(dtype: torch.dtype) -> ir.Type:
    """The MLIR scalar type; needs an entered context."""
    if dtype not in _element_types:
        _element_types[dtype] = ir.Type.parse(DTYPE_TEXT[dtype])
    return _element_types[dtype]


def dtype_of(element: ir.Type) -> torch.dtype:
    """The torch dtype of a scalar type. `index` reads as int64."""
    text = str(element)
    return torch.int64 if text == "index" else TEXT_DTYPE[text]


def type_text(info: TensorInfo) -> str:
    dims = "".join(f"{n}x" if isinstance(n, int) else "?x" for n in info.shape)
    entries = []
    if any(not isinstance(n, int) for n in info.shape):
        entries.append(f'size = "{symbols.print_list(info.shape)}"')
    if info.stride != contiguous(info.shape):
        entries.append(f'stride = "{symbols.print_list(info.stride)}"')
    if info.device != "cpu":
        entries.append(f'device = "{info.device}"')
    if info.layout != "strided":
        entries.append(f'layout = "{info.layout}"')
    encoding = f", {{{', '.join(entries)}}}" if entries else ""
    return f"tensor<{dims}{DTYPE_TEXT[info.dtype]}{encoding}>"


def type_of(info: TensorInfo) -> ir.Type:
    """The MLIR type of `info`; needs an entered context."""
    found = _type_of_info.get(info)
    if found is None:
        found = _type_of_info[info] = ir.Type.parse(type_text(info))
        _info_of_type[found] = info
    return found


def info_of(value: ir.Value | ir.Type) -> TensorInfo:
    """The TensorInfo of a tensor value or type; a scalar reads as 0-d. Raises ValueError for an encoding that is not ours."""
    type_ = value if isinstance(value, ir.Type) else value.type
    found = _info_of_type.get(type_)
    if found is None:
        found = _info_of_type[type_] = _read_type(type_)
    return found


def _read_type(type_: ir.Type) -> TensorInfo:
    if not isinstance(type_, ir.RankedTensorType):
        return TensorInfo(dtype_of(type_), ())
    ranked = ir.RankedTensorType(type_)
    dtype = dtype_of(ranked.element_type)
    entries: dict[str, str] = {}
    if ranked.encoding is not None:
        try:
            entries = {named.name: ir.StringAttr(named.attr).value for named in ir.DictAttr(ranked.encoding)}
        except ValueError as error:
            raise ValueError(
                f"{type_}: the encoding must be a dictionary of size, stride, device, layout strings"
            ) from error
    unknown = set(entries) - {"size", "stride", "device", "layout"}
    if unknown:
        raise ValueError(
            f"{type_}: unknown {', '.join(sorted(unknown))}; the encoding holds size, stride, device, layout"
        )
    if not _DEVICE.fullmatch(entries.get("device", "cpu")):
        raise ValueError(f"{type_}: no device '{entries['device']}'; tensors are on cpu or on cuda:0, cuda:1, ...")
    if "size" in entries:
        shape = symbols.parse_list(entries["size"])
    elif ranked.has_static_shape:
        shape = tuple(ranked.shape)
    else:
        raise ValueError(f'{type_}: a dynamic shape needs its sizes in the encoding, {{size = "s0, 128"}}')
    stride = symbols.parse_list(entries["stride"]) if "stride" in entries else contiguous(shape)
    for entry, values in (("size", shape), ("stride", stride)):
        if len(values) != ranked.rank:
            raise ValueError(f"{type_}: {entry} has {len(values)} entries, the tensor {ranked.rank} dimensions")
    return TensorInfo(dtype, shape, stride, entries.get("device", "cpu"), entries.get("layout", "strided"))


def change_types(op: Any, change: Callable[[ir.Type], ir.Type]) -> None:
    """Replaces the types of an op's results and of its regions' arguments, and of a function those in its signature."""
    for region in op.regions:
        for block in region.blocks:
            for argument in block.arguments:
                argument.set_type(change(argument.type))
    for result in op.results:
        result.set_type(change(result.type))
    if op.operation.name == "func.func":
        old = ir.FunctionType(ir.TypeAttr(op.attributes["function_type"]).value)
        signature = ir.FunctionType.get([change(t) for t in old.inputs], [change(t) for t in old.results])
        op.attributes["function_type"] = ir.TypeAttr.get(signature)
