"""The backend that `torch.compile(model, backend="mlirc")` finds through the entry point group torch_dynamo_backends."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from mlirc.codegen import cuda_prefetch, native_runtime
from mlirc.frontend.absent_gradients import compile_backward, leave_absent, partition
from mlirc.frontend.attention_masks import drop_known_masks
from mlirc.frontend.compile import compile_graph
from mlirc.frontend.garbage import collector_paused
from mlirc.frontend.options import Options, read_options
from mlirc.frontend.recomputation import decompositions
from mlirc.frontend.saved_layouts import save_channels_last, take_as_saved
from mlirc.frontend.shared_heads import share_heads
from mlirc.frontend.traced import traced


def mlirc(
    gm: torch.fx.GraphModule,
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
    drop_known_masks(gm, chosen.cache)
    share_heads(gm)
    with collector_paused():
        compiled = traced(
            gm,
            example_inputs,
            fw_compiler=compiler("forward", chosen),
            bw_compiler=compiler("backward", chosen),
            inference_compiler=compiler("inference", chosen),
            partition_fn=partition,
            decompositions=decompositions() if torch.is_grad_enabled() else {},
            keep_inference_input_mutations=True,
        )
    return leave_absent(compiled)


def compiler(kind: str, options: Options) -> Callable:
    def compile_fx(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable:
        if kind == "backward":
            return compile_backward(gm, example_inputs, compile_one)
        return compile_one(gm, example_inputs)

    def compile_one(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable:
        # under AOTAutograd's mode each small tensor that a pass computes with would be a fake one
        with unset_fake_temporarily():
            if kind == "forward":
                save_channels_last(gm)
            elif kind == "backward":
                take_as_saved(gm, example_inputs)
            return compile_graph(gm, kind, options)

    return compile_fx
