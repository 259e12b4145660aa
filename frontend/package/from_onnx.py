"""ONNX models for `mlirc.compile`: the module, example arguments, and calls that take NumPy's arrays."""

import os
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch.export import ExportedProgram

from mlirc.frontend.onnx_import.graph_module import OnnxError, OnnxGraph
from mlirc.frontend.onnx_import.model_file import as_tensor, example_inputs, given_inputs, read_model
from mlirc.frontend.package.exported import exported_program
from mlirc.frontend.package.model import CompiledModel


def onnx_module(model: Any, args: tuple, kwargs: Mapping[str, Any]) -> tuple[OnnxGraph, tuple, tuple]:
    """The module of a path or an onnx.ModelProto, example arguments for it, and the sizes that may change.

    Without arguments, the model gives the sizes, and a size that it leaves open is a symbol. With arguments, an input whose
    value is a size is fixed to the value given.
    """
    module = read_model(model)
    shapes = example_inputs(module, args or kwargs)
    given = given_inputs(module, args, kwargs) if args or kwargs else shapes.tensors
    arguments = tuple(x.tolist() if name in module.fixed else x for name, x in zip(module.inputs, given, strict=True))
    dynamic = tuple(
        changing if isinstance(a, torch.Tensor) else tree_of_none(a)
        for a, changing in zip(arguments, shapes.changing, strict=True)
    )
    return module, arguments, dynamic


def tree_of_none(x: Any) -> Any:
    return [tree_of_none(y) for y in x] if isinstance(x, list) else None


def exported_onnx(
    model: Any, args: tuple, kwargs: Mapping[str, Any], dynamic_shapes: Any
) -> tuple[OnnxGraph, ExportedProgram]:
    """The module, and its exported program. Sizes of one name are equal. If the graph needs more sizes to be equal or fixed, they
    are, with a warning."""
    module, arguments, dynamic = onnx_module(model, args, kwargs)
    if dynamic_shapes is not None:
        return module, exported_program(module, arguments, {}, dynamic_shapes)
    try:
        return module, exported_program(module, arguments, {}, dynamic)
    except OnnxError:
        raise
    except Exception as error:  # torch.export raises errors of many types for a size
        if not any(dynamic):
            raise
        reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        warnings.warn(
            f"mlirc: the graph fixes or relates sizes that the ONNX model leaves open: {reason}", stacklevel=4
        )
        loose = tuple(dict.fromkeys(d, torch.export.Dim.AUTO) if isinstance(d, dict) else d for d in dynamic)
        return module, exported_program(module, arguments, {}, loose)


class CompiledOnnx(CompiledModel):
    """A compiled ONNX model: takes tensors or NumPy's arrays, by position or by the names of its inputs, and gives tensors."""

    inputs: tuple[str, ...] = ()
    fixed: frozenset[str] = frozenset()
    types: Mapping[str, int] = {}

    def with_inputs_of(self, module: OnnxGraph) -> "CompiledOnnx":
        """Itself, after it has taken the names, fixed values and dtypes of the module's inputs."""
        self.inputs, self.fixed = tuple(module.inputs), frozenset(module.fixed)
        self.types = {name: module.types[name] for name in self.inputs if name in module.types}
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = dict(zip(self.inputs, args, strict=False))
        if len(args) > len(self.inputs) or set(kwargs) & set(given) or {*given, *kwargs} != set(self.inputs):
            raise TypeError(f"the model takes {', '.join(self.inputs)}")
        given.update(kwargs)
        values = []
        for name in self.inputs:
            x = given[name]
            x = x if isinstance(x, torch.Tensor) else as_tensor(x, self.types.get(name))
            values.append(x.tolist() if name in self.fixed else x)
        return super().__call__(*values)


def is_onnx(model: Any) -> bool:
    """Whether this is a path of a file, or an onnx.ModelProto."""
    return isinstance(model, str | os.PathLike) or type(model).__name__ == "ModelProto"
