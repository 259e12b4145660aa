"""A function's kernels and other ops as a graph that fusion passes rewrite in Python, and write back to MLIR once.

A *node* is a kernel or any other op, except views: a view is a way to read its root, so who reads it depends on the
root's node.
"""

from bisect import bisect_right
from dataclasses import field
from itertools import count
from typing import Any

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.tensor_types import info_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.analysis.effects import EFFECTS, may_write
from mlirc.lowering.analysis.index_maps import substitute
from mlirc.lowering.fusion.body import Body, Tensor, copy_kernel, rounded_for_all, write_body
from mlirc.lowering.fusion.outlines import Outlines
from mlirc.lowering.kernel.alike import AlikeKernels

NONE: frozenset[Any] = (
    frozenset()
)  # few nodes have effects: sets of their own would keep Python's garbage collector busy


@dataclass(eq=False, slots=True)
class FusionNode:
    """A kernel (`body`) or another op.

    inputs     the tensors that it reads, each once
    before     nodes that must stay before it though it reads nothing of theirs: effects keep their order
    ops        the ops of the function that it stands for
    position   its place in an order in which every node follows those that it depends on
    changed    whether `body` is to be written back
    members    the names of the kernels that it was made of, where somebody asked for them (candidates.py)
    number     of no other node: what is noted of a pair by numbers keeps no node alive that was merged
    """

    ops: tuple[ir.Operation, ...]
    inputs: list[Tensor]
    outputs: list[Tensor]
    position: int
    body: Any = None  # of a kernel: its Body
    before: set["FusionNode"] | frozenset["FusionNode"] = NONE
    after: set["FusionNode"] | frozenset["FusionNode"] = NONE
    locations: tuple[ir.Location, ...] = ()
    changed: bool = False
    members: tuple[str, ...] = ()
    number: int = field(default_factory=count().__next__)

    @property
    def users(self) -> set["FusionNode"]:
        """The nodes that must come after it."""
        found = set(self.after)
        for tensor in self.outputs:
            found |= tensor.readers
        return found

    @property
    def location(self) -> ir.Location:
        unique = list(dict.fromkeys(self.locations))
        return unique[0] if len(unique) == 1 else ir.Location.fused(unique)


class FusionGraph:
    """The nodes of a `func.func`. Passes call `merge` and `rewrite`, at the end `write_back`, and `release` where nobody goes on with it.

    `alike` says which of its kernels are.
    """

    def __init__(self, function: Any, alike: AlikeKernels | None = None):
        self.block = function.regions[0].blocks[0]
        self.tensors: dict[ir.Value, Tensor] = {}
        self.outlines, self._alike = Outlines(), alike
        self.order: list[FusionNode | None] = []  # by position; None where a node went into a later one
        self.views: list[Tensor] = []
        self.old_ops: list[ir.Operation] = []  # in the order of the block
        self._last_effect: FusionNode | None = None
        self._readers: dict[int, list[FusionNode]] = {}  # id of a root tensor -> the kernels that read it, by position
        self._writer: dict[int, FusionNode] = {}  # id of a root tensor -> the last op that may have written to it
        for argument in self.block.arguments:
            self.tensors[argument] = Tensor(argument, info_of(argument))
        for op in self.block.operations:
            self._add(op.operation)
        self._alike = None

    # ---- reading

    def _add(self, op: ir.Operation) -> None:
        name = op.name
        self.old_ops.append(op)
        if name == "mlirc.view":
            self._add_view(op)
            return
        operands = [self.tensors[x] for x in op.operands]
        outputs = [Tensor(x, info_of(x)) for x in op.results]
        node = FusionNode(
            (op,), list({id(t): t for t in operands}.values()), outputs, len(self.order), locations=(op.location,)
        )
        self.order.append(node)
        for tensor in outputs:
            tensor.node = node
            self.tensors[tensor.value] = tensor
        if name == "mlircx.kernel":
            made_of = None if self._alike is None else self._alike.made_of(op.results[0])
            node.body = self.outlines.read(op, operands, outputs, made_of)
        self._order_effects(node, op)
        for tensor in node.inputs:
            tensor.root.readers.add(node)

    def _add_view(self, op: ir.Operation) -> None:
        x, out = self.tensors[op.operands[0]], op.result
        text = ir.StringAttr(op.attributes["map"]).value
        tensor = Tensor(out, info_of(out), root=x.root, view=op, operand=x)
        known = text or x.info.rank == 0  # the map of a 0-d operand is empty
        if known and (x.view is None or x.to_root is not None):
            map_ = symbols.parse_list(text)
            tensor.to_root = map_ if x.view is None else substitute(x.to_root, map_, tensor.info.shape)
        self.tensors[out] = tensor
        self.views.append(tensor)

    def _order_effects(self, node: FusionNode, op: ir.Operation) -> None:
        """Effects keep their order, and stay where they are among the readers of what they may write to."""
        for tensor in node.inputs:
            writer = self._writer.get(id(tensor.root))
            if writer is not None:
                _order(writer, node)
        if node.body is not None:
            return
        if op.name in EFFECTS:
            if self._last_effect is not None:
                _order(self._last_effect, node)
            self._last_effect = node
        if may_write(op):
            for tensor in node.inputs:
                for reader in tensor.root.readers:
                    if reader is not node:
                        _order(reader, node)
                self._writer[id(tensor.root)] = node

    def kernels(self) -> list[FusionNode]:
        return [node for node in self.order if node is not None and node.body is not None]

    # ---- questions

    def closes_cycle(self, first: FusionNode, second: FusionNode) -> bool:
        """NO CYCLE: whether `second` depends on a node that depends on `first`. `first` stands before `second`, which may read it directly.
        It looks from both ends in turn, until they meet or the one with less behind it is done: a concatenation's reader depends on most of a block.
        """
        before = {u for u in self.sources(second) if u.position > first.position}
        if not before:
            return False
        end = max([u.position for u in before]) + 1
        after = {first}
        dependents, sources = [first], list(before)
        while dependents and sources:
            for user in dependents.pop().users:
                if user in before:
                    return True
                if user.position < end and user not in after:
                    after.add(user)
                    dependents.append(user)
            for source in self.sources(sources.pop()):
                if source in after:
                    return True
                if source.position > first.position and source not in before:
                    before.add(source)
                    sources.append(source)
        return False

    def _dependents(self, first: FusionNode, end: int) -> set[FusionNode]:
        """The nodes at positions before `end` that depend on `first`."""
        seen: set[FusionNode] = set()
        stack = [first]
        while stack:
            node = stack.pop()
            for tensor in node.outputs:
                for user in tensor.readers:
                    if user.position < end and user not in seen:
                        seen.add(user)
                        stack.append(user)
            for user in node.after:
                if user.position < end and user not in seen:
                    seen.add(user)
                    stack.append(user)
        return seen

    def next_readers(self, node: FusionNode, tensor: Tensor, count: int) -> list[FusionNode]:
        """The first `count` kernels behind `node` that read `tensor` or a view of its root. Sorted once until something is merged:
        each step of an unrolled loop reads the weights."""
        root = tensor.root
        readers = self._readers.get(id(root))
        if readers is None:
            found = [reader for reader in root.readers if reader.body is not None]
            readers = self._readers[id(root)] = sorted(found, key=_position)
        start = bisect_right(readers, node.position, key=_position)
        return readers[start : start + count]

    def sources(self, node: FusionNode) -> set[FusionNode]:
        """The nodes that `node` depends on directly."""
        found = {t.root.node for t in node.inputs if t.root.node is not None}
        return found | node.before

    # ---- rewriting

    def merge(self, first: FusionNode, second: FusionNode, body: Body) -> FusionNode:
        """One kernel in place of two, which close no cycle. What stands between them and depends on the first comes after it."""
        dependents = self._dependents(first, second.position)
        outputs = list(body.outputs)
        merged = FusionNode(
            first.ops + second.ops,
            body.tensors,
            outputs,
            second.position,
            body,
            set(first.before | second.before) - {first, second} or NONE,
            set(first.after | second.after) - {first, second} or NONE,
            first.locations + second.locations,
            changed=True,
            members=tuple(dict.fromkeys(first.members + second.members)),
        )
        self.order[first.position] = None
        self.order[second.position] = merged
        if dependents:
            start, end = min([node.position for node in dependents]), second.position + 1
            region = [u for u in self.order[start:end] if u is not None]
            placed = [u for u in region if u not in dependents] + [u for u in region if u in dependents]
            self.order[start:end] = [None] * (end - start - len(placed)) + placed
            for position, node in enumerate(placed, end - len(placed)):
                node.position = position
        self._replace((first, second), merged)
        return merged

    def rewrite(self, node: FusionNode, body: Body, producer: FusionNode) -> FusionNode:
        """`node` with another body, which computes `producer` by itself and may read what is defined earlier."""
        changed = FusionNode(
            node.ops,
            body.tensors,
            list(body.outputs),
            node.position,
            body,
            node.before,
            node.after,
            node.locations + producer.locations,
            changed=True,
            members=tuple(dict.fromkeys((*node.members, *copies(producer.members)))),
        )
        self.order[node.position] = changed
        self._replace((node,), changed)
        return changed

    def state(self) -> list[tuple[Any, str, Any]]:
        """What `merge` changes, to be given to `restore`."""
        nodes = [node for node in self.order if node is not None]
        links: list[tuple[Any, str, Any]] = [(self, "order", list(self.order))]
        links += [(node, "position", node.position) for node in nodes]
        links += [(node, name, set(getattr(node, name))) for node in nodes for name in ("before", "after")]
        for tensor in self.tensors.values():
            links += [(tensor, "node", tensor.node), (tensor, "readers", set(tensor.readers))]
        return links

    def restore(self, state: list[tuple[Any, str, Any]]) -> None:
        """Takes back what was merged since; a state is given back once."""
        self._readers.clear()
        for owner, name, value in state:
            setattr(owner, name, value)

    def drop(self, node: FusionNode) -> None:
        """Remove a kernel whose results nobody reads."""
        self.order[node.position] = None
        self._readers.clear()
        for tensor in node.inputs:
            tensor.root.readers.discard(node)
        self._dropped(node)

    def _dropped(self, node: FusionNode) -> None:
        for other in node.before:
            other.after -= {node}
        for other in node.after:
            other.before -= {node}

    def _replace(self, nodes: tuple[FusionNode, ...], merged: FusionNode) -> None:
        self._readers.clear()
        for node in nodes:
            for tensor in node.inputs:
                tensor.root.readers.discard(node)
            self._dropped(node)
        for tensor in merged.inputs:
            tensor.root.readers.add(merged)
        for tensor in merged.outputs:
            tensor.node = merged
        for other in merged.before:
            other.after |= {merged}
        for other in merged.after:
            other.before |= {merged}

    # ---- back to MLIR

    def write_back(self) -> None:
        """Make the changed kernels, and put every op after those that it depends on. The graph is then as if it were read again."""
        nodes = [u for u in self.order if u is not None]
        kept = {id(op) for u in nodes if not u.changed for op in u.ops}
        if all(not u.changed for u in nodes) and len(kept) + len(self.views) == len(self.old_ops):
            return
        end = ir.InsertionPoint(self.old_ops[-1])
        new_ops: dict[int, ir.Operation] = {}
        written: dict[tuple, ir.Operation] = {}
        with end:
            for node in nodes:
                if node.changed:
                    new_ops[id(node)] = self._write(node, written)
        gone = {id(op) for op in self.old_ops if op.name != "mlirc.view"} - kept
        for op in reversed(self.old_ops):
            unused_view = op.name == "mlirc.view" and not any(True for _ in op.result.uses)
            if id(op) in gone or unused_view:
                op.erase()
                gone.add(id(op))
        self._arrange(nodes, new_ops)
        self._renew(nodes, new_ops)

    def _renew(self, nodes: list[FusionNode], new_ops: dict[int, ir.Operation]) -> None:
        """What reading the function would give: reading an op costs ten times as much."""
        self.order = list(nodes)
        arguments = [self.tensors[x] for x in self.block.arguments]
        live = [*arguments, *self.views, *(tensor for node in nodes for tensor in node.outputs)]
        self.tensors = {tensor.value: tensor for tensor in live}
        for tensor in live:
            tensor.readers.clear()
        self._last_effect, self._writer = None, {}
        self._readers.clear()
        for position, node in enumerate(nodes):
            node.position, node.before, node.after = position, NONE, NONE
            if node.changed:
                op = new_ops[id(node)]
                node.ops, node.locations, node.changed = (op,), (op.location,), False
                node.body = self.outlines.without_nodes(node.body)
            self._order_effects(node, node.ops[0])
            for tensor in node.inputs:
                tensor.root.readers.add(node)

    def release(self) -> None:
        """Takes apart what nobody needs any more: its cycles would wait for the garbage collector, which walks all of the process."""
        for tensor in self.tensors.values():
            tensor.node = None
            tensor.readers.clear()
        self.order.clear()
        self._readers.clear()

    def _write(self, node: FusionNode, written: dict[tuple, ir.Operation]) -> ir.Operation:
        """The kernel of a node. One like an earlier one, which is in `written`, is a copy of that."""
        body, location = rounded_for_all(node.body), node.location
        node.body = body
        types = tuple([tensor.value.type for tensor in (*body.tensors, *body.outputs)])
        key = self.outlines.outline(body), types
        made = written.get(key)
        op = write_body(body, location) if made is None else copy_kernel(made, body, location)
        written.setdefault(key, op)
        for tensor, new in zip(body.outputs, op.results, strict=True):
            tensor.value.replace_all_uses_with(new)
            tensor.value = new
        return op

    def _arrange(self, nodes: list[FusionNode], new_ops: dict[int, ir.Operation]) -> None:
        """Views move to just before their first reader, everything else into the order of the nodes."""
        last = self.old_ops[-1]
        placed: set[int] = set()
        self.views, self.old_ops = [], []
        for node in nodes:
            for tensor in node.inputs:
                waiting = []
                while tensor.view is not None and id(tensor) not in placed:
                    waiting.append(tensor)
                    placed.add(id(tensor))
                    tensor = tensor.operand
                for tensor in reversed(waiting):
                    tensor.view.move_before(last)
                    self.views.append(tensor)
                    self.old_ops.append(tensor.view)
            op = new_ops.get(id(node)) or node.ops[0]
            self.old_ops.append(op)
            if op != last:
                op.move_before(last)


def _position(node: FusionNode) -> int:
    return node.position


def copies(members: tuple[str, ...]) -> tuple[str, ...]:
    """ "add@model.py:5*": a kernel computes it, and is not all there is of it."""
    return tuple(name if name.endswith("*") else f"{name}*" for name in members)


def _order(first: FusionNode, second: FusionNode) -> None:
    if isinstance(first.after, frozenset):
        first.after = set()
    if isinstance(second.before, frozenset):
        second.before = set()
    first.after.add(second)
    second.before.add(first)
