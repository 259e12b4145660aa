"""The autograd node of a call of what AOTAutograd compiled, and the gradients of that call that no compiled graph gives: those with a graph
(`create_graph=True`), and those that stand for several (`is_grads_batched`).

AOTAutograd's node saves tensors without their history: the gradient it gives depends, for autograd, on those of its saved tensors alone that
are inputs. A gradient of that gradient raises, or is None or zeros where none of them is. PyTorch promises nothing of its class; where
`_forward_cls` is not there, all is as under `aot_eager`.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch.compiler import disable

from mlirc.codegen.abi.lazy_tensors import is_batched
from mlirc.frontend.torch_compat.aot_autograd import compiled_autograd
from mlirc.frontend.torch_compat.aot_autograd.gradient_strides import laying_out_batches
from mlirc.frontend.torch_compat.aot_autograd.undefined_tangents import (
    give_zeros_to_compiled_autograd,
    has_plain_tensors,
    is_marked,
    leave_undefined,
    zeros_of,
)

Differentiate = Callable[[Any, list, Callable[[], tuple]], tuple]
"""Of (node, gradients of results, first): the gradients of inputs, `first()`, with a history."""

LeaveOut = Callable[[Any, list[bool], tuple], tuple]
"""Of (node, whether each result has no gradient, gradients of inputs): the latter, with None where eager has none."""

STEPS = 4  # views that AOTAutograd takes again of a result, at most, are looked behind


def node_of(results: Sequence[Any]) -> Any:
    """The node of the call that gave these results; None where there is none.

    A result that is a view of an input may have the node of an earlier call behind it, whose `given` somebody has noted.
    """
    for x in results:
        nodes: list[Any] = [x.grad_fn] if isinstance(x, torch.Tensor) and x.grad_fn is not None else []
        for _ in range(STEPS):
            for node in nodes:
                if is_call(node) and not hasattr(node, "given"):
                    return node
            nodes = [made for n in nodes if not is_call(n) for made, _ in n.next_functions if made is not None]
    return None


def behind(result: Any, call: Any) -> list[Any]:
    """The nodes that were made after a call for a result that is a view of one of its inputs, the first one first.

    The node of a leaf (AccumulateGrad), which is the input's own and has the largest number of all, is none of them.
    """
    node, found = result.grad_fn if isinstance(result, torch.Tensor) else None, []
    while node is not None and node is not call and node._sequence_nr() > call._sequence_nr() and node.next_functions:
        found.insert(0, node)
        node = node.next_functions[0][0] if len(node.next_functions) == 1 else None
    return [] if node is call else found


def is_call(node: Any) -> bool:
    return hasattr(getattr(type(node), "_forward_cls", None), "_aot_id")


def differentiate_with(node: Any, differentiate: Differentiate, leave_out: LeaveOut) -> None:
    """Makes the class of a node pass gradients that get a graph, or that stand for several, through `differentiate`, from now on, and what others
    give through `leave_out`."""
    function = type(node)._forward_cls
    if function.__dict__.get("differentiate") is differentiate:
        return
    first = function.backward

    def backward(ctx: Any, *given: Any) -> Any:
        boxed = len(given) == 1 and isinstance(given[0], list)
        gradients = given[0] if boxed else given
        absent = [x is None for x in gradients]
        if (undefined := getattr(ctx, "undefined", None)) is not None:
            gradients = given[0] if boxed else list(given)
            undefined[:] = [k for k, is_absent in enumerate(absent) if is_absent] if True in absent else ()
            for k in undefined:
                gradients[k] = zeros_of(ctx, k)
            given = given if boxed else tuple(gradients)
        if compiled_autograd.is_on():
            return first(ctx, *given)
        if not torch.is_grad_enabled() and not any(map(is_batched, gradients)):
            found = first(ctx, *given)
            return leave_out(ctx, absent, found) if True in absent else found
        gradients = list(gradients)

        def once() -> Any:
            around = laying_out_batches() if any(map(is_batched, gradients)) else nullcontext()
            with torch.no_grad(), around:
                return first(ctx, *([list(gradients)] if boxed else gradients))

        return differentiate(ctx, gradients, once)

    function.backward = staticmethod(disable(backward, reason="is compiled"))
    function.differentiate = differentiate


def note_undefined(node: Any, undefined: list[int]) -> None:
    """Has autograd pass on what it has no gradient of. Where the backward graph wants zeros for that, `undefined` says, in each backward pass, of
    which results of the call: a gradient of these is 0, where eager's is None. After `differentiate_with`."""
    function = type(node)._forward_cls
    if not has_plain_tensors(function):
        return
    if is_marked(function):
        leave_undefined(node, function)
    elif hasattr(node, "_input_metadata") and give_zeros_to_compiled_autograd(function):
        node.undefined = undefined
        node.materialize_grads = False


def returns_more_or_less(node: Any, hidden: Collection[int], written: Collection[int]) -> bool:
    """Whether the call's results are others than those of the graph and the values that it writes to `written`, in number or order, or the graph
    writes to an input that is neither one of these nor of `hidden`. True where that is not known."""
    function: Any = type(node)._forward_cls
    known: Any = getattr(function, "metadata", None)
    try:
        return bool(
            not set(rewritten(node)).issubset(written)
            or len(views_of_bases(node)) != known.num_intermediate_bases
            or function.maybe_subclass_metadata is not None
            or any(
                info.mutates_metadata or (info.mutates_data and k not in written and k not in hidden)
                for k, info in enumerate(known.input_info)
            )
        )
    except AttributeError:
        return True


def has_effects(node: Any) -> bool:
    """Whether AOTAutograd orders effects in the call's graph: of prints, of the checks of factorizations. True where that is not known."""
    return bool(getattr(getattr(type(node)._forward_cls, "metadata", None), "tokens", True))


def rewritten(node: Any) -> list[int]:
    """The inputs whose new values are the first results of a call, before AOTAutograd copies them there. Raises AttributeError where that is not
    known."""
    return list(type(node)._forward_cls.metadata.mutated_inp_runtime_indices)


def views_of_bases(node: Any) -> list[int]:
    """For each tensor that AOTAutograd adds to the results of a call, because some of these are views of it, the place of one of them. Raises
    AttributeError where that is not known."""
    known: Any = type(node)._forward_cls.metadata
    found: dict[int, int] = {}
    for place, info in enumerate(known.output_info):
        if info.output_type.name in ("alias_of_intermediate", "alias_of_intermediate_save_as_output"):
            found.setdefault(info.base_idx, place)
    return [found[k] for k in sorted(found)]


def bases_of(node: Any, results: Sequence[Any]) -> list[torch.Tensor]:
    """The tensors that AOTAutograd adds to the results of a call, of results that were computed in eager."""
    return [results[k]._base for k in views_of_bases(node)]


def is_heard(x: Any) -> bool:
    """Whether a hook may hear of a tensor's gradient: where it is no leaf, a hook of any tensor or node that it was computed
    from, which nothing tells of. Eager, where no result is computed from it, calls none; autograd, behind a compiled call, calls them with None. They
    work with zeros, which the compiled backward graph gives."""
    if not isinstance(x, torch.Tensor) or not x.requires_grad:
        return False
    return not x.is_leaf or bool(getattr(x, "_backward_hooks", None) or getattr(x, "_post_accumulate_grad_hooks", None))
