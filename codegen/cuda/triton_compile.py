"""Compiles a module's Triton kernels to machine code for an NVIDIA GPU, which need not be present.

Worker processes compile (triton_processes.py). A kernel is compiled once for each process, and once for each cache folder.
"""

import hashlib
import json
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from typing import Any

from mlirc.codegen.cache.entry import CacheEntry
from mlirc.codegen.cache.folder import CacheFolder
from mlirc.codegen.cuda import triton_processes
from mlirc.codegen.cuda.triton_worker import TritonError
from mlirc.codegen.process import background
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.fork_locks import fork_lock
from mlirc.dialects.core.memory_ops import scratch_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.gpu.kernel import TritonKernel

KIND = "triton"  # of entries of the cache folder


@dataclass(frozen=True)
class KernelSource:
    """The attributes of a `mlirc.triton` op as plain values (memory_ops.Triton)."""

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
    """A Triton kernel as machine code, and what its launch needs.

    name     of the function in the cubin
    shared   bytes of shared memory for a launch
    waits    whether its code waits for the preceding kernel of its stream, so that a launch need not
    """

    name: str
    cubin: bytes
    shared: int
    num_warps: int
    waits: bool = False


def kernel_source(op: Any) -> KernelSource:
    """The source of a `mlirc.triton` op, without its grid, which only a launch needs."""
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


def source_of(name: str, kernel: TritonKernel) -> KernelSource:
    """The source of a kernel that has no op yet."""
    constants = tuple(sorted(kernel.constants.items()))
    signature, divisible = tuple(kernel.signature), tuple(kernel.divisible)
    options = kernel.num_warps, kernel.num_stages, kernel.scratch
    return KernelSource(name, kernel.source, signature, constants, divisible, *options)


_known: dict[str, Future[CompiledKernel]] = {}
_lock = fork_lock()


def begin_kernels(
    kernels: Sequence[KernelSource], capability: int = 90, folder: CacheFolder | None = None
) -> list[Future[CompiledKernel]]:
    """Starts compiling each kernel, and returns a future of its machine code, in order. `capability` is the GPU's, 90 for 9.0.

    A future raises triton_worker.TritonError with the kernel's text where Triton refuses the kernel.
    """
    return [_begun(kernel, _key(kernel, capability), capability, folder) for kernel in kernels]


def compile_kernels(
    kernels: Sequence[KernelSource], capability: int = 90, folder: CacheFolder | None = None
) -> list[CompiledKernel]:
    """The machine code of each kernel, after waiting for it. Raises TritonError."""
    return [begun.result() for begun in begin_kernels(kernels, capability, folder)]


def compile_candidates(kernels: Sequence[KernelSource], capability: int) -> list[CompiledKernel | None]:
    """The machine code of each kernel, which is not stored in the cache folder; None for a kernel that Triton refuses."""
    begun = [background.attend(triton_processes.compile_kernel, asdict(k), capability) for k in kernels]
    return [None if isinstance(f.exception(), TritonError) else CompiledKernel(**f.result()) for f in begun]


def _begun(kernel: KernelSource, key: str, capability: int, folder: CacheFolder | None) -> Future[CompiledKernel]:
    with _lock:
        known = _known.get(key)
        if known is None or (known.done() and known.exception()):
            known = _known[key] = background.attend(_made, kernel, key, capability, folder)
        return known


def _made(kernel: KernelSource, key: str, capability: int, folder: CacheFolder | None) -> CompiledKernel:
    """The kernel's code from the cache folder, else compiled and stored there."""
    if folder and (entry := folder.get(KIND, key)):
        return CompiledKernel(cubin=entry.blobs[0], **entry.data)
    made = CompiledKernel(**triton_processes.compile_kernel(asdict(kernel), capability))
    if folder:
        data = {"name": made.name, "shared": made.shared, "num_warps": made.num_warps, "waits": made.waits}
        folder.put(KIND, [key], CacheEntry(data, [made.cubin]))
    return made


def _key(kernel: KernelSource, capability: int) -> str:
    text = json.dumps([asdict(kernel), capability, _triton_version()], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def _triton_version() -> str:
    return version("triton")
