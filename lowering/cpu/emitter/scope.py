"""What is known at one place of a kernel's loops, and how text is written there: values, loops, branches, index arithmetic.

A value that depends on the vector's axis is wide: a vector with one lane for each point. Every other value is a scalar,
computed in the outermost loop that knows all of its operands.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Int
from mlirc.lowering.cpu.math.builder import MlirFunctionText, Value, VectorBuilder
from mlirc.lowering.kernel.axes import Axis, Vector
from mlirc.lowering.kernel.nodes import Access, Linear, Node, is_index
from mlirc.lowering.target import CpuTarget

Body = Callable[[Value, list[Value]], list[Value]]
Range = tuple[Value, Value]  # the first number, and the end


class Scope(ABC):
    """Appends MLIR text to `lines`.

    env            what is known here: values by node, by name of an axis or symbol, and by partial address
    bound          the axes whose index is known here
    mask           the lanes that are inside the iteration space; None if all are
    saved          nodes that an earlier pass over the row has stored, and where this pass reads them back
    reads          in a part of an axis, where reads go whose maps have parts (loops/segments.py)
    nodes          what is computed from here on, operands first
    accesses       the reads and writes whose addresses are needed from here on
    non_temporal   by operand, whether its writes bypass the cache (loops/non_temporal_stores.py)
    late           by node of a reduction, a function that reads its result at the place of use
    stack_bytes, scratch_bytes   what was taken of each (emitter/scratch.py)
    """

    def __init__(self, vector: Vector, target: CpuTarget):
        self.text = MlirFunctionText(target)
        self.lines: list[str] = []
        self.vector, self.lanes = vector, vector.lanes
        self.axis = vector.axis.name if vector.axis and vector.lanes > 1 else ""  # "": no value is wide
        self._builders: dict[tuple[torch.dtype, bool], VectorBuilder] = {}
        self.env: dict[Any, Any] = {}
        self.bound: set[str] = set()
        self.mask: Value | None = None
        self.saved: dict[Node, Access] = {}
        self.reads: dict[Node, Access] = {}
        self.nodes: Sequence[Node] = ()
        self.accesses: Sequence[Access] = ()
        self.non_temporal: dict[Any, Value] = {}
        self.late: dict[Node, Callable[[], Value]] = {}
        self.stack_bytes: int = 0
        self.scratch_bytes: Int = 0

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Restores what was known before at the end of the block."""
        outer = self.env, self.bound, self.mask, self.saved, self.reads, self.non_temporal
        self.env, self.bound = dict(self.env), set(self.bound)
        yield
        self.env, self.bound, self.mask, self.saved, self.reads, self.non_temporal = outer

    # ---- text

    @contextmanager
    def apart(self) -> Iterator[list[str]]:
        """Collects the lines that are written inside in a list of their own."""
        outer, self.lines = self.lines, []
        yield self.lines
        self.lines = outer

    def builder(self, dtype: torch.dtype, wide: bool = False) -> VectorBuilder:
        found = self._builders.get((dtype, wide))
        if found is None or found.lines is not self.lines:
            made = VectorBuilder(self.text, self.lines, dtype, self.lanes if wide else 1)
            found = self._builders[dtype, wide] = made
        return found

    @property
    def index(self) -> VectorBuilder:
        return self.builder(torch.int64)

    def i64(self, value: int) -> Value:
        found = self.text.integers.get(value)
        if found is None:
            found = self.text.integers[value] = self.index.constant(value)
        return found

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
        """[0, 1, 2, ...] as int64."""
        numbers = ", ".join(map(str, range(self.lanes)))
        return self.text.constant(f"dense<[{numbers}]>", f"vector<{self.lanes}xi64>", torch.int64, None)

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

    @contextmanager
    def each(self, lo: Value | Int, hi: Value | Int, step: Value | Int = 1) -> Iterator[Value]:
        """`for index in lo..hi step`: what is written inside is its body."""
        index = Value(self.text.new_name(), torch.int64)
        bounds = [x if isinstance(x, Value) else self.integer(x) for x in (lo, hi, step)]
        self.lines.append("scf.for {} = {} to {} step {} : i64 {{".format(index, *bounds))
        with self.scope():
            yield index
        self.lines.append("}")

    @contextmanager
    def parts(self, within: Range, size: Value | Int) -> Iterator[Range]:
        """A loop over `within`, `size` at a time: what is written inside has the part's first number and its end."""
        step = size if isinstance(size, Value) else self.integer(size)
        with self.each(*within, step) as first:
            yield first, self.index.minimum(self.index.add(first, step), within[1])

    def tiles(self, within: Range, sizes: Sequence[int]) -> Iterator[tuple[Value, int]]:
        """For a `for` loop: as many parts of `within` as there are of the first size, then of the next one in what is left. Each
        iteration writes the code for a size, and has the part's first number."""
        b, (start, end) = self.index, within
        for size in sizes:
            whole = b.mul(b.binary("arith.divui", b.sub(end, start), self.i64(size)), self.i64(size))
            stop = b.add(start, whole)
            with self.each(start, stop, size) as first:
                yield first, size
            start = stop

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

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """What is written inside runs where the condition holds."""
        self.lines.append(f"scf.if {condition} {{")
        with self.scope():
            yield
        self.lines.append("}")

    def either(self, condition: Value, x: Any = True, y: Any = False) -> Iterator[Any]:
        """For a `for` loop of two iterations. The first gives `x`, and writes the branch where the condition holds; the second gives
        `y`, and writes the other branch."""
        for head, choice in ((f"scf.if {condition} {{", x), ("} else {", y)):
            self.lines.append(head)
            with self.scope():
                yield choice
        self.lines.append("}")

    # ---- index arithmetic

    def ceildiv(self, x: Value, y: Value | int) -> Value:
        """x / y, rounded up, for x of at least 0."""
        if not isinstance(y, Value):
            return self.index.binary("arith.divui", self.index.add(x, self.i64(y - 1)), self.i64(y)) if y > 1 else x
        return self.index.binary("arith.divui", self.index.add(x, self.index.sub(y, self.i64(1))), y)

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

    @abstractmethod
    def value(self, node: Node) -> Value:
        """The value of a node here."""

    def operand(self, node: Node, wide: bool) -> Value:
        """The value of a node here, in every lane if `wide`."""
        value = self.value(node)
        return self.splat(value) if wide and not self.is_wide(node) else value

    def is_wide(self, node: Node) -> bool:
        return self.axis in node.dims


class _Integers:
    """symbols.IndexEmitter on a Scope."""

    def __init__(self, scope: Scope, scalars: Sequence[Node], wide: bool):
        self.scope, self.scalars, self.wide = scope, scalars, wide
        self.b = scope.builder(torch.int64, wide)
        self.constant, self.add, self.mul, self.max, self.min = (
            self.b.constant,
            self.b.add,
            self.b.mul,
            self.b.maximum,
            self.b.minimum,
        )

    def symbol(self, name: str) -> Value:
        if is_index(name):
            return self.scope.operand(self.scalars[int(name[1:])], self.wide)
        return self.scope.point(name, self.wide)

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
