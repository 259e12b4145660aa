"""Graphs of Dynamo's whose regions run as the program does without Dynamo: then a gradient has a gradient where the program's has one.

cond(n > 1, f, g, ...)           f(...), where the condition is a number
invoke_subgraph(f, ...)          f(...)
autograd_function_apply(f, b)    a torch.autograd.Function of f and b. PyTorch's own computes b without history.
"""

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.fx import Graph, GraphModule

from mlirc.codegen.abi.reach import Missing, reach
from mlirc.frontend.errors import UnsupportedGraph
from mlirc.frontend.torch_compat.dynamo.backward_source import frames_behind, keeps_history
from mlirc.frontend.torch_compat.dynamo.lazy_graph import forward_of, without_notes
from mlirc.frontend.torch_compat.dynamo.trees import tree_leaves

LIMIT = "mlirc does not currently support double backward here: "
MODES = LIMIT + "a torch.autograd.Function may turn gradients on or off in its backward function"
PLAIN: dict[Any, Callable] = {}
"""What runs in place of an operator with regions."""
MADE: "WeakKeyDictionary[GraphModule, GraphModule]" = WeakKeyDictionary()


def eager_forward(gm: GraphModule) -> Callable:
    """What calls a graph of Dynamo's in eager. A gradient of a gradient is right, or raises UnsupportedGraph where it is asked for."""
    if not has_regions(gm):
        return forward_of(gm)
    if gm not in MADE:
        MADE[gm] = with_eager_regions(gm, instead={function: function_or_limit})
    return forward_of(MADE[gm])


def has_regions(gm: GraphModule) -> bool:
    parts = [part for part in gm.modules() if isinstance(part, GraphModule)]
    return len(parts) > 1 and any(node.target in PLAIN for part in parts for node in part.graph.nodes)


def with_eager_regions(gm: GraphModule, instead: dict[Callable, Callable] | None = None) -> GraphModule:
    """A copy that holds no fake tensors, stack traces or histories. It raises UnsupportedGraph where it runs a Function whose gradients may have
    other gradients than in eager, unless something else runs `instead`."""
    made = without_notes(gm)
    for name, part in made.named_children():
        if isinstance(part, GraphModule):
            setattr(made, name, with_eager_regions(part, instead))
    changed = False
    for node, of in zip(made.graph.nodes, gm.graph.nodes, strict=True):
        if node.op == "call_function" and node.target in PLAIN:
            plain = PLAIN[node.target]
            node.target, changed = (instead or {}).get(plain, plain), True
            if plain is function:
                name = str(node.args[1].target)
                frames = frames_behind(of, getattr(gm, name))
                if not keep_history(backward := getattr(made, name)):
                    frames = None
                backward.frames = frames
    if changed:
        made.recompile()
    return made


def branch(condition: Any, yes: Callable, no: Callable, operands: Sequence[Any] = ()) -> Any:
    if isinstance(condition, torch.Tensor):
        return torch.ops.higher_order.cond(condition, yes, no, operands)
    return (yes if condition else no)(*operands)


def region(body: Callable, name: str, *operands: Any) -> Any:
    return body(*operands)


def function(forward: Callable, backward: Any, *operands: Any, **marks: Any) -> Any:
    """What a torch.autograd.Function gives. `forward` gives its results, and what `backward` reads besides their gradients."""
    apply = function_with_history()
    if apply is None or not keeps_history(backward.frames):
        raise UnsupportedGraph(MODES)
    return apply(forward, backward, *operands, **marks)


def function_or_limit(forward: Callable, backward: Any, *operands: Any, **marks: Any) -> Any:
    """What a torch.autograd.Function gives. Where its gradients may have other gradients than in eager, those raise UnsupportedGraph."""
    given = [x for x in operands if isinstance(x, torch.Tensor) and x.requires_grad]
    transforms = getattr(torch._C, "_are_functorch_transforms_active", lambda: True)
    if not given or not torch.is_grad_enabled() or transforms():
        return torch.ops.higher_order.autograd_function_apply(forward, backward, *operands, **marks)
    if (apply := function_with_history()) is not None and keeps_history(backward.frames):
        return apply(forward, backward, *operands, **marks)
    results = torch.ops.higher_order.autograd_function_apply(forward, backward, *operands, **marks)
    nodes = {x.grad_fn for x in tree_leaves(results) if isinstance(x, torch.Tensor) and x.grad_fn is not None}

    def limited(gradients: tuple, _: tuple) -> tuple | None:
        return Limited.apply(len(given), *given, *gradients) if torch.is_grad_enabled() else None

    for node in nodes:
        node.register_hook(limited)
    return results


class Limited(torch.autograd.Function):
    """Gradients, `kept` inputs of theirs before them, whose own gradient raises."""

    @staticmethod
    def forward(ctx: Any, kept: int, *tensors: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        return tuple(x if x is None else x.view_as(x) for x in tensors[kept:])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise UnsupportedGraph(MODES)


PLAIN[torch.ops.higher_order.cond] = branch
PLAIN[torch.ops.higher_order.invoke_subgraph] = region
PLAIN[torch.ops.higher_order.autograd_function_apply] = function


def keep_history(backward: GraphModule) -> bool:
    """Has a Function's backward graph run with history where its caller does. False where it does more than run without it as a whole."""
    modes = [node for node in backward.graph.nodes if node.target is torch._C._set_grad_enabled]
    if modes and [node.args for node in modes] != [(False,), (True,)]:
        return False
    for node in modes:
        backward.graph.erase_node(node)
    backward.recompile()
    return True


@reach(
    "function-regions",
    instead="the gradient of a gradient of a compiled torch.autograd.Function is an error",
    apart=True,
)
def function_with_history() -> Callable:
    """What runs the two graphs of a Function. It gave the gradient that PyTorch's own way gives, and a right gradient of that."""
    (first,) = _gradient_of_cube(
        torch.ops.higher_order.autograd_function_apply, x := torch.tensor([2.0, 3.0], requires_grad=True)
    )
    (again,) = _gradient_of_cube(_apply, x)
    (second,) = torch.autograd.grad(again.sum(), x)
    if not torch.equal(first, again) or not torch.equal(second, 6 * x):
        raise Missing("the gradient of a cube is another")
    return _apply


def _apply(forward: Callable, backward: Callable, *operands: Any, **marks: Any) -> Any:
    class Applied(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *operands: Any) -> Any:
            results, read = forward(*operands)
            several = results if isinstance(results, (tuple, list)) else [results]
            ctx.mark_dirty(*(several[k] for k in marks.get("dirty_idx", ())))
            ctx.mark_non_differentiable(*(several[k] for k in marks["non_differentiable_idx"]))
            ctx.save_for_backward(*(x if isinstance(x, torch.Tensor) else None for x in read))
            ctx.read = [None if isinstance(x, torch.Tensor) else x for x in read]
            return results

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            read = [x if saved is None else saved for x, saved in zip(ctx.read, ctx.saved_tensors, strict=True)]
            return backward(*gradients, *read)

    return Applied.apply(*operands)


def _gradient_of_cube(apply: Callable, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The gradient of x * x * x by a Function as Dynamo writes it."""
    forward, backward = Graph(), Graph()
    given = forward.placeholder("x")
    forward.output(((forward.call_function(torch.pow, (given, 3)),), (given,)))
    of, given = backward.placeholder("of"), backward.placeholder("x")
    backward.call_function(torch._C._set_grad_enabled, (False,))
    made = backward.call_function(torch.mul, (of, 3))
    made = backward.call_function(torch.mul, (made, backward.call_function(torch.mul, (given, given))))
    backward.call_function(torch._C._set_grad_enabled, (True,))
    backward.output((made,))
    graphs = GraphModule({}, forward), GraphModule({}, backward)
    if apply is _apply and not keep_history(graphs[1]):
        raise Missing("what turns gradients off is not found")
    with torch.enable_grad():
        (result,) = apply(*graphs, x, non_differentiable_idx=[], saved_for_backward_idx=[0])
        return torch.autograd.grad(result, x, torch.ones_like(x), create_graph=True)
