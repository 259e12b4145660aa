"""Maps the results of a program to those of its graph: see Imported.outputs, and result_views.py for those that share memory."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from mlirc.codegen.abi.lazy_tensors import out_of_memory
from mlirc.frontend.torch_compat.fake_tensors import storage_id

Outputs = Sequence[tuple[str, Any]]
READ: dict[str, Callable[[Any], Any]] = {
    "result": lambda x: x,
    "item": lambda x: x.item(),
    "truth": lambda x: bool(x.item()),
    "zeros": out_of_memory,
    "alias": torch.ops.aten.alias.default,  # a tensor object of its own
}


def reader(outputs: Outputs) -> Callable[[list], list] | None:
    """What makes the graph's results of the program's; None where they are the same."""
    if all(output == ("result", k) for k, output in enumerate(outputs)):
        return None
    if not any(kind in ("view", "detach") for kind, _ in outputs):
        return lambda given: [READ[kind](given[x]) if kind in READ else x for kind, x in outputs]

    hidden = {x[0] for kind, x in outputs if kind in ("view", "detach") and x[0] == x[1]}

    def read(given: list) -> list:
        bases = {k: whole(given[k]) for k in hidden}
        made: dict[tuple[str, int], torch.Tensor] = {}  # a result that is returned twice is one object
        results = []
        for kind, x in outputs:
            if kind in ("view", "detach"):
                key = kind, x[0]
                if key not in made:
                    made[key] = view(given[x[0]], bases[x[1]] if x[1] in bases else given[x[1]], kind)
                results.append(made[key])
            else:
                results.append(READ[kind](given[x]) if kind in READ else x)
        return results

    return read


def whole(x: torch.Tensor) -> torch.Tensor:
    """All of the memory that `x` lies in."""
    return torch.empty(0, dtype=x.dtype, device=x.device).set_(x.untyped_storage())


def view(x: torch.Tensor, base: torch.Tensor, kind: str) -> torch.Tensor:
    """`x`, which lies in the memory of `base`, as a view of that."""
    if x is not base and storage_id(x) != storage_id(base):
        return x
    if x.is_conj() != base.is_conj() or x.is_neg() != base.is_neg():
        return x
    try:
        if base.is_complex() and x.dtype == base.real.dtype:
            typed = torch.view_as_real(base)
        else:
            typed = base if x.dtype == base.dtype else base.view(x.dtype)
    except RuntimeError:  # strides that do not fit the elements
        return x
    made = typed.as_strided(x.shape, x.stride(), x.storage_offset())
    return made.detach() if kind == "detach" else made
