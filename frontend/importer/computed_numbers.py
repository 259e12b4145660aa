"""Integers and floats that Python computes from a graph's arguments before the call, because size expressions cannot express them.

before:  graph(n, x):     a = abs(n);  b = n / 2;  return x * a + b
after:   numbers(n, x):   abs(n), n / 2            the nodes themselves, called before each run
         graph(n, x, a, b):                        return x * a + b

So each has the value, and the error, that Python gives. Which numbers are compiled code's to hold is in number_limits.py: a call
with others runs the whole graph in eager, and is counted.
"""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import torch
from sympy.core.function import Application as Function
from torch.fx import Graph, GraphModule, Node

from mlirc.codegen.process.signal_handlers import raise_of_handler
from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Expr, Int
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.frontend import statistics
from mlirc.frontend.errors import UnsupportedGraph
from mlirc.frontend.importer.number_limits import INDEX, INT64, ROOM, Limit, limit_of_uses, needs_check
from mlirc.frontend.importer.sizes import COMPUTED, is_ragged_size, scalars, size
from mlirc.frontend.torch_compat.dynamo.symbolic_shapes import SYMPY_INTERP, PythonPrinter
from mlirc.frontend.torch_compat.dynamo.trees import tree_leaves

log = logging.getLogger("mlirc")
aten = torch.ops.aten
SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
OF_TENSORS = (aten.sym_size.int, aten.sym_stride.int, aten.sym_numel.default, aten.sym_storage_offset.default)
BEYOND = "a call with a number beyond what compiled code holds"


@dataclass
class Numbers:
    """A graph parted in its numbers and its tensors.

    graph     the tensors: takes the arguments of the whole graph, and then the numbers
    run       (arguments) -> [numbers that `graph` takes, and numbers that are only checked]
    count     how many the former are
    limits    (position among the arguments, its limit): what is checked of arguments
    checked   what is checked of what `run` gives
    sizes     what is checked of sizes
    """

    graph: GraphModule
    run: Callable[[Sequence[Any]], Sequence[Any]] | None
    count: int
    limits: list[tuple[int, Limit]]
    checked: list[Limit]
    sizes: "SizeExpressions"

    def around(
        self, compiled: Callable[[list], list], eager: Callable[[], Callable[[list], list]], report: Any
    ) -> Callable[[list], list]:
        """The whole graph behind AOTAutograd's boxed convention; `compiled` is `graph` behind it, eager() is the whole graph."""

        def call(args: list) -> list:
            made = self.made(args)
            if made is None:
                statistics.record_call(report, BEYOND)
                log.info("%s: it runs in eager", BEYOND)
                return eager()(args)
            args += made
            return compiled(args)

        call._boxed_call = True  # type: ignore[attr-defined]
        call.report = report  # type: ignore[attr-defined]
        call.within = compiled  # type: ignore[attr-defined]
        return call

    def made(self, args: Sequence[Any]) -> list[Any] | None:
        """The numbers that `graph` takes; None where compiled code cannot run with what there is."""
        for position, limit in self.limits:
            if not limit.holds(args[position]):
                return None
        found: Sequence[Any] = ()
        if self.run is not None:
            try:
                found = self.run(args)
            except Exception as error:  # eager raises it, if it is Python's
                raise_of_handler(error)
                return None
        for limit, value in zip(self.checked, found, strict=True):
            if not limit.holds(value):
                return None
        return list(found[: self.count]) if self.sizes.hold([*args, *found]) else None


def part_numbers(gm: GraphModule) -> Numbers | None:
    """None where there is nothing to compute or check. Raises UnsupportedGraph for what neither part can hold."""
    numbers = _NumberGraph(gm)
    return numbers.finish() if numbers.has_numbers else None


@dataclass
class SizeExpressions:
    """Size expressions that could overflow, and where the symbols in them come from: (argument or computed number, dimension or None).

    They are evaluated only where a symbol is larger than `safe`, below which none of them can.
    """

    expressions: list[Expr] = field(default_factory=list)
    sources: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    safe: int = 0

    def hold(self, args: Sequence[Any]) -> bool:
        if not self.expressions:
            return True
        values = {n: args[k] if d is None else args[k].shape[d] for n, (k, d) in self.sources.items()}
        if all(-self.safe <= v <= self.safe for v in values.values()):
            return True
        try:
            return all(abs(symbols.evaluate(e, values)) < 2**62 for e in self.expressions)
        except ZeroDivisionError:
            return False


class _NumberGraph:
    """known: nodes whose numbers follow from the arguments."""

    def __init__(self, gm: GraphModule):
        self.gm = gm
        self.placeholders = gm.graph.find_nodes(op="placeholder")
        self.known: dict[Node, None] = {}
        self.tensors = {n for n in self.placeholders if isinstance(n.meta.get("val"), torch.Tensor)}
        self.ints: dict[str, int] = {}  # symbols that are arguments, and no tensor's size
        self.sources: dict[str, tuple[int, int | None]] = {}
        self.room: dict[str, Limit] = {}  # of symbols that other sizes are computed of
        for node in gm.graph.nodes:
            if self.is_known(node):
                self.known[node] = None
        self.bind()
        self.has_numbers = bool(self.ints) or any(n.op == "call_function" for n in self.known) or self.has_computed()

    def is_known(self, node: Node) -> bool:
        value = node.meta.get("val")
        if not isinstance(value, SYMBOLIC):
            return False
        if node.op == "placeholder":
            return True
        if node.op != "call_function" or any(s.name.startswith(("u", "zu")) for s in value.node.expr.free_symbols):
            return False
        inputs = node.all_input_nodes
        return all(n in self.known or (n in self.tensors and node.target in OF_TENSORS) for n in inputs)

    def has_computed(self) -> bool:
        """Whether a tensor has a size that Python computes, and no node does: `arange(0.5, n)`."""
        sizes = (s for n in self.gm.graph.nodes for s in scalars(n.meta.get("val")) if isinstance(s, torch.SymInt))
        try:
            return any(s.node.expr.has(Function) and symbols.free_symbols(size(s)) & COMPUTED.keys() for s in sizes)
        except UnsupportedGraph:
            return False  # the import says so again, with the user's line

    def bind(self) -> None:
        """Finds, for each symbol, the argument that gives its value."""
        for k, node in enumerate(self.placeholders):
            value = node.meta.get("val")
            if isinstance(value, torch.Tensor) and value.layout is torch.strided:
                for d, n in enumerate(value.shape):
                    if isinstance(n, torch.SymInt) and isinstance(n := size(n), Expr) and str(n).isidentifier():
                        self.sources.setdefault(str(n), (k, d))
        for k, node in enumerate(self.placeholders):
            value = node.meta.get("val")
            if is_ragged_size(node):  # what stands for it in a call is no number
                continue
            if isinstance(value, torch.SymInt) and isinstance(n := size(value), Expr) and str(n).isidentifier():
                if str(n) not in self.sources:
                    self.ints[str(n)] = k
                self.sources[str(n)] = (k, None)

    # ---- what is computed

    def finish(self) -> Numbers | None:
        used = self.used()
        numbers: dict[Node, type] = {}
        symbols_used: dict[str, None] = {}
        expressions: dict[Expr, None] = {}
        for node in self.gm.graph.nodes:
            value = node.meta.get("val")
            if node in self.known and node not in used and node.op != "placeholder":
                continue
            for s in scalars(value):
                if isinstance(s, torch.SymInt) and isinstance(n := size(s), Expr):
                    names = sorted(symbols.free_symbols(n))
                    symbols_used |= dict.fromkeys(names)
                    if not isinstance(value, torch.SymInt):
                        expressions[n] = None
                        self.room |= dict.fromkeys(names, INDEX)
                    elif not str(n).isidentifier():
                        expressions[n] = None
                        self.room = dict.fromkeys(names, ROOM) | self.room
            symbols_used |= dict.fromkeys(_of_offsets(node))
            if node in self.known and node.op != "placeholder" and isinstance(value, (torch.SymFloat, torch.SymBool)):
                numbers[node] = type(value)
        bare = {str(size(n.meta["val"])): n for n in reversed(self.known) if isinstance(n.meta["val"], torch.SymInt)}
        missing = []
        for name in symbols_used:
            if name in COMPUTED and name not in self.sources:
                if name in bare:
                    numbers[bare[name]] = torch.SymInt
                else:
                    missing.append(name)
        limits, checked = self.limits(used, numbers)
        places = {bare[name]: name for name in symbols_used if name in COMPUTED and name in bare}
        computed = [places.get(node) for node in numbers] + missing
        sizes = self.sizes(expressions, {name: len(self.placeholders) + k for k, name in enumerate(computed) if name})
        if not numbers and not missing and not limits and not checked and not sizes.expressions:
            return None
        graph = self.tensors_part(numbers, missing)
        run = self.runner(list(numbers), missing, list(checked)) if numbers or missing or checked else None
        number_limits = [checked.pop(n, Limit.of_type(kind)) for n, kind in numbers.items()]
        all_checked = number_limits + [INT64] * len(missing) + list(checked.values())
        return Numbers(graph, run, len(numbers) + len(missing), limits, all_checked, sizes)

    def used(self) -> dict[Node, list[Node]]:
        """Known nodes that anything but a number is computed of, and what is."""
        found: dict[Node, list[Node]] = {}
        for node in self.gm.graph.nodes:
            if node in self.known:
                continue
            for n in node.all_input_nodes:
                if n in self.known:
                    found.setdefault(n, []).append(node)
        return found

    def limits(self, used: dict[Node, list[Node]], numbers: dict[Node, type]) -> tuple[list, dict[Node, Limit]]:
        """What is checked of arguments, and of nodes."""
        limits: dict[Node, Limit] = {}
        for node, users in used.items():
            value = node.meta["val"]
            if isinstance(value, torch.SymBool):
                continue
            of_int = isinstance(value, torch.SymFloat) or needs_check(size(value), self.ints.keys() | COMPUTED.keys())
            if of_int:
                limits[node] = Limit.of_type(type(value)).within(limit_of_uses(node, users))
        positions = {node: k for k, node in enumerate(self.placeholders)}
        for name, k in self.ints.items():
            node = self.placeholders[k]
            uses = limits.get(node, INT64)
            limits[node] = uses.within(self.room.get(name, INT64))
        arguments = [(positions[n], limit) for n, limit in limits.items() if n in positions]
        return arguments, {n: limit for n, limit in limits.items() if n not in positions}

    def sizes(self, expressions: dict[Expr, None], computed: dict[str, int]) -> SizeExpressions:
        """What is checked of expressions; `computed` says where the numbers are that Python computes, behind the arguments."""
        sources = {name: (k, None) for name, k in computed.items()} | self.sources
        found = [e for e in expressions if symbols.free_symbols(e) & (self.ints.keys() | COMPUTED.keys())]
        found = list(dict.fromkeys(part for e in found if self.can_overflow(e) for part in _parts(e)))
        names = {name for e in found for name in symbols.free_symbols(e)}
        if not found or any(name not in sources for name in names):
            return SizeExpressions()
        safe = min(int((2**61 / _weight(e)) ** (1 / _degree(e))) for e in found)
        return SizeExpressions(found, {name: sources[name] for name in sorted(names)}, safe)

    def can_overflow(self, e: Expr) -> bool:
        """Whether an expression, or one in it, may be 2**62 or more: its symbols are indices, or numbers of 62 bits."""
        indices = all(self.room.get(name, INDEX) is INDEX and name not in COMPUTED for name in symbols.free_symbols(e))
        return _can_overflow(e, 2**13 if indices else 2)

    # ---- the two parts

    def runner(self, numbers: list[Node], missing: list[str], checked: list[Node]) -> Callable:
        graph, copies = Graph(), {}
        for node in self.placeholders:
            copies[node] = graph.placeholder(node.name)

        def copied(node: Node) -> Node:
            if node not in copies:
                for n in node.all_input_nodes:
                    copied(n)
                copies[node] = graph.node_copy(node, lambda n: copies[n])
            return copies[node]

        wanted = [copied(n) for n in [*numbers, *(n for n in checked if n not in numbers)]]
        graph.output(tuple(wanted))
        run = GraphModule(self.gm, graph).forward
        if not missing:
            return lambda args: run(*args)
        formulas = [self.formula(name) for name in missing]
        count = len(numbers)

        def with_formulas(args: Sequence[Any]) -> Sequence[Any]:
            found = run(*args)
            return [*found[:count], *(formula(args) for formula in formulas), *found[count:]]

        return with_formulas

    def formula(self, name: str) -> Callable[[Sequence[Any]], Any]:
        """An integer that no node computes, only a size."""
        expr = COMPUTED[name]
        sources: dict[str, tuple[int, int | None]] = {}
        for k, node in enumerate(self.placeholders):
            value = node.meta.get("val")
            leaves = enumerate(value.shape) if isinstance(value, torch.Tensor) else ((None, value),)
            for d, n in leaves:
                if isinstance(n, (torch.SymInt, torch.SymFloat)) and n.node.expr.is_Symbol:
                    sources.setdefault(n.node.expr.name, (k, d))
        names = sorted(s.name for s in expr.free_symbols)
        if any(n not in sources for n in names):
            raise UnsupportedGraph(f"the size {expr} is one of numbers that are no arguments")
        text = PythonPrinter().doprint(expr)
        compute = eval(f"lambda {', '.join(names)}: {text}", {"math": math, "torch": torch} | dict(SYMPY_INTERP))
        places = [sources[n] for n in names]
        return lambda args: compute(*(args[k] if d is None else args[k].shape[d] for k, d in places))

    def tensors_part(self, numbers: dict[Node, type], missing: list[str]) -> GraphModule:
        graph, copies = Graph(), {}
        environment = next(s.node.shape_env for n in self.known for s in [n.meta["val"]])
        for node in self.placeholders:
            copies[node] = graph.node_copy(node)
        for node in numbers:
            copies[node] = graph.placeholder(f"{node.name}_number")
            copies[node].meta = {**node.meta}
        for name in missing:
            node = graph.placeholder(name)
            node.meta["val"] = environment.create_symintnode(COMPUTED[name], hint=None)
            node.meta["symbol"] = name  # the guards may write it otherwise by itself than where it is a part of a size

        def copied(node: Node) -> Node:
            if node not in copies:
                for n in node.all_input_nodes:
                    copied(n)
                copies[node] = graph.node_copy(node, lambda n: copies[n])
            return copies[node]

        for node in self.gm.graph.nodes:
            if node not in self.known:
                copied(node)
        made = GraphModule(self.gm, graph)
        made.meta = dict(self.gm.meta)
        return made


def _of_offsets(node: Node) -> list[str]:
    """The symbols that say where a view begins."""
    offsets = [x.storage_offset() for x in tree_leaves(node.meta.get("val")) if isinstance(x, torch.Tensor)]
    if node.op != "call_function" or not any(isinstance(n, torch.SymInt) for n in offsets):
        return []
    return sorted(name for n in offsets for name in symbols.free_symbols(size(n)))


def _parts(e: Int) -> list[Expr]:
    """An expression, and the operands of quotients, remainders, max and min in it: sums and products may wrap around on the way, these not."""
    if isinstance(e, int):
        return []
    operands = [x for m in e.terms for atom in m if not isinstance(atom, str) for x in atom[1:]]
    return [e, *(part for x in operands for part in _parts(x))]


def _can_overflow(e: Int, most: int) -> bool:
    """Whether a size expression, or one in it, is more than one symbol `most` times, or a sum of as many."""
    if isinstance(e, int):
        return abs(e) >= 2**47
    if _degree(e) > 1 or _weight(e) >= most:
        return True
    parts = [x for m in e.terms for atom in m if not isinstance(atom, str) for x in atom[1:]]
    return any(_can_overflow(x, most) for x in parts)


def _degree(e: Int) -> int:
    """How many symbols are multiplied, at most."""
    if isinstance(e, int):
        return 0
    degree = lambda atom: 1 if isinstance(atom, str) else max(_degree(atom[1]), _degree(atom[2]), 1)
    return max((sum(map(degree, m)) for m in e.terms), default=0)


def _weight(e: Int) -> int:
    """What bounds |e| with all symbols 1 or less, and so |e| / x**degree where they are x or less."""
    if isinstance(e, int):
        return abs(e)
    total = 0
    for monomial, coefficient in e.terms.items():
        product = abs(coefficient)
        for atom in monomial:
            product *= 1 if isinstance(atom, str) else max(_weight(atom[1]), _weight(atom[2]), 1)
        total += product
    return max(total, 1)
