"""ONNX files: read, checked, and made into a module with example inputs. Weights in files beside are mapped into memory."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.frontend.onnx_import.graph_module import OnnxError, OnnxGraph, attribute_name
from mlirc.frontend.onnx_import.package import onnx
from mlirc.frontend.onnx_import.protos import constant_tensor
from mlirc.frontend.onnx_import.values import DTYPES, OnnxValueError, dtype_of, torch_tensor

OLDEST = 13
"""The operator set from which on models are taken."""


def read_model(model: Any) -> OnnxGraph:
    """A path or an onnx.ModelProto as a module. Raises OnnxError, and OSError where there is no such file."""
    onnx()
    folder = None
    if isinstance(model, str | os.PathLike):
        folder, model = Path(model).resolve().parent, _parsed(Path(model))
    opsets = {("" if s.domain == "ai.onnx" else s.domain): s.version for s in model.opset_import}
    newest = onnx().defs.onnx_opset_version()
    version = opsets.get("", newest)
    if not OLDEST <= version <= newest:
        raise OnnxError(f"the model is of operator set {version}; mlirc takes {OLDEST} to {newest}")
    initializers = {}
    for t in model.graph.initializer:
        try:
            initializers[t.name] = _initializer(t, folder)
        except (OnnxValueError, ValueError, TypeError) as error:
            raise OnnxError(f"the weight '{t.name}': {str(error).splitlines()[0]}") from error
    if model.graph.sparse_initializer:
        raise OnnxError(f"the weight '{model.graph.sparse_initializer[0].values.name}' is sparse")
    functions = {(f.domain, f.name): f for f in model.functions}
    return OnnxGraph(model.graph, opsets, _types(model), initializers, functions)


def _parsed(path: Path) -> Any:
    from google.protobuf.message import DecodeError

    if path.stat().st_size >= 2**31:
        raise OnnxError(f"{path} has 2 GB or more, which protobuf cannot read: save its weights as external data")
    model = onnx().ModelProto()
    try:
        model.ParseFromString(path.read_bytes())
    except DecodeError as error:
        raise OnnxError(f"{path} is no ONNX model, or is cut off: {str(error).splitlines()[0]}") from error
    if not model.ir_version or not model.HasField("graph"):
        raise OnnxError(f"{path} is no ONNX model: it has no graph")
    return model


def _initializer(t: Any, folder: Path | None) -> torch.Tensor:
    if t.data_location != onnx().TensorProto.EXTERNAL:
        return constant_tensor(t)
    if folder is None:
        raise OnnxValueError("it is in a file beside the model: give mlirc.compile the model's path")
    return _mapped(t, folder)


def _mapped(t: Any, folder: Path) -> torch.Tensor:
    """A weight in a file of the model's folder, mapped into memory. Raises OnnxValueError for a file outside of it."""
    told = {entry.key: entry.value for entry in t.external_data}
    path = (folder / told.get("location", "")).resolve()
    if not path.is_relative_to(folder) or not path.is_file():
        raise OnnxValueError(f"its file '{told.get('location', '')}' is not in the model's folder")
    dtype = dtype_of(t.data_type)
    if t.data_type not in DTYPES or t.data_type > 20:  # 21 on are int4, uint4 and smaller ones
        raise OnnxValueError("integers of fewer than 8 bits in a file beside the model")
    count = int(np.prod(t.dims, dtype=np.int64))
    start, size = int(told.get("offset", 0)), count * dtype.itemsize
    if start < 0 or start + size > path.stat().st_size or int(told.get("length", size)) != size:
        raise OnnxValueError(f"its file '{path.name}' has no {size} bytes at {start} for it")
    if not count:
        return torch.empty(tuple(t.dims), dtype=dtype)
    data = np.memmap(path, np.uint8, "c", start, size)  # a write goes to memory, never to the file
    if start % dtype.itemsize:
        data = np.array(data)
    return torch.from_numpy(data).view(dtype).reshape(tuple(t.dims))


def _types(model: Any) -> dict[str, int]:
    """Element types of values, where ONNX infers them."""
    with suppress(Exception):  # what it cannot infer is what nodes say of themselves
        model = onnx().shape_inference.infer_shapes(_light(model))
    found = {t.name: t.data_type for t in model.graph.initializer}
    for v in (*model.graph.input, *model.graph.value_info, *model.graph.output):
        if v.type.HasField("tensor_type") and v.type.tensor_type.elem_type:
            found[v.name] = v.type.tensor_type.elem_type
    return found


def _light(model: Any) -> Any:
    """The model without its large weights, which are inputs in place of it: what is inferred goes through a text of at most 2 GB."""
    copy = onnx().ModelProto()
    copy.CopyFrom(model)
    kept = []
    for t in copy.graph.initializer:
        if t.ByteSize() < 4096:
            kept.append(t)
        elif t.name not in {v.name for v in copy.graph.input}:
            copy.graph.input.append(onnx().helper.make_tensor_value_info(t.name, t.data_type, list(t.dims)))
    copy_of = [onnx().TensorProto.FromString(t.SerializeToString()) for t in kept]
    del copy.graph.initializer[:]
    copy.graph.initializer.extend(copy_of)
    return copy


@dataclass(frozen=True)
class ExampleInputs:
    """Tensors in the order of a model's inputs, and for each the dimensions whose sizes a call may choose."""

    tensors: list[torch.Tensor]
    changing: list[dict[int, Any] | None]


def example_inputs(module: OnnxGraph, given: Any) -> ExampleInputs:
    """Inputs of the sizes that a model names. Raises OnnxError for what only `given` can tell, where that is empty."""
    known: dict[str, int] = {}
    found = ExampleInputs([], [])
    by_name = {v.name: v for v in module.graph.input}
    for name in module.inputs:
        dtype = input_dtype(by_name[name])
        if name in module.fixed and not given:
            raise OnnxError(f"the input '{name}' gives sizes, or other numbers of the graph: give example arguments")
        if not by_name[name].type.tensor_type.HasField("shape"):
            if not given:
                raise OnnxError(f"the input '{name}' has no number of dimensions: give example arguments")
            found.changing.append(None)
            continue
        shape, changing = input_sizes(by_name[name], known)
        found.tensors.append(torch.ones(shape, dtype=dtype))
        found.changing.append({k: torch.export.Dim(attribute_name(name)) for k, name in changing.items()} or None)
    return found


def input_dtype(v: Any) -> torch.dtype:
    """Raises OnnxError for an input that is no tensor of numbers."""
    kind = v.type.WhichOneof("value")
    if kind != "tensor_type":
        raise OnnxError(f"the input '{v.name}' is a {(kind or 'value').removesuffix('_type')}, which is no tensor")
    try:
        return dtype_of(v.type.tensor_type.elem_type)
    except OnnxValueError as error:
        raise OnnxError(f"the input '{v.name}': {error}") from error


EXAMPLES = (6, 10, 14, 22, 26, 34, 38, 46)
"""Sizes of example inputs where the file has names for them: even, unlike each other, no powers of two, which stand in graphs as numbers."""


def input_sizes(v: Any, known: dict[str, int]) -> tuple[list[int], dict[int, str]]:
    """Sizes of an input, and by name the dimensions whose sizes a call may choose. `known` has the sizes of names."""
    shape: list[int] = []
    changing: dict[int, str] = {}
    for k, d in enumerate(v.type.tensor_type.shape.dim):
        if d.WhichOneof("value") == "dim_value":
            shape.append(d.dim_value)
            continue
        name = d.dim_param or f"{v.name}_{k}"
        shape.append(known.setdefault(name, EXAMPLES[len(known) % len(EXAMPLES)]))
        changing[k] = name
    return shape, changing


def given_inputs(module: OnnxGraph, args: tuple, kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """Tensors of what a user gave, NumPy's arrays among them, in the order of the inputs. Raises TypeError."""
    named = dict(zip(module.inputs, args, strict=False))
    if len(args) > len(module.inputs) or set(kwargs) & set(named) or not {*named, *kwargs} == set(module.inputs):
        raise TypeError(f"the model takes {', '.join(module.inputs)}")
    named.update(kwargs)
    return [as_tensor(named[name], module.types.get(name)) for name in module.inputs]


def as_tensor(x: Any, elem_type: int | None = None) -> torch.Tensor:
    """A tensor, an array of NumPy's or of ml_dtypes', or a number, as a tensor."""
    if isinstance(x, torch.Tensor):
        return x
    array = np.asarray(x)
    if elem_type is not None:
        return torch_tensor(array, elem_type)
    return torch.from_numpy(array)
