"""The memory-level function of a graph as a C function, in LLVM IR text: a host program that needs nothing but memory.

    i64 @graph(ptr %arguments, ptr %results, ptr %symbols, ptr %memory, i64 %threads, ptr %failure)

    arguments   a slot of 8 bytes each: the address of a tensor's first element, or an integer
    results     the address of each result's memory, which is laid out as the result's type says
    symbols     the value of each symbol, in the order that it was written for
    memory      the arena, at a multiple of 64
    failure     where a failed check of an index writes the index, and the size that it was for

It returns 0, or k where the k-th of StandaloneProgram.sites failed. codegen/host/host_program.py has the same ops for Python.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from mlirc.codegen.frame.failures import FailureSite
from mlirc.codegen.frame.frame import Frame, HostBuffer, HostRoot, Number, location_text
from mlirc.codegen.frame.gpus import gpus_of
from mlirc.codegen.host import host_program
from mlirc.codegen.host.invoke import kernel_slots
from mlirc.codegen.host.regions import write_regions
from mlirc.codegen.llvm.ir_text import LlvmFunctionText, SizeText
from mlirc.dialects.control_flow.region_ops import INVOKE, REGION_OPS, nested_functions
from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.memory_ops import arenas
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_info import TensorInfo
from mlirc.dialects.core.tensor_types import info_of
from mlirc.dialects.lazy_dataclass import dataclass

LINE = 64  # bytes that the arena, and what lies in it, is aligned to
SIGNATURE = "i64 @graph(ptr %arguments, ptr %results, ptr %symbols, ptr %memory, i64 %threads, ptr %failure)"
COPY = "void (ptr, ptr, i64, ptr, ptr, ptr, i64)"  # @copy_strided(to, from, rank, sizes, strides of both, bytes of an element)


class NeedsLibrary(ValueError):
    """A graph calls what only PyTorch or its libraries have: `calls` names each call with its source line."""

    def __init__(self, calls: Sequence[str]):
        super().__init__(f"a program without PyTorch cannot make these calls: {'; '.join(calls)}")
        self.calls = list(calls)


@dataclass(frozen=True)
class StandaloneProgram:
    """A graph as a C function in LLVM IR.

    text      LLVM IR: the function, and declarations of the kernels that it calls
    results   of each result: its type, or None for an integer
    arena     bytes of memory that it takes
    sites     what may fail
    kernels   the functions of the module that it calls
    """

    text: str
    results: list[TensorInfo | None]
    arena: Int
    sites: list[FailureSite]
    kernels: list[str]


class DirectText(LlvmFunctionText):
    """Calls kernels by their names: all code lies in one object file."""

    def link(self, name: str) -> str:
        self.links.setdefault(name, len(self.links))
        return f"@{name}"


class StandaloneFrame(Frame):
    """A frame that owns no tensors, and has neither Python nor PyTorch to call."""

    def __init__(self, gpus: Any):
        super().__init__({}, False, gpus)
        self.text = DirectText()
        self.sizes = SizeText(self.text)
        self.exit = "failed"
        self.extra: Int = 0  # bytes of the arena behind what plan-memory planned

    def runtime(self, name: str, *args: str) -> str:
        raise NeedsLibrary([called(self.op, self.location)])

    python_object = shim = runtime  # type: ignore[assignment]


def called(op: str, location: str) -> str:
    return f"{op} ({location})" if location else op


def library_calls(function: Any) -> list[str]:
    """The calls in a lowered function that no standalone program can make, each once."""
    found: dict[str, None] = {}
    for op in operations(function):
        name, what = op.operation.name.rpartition(".")[2], ""
        if name in ("aten", "aten_effect"):
            what = attribute_value(op.attributes["op"])
        elif name == "call" and "kernel" not in op.attributes:
            what = attribute_value(op.attributes["callee"])
        elif op.operation.name == INVOKE or (name not in WRITERS and op.operation.name not in REGION_OPS):
            what = op.operation.name
        if what:
            found[called(what, location_text(op.location))] = None
    return list(found)


def operations(function: Any) -> Iterator[Any]:
    for one in (function, *nested_functions(function)):
        yield from one.regions[0].blocks[0].operations


def standalone_program(function: Any, names: Sequence[str]) -> StandaloneProgram:
    """The program of a lowered `func.func`, which takes the values of these symbols; needs an entered context.

    Raises NeedsLibrary with all calls that it cannot make, and ValueError for a symbol that is not among `names`.
    """
    if calls := library_calls(function):
        raise NeedsLibrary(calls)
    gpus = gpus_of(function)
    if gpus.numbers:
        raise NeedsLibrary(["kernels on a GPU"])
    frame = StandaloneFrame(gpus)
    block = function.regions[0].blocks[0]
    planned = arenas(function)["cpu"] if "mlirc.arena" in function.attributes else 0
    frame.extra = aligned(planned)
    begin(frame, function, names)
    returned = places_of_results(block)

    def write_op(op: Any) -> None:
        name = op.operation.name.rpartition(".")[2]
        frame.op, frame.location = name, location_text(op.location)
        if op.operation.name in REGION_OPS:
            write_regions(frame, op, write_region)
        elif name == "allocate":
            allocate(frame, op, returned)
        else:
            WRITERS[name](frame, op)

    def write_region(region: Any) -> None:
        for op in list(region.regions[0].blocks[0].operations)[:-1]:  # it returns nothing
            write_op(op)

    for op in block.operations:
        write_op(op)
    end = next(op for op in block.operations if op.operation.name == "func.return")
    results = [info_of(x) if isinstance(x.type, ir.RankedTensorType) else None for x in end.operands]
    kernels = list(frame.text.links)
    declared = [f"declare i64 @{name}(ptr)" for name in kernels]
    text = "\n".join([*declared, module_text(frame.text)])
    return StandaloneProgram(text, results, frame.extra, frame.sites, kernels)


def module_text(text: LlvmFunctionText, signature: str = SIGNATURE) -> str:
    """The module of one function that is called by its name."""
    declarations = [f"declare {s.partition(' ')[0]} @{name}{s.partition(' ')[2]}" for name, s in text.declared.items()]
    constants = [f"{name} = private unnamed_addr constant {value}" for value, name in text.globals.items()]
    return "\n".join([*declarations, *constants, text.function(signature), ""])


def aligned(bytes_: Int) -> Int:
    return symbols.floordiv(bytes_ + (LINE - 1), LINE) * LINE


def begin(frame: StandaloneFrame, function: Any, names: Sequence[str]) -> None:
    """Writes what precedes the first op: symbols and arguments."""
    text, block = frame.text, function.regions[0].blocks[0]
    for name in ("site", "index", "size"):
        text.places.append(f"  %{name} = alloca i64")
        text.line(f"store i64 0, ptr %{name}")
    for k, name in enumerate(names):
        frame.sizes.bound[name] = frame.load("i64", frame.at("%symbols", k), "symbol")
    for k, argument in enumerate(block.arguments):
        slot = frame.at("%arguments", k)
        if isinstance(argument.type, ir.RankedTensorType):
            info = info_of(argument)
            if info.layout != "strided":
                raise NeedsLibrary([f"a tensor with the layout {info.layout}"])
            frame.values[argument] = HostBuffer(info, HostRoot("argument", "", frame.load("ptr", slot), k))
        elif str(argument.type) == "i64":
            frame.values[argument] = Number("i", frame.load("i64", slot), slot)
        else:
            raise NeedsLibrary([f"an argument of type {argument.type}"])
    kernel_slots(frame, operations(function))


def places_of_results(block: Any) -> dict[Any, int]:
    """For each buffer that is returned as it is, the position of the result that is computed in the caller's memory."""
    end = list(block.operations)[-1]
    found: dict[Any, int] = {}
    for k, x in enumerate(end.operands):
        found.setdefault(x, k)
    return found


def allocate(frame: StandaloneFrame, op: Any, returned: dict[Any, int]) -> None:
    """A result's memory is the caller's; what is only part of results lies behind the arena's plan, and is copied at the end."""
    info, value = info_of(op.results[0]), op.results[0]
    if value in returned:
        address = frame.load("ptr", frame.at("%results", returned[value]), "result")
    else:
        address = frame.text.value(f"getelementptr i8, ptr %memory, i64 {frame.sizes.of(frame.extra)}", "behind")
        frame.extra = frame.extra + aligned(symbols.maximum(info.extent, 0) * info.dtype.itemsize)
    frame.values[value] = HostBuffer(info, HostRoot("owned", address=address))


def release(frame: StandaloneFrame, op: Any) -> None:
    """Nothing: the memory is the caller's."""


def assign(frame: StandaloneFrame, op: Any) -> None:
    target, value = (frame.values[x] for x in op.operands)
    if not isinstance(target, HostBuffer) or not isinstance(value, HostBuffer) or target.info.dtype != value.info.dtype:
        raise NeedsLibrary([called("a copy to another dtype", frame.location)])
    copy(frame, target.info, frame.address(target), value)


def copy(frame: StandaloneFrame, info: TensorInfo, to: str, value: HostBuffer) -> None:
    """Writes the elements of `value` to memory that is laid out as `info` says."""
    strides = frame.sizes.array(info.stride), frame.sizes.array(value.info.stride)
    arguments = (
        to,
        frame.address(value),
        str(info.rank),
        frame.sizes.array(info.shape),
        *strides,
        str(info.dtype.itemsize),
    )
    frame.text.line(frame.text.call_text("copy_strided", COPY, *arguments))


def finish(frame: StandaloneFrame, op: Any) -> None:
    """func.return: copies what is not in its place yet, and the ends of all paths."""
    text = frame.text
    first: dict[Any, int] = {}
    for k, operand in enumerate(op.operands):
        x, place = frame.values[operand], frame.load("ptr", frame.at("%results", k), "result")
        if isinstance(x, Number):
            text.line(f"store {x.type} {x.value}, ptr {place}")
        elif not (x.root.kind == "owned" and x.whole and first.setdefault(operand, k) == k):
            copy(frame, x.info, place, x)
    text.line("ret i64 0")
    text.block("failed")
    for k, name in enumerate(("index", "size")):
        text.line(f"store i64 {frame.load('i64', f'%{name}')}, ptr {frame.at('%failure', k)}")
    site = frame.load("i64", "%site")
    text.line(f"ret i64 {text.value(f'add i64 {site}, 1')}")


WRITERS: dict[str, Callable[[Any, Any], None]] = {
    "slot": host_program.slot,
    "allocate": partial(allocate, returned={}),
    "release": release,
    "view": host_program.view,
    "size": host_program.number,
    "constant": host_program.number,
    "run": host_program.run,
    "call": host_program.run,
    "assign": assign,
    "return": finish,
}
