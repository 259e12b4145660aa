"""Sets `materialize_grads = False` on the autograd node of a compiled call, so that undefined gradients arrive as None, not as zeros.

Done only where the backward graph takes None: mlirc marks it with an attribute `takes_none`, which is found through private
attributes of AOTAutograd's autograd.Function. Without these attributes autograd makes zeros, which is always right.
"""

from typing import Any

import torch


def leave_undefined(results: Any) -> None:
    """Tells the node of the first result that has one."""
    for x in results:
        node: Any = x.grad_fn if isinstance(x, torch.Tensor) else None
        if node is not None and takes_none(getattr(type(node), "_forward_cls", None)):
            node.materialize_grads = False
            break


def takes_none(function: Any) -> bool:
    """Whether it is AOTAutograd's autograd.Function of a backward graph of ours, compiled or still to be."""
    if function is None or getattr(function, "maybe_subclass_metadata", function) is not None:
        return False
    waiting = getattr(getattr(function, "_lazy_backward_info", None), "bw_module", None)
    compiled = getattr(function, "compiled_bw", None)
    return getattr(compiled, "takes_none", False) or getattr(waiting, "meta", {}).get("takes_none", False)
