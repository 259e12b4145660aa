"""Sets `materialize_grads = False` on the autograd node of a compiled call, so that undefined gradients arrive as None, not as zeros.

Done only where the backward graph takes None: mlirc marks it with an attribute `takes_none`, which is found through private
attributes of AOTAutograd's autograd.Function. Without these attributes autograd makes zeros, which is always right. Compiled autograd,
which copies the operators of a backward graph into its own, is given zeros.
"""

from typing import Any

import torch


def leave_undefined_of(results: Any) -> None:
    """Tells the node of the first result that has one."""
    for x in results:
        node: Any = x.grad_fn if isinstance(x, torch.Tensor) else None
        function = getattr(type(node), "_forward_cls", None)
        if has_plain_tensors(function) and is_marked(function):
            leave_undefined(node, function)
            break


def leave_undefined(node: Any, function: Any) -> None:
    """Tells a node of the class that has this forward pass."""
    give_zeros_to_compiled_autograd(function)
    node.materialize_grads = False


def give_zeros_to_compiled_autograd(function: Any) -> bool:
    """Has nodes of a class make zeros from where compiled autograd asks for their key on; whether it asks for one."""
    first = getattr(function, "_compiled_autograd_key", None)
    if first is None or getattr(first, "gives_zeros", False):
        return first is not None

    def key(ctx: Any) -> Any:
        ctx.materialize_grads = True
        return first(ctx)

    key.gives_zeros = True  # type: ignore[attr-defined]
    function._compiled_autograd_key = staticmethod(key)
    return True


def is_marked(function: Any) -> bool:
    """Whether it is AOTAutograd's autograd.Function of a backward graph that takes None, compiled or still to be."""
    waiting = getattr(getattr(function, "_lazy_backward_info", None), "bw_module", None)
    compiled = getattr(function, "compiled_bw", None)
    return getattr(compiled, "takes_none", False) or getattr(waiting, "meta", {}).get("takes_none", False)


def has_plain_tensors(function: Any) -> bool:
    return function is not None and getattr(function, "maybe_subclass_metadata", function) is None


def zeros_of(node: Any, k: int) -> torch.Tensor:
    """What autograd would make for the gradient of result k."""
    kind = node._input_metadata[k]
    return torch.zeros(kind.shape, dtype=kind.dtype, device=kind.device)
