"""A launch's body as Python objects: what the emitter schedules and writes text from.

`structure(launch)` is equal for launches that are the same kernel; `read_kernel(launch)` gives the Kernel.
Sizes that are statically 1 leave no dimension: index 0 stands for them everywhere.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import OPS, attribute_value
from mlirc.dialects.core.graph_builder import read_constant
from mlirc.dialects.core.kernel_ops import ROUNDED
from mlirc.dialects.core.symbols import Expr, Int
from mlirc.dialects.core.tensor_types import TEXT_DTYPE, TensorInfo, info_of

EXPENSIVE = 12  # operations that one exp, erf or division by a vector counts for


class NotAKernel(ValueError):
    """A launch's body holds what has no place in a kernel."""


@dataclass(eq=False, slots=True)
class Linear:
    """An integer at each point of the iteration space: the sum of strides[d] * d, and all else in `rest`."""

    strides: dict[str, Int]
    rest: Int

    @property
    def dims(self) -> set[str]:
        return set(self.strides) | {name for name in symbols.free_symbols(self.rest) if is_dim(name)}


@dataclass(eq=False, slots=True)
class Access:
    """How an operand of the launch is read or written: `address` elements from its first element."""

    operand: Any  # its number; or what names scratch memory
    dtype: torch.dtype
    address: Linear
    scalars: tuple["Node", ...] = ()  # the i64 values that i0, i1, ... in the address stand for
    mask: "Node | None" = None
    lanewise: bool = False  # the address is that of the first lane; the others follow (scratch memory)

    def may_be(self, other: "Access") -> bool:
        """Whether both reach the same element at each point, were the operands the same memory."""
        a, b = self.address, other.address
        same = self.dtype.itemsize == other.dtype.itemsize and a.strides == b.strides and a.rest == b.rest
        return same and not self.scalars and not other.scalars


@dataclass(eq=False, slots=True)
class Node:
    """A scalar value of the body. `dims` are the iteration dimensions that it depends on."""

    kind: str
    dtype: torch.dtype
    operands: tuple["Node", ...] = ()
    cls: Any = None  # the op's class
    attributes: dict[str, Any] = field(default_factory=dict)
    access: Any = None  # of `read`: its Access
    size: Any = None  # a Linear, of `size`: its value; of `check_index`: the size
    check: int = 0  # `check_index`: its number among them, from 1
    dims: frozenset[str] = frozenset()
    depth: int = 0  # how many reductions, one after another, must be done before it is known

    @property
    def cheap(self) -> bool:
        return self.cls is None or self.cls.cheap

    @property
    def cost(self) -> int:
        return 1 if self.cheap else EXPENSIVE


@dataclass(eq=False, slots=True)
class Output:
    """A result: `node` is written at every point of the dimensions in `access`."""

    node: Node
    access: Access


@dataclass(eq=False, slots=True)
class Kernel:
    parallel: dict[str, Int]  # dimension -> size, those of size 1 left out
    inner: dict[str, Int]
    nodes: list[Node]  # operands before their users
    outputs: list[Output]
    operand_count: int
    rounded: bool = False  # what it writes goes into half types alone
    shared: frozenset[tuple[int, int]] | None = None  # operands (read, written) that may be one memory; None: all
    within: frozenset[tuple[int, int, int]] = frozenset()  # (k, j, n): operand k begins at element n of operand j

    @property
    def writes_nothing(self) -> bool:
        """Whether it has no point, whatever its symbols are. Sums of no rows are written."""
        return 0 in self.parallel.values()

    @property
    def accesses(self) -> Iterable[Access]:
        yield from (n.access for n in self.nodes if n.access)
        yield from (o.access for o in self.outputs)

    def overwrites(self, output: Output) -> bool:
        """Whether the output may be the memory of what is read at the same points."""
        reads = [n.access for n in self.nodes if n.access is not None and n.access.may_be(output.access)]
        return any(self.shared is None or (x.operand, output.access.operand) in self.shared for x in reads)

    @property
    def symbols(self) -> list[str]:
        """The sizes' symbols, sorted: the order in which a launch passes their values."""
        found: set[str] = set()
        for value in [*self.parallel.values(), *self.inner.values()]:
            found |= symbols.free_symbols(value)
        for linear in [a.address for a in self.accesses] + [n.size for n in self.nodes if n.size]:
            for value in [*linear.strides.values(), linear.rest]:
                found |= symbols.free_symbols(value)
        return sorted(name for name in found if not is_dim(name) and not is_index(name))


def find_dims(kernel: Kernel) -> None:
    """Sets the dims of every node, once the iteration dimensions have changed."""
    inner = frozenset(kernel.inner)
    for node in kernel.nodes:
        node.dims = frozenset().union(*(x.dims for x in node.operands))
        for linear in (node.access.address if node.access else None, node.size):
            node.dims |= linear.dims if linear else frozenset()
        if node.kind == "reduce":
            node.dims -= inner
        elif node.kind == "scan":
            node.dims |= inner


@lru_cache(maxsize=4096)
def is_dim(name: str) -> bool:
    return name[0] == "d" and name[1:].isdigit()


@lru_cache(maxsize=4096)
def is_index(name: str) -> bool:
    return name[0] == "i" and name[1:].isdigit()


def structure(launch: Any) -> tuple:
    """A key without names, labels, messages and locations: launches with equal keys run the same code."""
    block = launch.regions[0].blocks[0]
    number: dict[ir.Value, int] = {}
    for argument in block.arguments:
        number[argument] = len(number)
    ops = []
    for op in block.operations:
        attributes = tuple(x for x in op.attributes.items() if x[0] != "message")  # MLIR makes one of equal ones
        results = tuple(r.type for r in op.results)
        ops.append((op.operation.name, tuple(number[x] for x in op.operands), results, attributes))
        for result in op.results:
            number[result] = len(number)
    operands = tuple(info_of(x) for x in launch.operands)
    return (text(launch, "parallel"), text(launch, "inner"), ROUNDED in launch.attributes, operands, tuple(ops))


def text(op: Any, attribute: str) -> str:
    return ir.StringAttr(op.attributes[attribute]).value


def messages(launch: Any) -> list[str]:
    """The message of each `check_index` of the body, in order."""
    ops = launch.regions[0].blocks[0].operations
    return [text(op, "message") for op in ops if op.operation.name == "mlirc.check_index"]


def read_kernel(launch: Any) -> Kernel:
    """The Kernel of a `mlircx.launch`. Raises NotAKernel for an op that has no place in one."""
    sizes = [symbols.parse_list(text(launch, name)) for name in ("parallel", "inner")]
    named = [(f"d{d}", size) for d, size in enumerate(sizes[0] + sizes[1])]
    parallel = {d: n for d, n in named[: len(sizes[0])] if n != 1}
    inner = {d: n for d, n in named[len(sizes[0]) :] if n != 1}
    reader = _Reader(parallel, inner, [info_of(x) for x in launch.operands])
    block = launch.regions[0].blocks[0]
    for position, argument in enumerate(block.arguments):
        reader.tensors[argument] = position
    for op in block.operations:
        reader.read_op(op)
    return Kernel(parallel, inner, reader.nodes, reader.outputs, len(reader.infos), ROUNDED in launch.attributes)


class _Reader:
    def __init__(self, parallel: dict[str, Int], inner: dict[str, Int], infos: list[TensorInfo]):
        self.dims = frozenset(parallel) | frozenset(inner)
        self.inner = frozenset(inner)
        self.infos = infos
        self.tensors: dict[ir.Value, int] = {}
        self.values: dict[ir.Value, Node] = {}
        self.casts: dict[tuple[Node, torch.dtype], Node] = {}
        self.nodes: list[Node] = []
        self.outputs: list[Output] = []
        self.checks = 0

    def read_op(self, op: Any) -> None:
        name = op.operation.name.partition(".")[2]
        if name == "yield":
            self.read_yield(op)
            return
        dtype = TEXT_DTYPE[str(op.results[0].type)]
        if name == "read" and 0 in self.infos[self.tensors[op.operands[0]]].shape:
            node = self.read_of_empty(op, dtype)
        elif name == "read":
            node = self.read_access(op, dtype)
        elif name in ("reduce", "scan") and not self.inner:
            # every inner size is 1: the fold is its operand, the position of an extremum 0
            if text(op, "kind") not in ("argmax", "argmin"):
                self.values[op.results[0]] = self.folded_alone(text(op, "kind"), self.values[op.operands[0]])
                return
            node = Node("constant", dtype, attributes={"value": 0})
        else:
            operands = tuple(self.values[x] for x in op.operands)
            if name == "cast" and (operands[0], dtype) in self.casts:  # one of them implicit
                self.values[op.results[0]] = self.casts[operands[0], dtype]
                return
            dims = frozenset().union(*(x.dims for x in operands))
            node = Node(name, dtype, operands, dims=dims, depth=max((x.depth for x in operands), default=0))
            self.complete(node, op)
            if name == "cast":
                self.casts[operands[0], dtype] = node
        self.values[op.results[0]] = node
        self.nodes.append(node)

    def folded_alone(self, kind: str, x: Node) -> Node:
        """The fold of one value: itself, but a sum begins at 0.0, which makes 0.0 of -0.0."""
        if kind != "sum" or not x.dtype.is_floating_point:
            return x
        zero = Node("constant", x.dtype, attributes={"value": 0.0}, depth=x.depth)
        total = Node("add", x.dtype, (x, zero), dims=x.dims, depth=x.depth, cls=OPS["add"])
        self.nodes += [zero, total]
        return total

    def complete(self, node: Node, op: Any) -> None:
        if node.kind == "constant":
            node.attributes = {"value": read_constant(text(op, "value"))}
        elif node.kind in ("size", "check_index"):
            node.size = split(symbols.parse(text(op, "expr" if node.kind == "size" else "size")), self.dims)
            node.dims |= node.size.dims
            if node.kind == "check_index":
                self.checks += 1
                node.check = self.checks
                node.attributes = {"wraps": attribute_value(op.attributes["wraps"])}
        elif node.kind in ("reduce", "scan"):
            node.attributes = {"kind": text(op, "kind")}
            if node.kind == "reduce":
                node.dims -= self.inner
                node.depth += 1
            else:
                node.dims |= self.inner
        elif node.kind in OPS:
            node.cls = OPS[node.kind]
            node.attributes = {k: attribute_value(a) for k, a in op.attributes.items() if k != "implicit"}
        else:
            raise NotAKernel(f"mlirc.{node.kind} has no place in a kernel")

    def read_access(self, op: Any, dtype: torch.dtype) -> Node:
        operand = self.tensors[op.operands[0]]
        scalars = [self.values[x] for x in list(op.operands)[1:]]
        mask = scalars.pop() if attribute_value(op.attributes["masked"]) else None
        access = self.access(operand, text(op, "map"))
        access.scalars, access.mask = tuple(scalars), mask
        operands = (*scalars, mask) if mask else tuple(scalars)
        dims = frozenset(access.address.dims).union(*(x.dims for x in operands))
        depth = max((x.depth for x in operands), default=0)
        return Node("read", dtype, operands, access=access, dims=dims, depth=depth)

    def read_of_empty(self, op: Any, dtype: torch.dtype) -> Node:
        """What is read of a tensor without elements: nothing. A check of its index, which fails, stands in for it; else no
        point reads, and a constant may stand before the loops."""
        scalars = [self.values[x] for x in list(op.operands)[1:]]
        checks = [x for x in scalars if x.kind == "check_index"]
        if not checks:
            return Node("constant", dtype, attributes={"value": torch.zeros((), dtype=dtype).item()})
        check = next((x for x in checks if x.size.rest == 0 and not x.size.strides), checks[0])
        return Node("cast", dtype, (check,), dims=check.dims, depth=check.depth)

    def access(self, operand: int, map_: str) -> Access:
        info = self.infos[operand]
        return Access(operand, info.dtype, split(address_of(info, map_), self.dims))

    def read_yield(self, op: Any) -> None:
        maps = attribute_value(op.attributes["maps"])
        first = len(self.infos) - len(maps)
        for k, value in enumerate(op.operands):
            self.outputs.append(Output(self.values[value], self.access(first + k, maps[k])))


@lru_cache(maxsize=65536)
def address_of(info: TensorInfo, map_: str) -> Int:
    """The address of element `map_`, in elements."""
    total: Int = 0
    for index, stride in zip(symbols.parse_list(map_), info.stride, strict=True):
        total = total + index * stride
    return total


def split(value: Int, dims: frozenset[str]) -> Linear:
    """`value` as a Linear in `dims`; any other dimension is 0 (its size is 1)."""
    gone = {name: 0 for name in symbols.free_symbols(value) if is_dim(name) and name not in dims}
    if gone:
        value = symbols.substitute(value, gone)
    strides: dict[str, Int] = {}
    rest: Int = 0
    for monomial, coefficient in terms(value):
        named = [a for a in monomial if isinstance(a, str) and is_dim(a)]
        others = [a for a in monomial if not (isinstance(a, str) and is_dim(a))]
        if len(named) == 1 and not any(map(_varies, others)):
            strides[named[0]] = strides.get(named[0], 0) + monomial_of(others, coefficient)
        else:
            rest = rest + monomial_of(monomial, coefficient)
    return Linear(strides, rest)


def terms(value: Int) -> Iterable[tuple[tuple, int]]:
    if isinstance(value, Expr):
        return value.terms.items()
    return (((), value),) if value else ()


def monomial_of(atoms: Iterable[Any], coefficient: int) -> Int:
    atoms = tuple(atoms)
    return Expr({atoms: coefficient}) if atoms else coefficient


def _varies(atom: Any) -> bool:
    """Whether an atom depends on a dimension or an index that was read."""
    if isinstance(atom, str):
        return is_dim(atom) or is_index(atom)
    return any(is_dim(s) or is_index(s) for x in atom[1:] for s in symbols.free_symbols(x))


def computed_dtype(node: Node) -> torch.dtype:
    """The dtype that an op's scalar body computes in: its first operand's that does not count as a boolean."""
    words = node.cls.computes
    for k, operand in enumerate(node.operands):
        if (words[k] if isinstance(words, tuple) else words) != "bool":
            return operand.dtype
    return torch.bool
