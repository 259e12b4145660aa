"""Machine code of the kernels that a program launches on GPUs: compiled by Triton, loaded for each GPU once a process."""

import ctypes
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import torch

from mlirc.codegen.cache.folder import CacheFolder
from mlirc.codegen.cuda.driver import Record, load_kernel
from mlirc.codegen.cuda.triton_compile import CompiledKernel, begin_kernels, kernel_source
from mlirc.codegen.frame.gpu_calls import Launched
from mlirc.dialects.core.fork_locks import fork_lock
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.module.errors import EmitError
from mlirc.lowering.target import Target


@dataclass(frozen=True)
class GpuKernel:
    """A kernel that is loaded for a GPU; `address` is that of its record, which native code launches from."""

    compiled: CompiledKernel
    device: int
    record: Record

    @property
    def address(self) -> int:
        return ctypes.addressof(self.record)


_lock = fork_lock()
_loaded: dict[tuple[bytes, str, int, int, int, bool], Record] = {}


def load(compiled: CompiledKernel, device: int) -> GpuKernel:
    """The kernel on GPU number `device`. Raises CudaError."""
    key = (compiled.cubin, compiled.name, compiled.num_warps, compiled.shared, device, compiled.waits)
    with _lock:
        if key not in _loaded:
            _loaded[key] = load_kernel(*key)
        return GpuKernel(compiled, device, _loaded[key])


@dataclass(frozen=True)
class Begun:
    """A kernel for GPU number `device` that is being compiled."""

    code: Future[CompiledKernel]
    device: int

    def load(self) -> GpuKernel:
        """Waits for the code. Raises TritonError for a kernel that Triton does not take, CudaError for code that the GPU does not."""
        return load(self.code.result(), self.device)


def begin(
    ops: Mapping[str, Any], launched: Sequence[Launched], folder: CacheFolder | None, target: Target | None = None
) -> dict[str, Begun]:
    """The kernels of a host program by their links; `ops` has each one's `mlirc.triton`. All are compiled at once.

    Raises EmitError where their target has another GPU than is here, or where there is none.
    """
    if not torch.cuda.is_available():
        raise EmitError("the module runs kernels on a GPU, and there is none here", None)
    found: dict[str, Begun] = {}
    for device in dict.fromkeys(k.device for k in launched):
        here = [k for k in launched if k.device == device]
        major, minor = torch.cuda.get_device_capability(device)
        gpu = target.gpu(f"cuda:{device}") if target is not None else None
        if gpu is not None and gpu.capability != 10 * major + minor:
            here = f"cuda:{device}, which is sm_{major}{minor}"
            raise EmitError(f"kernels for {gpu.arch} do not run on {here}; lower them for --target host", None)
        sources = [kernel_source(ops[k.kernel]) for k in here]
        for kernel, code in zip(here, begin_kernels(sources, 10 * major + minor, folder), strict=True):
            found[kernel.link] = Begun(code, device)
    return found


def ready(kernels: Mapping[str, tuple[CompiledKernel, int]]) -> dict[str, Begun]:
    """Kernels that were compiled already, by their links."""
    found = {}
    for link, (compiled, device) in kernels.items():
        code: Future[CompiledKernel] = Future()
        code.set_result(compiled)
        found[link] = Begun(code, device)
    return found
