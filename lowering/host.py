"""This machine as a target. No pass asks it: they read the module's `mlirc.target` (module/target_attribute.py)."""

import os
import platform
from functools import cache

import torch

from mlirc.lowering.target import NAMED, CpuTarget, GpuTarget, Target

# MLIRC_VECTOR_BYTES narrows the vectors, to try the code for a lesser machine on a greater one.
OVERRIDE = "MLIRC_VECTOR_BYTES"
ASSUMED_GPU = NAMED["gpu-h200"]  # where tensors are on a GPU and none is here
_WIDTH = (("AVX512", 64), ("AVX10", 64), ("AVX2", 32))  # what PyTorch calls the processor -> bytes


def host_target(on_gpu: bool) -> Target:
    """This machine, with its GPUs where tensors are `on_gpu`: to ask for them takes CUDA, which a graph of a CPU does not start."""
    return Target(host_cpu(), host_gpus() if on_gpu else ())


def host_cpu() -> CpuTarget:
    """This processor, or the part of it that the environment variable MLIRC_VECTOR_BYTES leaves."""
    mkldnn = torch.backends.mkldnn
    return _cpu(os.environ.get(OVERRIDE), mkldnn.is_available() and mkldnn.enabled)


@cache
def _cpu(override: str | None, onednn: bool) -> CpuTarget:
    arch = {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
    capability = torch.backends.cpu.get_cpu_capability()
    width = next((width for name, width in _WIDTH if capability.startswith(name)), 16)
    known = torch.cpu.get_capabilities()
    if override is not None and (override not in ("16", "32", "64") or int(override) > width):
        raise ValueError(f"{OVERRIDE}={override}: expected 64, 32 or 16, and at most this machine's {width}")
    width = width if override is None else int(override)
    convolves = "none" if not onednn else "bfloat16" if torch.ops.mkldnn._is_mkldnn_bf16_supported() else "float32"
    pairs = bool(known.get("avx512_bf16")) and width == 64
    return CpuTarget(arch, width, pairs, bool(known.get("amx_bf16")), convolves)


@cache
def host_gpus() -> tuple[GpuTarget, ...]:
    """The GPUs here, equal ones at the end left out but for one; the one that is assumed where there is none."""
    if not torch.cuda.is_available():
        assert isinstance(ASSUMED_GPU, GpuTarget)
        return (ASSUMED_GPU,)
    properties = [torch.cuda.get_device_properties(k) for k in range(torch.cuda.device_count())]
    found = [GpuTarget(f"sm_{p.major}{p.minor}", p.multi_processor_count) for p in properties]
    while len(found) > 1 and found[-1] == found[-2]:
        found.pop()
    return tuple(found)
