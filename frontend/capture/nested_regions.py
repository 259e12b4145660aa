"""Puts those bodies of nested_compile_region where they are called that are not to be functions of the compiled graph.

before:  out = invoke_subgraph(body, "name", x, w);  y = out[0]        body(a, b): return (relu(a @ b),)
after:   y = relu(x @ w)

A region only says that its code is worth compiling once. Its calls stay, and AOTAutograd traces it once, where its operators only compute:
with random numbers, with writes to what it is given, with operators that take functions or with factorizations, which raise errors
of their own (PyTorch gives calls of a region with such an effect no gradient), it is compiled with what is around it.
That is decided before AOTAutograd, which then sees what shares memory and what needs a gradient. importer/shared_functions.py has the rest.
"""

import operator
from collections.abc import Sequence
from operator import getitem
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from mlirc.codegen.process.signal_handlers import raise_of_handler
from mlirc.frontend.torch_compat.dynamo.lazy_graph import copied
from mlirc.frontend.torch_compat.older_torch import has_effect

ARITHMETIC = (operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow)
WRITES = {"setitem", "batch_norm", "instance_norm", "embedding_bag"} | {f"i{x.__name__}" for x in ARITHMETIC}
RANDOM = ("dropout", "rand", "bernoulli", "normal", "multinomial", "rrelu", "poisson", "gumbel", "fractional")
"""Parts of names of functions that may draw random numbers: what is held for one in vain is compiled with what is around it."""
CHECKED = ("cholesky", "inv", "solve", "eig", "lu_factor", "ldl_factor", "matrix_power", "linalg_cond")
"""Parts of names of functions that may raise an error by data, through `aten._linalg_check_errors`."""


def inline_regions(gm: GraphModule) -> None:
    """Rewrites a graph of Dynamo's. A failure leaves it as it was."""
    kept: dict[int, bool] = {}
    if all(stays(gm, node, kept) for node in gm.graph.nodes if is_region(node)):
        return
    before = copied(gm.graph)
    try:
        while regions := [node for node in gm.graph.nodes if is_region(node) and not stays(gm, node, kept)]:
            for node in regions:
                inline(gm, node)
        gm.graph.eliminate_dead_code(is_impure_node=lambda node: node.op != "get_attr")
    except Exception as error:
        raise_of_handler(error)
        gm.graph = before
    gm.recompile()


def is_region(node: Node) -> bool:
    target: Any = node.target
    return isinstance(target, torch._ops.HigherOrderOperator) and target.name() == "invoke_subgraph"


def stays(gm: GraphModule, node: Node, kept: dict[int, bool]) -> bool:
    """Whether a call stays; `kept` holds the answers of bodies that were looked at."""
    body, _, *_ = node.args
    region = attribute(gm, str(body.target))  # type: ignore[union-attr]
    if id(region) not in kept:
        kept[id(region)] = is_pure(region)
    return kept[id(region)]


def is_pure(region: Any) -> bool:
    """Whether a body only computes: it writes to nothing that it is given, and draws no random numbers."""
    if not isinstance(region, GraphModule):
        return False
    for node in region.graph.nodes:
        value = node.meta.get("example_value")
        for x in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(x, torch.Tensor) and x.layout is not torch.strided:
                return False
        if node.op == "get_attr" and isinstance(attribute(region, str(node.target)), GraphModule):
            return (
                False  # AOTAutograd loses functions within functions that are called outside too; the inner call stays
            )
        if node.op in ("call_function", "call_method") and not only_computes(node):
            return False
    return True


def only_computes(node: Node) -> bool:
    target: Any = node.target
    if isinstance(target, torch._ops.HigherOrderOperator):
        return False
    if isinstance(target, torch._ops.OpOverload):
        if target._schema.is_mutable or torch.Tag.nondeterministic_seeded in target.tags:
            return False
        return not has_effect(target) and not named(target._schema.name, CHECKED)
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    writes = name.endswith("_") and not name.endswith("__")
    given = any(node.kwargs.get(x) for x in ("out", "inplace", "training"))
    return not (writes or given or name in WRITES or named(name, (*RANDOM, *CHECKED)))


def named(name: str, words: Sequence[str]) -> bool:
    return any(word in name for word in words)


def inline(gm: GraphModule, node: Node) -> None:
    """Replaces one call by what its body does."""
    body, _, *given = node.args
    assert isinstance(body, Node)
    with gm.graph.inserting_before(node):
        results = results_of_copy(gm, attribute(gm, str(body.target)), given)
    replace_results(gm.graph, node, results)


def results_of_copy(gm: GraphModule, region: GraphModule, given: Sequence[Any]) -> Any:
    """What a body gives for these values, whose nodes are copied to the place where nodes are inserted."""
    values: dict[Node, Any] = dict(zip(region.graph.find_nodes(op="placeholder"), given, strict=True))
    results: Any = None
    for inner in region.graph.nodes:
        if inner.op == "output":
            results = torch.fx.map_arg(inner.args[0], values.__getitem__)
        elif inner.op == "get_attr":
            values[inner] = gm.graph.get_attr(held(gm, attribute(region, str(inner.target))))
            values[inner].meta = dict(inner.meta)
        elif inner.op != "placeholder":
            values[inner] = gm.graph.node_copy(inner, values.__getitem__)
    return results


def replace_results(graph: Graph, node: Node, results: Any) -> None:
    """Makes the users of a call's results use others, and erases the call."""
    for user in list(node.users):
        if user.target is not getitem:
            raise AssertionError(f"{user} takes all results of {node}")
        replace(graph, user, results[user.args[1]])
    graph.erase_node(node)


def replace(graph: Graph, node: Node, value: Any) -> None:
    """Makes all users of a node use a value, which may be a number."""
    if isinstance(value, Node):
        node.replace_all_uses_with(value)
    else:
        for user in list(node.users):
            user.args, user.kwargs = torch.fx.map_arg((user.args, user.kwargs), lambda n: value if n is node else n)
    graph.erase_node(node)


def attribute(gm: GraphModule, name: str) -> Any:
    value: Any = gm
    for part in name.split("."):
        value = getattr(value, part)
    return value


def held(gm: GraphModule, value: Any) -> str:
    """The name by which a graph's module holds a value."""
    number = 0
    while hasattr(gm, f"region_{number}"):
        if getattr(gm, f"region_{number}") is value:
            return f"region_{number}"
        number += 1
    setattr(gm, f"region_{number}", value)
    return f"region_{number}"
