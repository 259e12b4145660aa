"""Saves for the backward graph what a view shows, in place of the view, where the program holds that memory too.

Autograd raises where a saved tensor was written to before the backward pass (a weight that was updated too early), which it reads
off the tensor's version counter. A view that a host program makes has a counter of its own, which such a write does not reach.

    before:  forward  %v = permute(%w)  return %loss, %v        backward  %v = placeholder
    after:   forward  return %loss, %w                          backward  %w = placeholder  %v = permute(%w)

Views of what only the two graphs have stay: nobody else can write to that. Results of the program that share memory with what is
saved are result_views.py's.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from mlirc.frontend.importer.views import viewed

UNCHECKED = "saved_tensor_with_no_vc_check"  # by the will of an autograd.Function, which kept it in another way


def save_what_views_show(forward: GraphModule, backward: GraphModule, returned: int) -> None:
    """Rewrites both graphs; `returned` is the number of the forward graph's results that are not saved."""
    results: list[Any] = list(forward.graph.output_node().args[0])  # type: ignore[arg-type]
    held = {*forward.graph.find_nodes(op="placeholder"), *(x for x in results[:returned] if isinstance(x, Node))}
    shown = {node: base for node in results[returned:] if (base := held_base(node, held)) is not None}
    if not shown:
        return
    pair = Graphs(forward, backward, returned)
    for node, base in shown.items():
        pair.move(node, base)
    forward.recompile()
    backward.recompile()


def held_base(node: Any, held: set[Node]) -> Node | None:
    """The input whose memory the view `node` shows, else the nearest result that it shows; None for one that is held itself, or shows none.

    A result that is a view of an input is not the tensor that a program has: AOTAutograd makes that view of the input once more.
    """
    if not isinstance(node, Node) or UNCHECKED in node.meta:
        return None
    nearest, last = None, node
    base: Node | None = node
    while base is not None:
        nearest = nearest or (base if base in held else None)
        last, base = base, viewed(base)
    held_by = last if last.op == "placeholder" else nearest
    return None if held_by is node else held_by


class Graphs:
    """A forward and a backward graph while values that one saves for the other change.

    The forward graph's last results are the tensors that it saves, then the sizes; the backward graph's placeholders begin with the
    sizes, then the tensors.
    """

    def __init__(self, forward: GraphModule, backward: GraphModule, returned: int):
        self.forward, self.backward, self.returned = forward, backward, returned
        self.output = forward.graph.output_node()
        self.taken = {node.name: node for node in backward.graph.find_nodes(op="placeholder")}

    @property
    def results(self) -> list[Any]:
        return list(self.output.args[0])  # type: ignore[arg-type]

    def move(self, node: Node, base: Node) -> None:
        """Saves `base`, and makes its view `node` in the backward graph."""
        chain: list[Node] = []
        at: Any = node
        while at is not base:
            chain.append(at)
            at = at.args[0]
        for size in self.sizes(base, chain):
            self.save_size(size)
        old = self.taken.pop(node.name)
        position = self.results.index(node, self.returned)
        if base.name in self.taken:
            self.put([(k, x) for k, x in enumerate(self.results) if k != position])
        else:
            with self.backward.graph.inserting_before(old):
                self.taken[base.name] = self.placeholder(base)
            self.put([(k, base if k == position else x) for k, x in enumerate(self.results)])
        made = {base: self.taken[base.name]}
        after = list(self.backward.graph.find_nodes(op="placeholder"))[-1].next
        with self.backward.graph.inserting_before(after):
            for x in reversed(chain):
                made[x] = self.backward.graph.node_copy(x, lambda n: made.get(n) or self.taken[n.name])
        old.replace_all_uses_with(made[node])
        self.backward.graph.erase_node(old)
        for x in chain:
            if not x.users:
                self.forward.graph.erase_node(x)

    def sizes(self, base: Node, chain: Sequence[Node]) -> list[Node]:
        """Sizes that the backward graph does not know yet: those of `base`, and those that the views are made with."""
        needed = [x for view in chain for x in view.all_input_nodes if isinstance(x.meta.get("val"), torch.SymInt)]
        unknown = {symbol for x in (base, *needed) for symbol in free_symbols(x.meta["val"])}
        for placeholder in self.taken.values():
            if isinstance(number := placeholder.meta.get("val"), torch.SymInt):
                unknown.discard(number.node.expr)
        for x in self.forward.graph.nodes:
            if isinstance(number := x.meta.get("val"), torch.SymInt) and number.node.expr in unknown:
                unknown.discard(number.node.expr)
                needed.append(x)
        return [x for x in dict.fromkeys(needed) if x.name not in self.taken]

    def save_size(self, size: Node) -> None:
        with self.backward.graph.inserting_before(next(iter(self.backward.graph.nodes))):
            self.taken[size.name] = self.placeholder(size)
        first = next(
            (k for k in range(self.returned, len(self.results)) if is_size(self.results[k])), len(self.results)
        )
        numbered = list(enumerate(self.results))
        self.put([*numbered[:first], (None, size), *numbered[first:]])

    def placeholder(self, node: Node) -> Node:
        made = self.backward.graph.placeholder(node.name)
        made.meta = dict(node.meta)
        return made

    def put(self, results: Sequence[tuple[int | None, Any]]) -> None:
        """The forward graph's results, each with its former position: PyTorch describes each result in a list beside them."""
        described = self.output.meta.get("desc")
        if isinstance(described, list):
            self.output.meta["desc"] = [described[-1 if k is None else k] for k, _ in results]
        self.output.args = (type(self.output.args[0])(x for _, x in results),)  # type: ignore[call-arg,misc]


def is_size(x: Any) -> bool:
    return isinstance(x, Node) and isinstance(x.meta.get("val"), torch.SymInt)


def free_symbols(value: Any) -> set[Any]:
    """The symbols in a size, or in the sizes, strides and offset of a tensor."""
    numbers = [*value.shape, *value.stride(), value.storage_offset()] if isinstance(value, torch.Tensor) else [value]
    return {symbol for n in numbers if isinstance(n, torch.SymInt) for symbol in n.node.expr.free_symbols}
