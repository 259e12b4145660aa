"""Rewrites of graphs before and after AOTAutograd traces them, and the settings that it traces with.

A rewrite of what few graphs have is loaded with the first graph that has it.
"""

import logging
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule
from torch.nn import functional

from mlirc.codegen.process.signal_handlers import raise_of_handler
from mlirc.frontend.capture.quantized_operators import quantized_operators
from mlirc.frontend.capture.taken_functions.resized_images import resize_decompositions
from mlirc.frontend.fallback import fallback
from mlirc.frontend.importer.bodies import is_flex_attention, is_shared_region
from mlirc.frontend.options import Options
from mlirc.frontend.partition.random_states import name_random_states
from mlirc.frontend.partition.undefined_tangents import partition
from mlirc.frontend.torch_compat.dynamo.lazy_graph import copied
from mlirc.frontend.torch_compat.fake_tensors import unset_fake_temporarily
from mlirc.frontend.torch_compat.list_operators import list_operators
from mlirc.frontend.torch_compat.older_torch import check, zero

log = logging.getLogger("mlirc")
aten = torch.ops.aten


def simplify_attention(gm: GraphModule, options: Options) -> None:
    """Removes known masks and repeated heads from a graph of Dynamo's. If that fails, the graph is as before."""
    if not gm.graph.find_nodes(op="call_function", target=functional.scaled_dot_product_attention):
        return
    from mlirc.frontend.capture.attention_masks import drop_known_masks
    from mlirc.frontend.capture.shared_heads import share_heads

    before = copied(gm.graph)
    try:
        drop_known_masks(gm, options.cache)
        share_heads(gm)
    except Exception as error:
        gm.graph = before
        raise_of_handler(error)
        if options.fallback == "error":
            raise
        log.warning("mlirc: attention is traced as it is written: %s", fallback.reason(error))


def how_to_trace() -> dict[str, Any]:
    with_gradients = {}
    if torch.is_grad_enabled():
        from mlirc.frontend.partition.recomputation import decompositions

        with_gradients = decompositions() | resize_decompositions()
    return {
        "partition_fn": partition,
        "decompositions": with_gradients | (list_operators() or {}) | quantized_operators() | {aten.zero.default: zero},
        "keep_inference_input_mutations": True,
    }


def expand(gm: GraphModule, options: Options) -> None:
    """Rewrites calls of operators that take functions as plain operators."""
    with unset_fake_temporarily():
        targets = {node.target for node in gm.graph.nodes}
        if any(map(is_flex_attention, targets)):
            from mlirc.frontend.capture.flex_attention import expand_flex_attention

            expand_flex_attention(gm, options)
        if any(isinstance(target, torch._ops.HigherOrderOperator) for target in targets):
            from mlirc.frontend.capture.associative_scans import expand_scans

            fallback.optional(expand_scans, gm)


def adapt(kind: str, gm: GraphModule, inputs: Sequence[Any]) -> None:
    """Rewrites an ATen graph in place. Forward and backward are to agree on random states, and on the layout of saved activations."""
    name_random_states(gm)
    if has_complex(gm):
        from mlirc.frontend.capture.complex.conjugates import cancel_conjugates
        from mlirc.frontend.capture.complex.pairs import pair_complex
        from mlirc.frontend.capture.complex.parts import compute_conjugates, split_complex

        split_complex(gm)
        pair_complex(gm)
        cancel_conjugates(gm)
        compute_conjugates(gm)
    if kind == "inference":
        check(gm)
        if any(is_shared_region(node.target) for node in gm.graph.nodes):
            from mlirc.frontend.partition.region_results import separate_results  # it imports MLIR

            separate_results(gm)
        return
    from mlirc.frontend.partition import saved_activation_layouts  # of training alone

    if kind == "forward":
        saved_activation_layouts.save_channels_last(gm)
    elif kind == "backward":
        saved_activation_layouts.take_as_saved(gm, inputs)


def has_complex(gm: GraphModule) -> bool:
    """Whether a complex tensor, or a conjugate, is in the graph."""
    return any(
        node.target is aten._conj.default
        or (isinstance(x := node.meta.get("val"), torch.Tensor) and x.dtype.is_complex)
        for node in gm.graph.nodes
    )
