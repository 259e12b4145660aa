"""Calls AOTAutograd without torch._dynamo.backends.common, which would load Inductor's scheduler."""

from collections.abc import Callable
from typing import Any

from mlirc.codegen.abi.reach import reach
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.frontend.torch_compat.dynamo.restart import TensorifyScalarRestartAnalysis


@dataclass(frozen=True)
class AotEntry:
    """AOTAutograd's entry point, and what torch._dynamo.backends.common uses around it.

    trace           aot_module_simplified
    flatten_inputs  flattens inputs that are containers
    restart         the exception by which a backend asks Dynamo to trace again
    counters        Dynamo's counters, by kind; a program may clear them: "aot_autograd" counts calls of AOTAutograd
    """

    trace: Callable[..., Callable]
    flatten_inputs: Callable[..., Any]
    restart: type[Exception]
    counters: Any


def documented() -> Callable[..., Callable]:
    """`aot_autograd`, PyTorch's documented entry point for backends."""
    from torch._dynamo.backends.common import aot_autograd

    return aot_autograd


@reach("aot-entry", instead="the first call loads torch._dynamo.backends.common, and with it Inductor's scheduler")
def entry() -> AotEntry:
    """The parts of `aot_autograd`, without its module."""
    from torch._dynamo.utils import counters, flatten_graph_inputs
    from torch._functorch.aot_autograd import aot_module_simplified

    counters["aot_autograd"]["total"] += 0
    return AotEntry(aot_module_simplified, flatten_graph_inputs, TensorifyScalarRestartAnalysis, counters)
