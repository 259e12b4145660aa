"""Has what a user's hooks of saved tensors return lie in memory as what was saved.

`torch.autograd.graph.saved_tensors_hooks` pack and unpack what a compiled call saves for its backward pass, too. What an unpack hook returns may
have other strides: it was compressed, or comes from another device. A compiled backward graph reads memory by the strides that the saved tensor
had, as AOTAutograd's graph was traced for them.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.fx import GraphModule

from mlirc.codegen.abi.lazy_tensors import in_memory, is_lazy
from mlirc.codegen.abi.reach import reach

PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def with_layouts(compiled: Callable) -> Callable:
    """The compiled callable of a graph with gradients, whose saved tensors come back from hooks as they were."""
    innermost = innermost_hooks()
    if innermost is None:
        return compiled

    def run(*args: Any) -> Any:
        hooks = innermost(True)
        if hooks is None or isinstance(hooks[0], GraphModule):  # those AOTAutograd has put into its graphs
            return compiled(*args)
        with in_layout(*hooks):
            return compiled(*args)

    return run


def in_layout(pack: Callable, unpack: Callable) -> saved_tensors_hooks:
    """These hooks, with the layout beside what they pack."""
    return saved_tensors_hooks(lambda x: (like(x), pack(x)), lambda packed: packed[0](unpack(packed[1])))


def like(x: torch.Tensor) -> Callable[[Any], Any]:
    """What gives a tensor the layout, dtype and device of `x`. Raises RuntimeError for other sizes."""
    if type(x) not in PLAIN or x.layout is not torch.strided:
        return lambda given: given
    shape, stride, offset, dtype, device = x.shape, x.stride(), x.storage_offset(), x.dtype, x.device

    def lay_out(given: Any) -> Any:
        if type(given) not in PLAIN or given.layout is not torch.strided:
            return given
        if given.shape != shape:
            raise RuntimeError(f"a hook of saved tensors returned sizes {[*given.shape]} for {[*shape]}")
        if is_lazy(given):
            given = in_memory(given)
        place = given.stride(), given.storage_offset(), given.dtype, given.device
        if place == (stride, offset, dtype, device):
            return given
        with torch.no_grad():
            extent = 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True)) if given.numel() else 0
            made = torch.empty(offset + extent, dtype=dtype, device=device).as_strided(shape, stride, offset)
            to = made
            for d, s in enumerate(stride):
                if s == 0:  # equal elements, in one place
                    to, given = to[(slice(None),) * d + (slice(1),)], given[(slice(None),) * d + (slice(1),)]
            to.copy_(given)
        return made

    return lay_out


@reach("saved-tensor-hooks", instead="hooks of saved tensors are to return the strides that were saved", apart=True)
def innermost_hooks() -> Any:
    """A function that gives the hooks in force, (pack, unpack) or None."""
    native: Any = torch._C
    innermost = native._autograd._top_saved_tensors_default_hooks
    hooks = (lambda x: x), (lambda x: x)
    with saved_tensors_hooks(*hooks):
        assert innermost(True) == hooks
    return innermost
