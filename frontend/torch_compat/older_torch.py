"""What torch 2.11 traces wrongly, and later versions do not.

* Errors of factorizations (`torch.linalg.cholesky` of what is not positive definite) do not surface: the call that raises them
  gives no result, and is dropped.
* The sums of attention in float64 are promised as float32; its kernel gives float64.
* Parameters are counted as if the tokens of effects did not come before them.
"""

import operator
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx import GraphModule, Node

from mlirc.codegen.abi.reach import Missing, reach

aten = torch.ops.aten
CHECK = aten._linalg_check_errors.default
FLASH = aten._scaled_dot_product_flash_attention_for_cpu.default
FLASH_BACKWARD = aten._scaled_dot_product_flash_attention_for_cpu_backward.default


@contextmanager
def errors_kept() -> Iterator[None]:
    """Tells AOTAutograd, while it traces a graph for us, that the call has an effect, as torch 2.13 itself does."""
    known = effects_module()
    if known is None or known._get_effect(CHECK) is not None:
        yield
        return
    handle = known._register_effectful_op(CHECK, known._EffectType.ORDERED)
    try:
        yield
    finally:
        if handle is not None:
            handle.destroy()
        else:  # before there were handles
            known.SIDE_EFFECTS.pop(CHECK)


@reach("effects", instead="errors of factorizations surface where PyTorch keeps them")
def effects_module() -> Any:
    """PyTorch's module that knows which operators have effects."""
    from torch._higher_order_ops import effects

    if not callable(effects._get_effect) or not callable(effects._register_effectful_op):
        raise Missing("it has other functions")
    return effects


def static_inputs(metadata: Any) -> list[int]:
    """Positions of the placeholders that hold parameters and buffers, by the metadata of a graph traced for inference."""
    positions: list[int] = list(metadata.static_input_indices or ())
    if metadata.tokens:
        moved = moves_positions()
        if moved is None:
            return []
        return positions if moved else [k + len(metadata.tokens) for k in positions]
    return positions


@reach("token-positions", instead="nothing is kept of parameters of a graph with effects")
def moves_positions() -> bool:
    """Whether AOTAutograd counts the tokens of effects, which come first, in the positions of parameters."""
    from torch._functorch._aot_autograd.graph_capture_wrappers import handle_effect_tokens_fn

    return "static_input_indices" in handle_effect_tokens_fn.__code__.co_names


def widen_sums(gm: GraphModule) -> None:
    """Promises the sums in the dtype that they come in: as results of attention, and where gradients are given them."""
    for node in gm.graph.find_nodes(op="call_function", target=FLASH):
        out, sums = node.meta["val"]
        if sums.dtype != wide(out.dtype):
            node.meta["val"] = out, of_dtype(sums, wide(out.dtype))
            for item in node.users:
                if item.target is operator.getitem and item.args[1] == 1:
                    item.meta["val"] = node.meta["val"][1]
    for node in gm.graph.find_nodes(op="call_function", target=FLASH_BACKWARD):
        query, sums = node.args[1], node.args[5]
        if isinstance(query, Node) and isinstance(sums, Node) and sums.op == "placeholder":
            kind = wide(query.meta["val"].dtype)
            if sums.meta["val"].dtype != kind:
                sums.meta["val"] = of_dtype(sums.meta["val"], kind)


def wide(dtype: torch.dtype) -> torch.dtype:
    """What sums of such numbers are computed in."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def of_dtype(fake: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Another fake tensor, in that dtype and laid out alike."""
    with fake.fake_mode:  # type: ignore[attr-defined]
        return torch.empty_strided(fake.shape, fake.stride(), dtype=dtype, device=fake.device)
