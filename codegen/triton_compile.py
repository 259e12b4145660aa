"""Triton kernels to machine code for an NVIDIA GPU, which need not be here: `compile_kernels` compiles those of a module.

A kernel is compiled once a process, and once a cache folder. Triton holds the GIL while it compiles, so several
kernels go to worker processes (triton_worker.py).
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import version
from typing import Any

from mlirc.codegen import triton_worker
from mlirc.codegen.cache_entry import Entry
from mlirc.codegen.cache_folder import CacheFolder
from mlirc.dialects.bindings import ir
from mlirc.dialects.dialect import attribute_value
from mlirc.dialects.memory_ops import SCRATCH
from mlirc.lowering.triton_kernel import TritonKernel

KIND = "triton"  # of entries of the cache folder


@dataclass(frozen=True)
class KernelSource:
    """A `mlirc.triton` op as plain values: see memory_ops.Triton."""

    name: str
    source: str
    signature: tuple[str, ...]
    constants: tuple[tuple[str, int], ...]
    divisible: tuple[int, ...]
    num_warps: int
    num_stages: int
    scratch: int = 0


@dataclass(frozen=True)
class CompiledKernel:
    """name     of the function in the cubin
    shared   bytes of shared memory that a launch gives it
    """

    name: str
    cubin: bytes
    shared: int
    num_warps: int


def kernel_source(op: Any) -> KernelSource:
    """What a `mlirc.triton` op says of its kernel; the grid concerns launching only."""
    values = {n: attribute_value(op.attributes[n]) for n in ("sym_name", "source", "num_warps", "num_stages")}
    constants = {named.name: attribute_value(named.attr) for named in ir.DictAttr(op.attributes["constants"])}
    signature, divisible = (tuple(attribute_value(op.attributes[n])) for n in ("signature", "divisible"))
    return KernelSource(
        values["sym_name"],
        values["source"],
        signature,
        tuple(sorted(constants.items())),
        divisible,
        values["num_warps"],
        values["num_stages"],
        scratch_of(op),
    )


def scratch_of(op: Any) -> int:
    """Bytes of memory that each program of a `mlirc.triton` is lent."""
    return attribute_value(op.attributes[SCRATCH]) if SCRATCH in op.attributes else 0


def source_of(name: str, kernel: TritonKernel) -> KernelSource:
    """The same of a kernel that has no op yet."""
    constants = tuple(sorted(kernel.constants.items()))
    signature, divisible = tuple(kernel.signature), tuple(kernel.divisible)
    options = kernel.num_warps, kernel.num_stages, kernel.scratch
    return KernelSource(name, kernel.source, signature, constants, divisible, *options)


_compiled: dict[str, CompiledKernel] = {}


def compile_kernels(
    kernels: Sequence[KernelSource], capability: int = 90, folder: CacheFolder | None = None
) -> list[CompiledKernel]:
    """The machine code of each kernel, in order. `capability` is the GPU's, 90 for 9.0.

    Raises triton_worker.TritonError with the kernel's text where Triton does not take it.
    """
    keys = [_key(kernel, capability) for kernel in kernels]
    for key in dict.fromkeys(keys):
        if key not in _compiled and folder and (entry := folder.get(KIND, key)):
            _compiled[key] = CompiledKernel(cubin=entry.blobs[0], **entry.data)
    missing = {key: kernel for key, kernel in zip(keys, kernels, strict=True) if key not in _compiled}
    made = triton_worker.compile_all([asdict(k) for k in missing.values()], capability)
    for key, result in zip(missing, made, strict=True):
        assert result is not None
        _compiled[key] = CompiledKernel(**result)
        if folder:
            cubin = result.pop("cubin")
            folder.put(KIND, [key], Entry(result, [cubin]))
    return [_compiled[key] for key in keys]


def compile_candidates(kernels: Sequence[KernelSource], capability: int) -> list[CompiledKernel | None]:
    """The machine code of kernels of which most are not kept; None for one that Triton does not take."""
    made = triton_worker.compile_all([asdict(k) for k in kernels], capability, skip_failures=True)
    return [None if result is None else CompiledKernel(**result) for result in made]


def _key(kernel: KernelSource, capability: int) -> str:
    text = json.dumps([asdict(kernel), capability, _triton_version()], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def _triton_version() -> str:
    return version("triton")
