"""The processor's name and features, as LLVM takes them."""

from functools import cache

import llvmlite.binding as llvm

from mlirc.lowering.host import host_cpu
from mlirc.lowering.target import CpuTarget

# LLVM's name for a processor of that width, and features beside it
_NAMES = {
    ("x86_64", 64): ("x86-64-v4", ""),
    ("x86_64", 32): ("x86-64-v3", ""),
    ("x86_64", 16): ("x86-64-v2", ""),
    ("aarch64", 16): ("generic", "+neon"),
}
_WIDER = {64: "", 32: "avx512f", 16: "avx"}  # a feature of processors with wider vectors


def why_not_here(target: CpuTarget) -> str:
    """Why this processor cannot run kernels for that one, or ""."""
    here = host_cpu()
    if target.arch == here.arch and target.vector_bytes <= here.vector_bytes and target.bf16_pairs <= here.bf16_pairs:
        return ""
    return f"kernels for {target} have instructions that this processor lacks, {here}; lower them for --target host"


@cache
def cpu_name_and_features(target: CpuTarget) -> tuple[str, str]:
    """The host's name and features where `target` is as wide, else those of any processor of `target`'s kind."""
    name, features = _NAMES[target.arch, target.vector_bytes]
    if why_not_here(target):
        return portable_name_and_features(target)
    here = llvm.get_host_cpu_features()
    if target.arch == "x86_64" and here.get(_WIDER[target.vector_bytes]):
        return name, features
    return llvm.get_host_cpu_name(), here.flatten()


def portable_name_and_features(target: CpuTarget) -> tuple[str, str]:
    """The name and features of any processor of `target`'s kind."""
    name, features = _NAMES[target.arch, target.vector_bytes]
    return name, "+avx512bf16" if target.bf16_pairs else features


def tuning(name: str) -> str:
    """What LLVM is to prefer on the processor of that name, as features. Zen's gathers and scatters are microcode, slower than a load or store for
    each lane."""
    return ",+prefer-no-gather,+prefer-no-scatter" if name.startswith("znver") else ""


def llvm_target(target: CpuTarget) -> llvm.Target:
    """This process's kind of code, or that of another architecture."""
    if target.arch == host_cpu().arch:
        return llvm.Target.from_default_triple()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(f"{target.arch}-unknown-linux-gnu")
