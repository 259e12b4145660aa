"""Runs a module that anybody may have written: what it is given is compared with what its types promise, before each run.

A compiled graph needs none of that: guards of PyTorch's stand before it.
"""

from collections.abc import Sequence
from typing import Any

import torch

from mlirc.codegen.emit import compile_module
from mlirc.codegen.program import Program
from mlirc.dialects import symbols
from mlirc.dialects.bindings import context, ir
from mlirc.dialects.graph_signature import bind_symbols
from mlirc.dialects.symbols import Int
from mlirc.dialects.tensor_info import TensorInfo
from mlirc.dialects.tensor_types import info_of
from mlirc.lowering.pass_manager import functions
from mlirc.lowering.verify_file import verify_file

LARGEST = 1 << 62  # of sizes and of what is computed of them


class InputError(ValueError):
    """The inputs are not those that a module is for."""


class CheckedProgram:
    """program(inputs) -> results of a module's function, in the lowered form, that is verified here.

    Raises StageError where the module is wrong; InputError for inputs that do not fit.
    """

    def __init__(self, module: Any, entry: str = "graph"):
        with context():
            duties = verify_file(module, runs=True)
            self.function = next(f for f in functions(module) if f.name.value == entry)
            self.duties = duties.get(entry, ())
            self.divisors = divisors(self.function)
            arguments = self.function.regions[0].blocks[0].arguments
            self.infos = [info_of(x) if isinstance(x.type, ir.RankedTensorType) else None for x in arguments]
            self.scalars = ["mlirc.scalar" in named for named in (self.function.arg_attrs if len(arguments) else ())]
            self.module = module
            self.program: Program = compile_module(module, entry=entry)

    def __call__(self, inputs: list[Any]) -> list[Any]:
        check_inputs(self.function, self.infos, self.scalars, self.duties, inputs, self.divisors)
        with torch.no_grad():
            return self.program(inputs)


def check_inputs(
    function: Any,
    infos: Sequence[TensorInfo | None],
    scalars: Sequence[bool],
    duties: Sequence[Int],
    inputs: Sequence[Any],
    divisors: Sequence[Int] = (),
) -> None:
    """Raises InputError."""
    if len(inputs) != len(infos):
        raise InputError(f"{len(inputs)} inputs for {len(infos)} arguments")
    for k, (info, x) in enumerate(zip(infos, inputs, strict=True)):
        number = info is None or scalars[k]
        if number != (not isinstance(x, torch.Tensor)) or not isinstance(x, torch.Tensor | int | float):
            raise InputError(f"input {k} is a {type(x).__name__}")
        if isinstance(x, int) and not isinstance(x, bool) and not -LARGEST < x < LARGEST:
            raise InputError(f"input {k} is {x}")
        if isinstance(x, torch.Tensor) and info is not None and x.dim() != info.rank:
            raise InputError(f"input {k} has {x.dim()} dimensions, not {info.rank}")
    with context():
        values = bind_symbols(function, inputs)
    for k, (info, x) in enumerate(zip(infos, inputs, strict=True)):
        if info is None or not isinstance(x, torch.Tensor):
            continue
        shape, stride = (tuple(_value(n, values) for n in given) for given in (info.shape, info.stride))
        strides = x.numel() == 0 or all(a == b or n == 1 for n, a, b in zip(shape, stride, x.stride(), strict=True))
        same = (x.dtype, tuple(x.shape), str(x.device)) == (info.dtype, shape, info.device)
        if not same or not strides or x.layout != torch.strided or x.is_conj() or x.is_neg():
            raise InputError(
                f"input {k} is {x.dtype} {tuple(x.shape)} by {x.stride()}, not {info.dtype} {shape} by {stride}"
            )
    for duty in duties:
        if symbols.free_symbols(duty) <= values.keys():
            if not 0 <= _value(duty, values) < LARGEST:
                raise InputError(f"{duty} is not 0 or more")
        else:
            raise InputError(f"{duty} depends on data: nothing looks at it before it is used")

    for divisor in divisors:
        if symbols.free_symbols(divisor) <= values.keys() and _value(divisor, values) == 0:
            raise InputError(f"{divisor} is 0, by which a size is divided")


def divisors(function: Any) -> list[Int]:
    """What the function's own size expressions divide by and is not a number: Python raises where it is 0, processors trap."""
    found: dict[Int, None] = {}
    waiting = [n for op in operations(function) for n in expressions(op)]
    while waiting:
        n = waiting.pop()
        if isinstance(n, int):
            continue
        for atom in (atom for monomial in n.terms for atom in monomial if not isinstance(atom, str)):
            name, a, b = atom
            waiting += [a, b]
            if name in ("floordiv", "mod") and not isinstance(b, int):
                found[b] = None
    return list(found)


def operations(op: Any) -> list[Any]:
    """The op and all within it."""
    inside = [x for region in op.regions for block in region.blocks for x in block.operations]
    return [op, *(x for each in inside for x in operations(each))]


def expressions(op: Any) -> list[Int]:
    """Of the texts among its attributes that are lists of size expressions."""
    texts = [a.value for a in (ir.StringAttr(a) for a in op.attributes.values() if isinstance(a, ir.StringAttr))]
    found: list[Int] = []
    for text in texts:
        if "//" in text or "%" in text:
            try:
                found += symbols.parse_list(text)
            except (ValueError, SyntaxError):
                continue
    return found


def _value(n: Int, values: dict[str, int]) -> int:
    try:
        return symbols.evaluate(n, values)
    except (KeyError, ZeroDivisionError) as error:
        raise InputError(f"the inputs give {n} no value") from error
