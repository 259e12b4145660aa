"""Operators on lists of tensors, `aten._foreach_*`, as one operator for each tensor, which passes see through.

aten._foreach_mul.Scalar([x, y], 2)    ->    [aten.mul.Scalar(x, 2), aten.mul.Scalar(y, 2)]

Norms and maxima on a GPU stay PyTorch's: its kernel takes a hundred tensors, of which each would be a launch or two of ours.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from mlirc.codegen.abi.reach import Missing, reach

aten = torch.ops.aten
REDUCTIONS = ("_foreach_norm", "_foreach_max", "_foreach_powsum")
OF_DATA = (aten._foreach_addcdiv.Tensor, aten._foreach_addcmul.Tensor)  # they read numbers from a tensor


@reach("list-operators", instead="operators on lists of tensors are called from Python", apart=True)
def list_operators() -> dict[Any, Callable[..., Any]]:
    """Decompositions: each operator's own code for any device, which calls an operator for each tensor."""
    found: dict[Any, Callable[..., Any]] = {
        op: partial(op._op_dk, torch._C.DispatchKey.CompositeExplicitAutograd) for op in functional()
    }
    for op in found:
        if op._schema.name.removeprefix("aten::") in REDUCTIONS:
            found[op] = partial(on_a_cpu, found[op])
    lists = [torch.ones(2), torch.zeros(3)]
    made = found[aten._foreach_add.List](lists, lists, alpha=2)
    if [x.tolist() for x in made] != [[3.0, 3.0], [0.0, 0.0, 0.0]]:
        raise Missing("another sum than that of the tensors")
    return found | {aten._foreach_zero.default: lambda tensors: [torch.zeros_like(x) for x in tensors]}


def on_a_cpu(decomposition: Callable, tensors: list[torch.Tensor], *args: Any, **kwargs: Any) -> Any:
    """What the decomposition makes; NotImplemented, which leaves the operator as it is, for tensors on a GPU."""
    return NotImplemented if any(x.is_cuda for x in tensors) else decomposition(tensors, *args, **kwargs)


def functional() -> Iterator[Any]:
    """The operators on lists that write to none and have such code."""
    for name in torch._C._dispatch_get_all_op_names():
        if not name.startswith("aten::_foreach_"):
            continue
        packet, _, overload = name.removeprefix("aten::").partition(".")
        op = getattr(getattr(aten, packet), overload or "default", None)
        if op is None or op._schema.is_mutable or op in OF_DATA:
            continue
        if torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeExplicitAutograd"):
            yield op
