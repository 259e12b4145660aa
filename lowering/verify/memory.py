"""Checks where a function's tensors lie: views within their base, slots within the arena, no use after release.

    root    what memory a value is: an argument, a slot, an allocation, what an ATen call gave

What is not proved for all values of the symbols that arguments bind is left as an *obligation*: an expression that has to be at
least 0. It is evaluated before each run of a module from a file (codegen/emit/checked_program.py). That a tensor's sizes are 0 or more is
such an obligation, and a fact for all other proofs. For a graph that PyTorch traced, its guards make sure of both.
"""

from collections.abc import Callable, Iterable
from dataclasses import field
from typing import Any

from mlirc.dialects.control_flow.region_ops import REGION_OPS
from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.graph_signature import GUARDS, argument_attributes
from mlirc.dialects.core.memory_ops import arenas
from mlirc.dialects.core.symbols import Expr, Int, substitute
from mlirc.dialects.core.tensor_types import TensorInfo, info_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.module.rules import StageError, expect, list_attribute, text_attribute
from mlirc.lowering.verify.index_proofs import Facts, Space, counterexample, flat
from mlirc.lowering.verify.kernel import is_dim

WRITERS = {"mlircx.launch", "mlircx.run", "mlircx.call", *REGION_OPS}
TRIED = 64  # of each symbol, for the order of strides
LARGEST = 1 << 47  # bytes of a tensor, or of an arena; frontend/importer/sizes.py leaves what has more to eager


@dataclass
class Root:
    op: Any
    info: TensorInfo
    kind: str  # "argument", "slot", "owned", "value"
    freed: bool = False
    alias_of: "Root | None" = None  # of what an ATen call gave: the memory that it may be


@dataclass
class MemoryVerifier:
    """What is known of a function's tensors, op by op. `demand`: whether what is not shown to be right is wrong."""

    function: Any
    demand: bool
    facts: Facts = ()
    bound: set[str] = field(default_factory=set)  # symbols that have a value, as codegen/host/inputs.py gives it
    obligations: dict[Int, None] = field(default_factory=dict)
    roots: dict[ir.Value, Root] = field(default_factory=dict)
    offsets: dict[ir.Value, Int] = field(default_factory=dict)
    shown: dict[tuple, Any] = field(default_factory=dict)

    def once(self, key: tuple, rule: Callable[[], Any]) -> Any:
        """What `rule` returns; it is not asked again where it made no obligation, for layers that are equal. What is shown stays so: facts are
        only added. `key` holds all that the rule reads."""
        if key in self.shown:
            return self.shown[key]
        count = len(self.obligations)
        result = rule()
        if len(self.obligations) == count:
            self.shown[key] = result
        return result

    def begin(self) -> None:
        arguments = list(self.function.regions[0].blocks[0].arguments)
        tensors = [(k, x) for k, x in enumerate(arguments) if isinstance(x.type, ir.RankedTensorType)]
        for x, named in zip(arguments, argument_attributes(self.function), strict=False):
            if "mlirc.symbol" in named:
                integer(self.function, x)
                self.bind((symbols.parse(ir.StringAttr(named["mlirc.symbol"]).value),))
        self.bind(n for _, x in tensors for n in info_of(x).shape)
        self.guarded()
        for k, argument in tensors:
            info = info_of(argument)
            self.layout(self.function, info, f"argument {k}")
            self.roots[argument], self.offsets[argument] = Root(self.function, info, "argument"), 0
        if "mlirc.arena" in self.function.attributes:
            try:
                sizes = arenas(self.function)
            except ValueError as error:
                raise StageError(self.function, f"mlirc.device_arenas: {error}", "write size expressions") from error
            self.known(self.function, sizes.values())
            for device, size in sizes.items():
                expect(
                    not isinstance(size, int) or 0 <= size < LARGEST,
                    self.function,
                    f"an arena of {size} bytes on {device}",
                    "0 or more",
                )

    def guarded(self) -> None:
        """Takes what the function's guards say as facts; where nobody has made sure of them they are obligations, and those about symbols
        that no argument binds say nothing."""
        if GUARDS not in self.function.attributes:
            return
        for n in list_attribute(self.function, GUARDS):
            names = symbols.free_symbols(n)
            wrong = f"{GUARDS} names a dimension of a kernel"
            expect(not any(map(is_dim, names)), self.function, wrong, "name symbols of arguments")
            if not self.demand:
                self.facts += (n,) if isinstance(n, Expr) else ()
            elif names <= self.bound:
                self.nonnegative(self.function, n, f"{GUARDS} asks for {n} >= 0", "no sizes pass that")

    def bind(self, exprs: Iterable[Int]) -> None:
        """These have values when the function runs: so have symbols that are one of them, or that one is linear in."""
        for n in sorted((n for n in exprs if isinstance(n, Expr)), key=lambda n: not str(n).isidentifier()):
            names = symbols.free_symbols(n)
            linear = all(isinstance(x, str) for monomial in n.terms for x in monomial) and max(map(len, n.terms)) == 1
            if len(names) == 1 and linear:
                self.bound |= names

    def named_by_call(self, op: Any, name: str) -> None:
        """Nothing looks at a number that an ATen call gives, so its symbol's name is to say that it may be anything."""
        size = symbols.parse(name)
        expect(name.isidentifier() and isinstance(size, Expr), op, f"{name} is no symbol", "name the number")
        signed = symbols.known_nonnegative(size) or name.startswith(symbols.NEGATIVE)
        expect(not signed, op, f"{name} says of what sign the number is", "name it u0, which may be any number")
        self.bind((size,))

    def known(self, op: Any, exprs: Iterable[Int]) -> None:
        """Sees to it that all symbols of these have values here, where that is asked for."""
        unknown = {name for n in exprs for name in symbols.free_symbols(n)} - self.bound if self.demand else ()
        expect(not unknown, op, f"nothing binds {', '.join(sorted(unknown))}", "take it as an argument")

    def nonnegative(self, op: Any, goal: Int, wrong: str, advice: str) -> None:
        """Sees to it that an expression in symbols is at least 0."""
        if Space({}, self.facts).nonnegative(goal):
            return
        if isinstance(goal, int):
            raise StageError(op, wrong, advice)
        self.obligation(op, goal)

    def obligation(self, op: Any, goal: Int) -> None:
        self.known(op, (goal,))
        if goal not in self.obligations:
            self.obligations[goal] = None
            self.facts += (goal,)

    def at_points(self, op: Any, space: Space, goal: Int, wrong: str, advice: str) -> None:
        """Sees to it that an expression is at least 0 at every point of a space."""
        if space.nonnegative(goal):
            return
        names = symbols.free_symbols(goal)
        plain = bool(names) and not names & set(space.sizes) and not any("'" in name for name in names)
        left = [goal] if plain else space.left(goal)
        if left is not None:
            for obligation in left:
                self.obligation(op, obligation)
            return
        found = counterexample(space, goal)
        if (found is not None or self.demand) and space.empty():
            return
        if found is not None:
            at = ", ".join(f"{name} = {value}" for name, value in found.items())
            raise StageError(op, f"{wrong}{at and ' where ' + at}", advice)
        if self.demand:
            raise StageError(op, f"{wrong}, as far as can be shown", advice)

    def layout(self, op: Any, info: TensorInfo, what: str, mapped: bool = False) -> None:
        """Sizes and strides of a tensor that begins to exist are numbers that PyTorch allows."""
        if info.layout != "strided":
            return
        self.known(op, (*info.shape, *info.stride))
        for d, (n, s) in enumerate(zip(info.shape, info.stride, strict=True)):
            self.nonnegative(op, n, f"{what}: a size of {n} in dimension {d}", "sizes are 0 or more")
            if n != 1 and not mapped:
                self.nonnegative(op, s, f"{what}: a stride of {s} in dimension {d}", "strides are 0 or more")
        bytes_ = info.extent * info.dtype.itemsize
        expect(not isinstance(bytes_, int) or bytes_ < LARGEST, op, f"{what}: {bytes_} bytes", f"at most {LARGEST}")

    def apart(self, op: Any, info: TensorInfo, what: str) -> None:
        """No two elements of what is written share memory: each dimension's stride is longer than those within it reach."""
        dims = [(n, s) for n, s in zip(info.shape, info.stride, strict=True) if n != 1]
        if not self.demand or any(n == 0 for n, _ in dims):
            return
        tried = dict.fromkeys({name for n in (*info.shape, *info.stride) for name in symbols.free_symbols(n)}, TRIED)
        reach: Int = 0
        for n, s in sorted(dims, key=lambda d: (symbols.substitute(d[1], tried), symbols.substitute(d[0], tried))):
            wrong = f"{what}: elements by strides {list(info.stride)} share memory"
            self.nonnegative(op, s - reach - 1, wrong, "write each element in a place of its own")
            reach = reach + (n - 1) * s

    def op(self, op: Any) -> None:
        name = op.operation.name
        for x in op.operands:
            root = self.roots.get(x)
            expect(
                root is None or not root.freed, op, "uses a buffer that was released", "release it after its last use"
            )
        if name == "mlirc.view":
            self.view(op)
        elif name == "mlirc.slot":
            self.slot(op)
        elif name == "mlirc.release":
            root = self.roots.get(op.operands[0])
            whole = root is not None and root.kind == "owned" and root.info == info_of(op.operands[0])
            expect(whole, op, "releases what the program does not own", "release allocations, and what ATen calls gave")
            assert root is not None
            root.freed = True
        elif name == "func.return":
            self.results(op)
        else:
            if name in WRITERS and (name not in REGION_OPS or "inputs" in op.attributes):
                inputs = attribute_value(op.attributes["inputs"])
                for k, x in enumerate(list(op.operands)[inputs:]):
                    self.apart(op, info_of(x), f"output {k}")
            if name == "mlirc.size":
                self.known(op, (symbols.parse(text_attribute(op, "expr")),))
            aten = name in ("mlircx.aten", "mlircx.aten_effect")
            aliases = list_attribute(op, "aliases") if aten and "aliases" in op.attributes else ()
            if aten and "mlirc.symbol" in op.attributes:
                for x in op.results:
                    integer(op, x)
                self.named_by_call(op, text_attribute(op, "mlirc.symbol"))
            for k, result in enumerate(op.results):
                if not isinstance(result.type, ir.RankedTensorType):
                    continue
                info = info_of(result)
                if aten:  # they are those of a tensor
                    self.bind(info.shape)
                    self.facts += tuple(n for n in info.shape if isinstance(n, Expr))
                self.layout(op, info, f"result {k}")
                if not aten:
                    self.apart(op, info, f"result {k}")
                self.roots[result], self.offsets[result] = (
                    Root(op, info, "owned" if aten or name == "mlirc.allocate" else "value"),
                    0,
                )
                alias = aliases[k] if k < len(aliases) else -1
                if isinstance(alias, int) and alias >= 0:
                    self.roots[result].alias_of = self.roots.get(op.operands[alias])

    def slot(self, op: Any) -> None:
        info, result = info_of(op.results[0]), op.results[0]
        self.layout(op, info, "the slot")
        self.roots[result], self.offsets[result] = Root(op, info, "slot"), 0
        offset = symbols.parse(text_attribute(op, "offset"))
        self.known(op, (offset,))
        self.nonnegative(op, offset, f"an offset of {offset}", "slots lie in the arena")
        if any(n == 0 for n in info.shape):
            return
        size = arenas(self.function).get(info.device, 0)
        end = offset + info.extent * info.dtype.itemsize
        self.nonnegative(op, size - end, f"ends at byte {end} of an arena of {size}", "make mlirc.arena larger")

    def view(self, op: Any) -> None:
        (x,), (out,) = op.operands, op.results
        have, info = info_of(x), info_of(out)
        offset = symbols.parse(text_attribute(op, "offset"))
        self.known(op, (offset,))
        mapped = bool(text_attribute(op, "map")) or (not have.rank and have.dtype == info.dtype and offset == 0)
        self.layout(op, info, "the view", mapped)
        root = self.roots.get(x)
        expect(root is not None, op, "a view of no tensor", "view an argument, or a result")
        assert root is not None
        at = self.offsets[x] + offset
        self.roots[out], self.offsets[out] = root, at
        if any(n == 0 for n in info.shape):
            return
        if mapped:
            map_ = text_attribute(op, "map")
            if self.once(("mapped", map_, offset, have, info), lambda: self.mapped(op, have, info, offset)):
                return
            self.layout(op, info, "the view")
        self.nonnegative(op, at, f"begins {at} elements from the start of its memory", "offsets are 0 or more")
        left = root.info.extent - at - info.extent
        self.nonnegative(
            op,
            left,
            f"ends at element {at + info.extent} of {root.info.extent}",
            "stay within the memory that it is of",
        )

    def mapped(self, op: Any, have: TensorInfo, info: TensorInfo, offset: Int) -> bool:
        """A view whose map says which element of the operand each one is: all of them exist. Whether they are shown to be
        where the strides say."""
        map_ = list_attribute(op, "map")
        sizes = {f"d{k}": n for k, n in enumerate(info.shape)}
        fixed: dict[str, Int] = {name: 0 for name, n in sizes.items() if n == 1}
        known = all(name in sizes for index in map_ for name in symbols.free_symbols(index) if is_dim(name))
        expect(
            known,
            op,
            f"the map {text_attribute(op, 'map')} names a dimension that the result does not have",
            "d0, d1, ...",
        )
        space = Space(sizes, self.facts)
        for index, size in zip(map_, have.shape, strict=True):
            for goal in (index, size - 1 - index):
                self.at_points(
                    op, space, goal, f"its map reaches index {index} in a size of {size}", "stay within the operand"
                )
        there: Int = offset
        for name, stride in zip(sizes, info.stride, strict=True):
            there = there + (0 if name in fixed else symbols.symbol(name) * stride)
        for index, stride, size in zip(map_, have.stride, have.shape, strict=True):
            there = there - (0 if size == 1 else substitute(index, fixed) * stride)
        wrong = f"the map {text_attribute(op, 'map')} is not where strides and offset lead"
        if flat(sizes, there) == 0:
            return True
        if symbols.free_symbols(there) <= set(sizes):
            wrong = f"the map {text_attribute(op, 'map')} is not where strides and offset lead"
            for goal in (there, there * -1):
                self.at_points(op, space, goal, wrong, "make them agree")
            return True
        return False

    def results(self, op: Any) -> None:
        planned = "mlirc.arena" in self.function.attributes
        for k, x in enumerate(op.operands):
            root = self.roots.get(x)
            while root is not None:
                expect(root.kind != "slot" or not planned, op, f"result {k} lies in the arena", "allocate it")
                root = root.alias_of


def integer(op: Any, x: ir.Value) -> None:
    """What carries a symbol is an integer: code computes sizes with it."""
    expect(str(x.type) == "i64", op, f"a symbol is a {x.type}", "a symbol is an i64")
