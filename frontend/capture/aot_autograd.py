"""A graph of TorchDynamo's, for inference and training, through AOTAutograd to callables of ours."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from mlirc.codegen.abi.lazy_tensors import is_lazy
from mlirc.codegen.cuda import prefetch as cuda_prefetch
from mlirc.codegen.runtime import native_runtime, parameter_pages
from mlirc.codegen.runtime.process_limits import TO_LOAD, addresses
from mlirc.frontend import statistics
from mlirc.frontend.cache.trace_cache import KeptTrace
from mlirc.frontend.capture import fallback
from mlirc.frontend.capture.attention_masks import SDPA, drop_known_masks
from mlirc.frontend.capture.compile import compile_graph
from mlirc.frontend.capture.random_states import name_random_states
from mlirc.frontend.capture.shared_heads import share_heads
from mlirc.frontend.capture.traced import traced
from mlirc.frontend.errors import UnsupportedGraph
from mlirc.frontend.options import Options
from mlirc.frontend.partition.lazy_tangents import with_values
from mlirc.frontend.partition.recomputation import decompositions
from mlirc.frontend.partition.saved_activation_layouts import save_channels_last, take_as_saved
from mlirc.frontend.partition.undefined_tangents import compile_backward, leave_absent, partition
from mlirc.frontend.strides.traced import with_eager_strides
from mlirc.frontend.torch_compat.aot_autograd.tracing import make_boxed_func
from mlirc.frontend.torch_compat.dynamo.skipped_guards import with_checks
from mlirc.frontend.torch_compat.fake_tensors import unset_fake_temporarily
from mlirc.frontend.torch_compat.older_torch import check, zero

log = logging.getLogger("mlirc")
aten = torch.ops.aten


def compiled(gm: GraphModule, example_inputs: Sequence[Any], chosen: Options) -> Callable:
    """The callable of the graph: of what is kept of its trace, or traced."""
    # Dynamo compiles anew where that changes
    if any(isinstance(x, torch.Tensor) and x.layout is torch.strided and is_lazy(x) for x in example_inputs):
        raise UnsupportedGraph(
            "an input is a view that negates or conjugates what is in memory, or zeros without memory"
        )
    addresses(TO_LOAD)
    fallback.optional(native_runtime.prefetch)
    fallback.optional(cuda_prefetch.prefetch, example_inputs)
    trace = KeptTrace(gm, example_inputs, chosen)
    compilers = Compilers(chosen, trace)
    run = trace.load(gm, compilers)
    if run is None:
        run = compilers.trace(gm, example_inputs)
        trace.finish()
    fallback.optional(parameter_pages.gather, example_inputs)
    # without gradients there is no node to tell, and a tiny graph would feel the call
    run = leave_absent(run) if torch.is_grad_enabled() else run
    return with_checks(run, gm, example_inputs, partial(instead, example_inputs, chosen))


def instead(inputs: Sequence[Any], options: Options, error: Exception) -> None:
    """Counts a graph that runs in eager from now on for some tensors. Raises the error where nothing may be run instead."""
    if options.fallback == "error":
        raise error
    fallback.record(inputs, error)


@dataclass(frozen=True)
class Compilers:
    """What AOTAutograd compiles graphs with; the trace gets to know of each."""

    options: Options
    noted: KeptTrace

    def trace(self, gm: GraphModule, inputs: Sequence[Any]) -> Callable:
        simplify_attention(gm, self.options)
        with with_eager_strides(inputs):
            return traced(
                gm,
                inputs,
                fw_compiler=partial(self.graph, "forward"),
                bw_compiler=self.backward,
                inference_compiler=partial(self.graph, "inference"),
                **how_to_trace(),
            )

    def backward(self, gm: GraphModule, inputs: Sequence[Any]) -> Callable:
        try:
            self.noted.note_backward(gm, inputs)
            return with_values(gm, compile_backward(gm, inputs, partial(self.graph, "backward"), self.as_traced))
        except Exception as error:
            return self.as_traced(gm, error)

    def as_traced(self, gm: GraphModule, error: Exception) -> Callable:
        """A backward graph in eager. Raises the error where nothing may be run instead."""
        if self.options.fallback == "error":
            raise error
        return as_traced(gm, error)

    def graph(self, kind: str, gm: GraphModule, inputs: Sequence[Any], absent: tuple[int, ...] = ()) -> Callable:
        # under AOTAutograd's mode each small tensor that a pass computes with would be a fake one
        with unset_fake_temporarily():
            try:
                adapt(kind, gm, inputs)
            except Exception as error:
                if kind != "backward" or self.options.fallback == "error":
                    raise  # the whole graph of Dynamo's goes to eager
                return as_traced(gm, error)
            run = compile_graph(gm, kind, self.options)
            self.noted.note(kind, gm, run, absent)
            return run


def simplify_attention(gm: GraphModule, options: Options) -> None:
    """Rewrites a graph of Dynamo's. A failure leaves it as it was."""
    if not gm.graph.find_nodes(op="call_function", target=SDPA):
        return
    before = copied(gm.graph)
    try:
        drop_known_masks(gm, options.cache)
        share_heads(gm)
    except Exception as error:
        gm.graph = before
        if options.fallback == "error":
            raise
        log.warning("mlirc: attention is traced as it is written: %s", fallback.reason(error))


def copied(graph: Graph) -> Graph:
    """A copy of a graph of Dynamo's, with what Dynamo knows of where inputs come from."""
    copies: dict[Node, Node] = {}
    made = Graph()
    made.output(made.graph_copy(graph, copies))
    for node, copy in copies.items():
        copy.__dict__ |= {name: value for name, value in vars(node).items() if name not in vars(copy)}
    return made


def how_to_trace() -> dict[str, Any]:
    return {
        "partition_fn": partition,
        "decompositions": (decompositions() if torch.is_grad_enabled() else {}) | {aten.zero.default: zero},
        "keep_inference_input_mutations": True,
    }


def as_traced(gm: GraphModule, error: Exception) -> Callable:
    """A backward graph in eager, for inputs in any strides."""
    statistics.record(statistics.GraphReport("backward", fallback=fallback.tell("backward", error)))
    values = [node.meta.get("val") for node in gm.graph.find_nodes(op="placeholder")]
    orders = [value.stride() if isinstance(value, torch.Tensor) else None for value in values]
    static = [s if s is not None and all(isinstance(n, int) for n in s) else None for s in orders]
    forward = make_boxed_func(gm.forward)

    def run(args: list) -> list:
        for k, strides in enumerate(static):
            x = args[k]
            if x is None and isinstance(
                like := values[k], torch.Tensor
            ):  # a gradient that nobody gives (partition/undefined_tangents.py)
                args[k] = torch.zeros(tuple(like.shape), dtype=like.dtype, device=like.device)
            if strides is not None and isinstance(x, torch.Tensor) and x.stride() != strides:
                args[k] = torch.empty_strided(x.shape, strides, dtype=x.dtype, device=x.device).copy_(x)
        return forward(args)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def adapt(kind: str, gm: GraphModule, inputs: Sequence[Any]) -> None:
    """Rewrites what one graph leaves for the other."""
    name_random_states(gm)
    if kind == "inference":
        check(gm)
    elif kind == "forward":
        save_channels_last(gm)
    elif kind == "backward":
        take_as_saved(gm, inputs)
