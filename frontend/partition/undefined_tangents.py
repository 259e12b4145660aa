"""Compiles backward graphs without the tangents of results that nobody differentiated, such as a model's logits beside its loss.

Autograd would make zeros for them: for GPT-2 as many as there are logits, 823 MB to write, and to read where they are added.
A node of its graph can be told not to. Then such a gradient is None, as in eager, and the backward graph is compiled without
it: when it is first called so, which is when AOTAutograd has a backward graph compiled anyway.
"""

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from mlirc.frontend.fallback import fallback
from mlirc.frontend.torch_compat.aot_autograd.undefined_tangents import leave_undefined_of
from mlirc.frontend.torch_compat.dynamo.lazy_graph import lazy_graph_module, written_later
from mlirc.frontend.torch_compat.fake_tensors import FakeTensor
from mlirc.frontend.torch_compat.older_torch import check

aten = torch.ops.aten
Compile = Callable[[GraphModule, Sequence[Any], tuple[int, ...]], Callable[[list], list]]
Instead = Callable[[GraphModule, Exception], Callable[[list], list]]

# Of a gradient that is zero they give one, as views do: they copy elements, or are linear in their first operand.
LINEAR = {
    *(aten._unsafe_view.default, aten.reshape.default, aten.clone.default, aten._to_copy.default, aten.neg.default),
    operator.getitem,
}


def partition(joint: GraphModule, inputs: Any, **options: Any) -> tuple[GraphModule, GraphModule]:
    """The partitioner, which notes of a backward graph whether its gradients may be None."""
    # inference and a warm start, which partition nothing, load none of it
    from mlirc.frontend.partition import activation_compression, recomputation, repeated_places
    from mlirc.frontend.partition.region_results import separate_results
    from mlirc.frontend.partition.saved_views import save_what_views_show

    check(joint)
    separate_results(joint)
    activation_compression.save_less(joint)
    fallback.optional(repeated_places.sum_repeats, joint)
    forward, backward = map(written_later, recomputation.partition(joint, inputs, **options))
    save_what_views_show(forward, backward, options["num_fwd_outputs"])
    backward.meta["takes_none"] = len(gradients(backward)) > 1
    return forward, backward


def gradients(gm: GraphModule) -> list[int]:
    """The placeholders of a backward graph that are gradients of results, where they may be None; else none."""
    placeholders = gm.graph.find_nodes(op="placeholder")
    found = [k for k, node in enumerate(placeholders) if str(node.target).startswith("tangents")]
    return found if all(is_static(placeholders[k].meta["val"]) for k in found) else []


def compile_backward(
    gm: GraphModule, inputs: Sequence[Any], compile_fx: Compile, instead: Instead
) -> Callable[[list], list]:
    """The backward graph behind AOTAutograd's boxed convention; it has `takes_none` where a gradient may be None.

    compile_fx   compiles a graph for inputs like `inputs`, of which these gradients are undefined
    instead      what runs where that fails in the user's backward pass
    """
    positions = fallback.optional(gradients, gm) or []
    if len(positions) < 2:
        return compile_fx(gm, inputs, ())

    def make(undefined: tuple[int, ...]) -> Callable[[list], list]:
        try:
            return compile_without(gm, inputs, undefined, compile_fx)
        except Exception as error:
            return with_zeros(gm, undefined, instead(gm, error))

    return by_absence(positions, make)


def compile_without(
    gm: GraphModule, inputs: Sequence[Any], undefined: tuple[int, ...], compile_fx: Compile
) -> Callable[[list], list]:
    """The backward graph, for when these gradients are None."""
    part = fallback.optional(without, gm, undefined)
    if part is None:
        return with_zeros(gm, undefined, compile_fx(gm, inputs, ()))
    return compile_fx(part, [x for k, x in enumerate(inputs) if k not in undefined], undefined)


def with_zeros(gm: GraphModule, undefined: tuple[int, ...], run: Callable[[list], list]) -> Callable[[list], list]:
    """The whole graph, given zeros for what is undefined."""
    values = [gm.graph.find_nodes(op="placeholder")[k].meta["val"] for k in undefined]
    kinds = [(tuple(value.shape), value.dtype, value.device) for value in values]

    def call(args: list) -> list:
        for k, (shape, dtype, device) in zip(undefined, kinds, strict=True):
            args.insert(k, torch.zeros(shape, dtype=dtype, device=device))
        return run(args)

    call._boxed_call = True  # type: ignore[attr-defined]
    return call


def by_absence(
    positions: Sequence[int], make: Callable[[tuple[int, ...]], Callable[[list], list]]
) -> Callable[[list], list]:
    """A boxed callable that takes None at `positions`, if there are any, and calls what `make` gives for those that are."""
    compiled: dict[tuple[int, ...], Callable[[list], list]] = {}

    def run(args: list) -> list:
        undefined = tuple([k for k in positions if args[k] is None]) if positions else ()
        for k in reversed(undefined):
            del args[k]
        if undefined not in compiled:
            compiled[undefined] = make(undefined)
        return compiled[undefined](args)

    run._boxed_call = True  # type: ignore[attr-defined]
    run.takes_none = bool(positions)  # type: ignore[attr-defined]  # wrappers keep a function's attributes
    return run


def is_static(value: Any) -> bool:
    """Whether it is a tensor of known sizes in the order that `aten.full` gives."""
    numbers = isinstance(value, FakeTensor) and all(isinstance(n, int) for n in value.shape)
    return numbers and value.is_contiguous()


def without(gm: GraphModule, undefined: Sequence[int]) -> GraphModule:
    """A copy of the graph without these placeholders.

    before:  %t = placeholder   %1 = view(%t)   %2 = add(%1, %g)      after:  uses of %2 use %g
    """
    graph = Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    placeholders = graph.find_nodes(op="placeholder")
    gone = [placeholders[k] for k in undefined]
    zero = set(gone)
    for node in list(graph.nodes):
        if is_linear(node.target) and node.args[0] in zero:
            zero.add(node)
        elif node.target is aten.add.Tensor and not node.kwargs and not zero.isdisjoint(node.args):
            rest = [x for x in node.args if x not in zero]
            if not rest:
                zero.add(node)
            elif isinstance(rest[0], Node) and is_alike(rest[0].meta["val"], node.meta["val"]):
                node.replace_all_uses_with(at_offset_of(node, rest[0]))
    for node in zero:
        if any(user not in zero for user in node.users):
            with graph.inserting_before(node):
                node.replace_all_uses_with(zeros(graph, node), delete_user_cb=lambda user: user not in zero)
    graph.eliminate_dead_code()
    for node in gone:
        graph.erase_node(node)
    return lazy_graph_module(gm, graph)  # its Python text is written where somebody reads or runs it


def is_linear(target: Any) -> bool:
    return target in LINEAR or (isinstance(target, torch._ops.OpOverload) and target.is_view)


def at_offset_of(node: Node, value: Node) -> Node:
    """`value`, or a copy of it where it lies elsewhere in its storage than `node`: views of `node` know their offsets there."""
    if value.meta["val"].storage_offset() == node.meta["val"].storage_offset():
        return value
    with node.graph.inserting_before(node):
        made = node.graph.call_function(aten.clone.default, (value,))
    made.meta = dict(node.meta)
    return made


def zeros(graph: Graph, like: Node) -> Node:
    value = like.meta["val"]
    kind = {"dtype": value.dtype, "device": value.device}
    made = graph.call_function(aten.full.default, ([*value.shape], 0), kind)
    made.meta = dict(like.meta)
    with value.fake_mode:
        made.meta["val"] = torch.empty(value.shape, **kind)
    return made


def is_alike(x: Any, y: torch.Tensor) -> bool:
    return isinstance(x, torch.Tensor) and (x.shape, x.dtype, x.stride()) == (y.shape, y.dtype, y.stride())


def pass_undefined_on(compiled: Callable) -> Callable:
    """Tells autograd's node of each call of a compiled function to pass on None, where its backward graph takes it."""

    @functools.wraps(compiled)
    def run(*args: Any) -> Any:
        results = compiled(*args)
        fallback.optional(leave_undefined_of, results)
        return results

    return run
