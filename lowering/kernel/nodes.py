"""The body of an `mlircx.launch` as a DAG of Python nodes, from which the CPU and the Triton emitter schedule and write code.

`structural_key(launch)` is equal for launches that are the same kernel; `read_kernel(launch)` gives the Kernel.
Dimensions of static size 1 are dropped: their index is replaced by 0.
"""

from collections.abc import Iterable, Sequence
from dataclasses import field
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
from mlirc.dialects.lazy_dataclass import dataclass

EXPENSIVE = 12  # the cost of one exp, erf or division of vectors, in additions


class UnsupportedKernelOp(ValueError):
    """The body of a launch holds an op that kernels do not have."""


@dataclass(eq=False, slots=True)
class Linear:
    """A linear form over the iteration dimensions: the sum of strides[d] * d, plus `rest`.

    `rest` holds constants, symbols, gathered indices, and terms in dimensions that are not linear.
    """

    strides: dict[str, Int]
    rest: Int

    @property
    def dims(self) -> set[str]:
        return set(self.strides) | {name for name in symbols.free_symbols(self.rest) if is_dim(name)}


@dataclass(eq=False, slots=True)
class Access:
    """A read or write of an operand of the launch at `address`, an offset in elements from its first one."""

    operand: Any  # its number; or a key of scratch memory
    dtype: torch.dtype
    address: Linear
    scalars: tuple["Node", ...] = ()  # the gathered indices: scalars[k] is the value of `ik` in the address
    mask: "Node | None" = None
    contiguous_lanes: bool = False  # scratch memory: lane l is at address + l

    def same_element_as(self, other: "Access") -> bool:
        """Whether both access the same element at every point if their operands alias. False for gathers: theirs is not known."""
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
    size: Any = None  # a Linear. `size`: its value; `check_index`: the exclusive bound
    check: int = 0  # position among the `check_index` nodes of the kernel, from 1; 0: another node
    dims: frozenset[str] = frozenset()
    depth: int = 0  # the longest chain of reductions that it depends on

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
    parallel: dict[str, Int]  # dN -> size, without sizes of 1
    inner: dict[str, Int]  # the same of the dimensions that are reduced or scanned
    nodes: list[Node]  # operands before their users
    outputs: list[Output]
    operand_count: int
    feeds_half_only: bool = False  # all that it writes is later rounded to a half type, though it may be float32 here
    # operands (read, written) that may share memory; None: any pair may
    may_alias: frozenset[tuple[int, int]] | None = None
    subviews: frozenset[tuple[int, int, int]] = frozenset()  # (k, j, n): operand k begins at element n of operand j

    @property
    def is_statically_empty(self) -> bool:
        """Whether `parallel` has no point, whatever the symbols are. A kernel with empty `inner` still writes: a sum of nothing is 0."""
        return 0 in self.parallel.values()

    @property
    def accesses(self) -> Iterable[Access]:
        yield from (n.access for n in self.nodes if n.access)
        yield from (o.access for o in self.outputs)

    def may_be_in_place(self, output: Output) -> bool:
        """Whether the output may alias an operand that is read at the same elements."""
        reads = [n.access for n in self.nodes if n.access is not None and n.access.same_element_as(output.access)]
        return any(self.may_alias is None or (x.operand, output.access.operand) in self.may_alias for x in reads)

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


def recompute_dims(kernel: Kernel) -> None:
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


def structural_key(launch: Any) -> tuple:
    """A key without names, labels, messages and locations: launches with equal keys run the same code."""
    block = launch.regions[0].blocks[0]
    numbering: dict[ir.Value, int] = {}
    for argument in block.arguments:
        numbering[argument] = len(numbering)
    ops = []
    for op in block.operations:
        op = op.operation
        name, attributes = op.name, op.attributes.items()  # uniqued by MLIR: compared by identity
        if name == "mlirc.check_index":
            attributes = [x for x in attributes if x[0] != "message"]
        results = tuple([r.type for r in op.results])
        ops.append((name, tuple([numbering[x] for x in op.operands]), results, tuple(attributes)))
        for result in op.results:
            numbering[result] = len(numbering)
    operands = tuple([info_of(x) for x in launch.operands])
    return (
        string_attribute(launch, "parallel"),
        string_attribute(launch, "inner"),
        ROUNDED in launch.attributes,
        operands,
        tuple(ops),
    )


def string_attribute(op: Any, attribute: str) -> str:
    return ir.StringAttr(op.attributes[attribute]).value


def messages(launch: Any) -> list[str]:
    """The message of each `check_index` of the body, in order."""
    ops = launch.regions[0].blocks[0].operations
    return [string_attribute(op, "message") for op in ops if op.operation.name == "mlirc.check_index"]


def read_kernel(launch: Any) -> Kernel:
    """The Kernel of a `mlircx.launch`. Raises UnsupportedKernelOp for an op that has no place in one."""
    return read_body(launch, [info_of(x) for x in launch.operands], range(len(launch.operands)))


def read_body(op: Any, infos: list[TensorInfo], places: Sequence[int]) -> Kernel:
    """The Kernel of an op with a kernel's body. `infos` are its tensors, what it yields last; `places` has the number of each argument
    of the body among them."""
    sizes = [symbols.parse_list(string_attribute(op, name)) for name in ("parallel", "inner")]
    dims = [(f"d{d}", size) for d, size in enumerate(sizes[0] + sizes[1])]
    parallel = {d: n for d, n in dims[: len(sizes[0])] if n != 1}
    inner = {d: n for d, n in dims[len(sizes[0]) :] if n != 1}
    importer = _BodyImporter(parallel, inner, infos)
    block = op.regions[0].blocks[0]
    importer.tensors = dict(zip(block.arguments, places, strict=False))
    for item in block.operations:
        importer.import_op(item)
    return Kernel(parallel, inner, importer.nodes, importer.outputs, len(importer.infos), ROUNDED in op.attributes)


class _BodyImporter:
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

    def import_op(self, op: Any) -> None:
        name = op.operation.name.partition(".")[2]
        if name == "yield":
            self.import_yield(op)
            return
        dtype = TEXT_DTYPE[str(op.results[0].type)]
        if name == "read" and 0 in self.infos[self.tensors[op.operands[0]]].shape:
            node = self.import_empty_read(op, dtype)
        elif name == "read":
            node = self.import_read(op, dtype)
        elif name in ("reduce", "scan") and not self.inner:
            # every inner size is 1: a reduction or scan is its operand, argmax and argmin are 0
            if string_attribute(op, "kind") not in ("argmax", "argmin"):
                self.values[op.results[0]] = self.reduce_one(string_attribute(op, "kind"), self.values[op.operands[0]])
                return
            node = Node("constant", dtype, attributes={"value": 0})
        else:
            operands = tuple(self.values[x] for x in op.operands)
            if (
                name == "cast" and (operands[0], dtype) in self.casts
            ):  # the same cast twice, one of them implicit: one node
                self.values[op.results[0]] = self.casts[operands[0], dtype]
                return
            dims = frozenset().union(*(x.dims for x in operands))
            node = Node(name, dtype, operands, dims=dims, depth=max((x.depth for x in operands), default=0))
            self.set_attributes(node, op)
            if name == "cast":
                self.casts[operands[0], dtype] = node
        self.values[op.results[0]] = node
        self.nodes.append(node)

    def reduce_one(self, kind: str, x: Node) -> Node:
        """A reduction over one element: that element; but a sum or mean of floats starts at 0.0, so that -0.0 becomes 0.0."""
        if kind not in ("sum", "mean") or not x.dtype.is_floating_point:
            return x
        zero = Node("constant", x.dtype, attributes={"value": 0.0}, depth=x.depth)
        total = Node("add", x.dtype, (x, zero), dims=x.dims, depth=x.depth, cls=OPS["add"])
        self.nodes += [zero, total]
        return total

    def set_attributes(self, node: Node, op: Any) -> None:
        if node.kind == "constant":
            node.attributes = {"value": read_constant(string_attribute(op, "value"))}
        elif node.kind in ("size", "check_index"):
            node.size = linear_form(
                symbols.parse(string_attribute(op, "expr" if node.kind == "size" else "size")), self.dims
            )
            node.dims |= node.size.dims
            if node.kind == "check_index":
                self.checks += 1
                node.check = self.checks
                node.attributes = {"wraps": attribute_value(op.attributes["wraps"])}
        elif node.kind in ("reduce", "scan"):
            node.attributes = {"kind": string_attribute(op, "kind")}
            if node.kind == "reduce":
                node.dims -= self.inner
                node.depth += 1
            else:
                node.dims |= self.inner
        elif node.kind in OPS:
            node.cls = OPS[node.kind]
            node.attributes = {k: attribute_value(a) for k, a in op.attributes.items() if k != "implicit"}
        else:
            raise UnsupportedKernelOp(f"mlirc.{node.kind} has no place in a kernel")

    def import_read(self, op: Any, dtype: torch.dtype) -> Node:
        operand = self.tensors[op.operands[0]]
        scalars = [self.values[x] for x in list(op.operands)[1:]]
        mask = scalars.pop() if attribute_value(op.attributes["masked"]) else None
        access = self.access(operand, string_attribute(op, "map"))
        access.scalars, access.mask = tuple(scalars), mask
        operands = (*scalars, mask) if mask else tuple(scalars)
        dims = frozenset(access.address.dims).union(*(x.dims for x in operands))
        depth = max((x.depth for x in operands), default=0)
        return Node("read", dtype, operands, access=access, dims=dims, depth=depth)

    def import_empty_read(self, op: Any, dtype: torch.dtype) -> Node:
        """A read of an empty tensor. If its index is checked, the check fails and raises: the node keeps the check alive.

        Otherwise no point executes the read, and a constant takes its place.
        """
        scalars = [self.values[x] for x in list(op.operands)[1:]]
        checks = [x for x in scalars if x.kind == "check_index"]
        if not checks:
            return Node("constant", dtype, attributes={"value": torch.zeros((), dtype=dtype).item()})
        # the check against the dimension of size 0 has the right message
        check = next((x for x in checks if x.size.rest == 0 and not x.size.strides), checks[0])
        return Node("cast", dtype, (check,), dims=check.dims, depth=check.depth)

    def access(self, operand: int, map_: str) -> Access:
        info = self.infos[operand]
        return Access(operand, info.dtype, linear_form(address_of(info, map_), self.dims))

    def import_yield(self, op: Any) -> None:
        maps = attribute_value(op.attributes["maps"])
        first = len(self.infos) - len(maps)
        for k, value in enumerate(op.operands):
            self.outputs.append(Output(self.values[value], self.access(first + k, maps[k])))


@lru_cache(maxsize=65536)
def address_of(info: TensorInfo, map_: str) -> Int:
    """The linear offset of the element at index `map_`, in elements."""
    total: Int = 0
    for index, stride in zip(symbols.parse_list(map_), info.stride, strict=True):
        total = total + index * stride
    return total


def linear_form(value: Int, dims: frozenset[str]) -> Linear:
    """`value` as a Linear in `dims`. Dimensions not in `dims` have size 1, and become 0."""
    unit_dims = {name: 0 for name in symbols.free_symbols(value) if is_dim(name) and name not in dims}
    if unit_dims:
        value = symbols.substitute(value, unit_dims)
    strides: dict[str, Int] = {}
    rest: Int = 0
    for monomial, coefficient in terms(value):
        dim_atoms = [a for a in monomial if isinstance(a, str) and is_dim(a)]
        others = [a for a in monomial if not (isinstance(a, str) and is_dim(a))]
        if len(dim_atoms) == 1 and not any(map(_varies, others)):
            strides[dim_atoms[0]] = strides.get(dim_atoms[0], 0) + monomial_of(others, coefficient)
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
    """The dtype that an op's scalar body computes in: that of the first operand not used as a boolean; bool if all are."""
    kinds = node.cls.computes
    for k, operand in enumerate(node.operands):
        if (kinds[k] if isinstance(kinds, tuple) else kinds) != "bool":
            return operand.dtype
    return torch.bool
