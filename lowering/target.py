"""What the code for kernels must know of the processor: its architecture and how wide its vectors are."""

import os
import platform
from dataclasses import dataclass
from functools import cache

import torch

# MLIRC_VECTOR_BYTES narrows the vectors, to try the code for a lesser machine on a greater one.
OVERRIDE = "MLIRC_VECTOR_BYTES"
SCRATCH_FUNCTION = "mlirc_scratch"  # of this process, which kernels call (emitter/scratch.py)
_WIDTH = (("AVX512", 64), ("AVX10", 64), ("AVX2", 32))  # what PyTorch calls the processor -> bytes


@dataclass(frozen=True)
class CpuTarget:
    """arch is "x86_64" or "aarch64"; vector_bytes is the width of a vector register: 64, 32 or 16.

    bf16_pairs   whether it has AVX-512's products of pairs of bfloat16
    bf16_tiles   whether it has AMX's products of bfloat16 tiles, which only libraries use here
    """

    arch: str
    vector_bytes: int
    bf16_pairs: bool = False
    bf16_tiles: bool = False

    def lanes(self, dtype: torch.dtype) -> int:
        """How many elements of `dtype` one register holds."""
        return self.vector_bytes // dtype.itemsize

    @property
    def multiplies_pairs(self) -> bool:
        return self.has_avx512 and self.bf16_pairs

    @property
    def has_avx2(self) -> bool:
        return self.arch == "x86_64" and self.vector_bytes >= 32

    @property
    def has_avx512(self) -> bool:
        return self.arch == "x86_64" and self.vector_bytes == 64


@cache
def _host(override: str | None) -> CpuTarget:
    arch = {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
    capability = torch.backends.cpu.get_cpu_capability()
    width = next((width for name, width in _WIDTH if capability.startswith(name)), 16)
    known = torch.cpu.get_capabilities()
    features = bool(known.get("avx512_bf16")), bool(known.get("amx_bf16"))
    if override is None:
        return CpuTarget(arch, width, *features)
    if override not in ("16", "32", "64") or int(override) > width:
        raise ValueError(f"{OVERRIDE}={override}: expected 64, 32 or 16, and at most this machine's {width}")
    return CpuTarget(arch, int(override), *features)


def host() -> CpuTarget:
    """This machine, or the part of it that the environment variable MLIRC_VECTOR_BYTES leaves."""
    return _host(os.environ.get(OVERRIDE))
