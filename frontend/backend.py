"""The backend that `torch.compile(model, backend="mlirc")` finds through the entry point group torch_dynamo_backends."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch._functorch import config as functorch_config
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx import GraphModule

from mlirc.codegen import cuda_prefetch, native_runtime, parameter_pages
from mlirc.frontend import graph_cache
from mlirc.frontend.absent_gradients import compile_backward, leave_absent, partition
from mlirc.frontend.attention_masks import drop_known_masks
from mlirc.frontend.compile import compile_graph
from mlirc.frontend.kept_trace import KeptTrace
from mlirc.frontend.options import Options, read_options
from mlirc.frontend.random_states import name_random_states
from mlirc.frontend.recomputation import decompositions
from mlirc.frontend.saved_layouts import save_channels_last, take_as_saved
from mlirc.frontend.shared_heads import share_heads
from mlirc.frontend.traced import traced
from mlirc.lowering import pipelines


def mlirc(
    gm: GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: dict[str, Any] | None = None,
    mode: str | None = None,
) -> Callable:
    """Compile one graph of TorchDynamo's, for inference and training.

    options: see frontend/options.py. Raises OptionError for an unknown option before anything is traced.
    """
    chosen = read_options(options, mode)
    native_runtime.prefetch()
    cuda_prefetch.prefetch(example_inputs)
    trace = KeptTrace(gm, example_inputs, chosen)
    compilers = Compilers(chosen, trace)
    compiled = trace.load(gm, compilers)
    if compiled is None:
        compiled = compilers.trace(gm, example_inputs)
        trace.finish()
    parameter_pages.gather(example_inputs)
    # without gradients there is no node to tell, and a tiny graph would feel the call
    return leave_absent(compiled) if torch.is_grad_enabled() else compiled


@dataclass(frozen=True)
class Compilers:
    """What AOTAutograd compiles graphs with; the trace gets to know of each."""

    options: Options
    noted: KeptTrace

    def trace(self, gm: GraphModule, inputs: Sequence[Any]) -> Callable:
        drop_known_masks(gm, self.options.cache)
        share_heads(gm)
        return traced(
            gm,
            inputs,
            fw_compiler=partial(self.graph, "forward"),
            bw_compiler=self.backward,
            inference_compiler=partial(self.graph, "inference"),
            **how_to_trace(),
        )

    def backward(self, gm: GraphModule, inputs: Sequence[Any]) -> Callable:
        self.noted.note_backward(gm)
        return compile_backward(gm, inputs, partial(self.graph, "backward"))

    def graph(self, kind: str, gm: GraphModule, inputs: Sequence[Any], absent: tuple[int, ...] = ()) -> Callable:
        # under AOTAutograd's mode each small tensor that a pass computes with would be a fake one
        with unset_fake_temporarily():
            adapt(kind, gm, inputs)
            run = compile_graph(gm, kind, self.options)
            self.noted.note(kind, gm, run, absent)
            return run

    def trace_again(self, gm: GraphModule, inputs: Sequence[Any], key: str) -> tuple[GraphModule, Sequence[Any]]:
        """The backward graph of Dynamo's graph, and its inputs; `key` is that of the forward graph that runs already."""
        found: list[tuple[GraphModule, Sequence[Any]]] = []

        def forward(graph: GraphModule, given: Sequence[Any]) -> Callable:
            with unset_fake_temporarily():
                adapt("forward", graph, given)
                stages = pipelines.stages(self.options.pipeline)
                if graph_cache.place_of(graph, [], "forward", stages, self.options).key != key:
                    raise RuntimeError(
                        "mlirc: a graph was traced in another way than before: its disk cache cannot be used"
                    )
            return make_boxed_func(graph.forward)

        def backward(graph: GraphModule, given: Sequence[Any]) -> Callable:
            found.append((graph, given))
            return make_boxed_func(graph.forward)

        drop_known_masks(gm, self.options.cache)
        share_heads(gm)
        with functorch_config.patch(force_non_lazy_backward_lowering=True):
            traced(gm, inputs, fw_compiler=forward, bw_compiler=backward, inference_compiler=forward, **how_to_trace())
        return found[0]


def how_to_trace() -> dict[str, Any]:
    return {
        "partition_fn": partition,
        "decompositions": decompositions() if torch.is_grad_enabled() else {},
        "keep_inference_input_mutations": True,
    }


def adapt(kind: str, gm: GraphModule, inputs: Sequence[Any]) -> None:
    """Rewrites what one graph leaves for the other."""
    name_random_states(gm)
    if kind == "forward":
        save_channels_last(gm)
    elif kind == "backward":
        take_as_saved(gm, inputs)
