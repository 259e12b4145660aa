"""Performance measures before and after capture. Where one fails, a line of the log says so.

load_while_tracing              20 ms of a first call; 100 ms in the first process of an installation; on a GPU 1 s
load_libraries_while_lowering   0.4 s and 0.1 s of the first call on a GPU
read_weights_faster             3 to 18% of a call that reads large weights once, as a token does
"""

from collections.abc import Sequence
from typing import Any

from mlirc.codegen.runtime import native_runtime
from mlirc.frontend.fallback.fallback import optional
from mlirc.frontend.graph.aten_graph import AtenGraph
from mlirc.frontend.performance import gpu_libraries, parameter_pages


def load_while_tracing(inputs: Sequence[Any]) -> None:
    """Makes the native code that all host programs share, and starts Triton for a GPU, while AOTAutograd traces."""
    optional(native_runtime.prefetch)
    optional(gpu_libraries.start_triton, inputs)


def load_libraries_while_lowering(graph: AtenGraph) -> None:
    """Has cuDNN and cuBLASLt load what the first call of a graph on a GPU would wait for. Raises DeviceError."""
    if graph.on_gpu:
        optional(gpu_libraries.load, graph.gm)


def read_weights_faster(inputs: Sequence[Any]) -> None:
    """Puts parameters into huge pages, once the first call is over."""
    optional(parameter_pages.gather, inputs)
