"""Performance measures around capture. Where one fails, a line of the log says so: nothing but time and memory depends on them."""

from collections.abc import Sequence
from typing import Any

from torch.fx import GraphModule

from mlirc.codegen.cuda import prefetch
from mlirc.codegen.runtime import native_runtime, parameter_pages
from mlirc.frontend.fallback.fallback import optional


def load_while_tracing(inputs: Sequence[Any]) -> None:
    """Makes the native code that all host programs share, and starts Triton for a GPU, while AOTAutograd traces."""
    optional(native_runtime.prefetch)
    optional(prefetch.prefetch, inputs)


def load_libraries_while_lowering(gm: GraphModule) -> None:
    """Has cuDNN and cuBLASLt load what the graph's first call on a GPU would wait for: 0.4 s and 0.1 s."""
    optional(prefetch.libraries, gm)


def read_weights_faster(inputs: Sequence[Any]) -> None:
    """Puts parameters into huge pages, once the first call is over."""
    optional(parameter_pages.gather, inputs)
