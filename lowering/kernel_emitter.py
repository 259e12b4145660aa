"""Values of a kernel as MLIR text: what is known at the current point of the loops, index arithmetic, scalar work.

A value is wide, a vector with one lane for each point, when it depends on the vector's axis; every other value is a
scalar, computed in the outermost loop where all that it depends on is known.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from mlirc.dialects import symbols
from mlirc.dialects.symbols import Int
from mlirc.lowering.cpu_target import CpuTarget
from mlirc.lowering.kernel_axes import Axis, Vector
from mlirc.lowering.kernel_memory import load, pointer
from mlirc.lowering.kernel_nodes import Access, Linear, Node, is_index
from mlirc.lowering.vector_builder import FunctionText, Value, VectorBuilder

Body = Callable[[Value, list[Value]], list[Value]]


class Emitter:
    """Appends to `lines`. `env` maps nodes, names of axes and symbols, and partial addresses to values, in this scope.

    bound   the axes whose index is known here
    mask    the lanes that are inside the space, or None where all are
    """

    def __init__(self, vector: Vector, target: CpuTarget):
        self.text = FunctionText(target)
        self.lines: list[str] = []
        self.vector, self.lanes = vector, vector.lanes
        self.axis = vector.axis.name if vector.axis and vector.lanes > 1 else ""  # "": no value is wide
        self.env: dict[Any, Any] = {}
        self.bound: set[str] = set()
        self.mask: Value | None = None
        self.kept: dict[Node, Access] = {}  # value -> where to read it back from, in this pass
        self.nodes: Sequence[Node] = ()  # what is computed from here on, operands first
        self.accesses: Sequence[Access] = ()  # and reached
        self.streams: dict[Any, Value] = {}  # operand -> whether it is written past the cache (kernel_streams.py)
        self.late: dict[Node, Callable[[], Value]] = {}  # a reduction's result, where it must be fetched
        self.stack_bytes: int = 0  # taken (kernel_scratch.py)
        self.scratch_bytes: Int = 0

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What becomes known inside is forgotten at the end."""
        saved = self.env, self.bound, self.mask, self.kept
        self.env, self.bound = dict(self.env), set(self.bound)
        yield
        self.env, self.bound, self.mask, self.kept = saved

    # ---- text

    @contextmanager
    def apart(self) -> Iterator[list[str]]:
        """What is written inside goes to a list of its own."""
        saved, self.lines = self.lines, []
        yield self.lines
        self.lines = saved

    def builder(self, dtype: torch.dtype, wide: bool = False) -> VectorBuilder:
        return VectorBuilder(self.text, self.lines, dtype, self.lanes if wide else 1)

    @property
    def index(self) -> VectorBuilder:
        return self.builder(torch.int64)

    def i64(self, value: int) -> Value:
        return self.index.constant(value)

    def splat(self, x: Value) -> Value:
        """A scalar in every lane."""
        known = self.text.constant_values.get(x)
        if known is not None:
            return self.builder(x.dtype, True).constant(known, x.dtype)
        key = ("splat", x)
        if key not in self.env:
            narrow, wide = self.builder(x.dtype), self.builder(x.dtype, True)
            # without bfloat16 instructions LLVM makes floats of such scalars, and calls a library to round them again
            bits = narrow.bitcast(x, torch.int16) if x.dtype == torch.bfloat16 else x
            types = narrow.type_text(bits.dtype), wide.type_text(bits.dtype)
            every = wide.emit(f"vector.broadcast {bits} : {types[0]} to {types[1]}", bits.dtype)
            self.env[key] = wide.bitcast(every, x.dtype) if bits.dtype != x.dtype else every
        return self.env[key]

    def lane_numbers(self) -> Value:
        numbers = ", ".join(map(str, range(self.lanes)))
        return self.text.constant(f"dense<[{numbers}]>", f"vector<{self.lanes}xi64>", torch.int64, -1)

    def loop(
        self, lo: Value, hi: Value, step: Value, carried: Sequence[Value], types: Sequence[str], body: Body
    ) -> list[Value]:
        """`for index in lo..hi step`: `body(index, carried)` gives the next `carried`; the last ones are returned."""
        name, result = self.text.new_name(), self.text.new_name()
        arguments = [Value(self.text.new_name(), x.dtype) for x in carried]
        head = f"scf.for {name} = {lo} to {hi} step {step}"
        if carried:
            starts = ", ".join(f"{a} = {x}" for a, x in zip(arguments, carried, strict=True))
            head = f"{result}:{len(carried)} = {head} iter_args({starts}) -> ({', '.join(types)})"
        self.lines.append(f"{head} : i64 {{")
        with self.scope():
            last = body(Value(name, torch.int64), arguments)
        if carried:
            self.lines.append(f"scf.yield {', '.join(last)} : {', '.join(types)}")
        self.lines.append("}")
        return [Value(f"{result}#{k}", x.dtype) for k, x in enumerate(carried)]

    def repeat(self, start: Value, more: Callable[[Value], Value], body: Callable[[Value], Value]) -> Value:
        """`x = start; while more(x): x = body(x)`; what x is then."""
        asked, given, last = (Value(self.text.new_name(), torch.int64) for _ in range(3))
        self.lines.append(f"{last} = scf.while ({asked} = {start}) : (i64) -> i64 {{")
        with self.scope():
            self.lines.append(f"scf.condition({more(asked)}) {asked} : i64")
        self.lines.append(f"}} do {{\n^bb0({given}: i64):")
        with self.scope():
            self.lines.append(f"scf.yield {body(given)} : i64")
        self.lines.append("}")
        return last

    def choose(self, condition: Value, then: Callable[[], None], otherwise: Callable[[], None]) -> None:
        for head, body in ((f"scf.if {condition} {{", then), ("} else {", otherwise)):
            self.lines.append(head)
            with self.scope():
                body()
        self.lines.append("}")

    # ---- index arithmetic

    def integer(self, value: Int, scalars: Sequence[Node] = (), wide: bool = False) -> Value:
        """A size expression in axes, symbols and the values i0, i1, ... of `scalars`, as i64."""
        return symbols.emit(value, _Integers(self, scalars, wide))

    def linear(self, linear: Linear, wide: bool) -> Value:
        """A Linear at the current point."""
        b = self.builder(torch.int64, wide)
        total = self.integer(linear.rest, wide=wide)
        for dim, stride in linear.strides.items():
            step = self.integer(stride)
            term = b.mul(self.point(dim, wide), self.splat(step) if wide else step)
            total = b.add(total, term)
        return total

    def point(self, name: str, wide: bool) -> Value:
        """The index of an axis (of each lane), or a symbol's value."""
        value = self.env[name]
        if not wide:
            return value
        if name != self.axis:
            return self.splat(value)
        key = ("lanes", value)
        if key not in self.env:
            self.env[key] = self.builder(torch.int64, True).add(self.splat(value), self.lane_numbers())
        return self.env[key]

    def position(self, axes: Sequence[Axis], wide: bool) -> Value:
        """The row-major position among `axes`."""
        b, total, running = self.builder(torch.int64, wide), None, 1
        for axis in reversed(axes):
            index = self.point(axis.name, wide)
            stride = self.integer(running)
            term = index if running == 1 else b.mul(index, self.splat(stride) if wide else stride)
            total = term if total is None else b.add(total, term)
            running = running * axis.size
        return b.constant(0) if total is None else total

    # ---- values

    def is_wide(self, node: Node) -> bool:
        return self.axis in node.dims

    def enter(self, *names: str) -> None:
        """The index of these axes is known from here on: emit what that makes computable."""
        self.bound.update(names)
        for node in self.nodes:
            if node.kind not in ("constant", "reduce") and node not in self.env and node.dims <= self.bound:
                self.value(node)
        for access in self.accesses:
            pointer(self, access)

    def operand(self, node: Node, wide: bool) -> Value:
        value = self.value(node)
        return self.splat(value) if wide and not self.is_wide(node) else value

    def value(self, node: Node) -> Value:
        """The value of a node here; a scan's or reduction's must have been put into `env`."""
        if node not in self.env:
            self.env[node] = self.compute(node, self.is_wide(node))
        return self.env[node]

    def compute(self, node: Node, wide: bool) -> Value:
        if node in self.kept:
            return load(self, self.kept[node], wide)
        if node.kind == "read":
            return load(self, node.access, wide)
        if node.kind == "constant":
            return self.builder(node.dtype).constant(node.attributes["value"], node.dtype)
        if node.kind == "size":
            return self.linear(node.size, wide)
        if node.kind == "check_index":
            return self.check_index(node, wide)
        if node in self.late:
            return self.late[node]()
        if node.kind in ("reduce", "scan"):
            raise KeyError(f"the {node.kind} {node.attributes['kind']} is used before it is done")
        operands = [self.operand(x, wide) for x in node.operands]
        if node.kind in ("cast", "bitcast"):
            return getattr(self.builder(node.dtype, wide), node.kind)(operands[0], node.dtype)
        return node.cls.scalar(self.builder(computed_dtype(node), wide), *operands, **node.attributes)

    def check_index(self, node: Node, wide: bool) -> Value:
        """The index, wrapped; a lane outside is reported by a call of @bad_index and becomes 0."""
        b = self.builder(torch.int64, wide)
        x = self.operand(node.operands[0], wide)
        size = self.linear(node.size, wide and self.axis in node.size.dims)
        sizes = self.splat(size) if wide and self.axis not in node.size.dims else size
        zero = b.constant(0)
        wrapped = b.select(b.lt(x, zero), b.add(x, sizes), x) if node.attributes["wraps"] else x
        # as an unsigned number a negative one is larger than any size
        good = b.emit(f"arith.cmpi ult, {wrapped}, {sizes} : {b.type_text(torch.int64)}", torch.bool)
        bad = b.not_(good)
        if wide and self.mask is not None:
            bad = b.and_(bad, self.mask)
        scalar = self.index
        any_bad, worst = bad, x
        if wide:
            any_bad = scalar.emit(f"vector.reduction <or>, {bad} : {b.type_text(torch.bool)} into i1", torch.bool)
        self.lines.append(f"scf.if {any_bad} {{")
        if wide:
            shown = b.select(bad, x, b.constant(torch.iinfo(torch.int64).min))
            worst = scalar.emit(f"vector.reduction <maxsi>, {shown} : {b.type_text(torch.int64)} into i64", torch.int64)
        shown_size = size
        if sizes is size and wide:
            shown_size = scalar.emit(f"vector.extract {size}[0] : i64 from {b.type_text(torch.int64)}", torch.int64)
        number = scalar.emit(f"arith.constant {node.check} : i64", torch.int64)
        self.lines.append(
            f"llvm.call @KERNEL_bad_index(%frame, {number}, {worst}, {shown_size}) : (!llvm.ptr, i64, i64, i64) -> ()"
        )
        self.lines.append("}")
        self.env["checked", node] = good
        return b.select(good, wrapped, zero)


class _Integers:
    """symbols.IndexEmitter on an Emitter."""

    def __init__(self, emitter: Emitter, scalars: Sequence[Node], wide: bool):
        self.emitter, self.scalars, self.wide = emitter, scalars, wide
        self.b = emitter.builder(torch.int64, wide)
        self.constant, self.add, self.mul, self.max, self.min = (
            self.b.constant,
            self.b.add,
            self.b.mul,
            self.b.maximum,
            self.b.minimum,
        )

    def symbol(self, name: str) -> Value:
        if is_index(name):
            return self.emitter.operand(self.scalars[int(name[1:])], self.wide)
        return self.emitter.point(name, self.wide)

    def floordiv(self, x: Value, y: Value) -> Value:
        """Rounded down; y is positive."""
        b, known = self.b, self.b.constant_value(y)
        if isinstance(known, int) and known & (known - 1) == 0:
            return b.shr(x, b.constant(known.bit_length() - 1))
        if self.wide:
            # processors divide no vectors of integers; indices are exact in float64
            real = b.div(b.cast(x, torch.float64), b.cast(y, torch.float64))
            return b.cast(b.floor(real), torch.int64)
        quotient = b.binary("arith.divsi", x, y)
        below = b.lt(b.sub(x, b.mul(quotient, y)), b.constant(0))
        return b.select(below, b.sub(quotient, b.constant(1)), quotient)

    def mod(self, x: Value, y: Value) -> Value:
        known = self.b.constant_value(y)
        if isinstance(known, int) and known & (known - 1) == 0:
            return self.b.and_(x, self.b.constant(known - 1))
        return self.b.sub(x, self.b.mul(self.floordiv(x, y), y))


def computed_dtype(node: Node) -> torch.dtype:
    """The dtype that an op's scalar body computes in: its first operand's that does not count as a boolean."""
    words = node.cls.computes
    for k, operand in enumerate(node.operands):
        if (words[k] if isinstance(words, tuple) else words) != "bool":
            return operand.dtype
    return torch.bool
