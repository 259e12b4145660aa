"""Runs a module from an untrusted file: compares its inputs with what its types promise, before each run.

A compiled graph needs no such comparison: PyTorch's guards made it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from mlirc.codegen.emit.emit import compile_module
from mlirc.codegen.emit.input_promises import InputPromises, input_promises
from mlirc.codegen.host.program import Program
from mlirc.dialects.core import symbols
from mlirc.dialects.core.context import context
from mlirc.dialects.core.graph_signature import bind_symbols
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_info import TensorInfo
from mlirc.lowering.files.file import verify_file, verify_plan
from mlirc.lowering.module.counted import counted
from mlirc.lowering.pipeline.pass_manager import functions

LARGEST = 1 << 62  # of sizes and of what is computed of them


class InputError(ValueError):
    """The inputs do not have the types of the module's arguments."""


class CheckedProgram:
    """program(inputs) -> results of a function of a module in the lowered form, which is verified here.

    Raises StageError if the module is wrong; at a call, if its memory plan is wrong for the sizes of the inputs. Raises InputError if inputs
    do not fit.
    """

    def __init__(self, module: Any, entry: str = "graph", profile: bool = False):
        with context():
            obligations = verify_file(module, runs=True)
            self.function = next(f for f in functions(module) if f.name.value == entry)
            self.promises = input_promises(self.function, obligations.get(entry, ()))
            self.module = module
            self.plans: set[tuple[int, ...]] = set()  # values of the symbols at which the memory plan was verified
            self.program: Program = compile_module(module, entry=entry, profile=profile)

    def __call__(self, inputs: list[Any]) -> list[Any]:
        self.check(inputs)
        with torch.no_grad():
            return self.program(inputs)

    def check(self, inputs: Sequence[Any]) -> None:
        """Raises what a call with these inputs raises before it begins."""
        check_kinds(self.promises, inputs)
        with context():
            values = bind_symbols(self.function, inputs)
            check_symbols(self.promises, inputs, values)
            check_layouts(self.promises, inputs, values)
            check_bounds(self.promises, values)
            check_overlaps(self.promises.written, inputs)
            if values and tuple(values.values()) not in self.plans:
                verify_plan(self.function, values)
                self.plans.add(tuple(values.values()))


# ---- checks, in order: each relies on those before it, and raises InputError


def check_kinds(promises: InputPromises, inputs: Sequence[Any]) -> None:
    """Each input is a Python number or a tensor, of the rank, as its argument says. Sizes are not looked at."""
    if len(inputs) != len(promises.infos):
        raise InputError(f"{counted(len(inputs), 'input')} for {counted(len(promises.infos), 'argument')}")
    for k, (info, is_number, x) in enumerate(zip(promises.infos, promises.are_numbers, inputs, strict=True)):
        if info is not None and info.layout != "strided":
            if not is_packed(x, info):
                raise InputError(f"input {k} is no {info.shape} of {info.dtype} that oneDNN packed")
        elif isinstance(x, torch.Tensor):
            if is_number or info is None or not is_plain(x):
                raise InputError(f"input {k} is a {type(x).__name__} of a kind that is not taken there")
            if x.dim() != info.rank:
                raise InputError(f"input {k} has {x.dim()} dimensions, not {info.rank}")
        elif not is_number or not isinstance(x, int | float) or (info is None and not isinstance(x, int)):
            raise InputError(f"input {k} is a {type(x).__name__}")
        elif isinstance(x, int) and not -LARGEST < x < LARGEST:
            raise InputError(f"input {k} is {x}")


def check_symbols(promises: InputPromises, inputs: Sequence[Any], values: Mapping[str, int]) -> None:
    """The inputs agree on the symbols' values, and a symbol that is 0 or more, or below 0, by its name is that."""
    for k, size in promises.named.items():
        if value_of(size, values) != inputs[k]:
            raise InputError(f"input {k} is {inputs[k]}, and {size} is {value_of(size, values)}")
    for name, value in values.items():
        may_be_negative = not symbols.known_nonnegative(symbols.symbol(name))
        if (value < 0 and not may_be_negative) or (value >= 0 and name.startswith(symbols.NEGATIVE)):
            raise InputError(f"the inputs give {name} the value {value}")


def check_layouts(promises: InputPromises, inputs: Sequence[Any], values: Mapping[str, int]) -> None:
    """Each tensor has its argument's dtype, sizes, strides and device, and lies within its storage."""
    for k, (info, x) in enumerate(zip(promises.infos, inputs, strict=True)):
        if info is None or info.layout != "strided" or not isinstance(x, torch.Tensor):
            continue
        shape, stride = (tuple(value_of(n, values) for n in given) for given in (info.shape, info.stride))
        # the stride of a size of 1 does not matter, and none of an empty tensor
        strides = x.numel() == 0 or all(a == b or n == 1 for n, a, b in zip(shape, stride, x.stride(), strict=True))
        same = (x.dtype, tuple(x.shape), str(x.device)) == (info.dtype, shape, info.device)
        if not same or not strides:
            raise InputError(
                f"input {k} is {x.dtype} {tuple(x.shape)} by {x.stride()} on {x.device}, not {info.dtype} {shape} by {stride} on {info.device}"
            )
        start, end = span(x)
        if end > start and end - x.untyped_storage().data_ptr() > x.untyped_storage().nbytes():
            raise InputError(f"input {k} is larger than its storage of {x.untyped_storage().nbytes()} bytes")


def check_bounds(promises: InputPromises, values: Mapping[str, int]) -> None:
    """The size expressions that must be 0 or more are; a divisor is not 0."""
    for expr in promises.nonnegative:
        if not symbols.free_symbols(expr) <= values.keys():
            raise InputError(f"{expr} depends on data: nothing looks at it before it is used")
        if not 0 <= value_of(expr, values) < LARGEST:
            raise InputError(f"{expr} is not 0 or more")
    for divisor in promises.divisors:
        if symbols.free_symbols(divisor) <= values.keys() and value_of(divisor, values) == 0:
            raise InputError(f"{divisor} is 0, by which a size is divided")


def check_overlaps(written: Sequence[int], inputs: Sequence[Any]) -> None:
    """A tensor that is written shares memory with no other. Otherwise an index could change after its check."""
    strided = torch.strided
    spans = {k: span(x) for k, x in enumerate(inputs) if isinstance(x, torch.Tensor) and x.layout == strided}
    for k in written:
        for j, (start, end) in spans.items():
            if k in spans and j != k and start < spans[k][1] and spans[k][0] < end:
                raise InputError(f"input {k}, which may be written, shares memory with input {j}")


# ---- what the checks ask


def value_of(n: Int, values: Mapping[str, int]) -> int:
    try:
        return symbols.evaluate(n, values)
    except (KeyError, ZeroDivisionError) as error:
        raise InputError(f"the inputs give {n} no value") from error


def is_plain(x: torch.Tensor) -> bool:
    """Whether the tensor's elements are in memory, at its strides."""
    kind = type(x) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer) and x.layout == torch.strided
    if not kind or x.is_nested or x.is_conj() or x.is_neg():
        return False
    try:
        x.untyped_storage().data_ptr()
        x.data_ptr()
    except (RuntimeError, NotImplementedError):  # zeros without memory, or a tensor within vmap
        return False
    return True


def is_packed(x: Any, info: TensorInfo) -> bool:
    """Whether `x` is weights of these sizes that oneDNN packed. @prepare makes such tensors; a file holds none."""
    opaque = type(x) is torch.Tensor and x.is_mkldnn
    return opaque and (x.dtype, tuple(x.shape), str(x.device)) == (info.dtype, info.shape, info.device)


def span(x: torch.Tensor) -> tuple[int, int]:
    """The addresses of the tensor's first byte, and of the byte after its last one; 0 and 0 of an empty tensor."""
    if x.numel() == 0:
        return 0, 0
    extent = 1 + sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True))
    return x.data_ptr(), x.data_ptr() + extent * x.element_size()
