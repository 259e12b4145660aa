"""Puts plain operators in place of flex_attention and its gradients, so that these are compiled with what is around them.

before:  %f = flex_attention(%q, %k, %v, score_graph, (..., %counts, %indices, ..., mask_graph), 0.125, {}, (%bias,), ());  %out = %f[0]
after:   %s = bmm(%q, %k^T) * 0.125;  %m = where(%seen, score_graph over all of %s, -inf);  %out = bmm(softmax(%m), %v)

AOTAutograd has traced both operators by then, so that the forward pass saves what PyTorch's own kernels save: the result and the
logarithms of the sums. dense_attention.py says what is computed.
"""

import logging
from collections.abc import Callable, Sequence
from operator import getitem
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.node import map_arg

from mlirc.codegen.process.signal_handlers import raise_of_handler
from mlirc.frontend.capture import dense_attention
from mlirc.frontend.capture.dense_attention import BlockLists, FlexCall
from mlirc.frontend.errors import UnsupportedGraph
from mlirc.frontend.fallback import fallback
from mlirc.frontend.importer.bodies import FLEX_ATTENTION, attribute, is_flex_attention
from mlirc.frontend.options import Options
from mlirc.frontend.strides import dimension_order
from mlirc.frontend.torch_compat.dynamo.symbolic_shapes import make_fx
from mlirc.frontend.torch_compat.fake_tensors import detect_fake_mode

log = logging.getLogger("mlirc")
aten = torch.ops.aten


def expand_flex_attention(gm: GraphModule, options: Options) -> None:
    """Rewrites a graph of AOTAutograd's. What fails stays an operator that PyTorch runs in eager, which is counted."""
    nodes = [node for node in gm.graph.nodes if node.op == "call_function" and is_flex_attention(node.target)]
    for node in nodes:
        try:
            expand(gm, node)
        except Exception as error:
            raise_of_handler(error)
            if options.fallback == "error":
                raise
            log.warning("mlirc: %s runs in eager: %s", node, fallback.reason(error))
    if nodes:
        gm.graph.eliminate_dead_code()
        gm.recompile()


def expand(gm: GraphModule, node: Node) -> None:
    """Rewrites one call."""
    traced = traced_call(gm, node)
    with gm.graph.inserting_before(node):
        results = inlined(gm, node, traced)
    replace_items(node, results)
    gm.graph.erase_node(node)


# ---- what is computed, as a graph


def traced_call(gm: GraphModule, node: Node) -> GraphModule:
    """The graph of a call, whose placeholders stand for the tensors and sizes among `inputs_of` the node."""
    target: Any = node.target
    inputs = inputs_of(gm, node)
    values = [x.meta["val"] for x in inputs]
    mode = detect_fake_mode(values)
    if mode is None:
        raise UnsupportedGraph("its tensors are no fake tensors")
    calls = dict(zip(FLEX_ATTENTION, (forward_call, backward_call), strict=True))[target.name()]

    def run(*given: Any) -> Any:
        known = dict(zip(inputs, given, strict=True))

        def given_for(x: Node) -> Any:
            return known[x] if x in known else Function(attribute(gm, x)).run

        arguments: Any = map_arg(node.args, given_for)
        return calls(node.meta["val"], *arguments)

    with mode, torch.no_grad():
        return make_fx(run, decomposition_table=decompositions())(*values)


class Function(Interpreter):
    """Runs a score_mod or mask_mod within torch.vmap.

    Its own numbers are made where they are used, and a table is indexed by vectors of one element: of fake tensors, an index for all
    beside one that is mapped fails without dimensions.
    """

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        value: Any = super().get_attr(target, args, kwargs)
        if not isinstance(value, torch.Tensor) or value.dim() > 0:
            return value
        return torch.full((), value.item(), dtype=value.dtype, device=value.device)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target is aten.lift_fresh_copy.default:
            return args[0]
        if target is aten.index.Tensor and all(x is not None and x.dim() == 0 for x in args[1]):
            return target(args[0], [x.unsqueeze(0) for x in args[1]]).squeeze(0)
        return super().call_function(target, args, kwargs)


def inputs_of(gm: GraphModule, node: Node) -> list[Node]:
    return [x for x in node.all_input_nodes if x.op != "get_attr" or not isinstance(attribute(gm, x), GraphModule)]


def forward_call(
    promised: Any, q: Any, k: Any, v: Any, score_mod: Callable, mask: tuple, scale: float, options: Any, *buffers: tuple
) -> tuple:
    out, *others = dense_attention.forward(flex_call(score_mod, mask, scale, *buffers), q, k, v)
    return laid_out(out, promised[0]), *others


def backward_call(
    promised: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    lse: Any,
    dout: Any,
    dlse: Any,
    score_mod: Callable,
    joint: Callable,
    mask: tuple,
    scale: float,
    options: Any,
    *buffers: tuple,
) -> tuple:
    call = flex_call(score_mod, mask, scale, *buffers)
    *gradients, of_buffers = dense_attention.backward(call, joint, q, k, v, out, lse, dout, dlse)
    laid = [laid_out(x, like) for x, like in zip(gradients, promised, strict=False)]
    return *laid, tuple(of_buffers)


def flex_call(
    score_mod: Callable, mask: tuple, scale: float, score_buffers: tuple = (), mask_buffers: tuple = ()
) -> FlexCall:
    """`mask` as PyTorch gives it: two lengths, counts and indices of partial and of full blocks, more, the sizes of a block, mask_mod."""
    _, _, counts, indices, full_counts, full_indices, *_, rows, columns, mask_mod = mask
    full = None if full_counts is None else (full_counts, full_indices)
    blocks = BlockLists(rows, columns, (counts, indices), full)
    return FlexCall(score_mod, mask_mod, scale, score_buffers, mask_buffers, blocks)


def laid_out(x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """The tensor with its dimensions in the order in memory that those of `like` have."""
    order = list(reversed(dimension_order.order(like.shape, [like.stride()])))
    return x.permute(order).contiguous().permute([order.index(d) for d in range(len(order))])


def decompositions() -> dict[Any, Callable]:
    """The operators that PyTorch's score_mods have in place of indexing, whose gradients add up over all scores."""
    scatter = getattr(torch.ops.flex_lib, "zeros_and_scatter", None)
    return {} if scatter is None else {scatter.default: zeros_and_scatter}


def zeros_and_scatter(shape: Sequence[Any], indices: Sequence[torch.Tensor], values: torch.Tensor) -> torch.Tensor:
    return aten.index_put(values.new_zeros(shape), indices, values, accumulate=True)


# ---- that graph in place of the call


def inlined(gm: GraphModule, call: Node, traced: GraphModule) -> Any:
    """The results of the traced graph's nodes, copied to where nodes are inserted."""
    known: dict[Node, Node] = dict(zip(traced.graph.find_nodes(op="placeholder"), inputs_of(gm, call), strict=True))
    source = {name: x for name, x in call.meta.items() if name not in ("val", "tensor_meta", "original_aten")}
    for node in traced.graph.nodes:
        if node.op == "get_attr":
            name = free_name(gm, call.name)
            setattr(gm, name, attribute(traced, node))
            known[node] = gm.graph.get_attr(name)
        elif node.op == "call_function":
            known[node] = gm.graph.node_copy(node, known.__getitem__)
        if node.op in ("get_attr", "call_function"):
            known[node].meta = {**node.meta, **source}
    return map_arg(traced.graph.output_node().args[0], known.__getitem__)


def free_name(gm: GraphModule, start: str) -> str:
    number = 0
    while hasattr(gm, f"{start}_constant_{number}"):
        number += 1
    return f"{start}_constant_{number}"


def replace_items(node: Node, results: Any) -> None:
    """Puts `results`, a tuple of nodes, None and such tuples, where the node's items are read."""
    for item in list(node.users):
        if item.target is not getitem:
            raise UnsupportedGraph(f"{item} reads all results of {node}")
        result = results[item.args[1]]
        if isinstance(result, (tuple, list)):
            replace_items(item, result)
        elif isinstance(result, Node):
            item.replace_all_uses_with(result)
        else:
            for user in list(item.users):
                user.args = map_arg(user.args, lambda x, item=item, result=result: result if x is item else x)
        item.graph.erase_node(item)
