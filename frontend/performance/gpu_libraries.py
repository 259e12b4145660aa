"""Starts what a first call on a GPU would wait for, on other threads and in other processes, while Python goes on."""

import logging
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.fx import GraphModule

from mlirc.codegen.process import background

log = logging.getLogger("mlirc")
aten = torch.ops.aten

ATTENTION = aten._scaled_dot_product_cudnn_attention.default
MATMULS = {aten.mm.default, aten.addmm.default, aten.bmm.default}
FEW, SIZE = 128, 64  # queries, and keys, of an attention that nobody reads, and the size of its head

_begun: set[tuple] = set()


def start_triton(inputs: Iterable[Any]) -> None:
    """Triton, for the GPU that holds the first of the graph's inputs that are on one; nothing where none is."""
    device = next((x.device for x in inputs if isinstance(x, torch.Tensor) and x.device.type == "cuda"), None)
    if device is None:
        return
    from mlirc.codegen.cuda import triton_processes

    major, minor = torch.cuda.get_device_capability(device)
    triton_processes.prefetch(10 * major + minor)


def load(gm: GraphModule) -> None:
    """What libraries load when they are first used: cuDNN takes 0.4 s before its first attention, cuBLASLt 0.1 s."""
    for node in gm.graph.nodes:
        work = _multiply if node.target in MATMULS else _attend if node.target == ATTENTION else None
        if work is None:
            continue
        x = node.all_input_nodes[0].meta.get("val")
        if isinstance(x, torch.Tensor) and x.device.type == "cuda" and (work, x.device, x.dtype) not in _begun:
            _begun.add((work, x.device, x.dtype))
            background.start(_tried, work, x.device, x.dtype)


def _tried(work: Callable[..., None], *args: Any) -> None:
    """Calls work(*args). Whatever is wrong turns up where it matters."""
    try:
        work(*args)
    except Exception as error:
        log.info("mlirc: nothing is loaded early: %s", error)


def _multiply(device: torch.device, dtype: torch.dtype) -> None:
    from mlirc.codegen.libraries import cublas_plans

    cublas_plans.load(device.index or 0, dtype)


def _attend(device: torch.device, dtype: torch.dtype) -> None:
    with torch.cuda.device(device), torch.no_grad():
        q = torch.zeros(1, 1, FEW, SIZE, dtype=dtype, device=device)
        ATTENTION(q, q, q, None, False)
