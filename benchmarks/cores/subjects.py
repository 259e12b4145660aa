"""What benchmarks/cores measures on more and more cores: the six models, the kernels of benchmarks/kernels.py, and single matmuls and
convolutions."""

from collections.abc import Callable

import torch
from torch.nn import functional

from benchmarks.kernels import KERNELS, under
from benchmarks.models import MODELS
from benchmarks.peers import PEERS
from benchmarks.setting import Setting, caller, compiled
from mlirc.measurement.alternate import Steps

MODEL_PARTS = ("training", "inference", "latency", "large")
PARTS = (*MODEL_PARTS, "kernels", "matmuls")
ROWS = 16384


def linear_case(rows: int, width: int, out: int) -> tuple[Callable, list[torch.Tensor]]:
    return functional.linear, [torch.randn(rows, width), torch.randn(out, width), torch.randn(out)]


def convolution_case(batch: int, channels: int, out: int, side: int, window: int, groups: int) -> tuple[Callable, list]:
    def convolve(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return functional.relu(functional.conv2d(x, weight, padding=window // 2, groups=groups))

    return convolve, [torch.randn(batch, channels, side, side), torch.randn(out, channels // groups, window, window)]


MATMULS: dict[str, Callable[[], tuple[Callable, list[torch.Tensor]]]] = {
    "linear 256 768 3072": lambda: linear_case(256, 768, 3072),
    "linear 4096 768 3072": lambda: linear_case(4096, 768, 3072),
    "convolution 3x3 64 56": lambda: convolution_case(4, 64, 64, 56, 3, 1),
    "pointwise 96 576 14": lambda: convolution_case(8, 96, 576, 14, 1, 1),
    "depthwise 3x3 192 56": lambda: convolution_case(8, 192, 192, 56, 3, 192),
}


def subjects_of(part: str, models: list[str]) -> list[str]:
    return {"kernels": list(KERNELS), "matmuls": list(MATMULS)}.get(part, models)


def steps_of(part: str, name: str, backends: list[str]) -> Steps:
    """A call by the name of its backend. Each is compiled, and has run twice."""
    steps = model_steps(part, name, backends) if part in MODEL_PARTS else function_steps(part, name, backends)
    for _ in range(2):
        for step in steps.values():
            step()
    return steps


def model_steps(part: str, name: str, backends: list[str]) -> Steps:
    batch = {"latency": 1, "large": 16 * MODELS[name](False).batch}.get(part, 0)
    setting = Setting(name, "training" if part == "training" else "inference", "float32", batch=batch)
    model, module, inputs = setting.build()
    return {
        b: caller(model, module, compiled(module, b), inputs, setting.training) for b in backends if setting.takes(b)
    }


def function_steps(part: str, name: str, backends: list[str]) -> Steps:
    function, inputs = MATMULS[name]() if part == "matmuls" else (KERNELS[name].function, KERNELS[name].inputs(ROWS))

    def step(call: Callable) -> Callable[[], None]:
        def infer() -> None:
            with torch.no_grad():
                call(*inputs)

        return infer

    return {backend: step(under(function, backend)) for backend in backends if backend not in PEERS}
