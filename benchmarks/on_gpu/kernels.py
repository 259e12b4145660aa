"""Memory-bound kernels on 1 GiB, and what a copy of that size reaches."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

GIB = 1 << 30
Tensors = list[torch.Tensor]


@dataclass(frozen=True)
class Kernel:
    """`written`: bytes that a call writes; it reads each input once, where `passes` says nothing else."""

    name: str
    make: Callable[[], Tensors]
    function: Callable[..., object]
    written: Callable[[Tensors], int]

    def bytes(self, inputs: Tensors) -> int:
        return sum(map(size, inputs)) + self.written(inputs)


def size(x: torch.Tensor) -> int:
    return x.numel() * x.element_size()


def bf16(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device="cuda", dtype=torch.bfloat16)


def rows(width: int) -> torch.Tensor:
    return bf16(GIB // 2 // width, width)


def rms_norm(x, w):
    return nn.functional.rms_norm(x, (x.shape[-1],), w)


def rotary(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


def adam(p, g, m, v):
    m.mul_(0.9).add_(g, alpha=0.1)
    v.mul_(0.999).addcmul_(g, g, value=0.001)
    p.sub_(1e-3 * m / (v.sqrt() + 1e-8))


def cross_entropy(x, labels):
    return nn.functional.cross_entropy(x, labels)


def same(inputs: Tensors) -> int:
    return size(inputs[0])


KERNELS = [
    Kernel(
        "layer norm",
        lambda: [rows(4096), bf16(4096), bf16(4096)],
        lambda x, w, b: nn.functional.layer_norm(x, (4096,), w, b),
        same,
    ),
    Kernel("rms norm", lambda: [rows(4096), bf16(4096)], rms_norm, same),
    Kernel("softmax", lambda: [rows(4096)], lambda x: torch.softmax(x, -1), same),
    Kernel(
        "cross entropy",
        lambda: [rows(50304)[:10000], torch.randint(50304, (10000,), device="cuda")],
        cross_entropy,
        lambda x: 0,
    ),
    Kernel("rotary", lambda: [bf16(4, 32, 32768, 128), bf16(32768, 128), bf16(32768, 128)], rotary, same),
    Kernel("gelu", lambda: [rows(4096)], nn.functional.gelu, same),
    Kernel(
        "adam", lambda: [torch.randn(GIB // 16, device="cuda").abs() for _ in range(4)], adam, lambda x: 3 * size(x[0])
    ),
]


def copy_rate() -> float:
    """Bytes a second, read plus written, of a copy of 1 GiB."""
    x = torch.randn(GIB // 4, device="cuda")
    y = torch.empty_like(x)
    for _ in range(3):
        y.copy_(x)
    times = []
    for _ in range(10):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        y.copy_(x)
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return 2 * GIB / statistics.median(times)
