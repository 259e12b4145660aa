"""What LLVM is told of the processor."""

from functools import cache

import llvmlite.binding as llvm

from mlirc.lowering.host import host_cpu
from mlirc.lowering.target import CpuTarget

_LESSER_CPU = {("x86_64", 32): "x86-64-v3", ("x86_64", 16): "x86-64-v2"}


def why_not_here(target: CpuTarget) -> str:
    """Why code of kernels for that processor cannot be made here, or ""."""
    here = host_cpu()
    if target.arch == here.arch and target.vector_bytes <= here.vector_bytes and target.bf16_pairs <= here.bf16_pairs:
        return ""
    return f"kernels for {target} have instructions that this processor lacks, {here}; lower them for --target host"


@cache
def cpu_name_and_features(target: CpuTarget) -> tuple[str, str]:
    """The host's name and features, or a lesser one's of `target`'s width."""
    lesser = _LESSER_CPU.get((target.arch, target.vector_bytes))
    native = "avx512f" if target.vector_bytes == 64 else "avx2" if target.vector_bytes == 32 else ""
    features = llvm.get_host_cpu_features()
    wider = {64: "", 32: "avx512f", 16: "avx"}[target.vector_bytes]
    if lesser and features.get(wider):
        return lesser, ""
    if native and target.arch == "x86_64" and not features.get(native):
        raise ValueError(f"{8 * target.vector_bytes}-bit vectors were asked for, but this processor has no {native}")
    return llvm.get_host_cpu_name(), features.flatten()
