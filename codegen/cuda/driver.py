"""CUDA's driver API for machine code: loads a cubin as a kernel record that native code launches."""

import ctypes
from functools import cache

import torch

STATIC_SHARED = 48 * 1024  # bytes: a block gets more shared memory only where the function asks for it
_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8  # of CUfunction_attribute


class CudaError(RuntimeError):
    """A call of CUDA's driver failed; the text has CUDA's own."""


@cache
def driver() -> ctypes.CDLL:
    """CUDA's driver. Raises CudaError where there is none."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise CudaError(f"this machine has no CUDA driver: {error}") from error


def error_text(code: int) -> str:
    """CUDA's name and text of an error."""
    texts = []
    for ask in (driver().cuGetErrorName, driver().cuGetErrorString):
        text = ctypes.c_char_p()
        ask(code, ctypes.byref(text))
        texts.append((text.value or b"unknown").decode())
    return f"{texts[0]} ({texts[1]})"


def _check(what: str, code: int) -> None:
    if code:
        raise CudaError(f"{what} failed: {error_text(code)}")


class Record(ctypes.Structure):
    """What `launch` of cuda/runtime.py takes: a kernel's function, threads of a block, its bytes of shared memory.

    early   1 for one that may be launched while what is before it in its stream still runs, as it waits by itself
    """

    _fields_ = [(name, ctypes.c_int64) for name in ("function", "threads", "shared", "early")]


def load_kernel(cubin: bytes, name: str, warps: int, shared: int, device: int, waits: bool = False) -> Record:
    """Loads a kernel's machine code for one GPU; `shared` is in bytes, a warp has 32 threads. Raises CudaError.

    The code stays until the process ends: to take it away would be to wait until nothing on the GPU runs it.
    """
    record = load_module(cubin, name, warps, shared, device)[0]
    record.early = waits
    return record


def load_module(cubin: bytes, name: str, warps: int, shared: int, device: int) -> tuple[Record, ctypes.c_void_p]:
    """Loads a kernel's machine code as `load_kernel` does. Gives the kernel, and its CUDA module for `unload_module`."""
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    with torch.cuda.device(device):
        make_context_current(device)
        _check(f"loading kernel {name}", driver().cuModuleLoadData(ctypes.byref(module), cubin))
        _check(
            f"finding kernel {name}",
            driver().cuModuleGetFunction(ctypes.byref(function), module, name.encode()),
        )
        if shared > STATIC_SHARED:
            code = driver().cuFuncSetAttribute(function, _MAX_DYNAMIC_SHARED_SIZE_BYTES, shared)
            _check(f"giving kernel {name} {shared} bytes of shared memory", code)
    return Record(function.value, 32 * warps, shared, 0), module


def unload_module(module: ctypes.c_void_p) -> None:
    """Takes the code away, which nothing on the GPU may run any more."""
    driver().cuModuleUnload(module)


def make_context_current(device: int) -> None:
    """A thread that has not used CUDA yet has no context, and the driver does not make one as the runtime does."""
    torch.cuda.init()
    context = ctypes.c_void_p()
    _check("asking for the context", driver().cuCtxGetCurrent(ctypes.byref(context)))
    if not context:
        _check("making a context", driver().cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
        _check("setting the context", driver().cuCtxSetCurrent(context))
