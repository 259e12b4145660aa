"""What the numbers were measured on, and what its arithmetic allows."""

import os
import platform
import time
from pathlib import Path
from typing import Any

import torch


def describe_machine() -> dict[str, Any]:
    return {
        "processor": processor_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def processor_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def product_rate(dtype: torch.dtype, size: int = 1024, repeats: int = 12) -> float:
    """Operations a second (1e9) of torch's best large matrix product: the arithmetic that the machine allows."""
    a, b = torch.randn(size, size, dtype=dtype), torch.randn(size, size, dtype=dtype)
    best = float("inf")
    for _ in range(repeats):
        started = time.perf_counter()
        torch.mm(a, b)
        best = min(best, time.perf_counter() - started)
    return 2e-9 * size**3 / best
