"""Sets `materialize_grads = False` on the autograd node of a compiled call, so that undefined gradients arrive as None, not as zeros.

Done only where the backward graph takes None: mlirc marks it with an attribute `takes_none`, which is found through private
attributes of AOTAutograd's autograd.Function. Without these attributes autograd makes zeros, which is always right.

The gradient of an input that no differentiated result is computed from is then None. Eager does not go there; autograd, behind a compiled
call, calls hooks with None. Where a hook may hear of it, zeros are made.
"""

from typing import Any

import torch
from torch.compiler import disable


def leave_undefined(results: Any) -> None:
    """Tells the node of the first result that has one."""
    for x in results:
        node: Any = x.grad_fn if isinstance(x, torch.Tensor) else None
        if node is not None and takes_none(function := getattr(type(node), "_forward_cls", None)):
            if "makes_zeros" not in function.__dict__:
                make_zeros_for_hooks(function)
            node.materialize_grads = False
            break


def make_zeros_for_hooks(function: Any) -> None:
    """From now on the function's backward gives zeros, in place of None, for inputs of whose gradients a hook may hear."""
    first = function.backward

    def backward(ctx: Any, *given: Any) -> Any:
        boxed = len(given) == 1 and isinstance(given[0], list)
        undefined = any(x is None for x in (given[0] if boxed else given))
        gradients = first(ctx, *given)
        return with_zeros(ctx, gradients) if undefined else gradients

    function.backward = staticmethod(disable(backward, reason="is compiled"))
    function.makes_zeros = True


def with_zeros(node: Any, gradients: Any) -> Any:
    """The gradients that a node gives, with zeros for None where a hook may hear."""
    needed = [k for k, needs in enumerate(node.needs_input_grad) if needs]
    edges = [edge for edge in node.next_functions if edge[0] is not None]
    if len(needed) != len(edges) or len(gradients) != len(node.needs_input_grad):
        return gradients
    found = list(gradients)
    for k, (behind, result) in zip(needed, edges, strict=True):
        if found[k] is None:
            found[k] = zeros_for_hooks(behind, result)
    return tuple(found)


def zeros_for_hooks(behind: Any, result: int) -> torch.Tensor | None:
    """Zeros like a result of the node `behind`; None where that is a leaf without hooks. Of what is no leaf nothing tells whether hooks
    hear."""
    leaf: Any = getattr(behind, "variable", None)
    if isinstance(leaf, torch.Tensor):
        hooks = leaf._backward_hooks or getattr(leaf, "_post_accumulate_grad_hooks", None)
        return torch.zeros_like(leaf) if hooks else None
    like = behind._input_metadata[result]
    return torch.zeros(like.shape, dtype=like.dtype, device=like.device)


def takes_none(function: Any) -> bool:
    """Whether it is AOTAutograd's autograd.Function of a backward graph of ours, compiled or still to be."""
    if function is None or getattr(function, "maybe_subclass_metadata", function) is not None:
        return False
    waiting = getattr(getattr(function, "_lazy_backward_info", None), "bw_module", None)
    compiled = getattr(function, "compiled_bw", None)
    return getattr(compiled, "takes_none", False) or getattr(waiting, "meta", {}).get("takes_none", False)
