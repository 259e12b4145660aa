"""What a GPU allows: the operations and bytes that a model cannot do without, over the rates of large matmuls and copies."""

import statistics
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.on_gpu.models import GpuModel, without_masks

ATTENTION = ("aten.bmm", "aten.baddbmm")
"""The products that attention takes apart. A model's others are of one matrix each."""


@dataclass(frozen=True)
class Work:
    """The work of a call: `operations` of matmuls, convolutions and attention, two for each multiply-add; `bytes` of parameters, which are
    read once forward and once backward, where their gradients are written too. What lies between them is not counted, as it may
    stay in registers."""

    operations: float
    bytes: float

    def seconds(self, matmul_rate: float, copy_rate: float) -> float:
        """At the least, with `matmul_rate` operations and `copy_rate` bytes a second."""
        return max(self.operations / matmul_rate, self.bytes / copy_rate)


def work(model: GpuModel, batch: int, training: bool) -> Work:
    """Counted on tensors without data, so on any machine. Of causal attention half is counted."""
    with without_masks(), sdpa_kernel(SDPBackend.MATH):
        module: Any = model.build(training, "meta")
        inputs = model.inputs(batch, training, "meta")
        with FlopCounterMode(display=False) as counter, torch.set_grad_enabled(training):
            output = module(**inputs)
            if training:
                output.loss.backward()
    counts = {str(op): count for op, count in counter.get_flop_counts()["Global"].items()}
    attention = sum(counts.get(op, 0) for op in ATTENTION)
    weights = sum(p.numel() * p.element_size() for p in module.parameters())
    return Work(sum(counts.values()) - model.causal * attention / 2, weights * (3 if training else 1))


def matmul_rate(dtype: torch.dtype = torch.bfloat16, size: int = 8192) -> float:
    """Operations a second of a large matmul of random matrices, over some tenths of a second, as the clock settles."""
    a, b = (torch.randn(size, size, device="cuda", dtype=dtype) for _ in range(2))
    seconds = []
    for _ in range(10):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(20):
            a @ b
        torch.cuda.synchronize()
        seconds.append((time.perf_counter() - start) / 20)
    return 2 * size**3 / statistics.median(seconds[1:])
