"""What torch 2.11 traces wrongly, and later versions do not.

* Errors of factorizations (`torch.linalg.cholesky` of what is not positive definite) do not surface: the call that raises them
  gives no result, and is dropped.
* The sums of attention in float64 are promised as float32; its kernel gives float64.
* Parameters are counted as if the tokens of effects did not come before them.
"""

import operator
from functools import cache
from typing import Any

import torch
from torch._higher_order_ops import effects
from torch._prims_common import get_computation_dtype
from torch.fx import GraphModule, Node

aten = torch.ops.aten
FLASH = aten._scaled_dot_product_flash_attention_for_cpu.default
FLASH_BACKWARD = aten._scaled_dot_product_flash_attention_for_cpu_backward.default


@cache
def keep_errors() -> None:
    """Tells AOTAutograd, for as long as the process lives, that the call has an effect, as torch 2.13 itself does."""
    check = aten._linalg_check_errors.default
    if effects._get_effect(check) is None:
        effects._register_effectful_op(check, effects._EffectType.ORDERED)


def static_inputs(metadata: Any) -> list[int]:
    """Positions of the placeholders that hold parameters and buffers, by the metadata of a graph traced for inference."""
    positions: list[int] = list(metadata.static_input_indices or ())
    if metadata.tokens:
        from torch._functorch._aot_autograd.graph_capture_wrappers import handle_effect_tokens_fn

        if "static_input_indices" not in handle_effect_tokens_fn.__code__.co_names:  # it moves them behind the tokens
            return [k + len(metadata.tokens) for k in positions]
    return positions


def widen_sums(gm: GraphModule) -> None:
    """Promises the sums in the dtype that they come in: as results of attention, and where gradients are given them."""
    for node in gm.graph.find_nodes(op="call_function", target=FLASH):
        out, sums = node.meta["val"]
        if sums.dtype != get_computation_dtype(out.dtype):
            node.meta["val"] = out, of_dtype(sums, get_computation_dtype(out.dtype))
            for item in node.users:
                if item.target is operator.getitem and item.args[1] == 1:
                    item.meta["val"] = node.meta["val"][1]
    for node in gm.graph.find_nodes(op="call_function", target=FLASH_BACKWARD):
        query, sums = node.args[1], node.args[5]
        if isinstance(query, Node) and isinstance(sums, Node) and sums.op == "placeholder":
            wide = get_computation_dtype(query.meta["val"].dtype)
            if sums.meta["val"].dtype != wide:
                sums.meta["val"] = of_dtype(sums.meta["val"], wide)


def of_dtype(fake: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Another fake tensor, in that dtype and laid out alike."""
    with fake.fake_mode:  # type: ignore[attr-defined]
        return torch.empty_strided(fake.shape, fake.stride(), dtype=dtype, device=fake.device)
