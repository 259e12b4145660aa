"""Runs a module from an untrusted file: compares its inputs with what its types promise, before each run.

A compiled graph needs no such comparison: PyTorch's guards made it.
"""

from collections.abc import Sequence
from typing import Any

import torch

from mlirc.codegen.emit.emit import compile_module
from mlirc.codegen.host.program import Program
from mlirc.dialects.control_flow.region_ops import REGION_OPS, nested_functions, region_functions
from mlirc.dialects.core import aten_arguments, symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.graph_signature import bind_symbols
from mlirc.dialects.core.memory_ops import arenas
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_info import TensorInfo
from mlirc.dialects.core.tensor_types import info_of
from mlirc.lowering.files.file import verify_file, verify_plan
from mlirc.lowering.module.counted import counted
from mlirc.lowering.module.forms import ATEN
from mlirc.lowering.module.rules import expect
from mlirc.lowering.pipeline.pass_manager import functions
from mlirc.lowering.verify.regions import may_write

LARGEST = 1 << 62  # of sizes and of what is computed of them
MOST = 1 << 47  # bytes of a tensor, or of an arena
SYMBOL = "mlirc.symbol"


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
            self.obligations = obligations.get(entry, ())
            self.divisors = divisors(self.function)
            arguments = self.function.regions[0].blocks[0].arguments
            self.infos = [info_of(x) if isinstance(x.type, ir.RankedTensorType) else None for x in arguments]
            self.obligations = (*self.obligations, *limits(self.function))
            self.written = written_arguments(self.function)
            self.scalars = ["mlirc.scalar" in named for named in (self.function.arg_attrs if len(arguments) else ())]
            self.module = module
            self.plans: set[tuple[int, ...]] = set()  # values of the symbols at which the memory plan was verified
            self.program: Program = compile_module(module, entry=entry, profile=profile)

    def __call__(self, inputs: list[Any]) -> list[Any]:
        check_inputs(self.function, self.infos, self.scalars, self.obligations, inputs, self.divisors)
        check_overlaps(self.written, inputs)
        with context():
            values = bind_symbols(self.function, inputs)
            if values and tuple(values.values()) not in self.plans:
                verify_plan(self.function, values)
                self.plans.add(tuple(values.values()))
        with torch.no_grad():
            return self.program(inputs)


def check_inputs(
    function: Any,
    infos: Sequence[TensorInfo | None],
    scalars: Sequence[bool],
    obligations: Sequence[Int],
    inputs: Sequence[Any],
    divisors: Sequence[Int] = (),
) -> None:
    """Raises InputError."""
    if len(inputs) != len(infos):
        raise InputError(f"{counted(len(inputs), 'input')} for {counted(len(infos), 'argument')}")
    for k, (info, x) in enumerate(zip(infos, inputs, strict=True)):
        number = info is None or scalars[k]
        if info is not None and info.layout != "strided":
            if not packed(x, info):
                raise InputError(f"input {k} is no {info.shape} of {info.dtype} that oneDNN packed")
        elif isinstance(x, torch.Tensor):
            if number or info is None or not plain(x):
                raise InputError(f"input {k} is a {type(x).__name__} of a kind that is not taken there")
            if x.dim() != info.rank:
                raise InputError(f"input {k} has {x.dim()} dimensions, not {info.rank}")
        elif not number or not isinstance(x, int | float) or (info is None and not isinstance(x, int)):
            raise InputError(f"input {k} is a {type(x).__name__}")
        elif isinstance(x, int) and not -LARGEST < x < LARGEST:
            raise InputError(f"input {k} is {x}")
    with context():
        values = bind_symbols(function, inputs)
        for k, named in enumerate(function.arg_attrs if len(inputs) else ()):
            if SYMBOL in named:
                size = symbols.parse(ir.StringAttr(named[SYMBOL]).value)
                if _value(size, values) != inputs[k]:
                    raise InputError(f"input {k} is {inputs[k]}, and {size} is {_value(size, values)}")
    for name, value in values.items():
        if value < 0 and symbols.known_nonnegative(symbols.symbol(name)):
            raise InputError(f"the inputs give {name} the value {value}")
    for k, (info, x) in enumerate(zip(infos, inputs, strict=True)):
        if info is None or info.layout != "strided" or not isinstance(x, torch.Tensor):
            continue
        shape, stride = (tuple(_value(n, values) for n in given) for given in (info.shape, info.stride))
        strides = x.numel() == 0 or all(a == b or n == 1 for n, a, b in zip(shape, stride, x.stride(), strict=True))
        same = (x.dtype, tuple(x.shape), str(x.device)) == (info.dtype, shape, info.device)
        if not same or not strides:
            raise InputError(
                f"input {k} is {x.dtype} {tuple(x.shape)} by {x.stride()} on {x.device}, not {info.dtype} {shape} by {stride} on {info.device}"
            )
        start, end = span(x)
        if end > start and end - x.untyped_storage().data_ptr() > x.untyped_storage().nbytes():
            raise InputError(f"input {k} is larger than its storage of {x.untyped_storage().nbytes()} bytes")
    for obligation in obligations:
        if symbols.free_symbols(obligation) <= values.keys():
            if not 0 <= _value(obligation, values) < LARGEST:
                raise InputError(f"{obligation} is not 0 or more")
        else:
            raise InputError(f"{obligation} depends on data: nothing looks at it before it is used")

    for divisor in divisors:
        if symbols.free_symbols(divisor) <= values.keys() and _value(divisor, values) == 0:
            raise InputError(f"{divisor} is 0, by which a size is divided")


def divisors(function: Any) -> list[Int]:
    """The symbolic divisors in the function's size expressions. Where one is 0, Python raises and a processor traps."""
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
    """The size expressions in an op's text attributes."""
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


def plain(x: torch.Tensor) -> bool:
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


def packed(x: Any, info: TensorInfo) -> bool:
    """Whether `x` is weights of these sizes that oneDNN packed. @prepare makes such tensors; a file holds none."""
    opaque = type(x) is torch.Tensor and x.is_mkldnn
    return opaque and (x.dtype, tuple(x.shape), str(x.device)) == (info.dtype, info.shape, info.device)


def span(x: torch.Tensor) -> tuple[int, int]:
    """The addresses of the tensor's first byte, and of the byte after its last one."""
    if x.numel() == 0:
        return 0, 0
    extent = 1 + sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True))
    return x.data_ptr(), x.data_ptr() + extent * x.element_size()


def limits(function: Any) -> list[Int]:
    """MOST less the bytes of each tensor and of each arena, which must be 0 or more: 64 bits then suffice for arithmetic on them.
    Tensors whose sizes depend on data are left out: PyTorch has allocated them."""
    block = function.regions[0].blocks[0]
    everywhere = (function, *nested_functions(function))
    blocks = [one.regions[0].blocks[0] for one in everywhere]
    values = [x for b in blocks for x in (*b.arguments, *(y for op in b.operations for y in op.results))]
    infos = [info_of(x) for x in values if isinstance(x.type, ir.RankedTensorType)]
    found = {info.extent * info.dtype.itemsize for info in infos}
    for one in everywhere:
        if "mlirc.arena" in one.attributes:
            found |= set(arenas(one).values())
    bound = {name for x in block.arguments for name in names_of(x)}
    bound |= {name for named in (function.arg_attrs if len(block.arguments) else ()) for name in named_symbols(named)}
    return [MOST - n for n in found if not isinstance(n, int) and symbols.free_symbols(n) <= bound]


def names_of(x: ir.Value) -> set[str]:
    """The symbols in an argument's sizes."""
    shape = info_of(x).shape if isinstance(x.type, ir.RankedTensorType) else ()
    return {name for n in shape for name in symbols.free_symbols(n)}


def named_symbols(named: Any) -> set[str]:
    """The symbols whose values are arguments of @graph."""
    return symbols.free_symbols(symbols.parse(ir.StringAttr(named[SYMBOL]).value)) if SYMBOL in named else set()


def written_arguments(function: Any) -> tuple[int, ...]:
    """Arguments whose memory an op of the memory form may write. Raises StageError for a region that writes what it may only read."""
    block = function.regions[0].blocks[0]
    of = {x: {k} for k, x in enumerate(block.arguments)}
    found: set[int] = set()
    for op in block.operations:
        name = op.operation.name
        reached = set[int]().union(*(of.get(x, set()) for x in op.operands))
        if name in ATEN and aten_arguments.resolve(attribute_value(op.attributes["op"]))._schema.is_mutable:
            found |= reached
        elif "inputs" in op.attributes:
            outputs = list(op.operands)[attribute_value(op.attributes["inputs"]) :]
            found |= set[int]().union(*(of.get(x, set()) for x in outputs))
        if name in REGION_OPS:
            for nested, allowed in zip(region_functions(op), may_write(op), strict=True):
                for k in written_arguments(nested):
                    expect(allowed[k], op, f"@{nested.name.value} overwrites argument {k}", "it may only read that")
        if name == "mlirc.view" or name in ATEN:
            of |= dict.fromkeys(op.results, reached)
    return tuple(sorted(found))


def check_overlaps(written: Sequence[int], inputs: Sequence[Any]) -> None:
    """Raises InputError if a tensor that is written shares memory with another. Otherwise an index could change after its check."""
    strided = torch.strided
    spans = {k: span(x) for k, x in enumerate(inputs) if isinstance(x, torch.Tensor) and x.layout == strided}
    for k in written:
        for j, (start, end) in spans.items():
            if k in spans and j != k and start < spans[k][1] and spans[k][0] < end:
                raise InputError(f"input {k}, which may be written, shares memory with input {j}")
