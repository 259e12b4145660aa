"""Inputs of a module in a safetensors file: `arg0`, `arg1`, ... as the arguments of @graph are numbered; results as `result0`, ...

Numbers are tensors without dimensions. The file keeps elements; the strides are the argument's. `random_state` is that of PyTorch's
generator before the call.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.dialects.core.graph_signature import bind_symbols
from mlirc.dialects.core.tensor_types import info_of
from mlirc.execution.modules import given_arguments, graph_of
from mlirc.execution.random_state import NAME, Inputs, why_no_state
from mlirc.lowering.module.counted import counted

MOST = 1 << 36  # bytes of a file


class InputsError(ValueError):
    """Inputs that are missing, or are not those that the module takes."""


def is_number(argument: ir.Value, position: int, function: Any) -> bool:
    """Whether an argument is an int or a float, not a tensor."""
    return not isinstance(argument.type, ir.RankedTensorType) or "mlirc.scalar" in function.arg_attrs[position]


def read_inputs(module: ir.Module, path: str) -> Inputs:
    """The arguments in a file. Raises InputsError, whatever is in the file."""
    held = read_tensors(path)
    with context():
        graph, arguments = graph_of(module), given_arguments(module)
        missing = [f"arg{k}" for k in range(len(arguments)) if f"arg{k}" not in held]
        if missing:
            raise InputsError(f"{path}: no {', '.join(missing[:8])}; it has {', '.join(sorted(held)[:8]) or 'nothing'}")
        more = [name for name in held if re.fullmatch(r"arg\d+", name) and int(name[3:]) >= len(arguments)]
        if more:
            raise InputsError(
                f"{path}: {', '.join(sorted(more)[:8])}: the module takes {counted(len(arguments), 'argument')}"
            )
        values = [
            held[f"arg{k}"].item() if is_number(x, k, graph) and held[f"arg{k}"].numel() == 1 else held[f"arg{k}"]
            for k, x in enumerate(arguments)
        ]
        state = held.get(NAME)
        why = "" if state is None else why_no_state(state)
        if why:
            raise InputsError(f"{path}: {NAME} {why}")
        return Inputs((laid_out(module, k, values, path) for k in range(len(arguments))), state)


def laid_out(module: ir.Module, position: int, values: Sequence[Any], path: str) -> Any:
    """An argument with the strides of its type."""
    argument, value = given_arguments(module)[position], values[position]
    if not isinstance(argument.type, ir.RankedTensorType) or not isinstance(value, torch.Tensor):
        return value
    info = info_of(argument)
    try:
        known = bind_symbols(graph_of(module), [*values, *[None] * (len(graph_of(module).arguments) - len(values))])
        shape, stride = ([symbols.evaluate(n, known) for n in sizes] for sizes in (info.shape, info.stride))
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise InputsError(f"{path}: the inputs do not say how large arg{position} is: {error}") from error
    if (value.dtype, list(value.shape)) != (info.dtype, shape):
        have, want = (f"{d} {list(s)}" for d, s in ((value.dtype, value.shape), (info.dtype, shape)))
        raise InputsError(f"{path}: arg{position} is {have}; the module takes {want}")
    return with_strides(value, stride)


def with_strides(value: torch.Tensor, stride: Sequence[int]) -> torch.Tensor:
    """The elements in memory of their own with these strides; where elements share memory, they are expected to be equal."""
    if value.numel() == 0:
        return torch.empty_strided(value.shape, stride, dtype=value.dtype)
    extent = 1 + sum((n - 1) * s for n, s in zip(value.shape, stride, strict=True))
    made = torch.zeros(extent, dtype=value.dtype).as_strided(value.shape, stride)
    shared = [s == 0 and n > 1 for n, s in zip(value.shape, stride, strict=True)]
    if any(shared):
        one = [slice(0, 1) if s else slice(None) for s in shared]
        made[tuple(one)] = value[tuple(one)]
        return made
    return made.copy_(value)


def read_tensors(path: str) -> dict[str, torch.Tensor]:
    """Raises InputsError."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        if not Path(path).is_file():
            os.stat(path)
            raise InputsError(f"{path}: no regular file")
        if Path(path).stat().st_size > MOST:
            raise InputsError(f"{path}: larger than {MOST} bytes")
        return load_file(path)
    except (OSError, ValueError, SafetensorError, KeyError, TypeError, RuntimeError) as error:
        if isinstance(error, InputsError):
            raise
        if isinstance(error, OSError) and error.strerror:
            raise InputsError(f"{path}: {error.strerror}") from error
        raise InputsError(f"{path}: no safetensors file: {' '.join(str(error).split())}") from error
