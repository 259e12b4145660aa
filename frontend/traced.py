"""A graph of TorchDynamo's through AOTAutograd, as torch._dynamo.backends.common.aot_autograd does it.

That loads Inductor's intermediate representation and scheduler, 85 ms, for logs that TORCH_COMPILE_DEBUG asks for.
"""

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch._dynamo import disable
from torch._dynamo.exc import TensorifyScalarRestartAnalysis
from torch._dynamo.utils import counters, flatten_graph_inputs
from torch._functorch.aot_autograd import aot_module_simplified
from torch.fx import GraphModule

from mlirc.frontend.older_torch import keep_errors


def traced(gm: GraphModule, inputs: Sequence[Any], *, bw_compiler: Callable, **how: Any) -> Callable:
    """The callable that AOTAutograd makes of the graph. `bw_compiler` and `how` are options of aot_module_simplified."""
    keep_errors()
    if os.environ.get("TORCH_COMPILE_DEBUG") == "1":
        from torch._dynamo.backends.common import aot_autograd

        return aot_autograd(bw_compiler=bw_compiler, **how)(gm, inputs)
    if any(isinstance(x, (list, tuple, dict)) for x in inputs):
        return flatten_graph_inputs(gm, inputs, partial(traced, bw_compiler=bw_compiler, **how))

    def compile_backward(gm: GraphModule, example_inputs: Sequence[Any]) -> Callable:
        return disable(bw_compiler(gm, example_inputs), reason="is compiled")

    counters["aot_autograd"]["total"] += 1
    try:
        # a backward pass calls it, which Dynamo or compiled autograd may be tracing
        untraced: Any = disable(compile_backward, reason="compiles")
        compiled = aot_module_simplified(gm, inputs, bw_compiler=untraced, **how)
    except TensorifyScalarRestartAnalysis:
        raise
    except Exception:
        counters["aot_autograd"]["not_ok"] += 1
        raise
    counters["aot_autograd"]["ok"] += 1
    return disable(compiled, reason="is compiled")
