"""Repairs what torch 2.11 and 2.12 trace wrongly.

* Errors of factorizations (`torch.linalg.cholesky` of a matrix that is not positive definite) are lost: the call that raises them
  has no result, so tracing drops it.
* Attention in float64: the meta function promises the log-sum-exp as float32, and the kernel gives float64.
* Positions of parameters do not count the effect tokens, which come before them in the graph.
* `x.select(d, k)`: no guard says that the dimension has an index k, at this call or at a later one with other sizes.
* A norm along dimensions of size 1: the meta function keeps one of them, eager drops them all.
* In 2.11, `zero` is promised contiguous whatever the strides; `clamp` by one limit that is NaN gives its operand.
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
    """Within, AOTAutograd keeps calls of CHECK, as an operator with an effect, as torch 2.13 does by itself."""
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


def has_effect(operator: Any) -> bool:
    """Whether PyTorch keeps the calls of an operator, and their order."""
    known = effects_module()
    return known is not None and known._get_effect(operator) is not None


def check(gm: GraphModule) -> None:
    """Checks a graph that was just traced, and adds the guards that tracing left out. Raises UnsupportedGraph where eager would
    raise, or would give another result than the graph promises."""
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
    if dims and not keepdim and len(node.meta["val"].shape) != max(len(source.meta["val"].shape) - len(dims), 0):
        raise UnsupportedGraph("a norm along dimensions is promised with one of them")


def _check_clamp(node: Node) -> None:
    limits = [x for x in (*node.args[1:], *node.kwargs.values()) if x is not None]
    if len(limits) == 1 and isinstance(limits[0], float) and math.isnan(limits[0]):
        raise UnsupportedGraph("a limit that is NaN limits nothing in this version of PyTorch")


def zero(x: torch.Tensor) -> torch.Tensor:
    """A decomposition of `aten.zero` whose result has eager's strides."""
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
