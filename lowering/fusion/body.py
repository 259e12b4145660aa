"""A kernel's body as Python objects, for passes that merge kernels: read from a `mlircx.kernel`, and written back.

Nodes never change, and bodies share them. Within a Pool equal nodes are one, so merging is common subexpression
elimination at the same time.
"""

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import OPS
from mlirc.dialects.core.kernel_ops import POSITIONAL
from mlirc.dialects.core.tensor_types import TensorInfo, type_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.analysis.index_maps import Map, Space, dims_in

# the attribute of an op that holds expressions in iteration dimensions
EXPRESSIONS = {"read": "map", "size": "expr", "check_index": "size"}
FOLDS = frozenset(("reduce", "scan"))
FREE = frozenset(("read", "constant", "size"))  # no work of their own
IMPLICIT = "implicit"
DEQUANTISES = frozenset(("cast", "mul", "sub", "bitwise_and", "shift_right"))  # its first operand, a weight
BYTES = ("i8", "si8", "ui8")
Attributes = tuple[tuple[str, ir.Attribute], ...]
T = TypeVar("T")


class Once(Generic[T]):
    """functools.cached_property without the lock that it takes before Python 3.12; the context's lock guards bodies."""

    def __init__(self, compute: Callable[[Any], T]):
        self.compute, self.name = compute, compute.__name__

    def __get__(self, owner: Any, cls: Any = None) -> T:
        found = owner.__dict__[self.name] = self.compute(owner)
        return found


@dataclass(eq=False, slots=True)
class Tensor:
    """A value of the graph: `value` in MLIR (None: not made yet), the node that makes it (None: an argument), and if it is a
    view, of what.

    root      the tensor whose elements this is a view of; itself if it is no view
    to_root   the root's index for each index of this tensor; None where that is not known
    readers   (of a root) the nodes that read it or a view of it
    """

    value: ir.Value
    info: TensorInfo
    node: Any = None  # of a root
    root: "Tensor" = None  # type: ignore[assignment]
    to_root: Map | None = None
    view: Any = None  # the `mlirc.view` that makes it
    operand: Any = None  # of that view: its Tensor
    readers: set = field(default_factory=set)

    def __post_init__(self):
        if self.root is None:
            self.root = self


class NodeKind:
    """What a scalar value is beside what it is computed of. Equal ones are one object while they live, so that nodes compare by
    identity; the context's lock guards them.

    map      the expressions in iteration dimensions: a read's index, a size's value, a check_index's size
    """

    __slots__ = (
        "__weakref__",
        "attributes",
        "is_cheap",
        "is_implicit_cast",
        "is_work",
        "map",
        "masked",
        "name",
        "type",
    )

    def __init__(self, name: str, type_: ir.Type, attributes: Attributes, map_: Map, masked: bool):
        self.name, self.type, self.attributes, self.map, self.masked = name, type_, attributes, map_, masked
        self.is_implicit_cast = name == "cast" and any(key == IMPLICIT for key, _ in attributes)
        self.is_work = name not in FREE and not self.is_implicit_cast
        # whether computing it again costs next to nothing
        self.is_cheap = name not in FOLDS and name != "check_index" and (name in FREE or OPS[name].cheap)


_kinds: WeakValueDictionary[tuple, NodeKind] = WeakValueDictionary()


def kind_of(name: str, type_: ir.Type, attributes: Attributes, map_: Map, masked: bool) -> NodeKind:
    key = name, type_, attributes, map_, masked
    found = _kinds.get(key)
    if found is None:
        found = _kinds[key] = NodeKind(*key)
    return found


class BodyNode:
    """One scalar value.

    kind     its name, type, attributes, map and whether it is masked
    tensor   of a read: its Tensor
    dims     the iteration dimensions that the value depends on
    key      what equal nodes of a body have alike
    """

    __slots__ = ("attributes", "dims", "key", "kind", "location", "map", "masked", "name", "operands", "tensor", "type")

    def __init__(self, kind: NodeKind, operands: tuple["BodyNode", ...], location: ir.Location, tensor: Any = None):
        self.kind, self.operands, self.location, self.tensor = kind, operands, location, tensor
        self.name, self.type, self.attributes = kind.name, kind.type, kind.attributes
        self.map, self.masked = kind.map, kind.masked
        self.dims: frozenset[int] = frozenset()
        self.key = kind, operands, tensor

    @property
    def mask(self) -> "BodyNode | None":
        return self.operands[-1] if self.masked else None

    @property
    def is_work(self) -> bool:
        return self.kind.is_work

    @property
    def is_implicit_cast(self) -> bool:
        return self.kind.is_implicit_cast

    @property
    def is_cheap(self) -> bool:
        return self.kind.is_cheap

    @property
    def counts_positions(self) -> bool:
        """Whether it depends on the order of the inner dimensions."""
        return self.name == "scan" or (
            self.name == "reduce" and ir.StringAttr(dict(self.attributes)["kind"]).value in POSITIONAL
        )


class NodePool:
    """Makes nodes of one body, equal ones once. `inner` are the numbers of its inner dimensions.

    nodes        by key, in the order in which they were made: each after its operands
    simplified   whether a node stands for another one, which may be in nobody's use then
    """

    def __init__(self, inner: frozenset[int]):
        self.inner, self.simplified = inner, False
        self.nodes: dict[tuple, BodyNode] = {}

    def make(
        self,
        name: str,
        operands: tuple[BodyNode, ...],
        type_: ir.Type,
        location: ir.Location,
        attributes: Attributes = (),
        tensor: Tensor | None = None,
        map_: Map = (),
        masked: bool = False,
    ) -> BodyNode:
        return self._make(kind_of(name, type_, attributes, map_, masked), operands, location, tensor)

    def _make(
        self, kind: NodeKind, operands: tuple[BodyNode, ...], location: ir.Location, tensor: Tensor | None
    ) -> BodyNode:
        found = self.nodes.get((kind, operands, tensor))
        if found is None:
            node = BodyNode(kind, operands, location, tensor)
            found = self.nodes[node.key] = self._simplified(node)
            if found is node:
                found.dims = self._dims(found)
            else:
                self.simplified = True
        return found

    def again(self, node: BodyNode, operands: tuple[BodyNode, ...], map_: Map) -> BodyNode:
        """`node` with other operands and expressions; itself where they are the same, unless it depends on what `inner` is."""
        if map_ is not node.map:
            kind = kind_of(node.name, node.type, node.attributes, map_, node.masked)
            return self._make(kind, operands, node.location, node.tensor)
        if operands == node.operands and node.name not in FOLDS:
            return self.nodes.setdefault(node.key, node)
        return self._make(node.kind, operands, node.location, node.tensor)

    def take(self, nodes: list[BodyNode]) -> dict[BodyNode, BodyNode] | None:
        """All of these, which stand behind their operands, at once and each itself. None, and nothing is done, where one of them depends on
        what `inner` is, or where an equal one may be there already."""
        found = {node.key: node for node in nodes}
        if any(node.name in FOLDS for node in nodes):
            return None
        if self.nodes.keys().isdisjoint(found):
            self.nodes |= found
        elif not found.items() <= self.nodes.items():
            return None
        return dict(zip(nodes, nodes, strict=True))

    def _simplified(self, node: BodyNode) -> BodyNode:
        # KEEP THE PRECISION: a value narrowed only to be stored and widened only to be read again stays as it was, where
        # nothing jumps (Elementwise.jumps): a widening that is not implicit wants the value as it is stored
        if node.is_implicit_cast:
            x = node.operands[0]
            if x.is_implicit_cast and x.operands[0].type == node.type and _width(x.type) < _width(node.type):
                return x.operands[0]
        # a choice by a condition that was chosen by already
        if node.name == "select" and node.operands[1].name == "select":
            condition, chosen, other = node.operands
            if chosen.operands[0] is condition:
                return self.again(node, (condition, chosen.operands[1], other), ())
        return node

    def _dims(self, node: BodyNode) -> frozenset[int]:
        dims = dims_in(node.map)
        for x in node.operands:
            if not x.dims <= dims:
                dims = dims | x.dims if dims else x.dims
        if node.name == "reduce":
            return dims - self.inner
        return dims | self.inner if node.name == "scan" else dims


def _width(type_: ir.Type) -> int:
    return type_.width  # f16, bf16, f32, f64: implicit casts are between floats


@dataclass(slots=True)
class Result:
    """What a body yields: `node` at `map`, into `tensor`."""

    node: BodyNode
    map: Map
    tensor: Tensor


@dataclass(eq=False)
class Body:
    """One kernel: its iteration space and what it yields. It does not change once it is made."""

    parallel: Space
    inner: Space
    results: list[Result]
    label: str
    _below: dict[tuple[BodyNode, ...], list[BodyNode]] = field(default_factory=dict, init=False, repr=False)

    @Once
    def space(self) -> Space:
        return self.parallel + self.inner

    @Once
    def inner_dims(self) -> frozenset[int]:
        return frozenset(range(len(self.parallel), len(self.parallel) + len(self.inner)))

    @Once
    def nodes(self) -> list[BodyNode]:
        """Every node, operands before their users."""
        return self.below([result.node for result in self.results])

    def below(self, roots: list[BodyNode]) -> list[BodyNode]:
        """The nodes that these of its own depend on, and they themselves, operands before their users."""
        key = tuple(roots)
        found = self._below.get(key)
        if found is None:
            found = self._below[key] = nodes_below(roots)
        return found

    def know(self, nodes: list[BodyNode]) -> None:
        """Spares it to look for `nodes`, where who made it knows them."""
        self._below[tuple([result.node for result in self.results])] = nodes

    @Once
    def reads(self) -> list[BodyNode]:
        return [node for node in self.nodes if node.name == "read"]

    @Once
    def tensors(self) -> list[Tensor]:
        """Each tensor that it reads, once, in order."""
        return list({id(read.tensor): read.tensor for read in self.reads}.values())

    @Once
    def outputs(self) -> list[Tensor]:
        """The tensors that it writes."""
        return [result.tensor for result in self.results]

    @Once
    def locations(self) -> list[ir.Location]:
        """The nodes' locations. A node that is read has an object of its own, and what is made of the node keeps that object."""
        return [node.location for node in self.nodes]

    @property
    def reduced_muls(self) -> list[BodyNode]:
        """The reductions, over the inner dimensions, whose operand is a product."""
        return [x for x in self.nodes if x.name == "reduce" and x.operands[0].name == "mul"] if self.inner else []

    @Once
    def matmul(self) -> BodyNode | None:
        """The sum of a matmul, where the kernel multiplies two matrices: each is read again and again, along some
        parallel dimension that it does not depend on. One row by a quantised weight counts too."""
        rows = {d for d in range(len(self.parallel)) if self.parallel[d] != 1}
        for node in self.reduced_muls:
            x, y = map(factor_read, node.operands[0].operands)
            if x.name != "read" or y.name != "read":
                continue
            if str(y.type) in BYTES or ((rows & x.dims) - y.dims and (rows & y.dims) - x.dims):
                return node
        return None

    @Once
    def windows(self) -> BodyNode | None:
        """The sum of a depthwise convolution, where the kernel is one: windows of a tensor times weights that they share."""
        rows = {d for d in range(len(self.parallel)) if self.parallel[d] != 1}
        for node in self.reduced_muls:
            x, w = node.operands[0].operands
            if x.name != "read" or w.name != "read":
                continue
            shared = rows & (dims_in(x.map) - dims_in(w.map))
            if any(dims_in((at,)) & shared and dims_in((at,)) & self.inner_dims for at in x.map):
                return node
        return None

    @Once
    def contraction(self) -> BodyNode | None:
        """The sum whose loops are generated as a whole: a matmul's, or a depthwise convolution's."""
        return self.matmul or self.windows


def factor_read(factor: BodyNode) -> BodyNode:
    """The read that a factor of a matmul is: as it is, widened, or of bytes that are dequantised."""
    node = factor
    while node.name in DEQUANTISES:
        node = node.operands[0]
    if node.name == "read" and str(node.type) in BYTES:
        return node
    return factor.operands[0] if factor.name == "cast" else factor


def nodes_below(roots: list[BodyNode]) -> list[BodyNode]:
    """The nodes that `roots` depend on, and they themselves, operands before their users."""
    ordered: dict[BodyNode, None] = {}
    stack = roots[::-1]
    while stack:
        node = stack[-1]
        height = len(stack)
        if node not in ordered:
            for x in reversed(node.operands):
                if x not in ordered:
                    stack.append(x)
        if len(stack) == height:
            ordered[stack.pop()] = None
    return list(ordered)


def rounded_for_all(body: Body) -> Body:
    """The body with each value that one of its users wants rounded (KEEP THE PRECISION) rounded for all of them.

    In x * cos(x) - sin(x) of a half type only what sin and cos read would be rounded: near 0 the difference would be that of x and
    x rounded.
    """
    rounded: dict[BodyNode, BodyNode] = {}
    for node in body.nodes:
        if node.name == "cast" and not node.is_implicit_cast and node.operands[0].is_implicit_cast:
            x = node.operands[0].operands[0]
            if x.type == node.type and _width(node.operands[0].type) < _width(x.type):
                rounded[x] = node
    if not rounded:
        return body
    pool, made = NodePool(body.inner_dims), dict[BodyNode, BodyNode]()
    stack = [result.node for result in body.results]
    while stack:
        node = stack[-1]
        narrows = node.is_implicit_cast and _width(node.type) < _width(node.operands[0].type)
        operands = node.operands if narrows else tuple([rounded.get(x, x) for x in node.operands])
        missing = [x for x in operands if x not in made]
        if missing:
            stack += missing
            continue
        made[stack.pop()] = pool.again(node, tuple([made[x] for x in operands]), node.map)
    return Body(body.parallel, body.inner, [replace(r, node=made[r.node]) for r in body.results], body.label)


# ---- from and to MLIR


def read_body(kernel: Any, operands: list[Tensor], results: list[Tensor]) -> Body:
    """The body of a `mlircx.kernel` on these tensors."""
    kernel = kernel.operation
    parallel, inner = (symbols.parse_list(_text(kernel.attributes[name])) for name in ("parallel", "inner"))
    pool = NodePool(frozenset(range(len(parallel), len(parallel) + len(inner))))
    block = kernel.regions[0].blocks[0]
    tensors: Mapping[ir.Value, Tensor] = dict(zip(block.arguments, operands, strict=True))
    nodes: dict[ir.Value, BodyNode] = {}
    yields: list[Result] = []
    for op in block.operations:
        op = op.operation
        name = op.name.partition(".")[2]
        values = op.operands
        if name == "yield":
            maps = [symbols.parse_list(_text(text)) for text in ir.ArrayAttr(op.attributes["maps"])]
            yields = [Result(nodes[x], m, t) for x, m, t in zip(values, maps, results, strict=True)]
            break
        attributes = tuple(op.attributes.items())
        tensor, map_, masked = None, (), False
        expressions = EXPRESSIONS.get(name)
        if expressions:
            named = dict(attributes)
            map_ = symbols.parse_list(_text(named.pop(expressions)))
            if name == "read":
                masked = ir.BoolAttr(named.pop("masked")).value
                tensor = tensors[values[0]]
                values = list(values)[1:]
            attributes = tuple(named.items())
        made = tuple(nodes[x] for x in values)
        result = op.result
        nodes[result] = pool.make(name, made, result.type, op.location, attributes, tensor, map_, masked)
    return Body(parallel, inner, yields, _text(kernel.attributes["label"]))


def write_body(body: Body, location: ir.Location) -> ir.Operation:
    """A new `mlircx.kernel` at the insertion point; its results are those of `body`, in order."""
    nodes, tensors = body.nodes, body.tensors
    kernel = ir.Operation.create(
        "mlircx.kernel",
        results=[type_of(r.tensor.info) if r.tensor.value is None else r.tensor.value.type for r in body.results],
        operands=[t.value for t in tensors],
        attributes={
            "parallel": _attribute(symbols.print_list(body.parallel)),
            "inner": _attribute(symbols.print_list(body.inner)),
            "label": _attribute(body.label),
        },
        regions=1,
        loc=location,
    )
    block = ir.Block.create_at_start(kernel.regions[0], [t.value.type for t in tensors], [location] * len(tensors))
    arguments = {id(t): x for t, x in zip(tensors, block.arguments, strict=True)}
    ip = ir.InsertionPoint(block)
    values: dict[int, ir.Value] = {}
    for node in nodes:
        attributes = dict(node.attributes)
        operands = [values[id(x)] for x in node.operands]
        if node.name == "read":
            attributes["masked"] = ir.BoolAttr.get(node.masked)
            operands.insert(0, arguments[id(node.tensor)])
        if node.name in EXPRESSIONS:
            attributes[EXPRESSIONS[node.name]] = _attribute(symbols.print_list(node.map))
        op = ir.Operation.create(
            f"mlirc.{node.name}",
            results=[node.type],
            operands=operands,
            attributes=attributes,
            loc=node.location,
            ip=ip,
        )
        values[id(node)] = op.result
    maps = ir.ArrayAttr.get([_attribute(symbols.print_list(r.map)) for r in body.results])
    operands = [values[id(r.node)] for r in body.results]
    attributes: dict[str, ir.Attribute] = {"maps": maps}
    ir.Operation.create("mlircx.yield", operands=operands, attributes=attributes, loc=location, ip=ip)
    return kernel


def copy_kernel(kernel: ir.Operation, body: Body, location: ir.Location) -> ir.Operation:
    """A new `mlircx.kernel` at the insertion point, which `write_body` would make like `kernel`: their bodies have one outline, and
    their tensors the same types."""
    copied = kernel.clone().operation
    copied.location = location
    operands = copied.operands
    for k, tensor in enumerate(body.tensors):
        operands[k] = tensor.value
    block = copied.regions[0].blocks[0]
    for argument in block.arguments:
        argument.set_location(location)
    for op, its in zip(block.operations, [*body.locations, location], strict=True):
        op.operation.location = its
    return copied


def _text(attribute: ir.Attribute) -> str:
    return ir.StringAttr(attribute).value


def _attribute(text: str) -> ir.Attribute:
    return ir.StringAttr.get(text)
