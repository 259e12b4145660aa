"""The step `capture`: AOTAutograd traces a graph of TorchDynamo's into ATen graphs, which are adapted and compiled."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch.fx import GraphModule

# the operators that they define, which a graph of the disk cache may call
import mlirc.dialects.ops.nn.flex_operators
import mlirc.frontend.partition.random_states  # noqa: F401
from mlirc.codegen.abi.lazy_tensors import is_traced_zero, is_zero
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.frontend.budget import pace
from mlirc.frontend.cache.trace_cache import CachedTrace
from mlirc.frontend.capture.lazy_inputs import lazy_inputs, taking_memory, with_memory_taken
from mlirc.frontend.errors import UnsupportedGraph
from mlirc.frontend.fallback import in_eager
from mlirc.frontend.options import Options
from mlirc.frontend.partition.lazy_tangents import tangents, with_values
from mlirc.frontend.partition.undefined_tangents import compile_backward
from mlirc.frontend.torch_compat.aot_autograd.gradient_strides import ask_for_order_alone
from mlirc.frontend.torch_compat.aot_autograd.returned_inputs import loses_results
from mlirc.frontend.torch_compat.dynamo.tracing_context import TracingContext
from mlirc.frontend.torch_compat.fake_tensors import FakeTensor, unset_fake_temporarily
from mlirc.frontend.torch_compat.older_torch import static_inputs


def refuse_zeros(inputs: Sequence[Any]) -> None:
    """Raises UnsupportedGraph for zeros without memory, of which AOTAutograd traces none. Dynamo compiles anew where that changes."""
    for x in inputs:
        if not isinstance(x, torch.Tensor) or x.layout is not torch.strided:
            continue
        if is_traced_zero(x) if isinstance(x, FakeTensor) else is_zero(x):
            raise UnsupportedGraph("an input is zeros without memory")


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
        """The callable of a graph of Dynamo's. Only here is loaded what tracing needs, which a warm start does without."""
        from mlirc.frontend.capture.rewrites import simplify_attention
        from mlirc.frontend.strides.traced import traced_as_eager
        from mlirc.frontend.torch_compat.dynamo.input_sources import name_as_guarded

        name_as_guarded(gm, inputs)
        simplify_attention(gm, self.options)
        run = traced_as_eager(inputs, partial(self.traced_whole, gm, inputs))
        self.noted.finish()
        return run

    def traced_whole(self, gm: GraphModule, inputs: Sequence[Any]) -> Callable:
        from mlirc.frontend.capture.rewrites import how_to_trace

        try:
            return self.traced_once(gm, inputs, how_to_trace())
        except ResultLost:
            return self.traced_once(gm, inputs, how_to_trace() | {"keep_inference_input_mutations": False})

    def traced_once(self, gm: GraphModule, inputs: Sequence[Any], how: dict[str, Any]) -> Callable:
        from mlirc.frontend.capture.traced import traced

        return traced(
            gm,
            inputs,
            fw_compiler=partial(self.graph, "forward"),
            bw_compiler=self.backward,
            inference_compiler=partial(self.graph, "inference"),
            **how,
        )

    def backward(self, gm: GraphModule, inputs: Sequence[Any]) -> Callable:
        from mlirc.frontend.capture.rewrites import expand

        try:
            expand(gm, self.options)
            self.noted.note_backward(gm, inputs)
            compile_graph = partial(self.graph, "backward")
            run = compile_backward(gm, inputs, compile_graph, self.backward_in_eager)
            return with_values(tangents(gm), run, partial(self.backward_in_eager, gm))
        except Exception as error:
            return self.backward_in_eager(gm, error)

    def beside_background(self) -> AbstractContextManager:
        """Around what reads a graph's symbols, where the background may be importing another graph with the same."""
        return nullcontext() if self.options.compile_seconds is None else pace.tracing()

    def backward_in_eager(self, gm: GraphModule, error: Exception) -> Callable:
        return in_eager.backward(gm, self.options, error)

    def graph(self, kind: str, gm: GraphModule, inputs: Sequence[Any], undefined: tuple[int, ...] = ()) -> Callable:
        if kind != "backward" and loses_results():
            raise ResultLost
        flags = lazy_inputs(gm)
        if flags:
            taken, inputs = taking_memory(gm, inputs, flags)
            return with_memory_taken(self.graph_of_memory(kind, taken, inputs, undefined), gm, flags)
        return self.graph_of_memory(kind, gm, inputs, undefined)

    def graph_of_memory(
        self, kind: str, gm: GraphModule, inputs: Sequence[Any], undefined: tuple[int, ...]
    ) -> Callable:
        """A graph whose inputs have their values in memory."""
        # AOTAutograd's mode would make fakes of the small tensors that passes compute with
        with unset_fake_temporarily(), self.beside_background():
            try:
                from mlirc.frontend.capture.rewrites import adapt, expand

                expand(gm, self.options)
                adapt(kind, gm, inputs)
            except Exception as error:
                if kind != "backward":
                    raise  # the whole graph of Dynamo's goes to eager
                return self.backward_in_eager(gm, error)
            run = self.compile_aten(gm, kind, self.options)
            ask_for_order_alone()
            self.noted.note(kind, gm, run, undefined)
            return run
