"""Puts operators in place of flex_attention and its gradients, so that these are compiled with what is around them.

before:  %f = flex_attention(%q, %k, %v, score_graph, (..., %counts, %indices, ..., mask_graph), 0.125, {}, (%bias,), ());  %out = %f[0]
after:   %s = flex_scores(%q, %k, 0.125);  %m = score_graph over all of %s;  %seen = mask_graph over all places
         %out, %lse, %max = flex_attend(%m, %seen, %q, %k, %v, [%counts, %indices], 128, 128, 0.125, [0, 1, 2, 3])

These are operators of ours (dialects/ops/nn/flex_operators.py), of which a kernel is made. Where none is generated, plain operators
stand for them: %s = bmm(%q, %k^T) * 0.125 and so on. AOTAutograd has traced both passes by then, so that the forward pass saves what PyTorch's
own kernels save: the result and the logarithms of the sums.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import getitem
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.node import map_arg

from mlirc.codegen.process.signal_handlers import raise_of_handler
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.frontend.capture import flex_call
from mlirc.frontend.capture.flex_call import FlexCall, without_kernel
from mlirc.frontend.errors import UnsupportedGraph
from mlirc.frontend.fallback import fallback
from mlirc.frontend.graph.source_line import last_line
from mlirc.frontend.importer.bodies import DENSE, FLEX_ATTENTION, attribute, is_flex_attention
from mlirc.frontend.options import Options
from mlirc.frontend.strides import dimension_order
from mlirc.frontend.torch_compat.dynamo.symbolic_shapes import make_fx
from mlirc.frontend.torch_compat.fake_tensors import detect_fake_mode

log = logging.getLogger("mlirc")
aten = torch.ops.aten
OF_BUFFERS = 3  # the position of the gradients of captured tensors among a backward call's results


@dataclass(frozen=True)
class Site:
    """What is known of a call beside its arguments.

    note                  records why no kernel is generated for it
    gradients_of_buffers  whether somebody reads the gradient of a tensor that score_mod captured
    """

    note: Callable[[str], None]
    gradients_of_buffers: bool


def expand_flex_attention(gm: GraphModule, options: Options) -> None:
    """Rewrites a graph of AOTAutograd's. What fails stays an operator that PyTorch runs in eager, which is counted.

    `gm.meta[DENSE]` has the calls that no kernel is generated for: why, and the user's source line.
    """
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

    def note(rule: str) -> None:
        gm.meta.setdefault(DENSE, []).append((target.name(), rule, last_line(node)))

    site = Site(note, is_read(node, OF_BUFFERS))

    def run(*given: Any) -> Any:
        known = dict(zip(inputs, given, strict=True))

        def given_for(x: Node) -> Any:
            return known[x] if x in known else Function(attribute(gm, x)).run

        arguments: Any = map_arg(node.args, given_for)
        return calls(site, node.meta["val"], *arguments)

    with mode, torch.no_grad():
        return make_fx(run, decomposition_table=decompositions())(*values)


def is_read(node: Node, position: int) -> bool:
    """Whether somebody reads a tensor among the results at this position."""
    items = [item for item in node.users if item.target is getitem and item.args[1] == position]
    return any(part.target is not getitem or len(part.users) > 0 for item in items for part in item.users)


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
    site: Site,
    promised: Any,
    q: Any,
    k: Any,
    v: Any,
    score_mod: Callable,
    mask: tuple,
    scale: float,
    options: Any,
    *buffers: tuple,
) -> tuple:
    call = flex_call_of(score_mod, mask, scale, *buffers)
    rule, order = without_kernel(call, q, k, v), order_of(promised[0])
    if not rule and q.device.type == "cpu" and order[-1] != 3:
        rule = "ROWS SIDE BY SIDE"
    return flex_call.forward(with_operators(call, rule, site), q, k, v, order)


def backward_call(
    site: Site,
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
    call = flex_call_of(score_mod, mask, scale, *buffers)
    rule = without_kernel(call, q, k, v)
    if not rule and q.device.type == "cpu":
        rule = "GRADIENTS ON A CPU"
    if not rule and site.gradients_of_buffers:
        rule = "GRADIENT OF A CAPTURED TENSOR"  # it sums over all scores
    if not rule and call.transposed is None:
        rule = "NO LISTS OF QUERIES"
    call = with_operators(call, rule, site)
    orders = [d for x in promised[:3] for d in order_of(x)]
    *gradients, of_buffers = flex_call.backward(call, joint, q, k, v, out, lse, dout, dlse, orders)
    return *gradients, tuple(of_buffers)


def flex_call_of(
    score_mod: Callable, mask: tuple, scale: float, score_buffers: tuple = (), mask_buffers: tuple = ()
) -> FlexCall:
    """`mask` as PyTorch gives it: two lengths, counts and indices of partial and of full blocks, the same of blocks of queries, more, the
    sizes of a block, mask_mod."""
    _, _, *lists = mask[:10]
    *_, rows, columns, mask_mod = mask
    blocks, transposed = ([x for x in part if x is not None] for part in (lists[:4], lists[4:]))
    both = transposed if len(transposed) == len(blocks) else None
    return FlexCall(score_mod, mask_mod, scale, score_buffers, mask_buffers, blocks, both, rows, columns)


def with_operators(call: FlexCall, rule: str, site: Site) -> FlexCall:
    """The call with the operators that kernels are generated for; plain ones where `rule` says why none is, which is noted."""
    if rule:
        site.note(rule)
        return call
    return replace(call, operators=torch.ops.mlirc)


def order_of(like: torch.Tensor) -> list[int]:
    """The dimensions of a tensor in the order in memory, the outermost first."""
    return list(reversed(dimension_order.order(like.shape, [like.stride()])))


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
