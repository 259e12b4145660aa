"""The step `capture`: AOTAutograd traces a graph of TorchDynamo's into ATen graphs, which are adapted and compiled."""

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.fx import GraphModule

from mlirc.codegen.abi.lazy_tensors import is_lazy, is_traced_lazy
from mlirc.codegen.process.signal_handlers import raise_of_handler
from mlirc.frontend.budget import pace
from mlirc.frontend.cache.trace_cache import CachedTrace
from mlirc.frontend.capture.associative_scans import expand_scans
from mlirc.frontend.capture.attention_masks import SDPA, drop_known_masks
from mlirc.frontend.capture.complex.conjugates import cancel_conjugates
from mlirc.frontend.capture.complex.pairs import pair_complex
from mlirc.frontend.capture.complex.parts import compute_conjugates, split_complex
from mlirc.frontend.capture.flex_attention import expand_flex_attention
from mlirc.frontend.capture.quantized_operators import quantized_operators
from mlirc.frontend.capture.resized_images import resize_decompositions
from mlirc.frontend.capture.shared_heads import share_heads
from mlirc.frontend.capture.traced import traced
from mlirc.frontend.errors import UnsupportedGraph
from mlirc.frontend.fallback import fallback, in_eager
from mlirc.frontend.importer.bodies import is_shared_region
from mlirc.frontend.options import Options
from mlirc.frontend.partition.lazy_tangents import tangents, with_values
from mlirc.frontend.partition.random_states import name_random_states
from mlirc.frontend.partition.recomputation import decompositions
from mlirc.frontend.partition.saved_activation_layouts import save_channels_last, take_as_saved
from mlirc.frontend.partition.undefined_tangents import compile_backward, partition
from mlirc.frontend.strides.traced import traced_as_eager
from mlirc.frontend.torch_compat.aot_autograd.gradient_strides import ask_for_order_alone
from mlirc.frontend.torch_compat.aot_autograd.returned_inputs import loses_results
from mlirc.frontend.torch_compat.dynamo.input_sources import name_as_guarded
from mlirc.frontend.torch_compat.dynamo.lazy_graph import copied
from mlirc.frontend.torch_compat.dynamo.tracing_context import TracingContext
from mlirc.frontend.torch_compat.fake_tensors import FakeTensor, unset_fake_temporarily
from mlirc.frontend.torch_compat.list_operators import list_operators
from mlirc.frontend.torch_compat.older_torch import check, static_inputs, zero

log = logging.getLogger("mlirc")
aten = torch.ops.aten


def refuse_lazy(inputs: Sequence[Any]) -> None:
    """Raises UnsupportedGraph for a tensor whose values are not in its memory. Dynamo compiles anew where that changes."""
    for x in inputs:
        if not isinstance(x, torch.Tensor) or x.layout is not torch.strided:
            continue
        if is_traced_lazy(x) if isinstance(x, FakeTensor) else is_lazy(x):
            raise UnsupportedGraph(
                "an input is a view that negates or conjugates what is in memory, or zeros without memory"
            )


def parameter_positions(kind: str) -> list[int]:
    """Placeholders of an inference graph that hold parameters and buffers, as Dynamo tells AOTAutograd.

    In training they change with every step: there they are arguments like any other.
    """
    tracing = TracingContext.try_get()
    if kind != "inference" or tracing is None or tracing.fw_metadata is None:
        return []
    return static_inputs(tracing.fw_metadata)


class ResultLost(Exception):
    """AOTAutograd lost a result of the graph: it is traced anew, without writes to inputs in the graph."""


@dataclass(frozen=True)
class Capture:
    """The compilers that AOTAutograd calls with its graphs.

    noted          records each graph, for the trace cache
    compile_aten   compiles one: compile_aten(gm, kind, options), kind "forward", "backward" or "inference"
    """

    options: Options
    noted: CachedTrace
    compile_aten: Callable[[GraphModule, str, Options], Callable[[list], list]]

    def traced(self, gm: GraphModule, inputs: Sequence[Any]) -> Callable:
        """The callable of a graph of Dynamo's."""
        name_as_guarded(gm, inputs)
        simplify_attention(gm, self.options)
        run = traced_as_eager(inputs, partial(self.traced_whole, gm, inputs))
        self.noted.finish()
        return run

    def traced_whole(self, gm: GraphModule, inputs: Sequence[Any]) -> Callable:
        try:
            return self.traced_once(gm, inputs, how_to_trace())
        except ResultLost:
            return self.traced_once(gm, inputs, how_to_trace() | {"keep_inference_input_mutations": False})

    def traced_once(self, gm: GraphModule, inputs: Sequence[Any], how: dict[str, Any]) -> Callable:
        return traced(
            gm,
            inputs,
            fw_compiler=partial(self.graph, "forward"),
            bw_compiler=self.backward,
            inference_compiler=partial(self.graph, "inference"),
            **how,
        )

    def backward(self, gm: GraphModule, inputs: Sequence[Any]) -> Callable:
        try:
            self.expand(gm)
            self.noted.note_backward(gm, inputs)
            compile_graph = partial(self.graph, "backward")
            run = compile_backward(gm, inputs, compile_graph, self.backward_in_eager)
            return with_values(tangents(gm), run, partial(self.backward_in_eager, gm))
        except Exception as error:
            return self.backward_in_eager(gm, error)

    def expand(self, gm: GraphModule) -> None:
        with unset_fake_temporarily():
            expand_flex_attention(gm, self.options)
            fallback.optional(expand_scans, gm)

    def beside_background(self) -> AbstractContextManager:
        """Around what reads a graph's symbols, where the background may be importing another graph with the same."""
        return nullcontext() if self.options.compile_seconds is None else pace.tracing()

    def backward_in_eager(self, gm: GraphModule, error: Exception) -> Callable:
        return in_eager.backward(gm, self.options, error)

    def graph(self, kind: str, gm: GraphModule, inputs: Sequence[Any], undefined: tuple[int, ...] = ()) -> Callable:
        if kind != "backward" and loses_results():
            raise ResultLost
        # AOTAutograd's mode would make fakes of the small tensors that passes compute with
        with unset_fake_temporarily(), self.beside_background():
            try:
                self.expand(gm)
                adapt(kind, gm, inputs)
            except Exception as error:
                if kind != "backward":
                    raise  # the whole graph of Dynamo's goes to eager
                return self.backward_in_eager(gm, error)
            run = self.compile_aten(gm, kind, self.options)
            ask_for_order_alone()
            self.noted.note(kind, gm, run, undefined)
            return run


def simplify_attention(gm: GraphModule, options: Options) -> None:
    """Removes known masks and repeated heads from a graph of Dynamo's. If that fails, the graph is as before."""
    if not gm.graph.find_nodes(op="call_function", target=SDPA):
        return
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
    return {
        "partition_fn": partition,
        "decompositions": (decompositions() | resize_decompositions() if torch.is_grad_enabled() else {})
        | (list_operators() or {})
        | quantized_operators()
        | {aten.zero.default: zero},
        "keep_inference_input_mutations": True,
    }


def adapt(kind: str, gm: GraphModule, inputs: Sequence[Any]) -> None:
    """Rewrites an ATen graph in place. Forward and backward are to agree on random states, and on the layout of saved activations."""
    name_random_states(gm)
    split_complex(gm)
    pair_complex(gm)
    cancel_conjugates(gm)
    compute_conjugates(gm)
    if kind == "inference":
        check(gm)
        if any(is_shared_region(node.target) for node in gm.graph.nodes):
            from mlirc.frontend.partition.region_results import separate_results  # it imports MLIR

            separate_results(gm)
    elif kind == "forward":
        save_channels_last(gm)
    elif kind == "backward":
        take_as_saved(gm, inputs)
