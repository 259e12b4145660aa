"""Traces a graph of TorchDynamo's with AOTAutograd, as torch._dynamo.backends.common.aot_autograd does.

That loads Inductor's intermediate representation and scheduler, 85 ms, for logs that TORCH_COMPILE_DEBUG asks for.
"""

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch.compiler import disable
from torch.fx import GraphModule

from mlirc.frontend.torch_compat.aot_autograd.donated_buffers import keeping_saved
from mlirc.frontend.torch_compat.aot_autograd.entry import documented, entry
from mlirc.frontend.torch_compat.aot_autograd.gradient_strides import tracing_images
from mlirc.frontend.torch_compat.aot_autograd.kept_tokens import keeping_tokens
from mlirc.frontend.torch_compat.older_torch import keeping_error_calls


def traced(gm: GraphModule, inputs: Sequence[Any], *, bw_compiler: Callable, **how: Any) -> Callable:
    """The callable that AOTAutograd makes of the graph. `bw_compiler` and `how` are options of aot_module_simplified."""
    way = entry()
    with keeping_error_calls(), keeping_tokens(), keeping_saved(), tracing_images():
        if way is None or os.environ.get("TORCH_COMPILE_DEBUG") == "1":
            return documented()(bw_compiler=bw_compiler, **how)(gm, inputs)
        if any(isinstance(x, (list, tuple, dict)) for x in inputs):
            return way.flatten_inputs(gm, inputs, partial(traced, bw_compiler=bw_compiler, **how))

        def compile_backward(gm: GraphModule, example_inputs: Sequence[Any]) -> Callable:
            return disable(bw_compiler(gm, example_inputs), reason="is compiled")

        way.counters["aot_autograd"]["total"] += 1
        try:
            # a backward pass calls it, which Dynamo or compiled autograd may be tracing
            untraced: Any = disable(compile_backward, reason="compiles")
            compiled = way.trace(gm, inputs, bw_compiler=untraced, **how)
        except way.restart:
            raise
        except Exception:
            way.counters["aot_autograd"]["not_ok"] += 1
            raise
        way.counters["aot_autograd"]["ok"] += 1
        return compiled  # Dynamo traces nothing within what a backend gave it
