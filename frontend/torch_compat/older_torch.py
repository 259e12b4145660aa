"""Repairs what torch 2.11 and 2.12 trace wrongly.

* Errors of factorizations (`torch.linalg.cholesky` of what is not positive definite) do not surface: the call that raises them
  gives no result, and is dropped.
* The sums of attention in float64 are promised as float32; its kernel gives float64.
* Parameters are counted as if the tokens of effects did not come before them.
* `x.select(d, k)`: nobody asks whether the dimension has an index k, at this call or at a later one with other sizes.
* The norm of one element along its dimension is promised with that dimension.
* In 2.11, a tensor that is filled with zeros is promised contiguous; `clamp` by one limit that is NaN gives its operand.
"""

import math
import operator
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.torch_version import TorchVersion

from mlirc.codegen.abi.reach import Missing, reach
from mlirc.frontend.errors import UnsupportedGraph
from mlirc.frontend.torch_compat.dynamo.symbolic_shapes import guard_or_false

aten = torch.ops.aten
CHECK = aten._linalg_check_errors.default
FLASH = aten._scaled_dot_product_flash_attention_for_cpu.default
FLASH_BACKWARD = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
IGNORES_NAN = TorchVersion(torch.__version__) < "2.12"


@contextmanager
def keeping_error_calls() -> Iterator[None]:
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


def check(gm: GraphModule) -> None:
    """Looks for what is traced wrongly in a graph that was just traced, and makes guards of what nobody asked. Raises
    UnsupportedGraph where eager raises, or gives what was not promised."""
    for node in gm.graph.find_nodes(op="call_function", target=aten.select.int):
        _check_select(node)
    for node in gm.graph.find_nodes(op="call_function", target=aten.linalg_vector_norm.default):
        _check_norm(node)
    if IGNORES_NAN:
        for node in gm.graph.find_nodes(op="call_function", target=aten.clamp.default):
            _check_clamp(node)


def _check_select(node: Node) -> None:
    source: Any
    source, d, k = node.args
    position = k.meta["val"] if isinstance(k, Node) else k
    size = source.meta["val"].shape[d]
    if any(guard_or_false(wrong) for wrong in (position >= size, position < -size)):
        raise UnsupportedGraph(f"index {position} is out of range for a dimension of size {size}")


def _check_norm(node: Node) -> None:
    source: Any = node.args[0]
    dims, keepdim = [*node.args[2:4], None, None][:2]
    if dims and not keepdim and len(node.meta["val"].shape) == len(source.meta["val"].shape) > 0:
        raise UnsupportedGraph("the norm along a dimension is promised with that dimension")


def _check_clamp(node: Node) -> None:
    limits = [x for x in (*node.args[1:], *node.kwargs.values()) if x is not None]
    if len(limits) == 1 and isinstance(limits[0], float) and math.isnan(limits[0]):
        raise UnsupportedGraph("a limit that is NaN limits nothing in this version of PyTorch")


def zero(x: torch.Tensor) -> torch.Tensor:
    """A decomposition of `aten.zero`, by which the strides are promised that eager gives."""
    return torch.zeros_like(x)


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
