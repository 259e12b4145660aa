"""What compiling and running a graph on a GPU needs, begun while the graph is still being traced."""

from collections.abc import Iterable
from typing import Any

import torch

from mlirc.codegen import triton_processes


def prefetch(inputs: Iterable[Any]) -> None:
    """For the GPU that holds the first of the graph's inputs that are on one; nothing where none is."""
    device = next((x.device for x in inputs if isinstance(x, torch.Tensor) and x.device.type == "cuda"), None)
    if device is None:
        return
    major, minor = torch.cuda.get_device_capability(device)
    triton_processes.prefetch(10 * major + minor)
