"""Program: a graph's machine code as a Python callable."""

import atexit
import ctypes
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any
from weakref import finalize

import torch

from mlirc.codegen.abi import shim
from mlirc.codegen.abi.library_settings import library_settings
from mlirc.codegen.abi.tensor_handle import HANDLE
from mlirc.codegen.frame.failures import FAILURE_FIELDS, FAILURES, FailureSite
from mlirc.codegen.frame.gpu_calls import CONVOLUTIONS, MATMULS
from mlirc.codegen.host.parts import HostCall, HostProgram
from mlirc.codegen.host.range_profile import RangeProfile
from mlirc.codegen.llvm.machine_code import Code
from mlirc.codegen.process import after_fork
from mlirc.codegen.runtime import arena, native_runtime, result_pool
from mlirc.codegen.runtime.python_side import PythonSide
from mlirc.codegen.runtime.shared_kernels import CachedKernel
from mlirc.codegen.user_errors import of_the_user
from mlirc.dialects.core.fork_locks import fork_lock
from mlirc.dialects.core.index_errors import index_error

if TYPE_CHECKING:  # a graph for a CPU loads nothing of what GPUs need
    from mlirc.codegen.cuda.kernels import GpuKernel
    from mlirc.codegen.libraries.cublas_plans import CublasPlans
    from mlirc.codegen.libraries.cudnn import CudnnPlans


log = logging.getLogger("mlirc")


class Program:
    """program(inputs) -> results, in one native call. Call it under torch.no_grad(), as AOTAutograd does.

    inputs    a list of tensors, ints and floats, one for each argument of the graph
    calls     its ATen calls, in order; those that go through Python say `why`
    native    what a call calls; it holds all that it runs on, and may outlive the program

    Any number of threads may call it at once. Raises what an ATen call raised, IndexError for an index out of bounds,
    RuntimeError with PyTorch's text where a library routine failed.
    """

    _boxed_call = True  # AOTAutograd then hands over a list

    def __init__(
        self,
        host: HostProgram,
        code: Code,
        kernels: Mapping[str, CachedKernel],
        gpu_kernels: "Mapping[str, GpuKernel] | None" = None,
        convolutions: "CudnnPlans | None" = None,
    ):
        """`code` is that of host.text, `kernels` and `gpu_kernels` what it runs, by the names in host.links; `convolutions` the
        plans of host.convolutions, where some were made already."""
        after_fork.install()
        self.kernels, self.gpu_kernels = kernels, gpu_kernels or {}
        addresses = native_runtime.functions()
        addresses |= {name: kernel.address for name, kernel in (*kernels.items(), *self.gpu_kernels.items())}
        profile = RangeProfile(host.ranges, host.uses_gpu) if host.ranges else None
        if profile is not None:
            addresses |= profile.functions()
        self.failures = torch.zeros(FAILURE_FIELDS * host.checks, dtype=torch.int64, pin_memory=host.uses_gpu)
        if host.uses_gpu:
            from mlirc.codegen.cuda import random as cuda_random
            from mlirc.codegen.cuda import runtime as cuda_runtime

            addresses |= cuda_runtime.functions() | cuda_random.linked(host.links)
            addresses[FAILURES] = self.failures.data_ptr()
            if host.checks:
                _tell_at_exit()
                # a kernel may still be about to write there
                _noted.append((self.failures, host.sites, {k.device for k in host.launched}))
        self.refused: list[str] = []  # why cuBLASLt or cuDNN left to ATen what they were asked for
        self.convolutions: CudnnPlans | None = convolutions
        self.plans: CublasPlans | None = None
        self._settings = library_settings()
        if host.convolutions:
            from mlirc.codegen.libraries import cudnn, cudnn_runtime

            self.convolutions = convolutions or cudnn.CudnnPlans(host.convolutions)
            self.refused = self.convolutions.refused
            addresses |= cudnn_runtime.functions()
            addresses[CONVOLUTIONS] = self.convolutions.address
        if host.matmuls:
            from mlirc.codegen.libraries import cublas_plans, cublas_runtime

            self.plans = cublas_plans.CublasPlans(host.matmuls, self.refused)
            addresses |= cublas_runtime.functions()
            addresses[MATMULS] = self.plans.address
        links = (ctypes.c_void_p * len(host.links)).from_address(code.address("links"))
        links[:] = [addresses[name] for name in host.links]
        self.calls: list[HostCall] = host.calls
        self.host = replace(host, text="")  # the text is long, and not needed any more
        self.code = code
        method, room = _method_of(code)
        held = (room, code, self.kernels, self.gpu_kernels, self.failures)
        python = PythonSide(
            handle_attribute=HANDLE,
            raise_failure=SiteFailure(host.inputs, host.sites),
            matmul_plans=self.plans,
            convolution_plans=self.convolutions,
            aten_calls=[call.python for call in host.calls],
            held=held,
        )
        self.native: Callable[[list[Any]], list[Any]] = _new_function(method, python.as_tuple(), None)
        if profile is not None:
            self.native = profile.around(self.native)
        pool = native_runtime.pool()
        with _lives:
            _live.add(id(self))
            if pool:
                pool.set_limit(result_pool.limit())
        finalize(self, _end, id(self)).atexit = False

    def __call__(self, inputs: list[Any]) -> list[Any]:
        return self.native(inputs)

    @property
    def has_plans(self) -> bool:
        return bool(self.host.matmuls or self.host.convolutions)

    def look_at_settings(self) -> None:
        """Forgets its plans where PyTorch's settings are others than they were; to be called before each call."""
        now = library_settings()
        if now != self._settings:
            self._settings = now
            for plans in (self.plans, self.convolutions):
                if plans is not None:
                    plans.forget()


class SiteFailure:
    """Raises what a host program's failure at a site means."""

    def __init__(self, inputs: int, sites: list[FailureSite]):
        self.inputs, self.sites = inputs, sites

    def __call__(self, number: int, index: int, size: int) -> None:
        site = self.sites[number]
        if site.message:
            raise of_the_user(index_error(site.message, index, size))
        if site.op == "the inputs" and index == -1:
            raise TypeError(f"this compiled graph takes a list of {self.inputs} inputs")
        if index == -2:
            raise RuntimeError(f"{site.op} gave a tensor of other sizes or dtype than its meta function promised")
        from mlirc.codegen.cuda import driver as cuda_driver
        from mlirc.codegen.cuda import runtime as cuda_runtime

        if (cuda := cuda_runtime.error_number(index)) is not None:
            reason = cuda_driver.error_text(cuda)
            place = f"{site.op}{site.location and ', from ' + site.location}"
            raise of_the_user(RuntimeError(f"CUDA: {reason} (in {place})"))
        reason = shim.last_error() or "PyTorch's C shim wrote the reason to stderr"
        origin = f" from {site.location}" if site.location else ""
        raise RuntimeError(f"{reason}\n(in {site.op}, called by a compiled graph{origin})")


class _Method(ctypes.Structure):
    """PyMethodDef of Python's C interface."""

    _fields_ = [
        ("name", ctypes.c_void_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_void_p),
    ]


_NAME = ctypes.c_char_p(b"graph")
_METH_O = 8


def _method_of(code: Code) -> tuple[int, bytearray]:
    """The address of the PyMethodDef of a program, and what its memory belongs to.

    Python reads it to free the function, after the function's tuple was told to let go of it. Of a cycle that is garbage the collector empties a
    structure of ctypes before that, but not a bytearray, which it does not know."""
    room = bytearray(ctypes.sizeof(_Method))
    method = _Method.from_buffer(room)
    method.name, method.function, method.flags = (
        ctypes.cast(_NAME, ctypes.c_void_p).value,
        code.address("graph"),
        _METH_O,
    )
    return ctypes.addressof(method), room


_new_function = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
    ("PyCFunction_NewEx", ctypes.pythonapi)  # as an attribute of pythonapi it would be everybody's, types and all
)

_noted: list[tuple[torch.Tensor, list[FailureSite], set[int]]] = []
"""Where kernels on GPUs note bad indices, of all programs that there were, the sites of each, and the GPUs."""


@cache
def _tell_at_exit() -> None:
    atexit.register(tell_unread)


def tell_unread() -> None:
    """Logs each bad index that was never reported, by a later call or by a synchronization."""
    for device in sorted({device for _, _, devices in _noted for device in devices}):
        with suppress(Exception):  # what it raises was reported by an earlier synchronization, or is logged below
            torch.cuda.synchronize(device)
    for slots, sites, _ in _noted:
        for check, index, size in slots.view(-1, FAILURE_FIELDS).tolist():
            if check:
                places = ", ".join(dict.fromkeys(site.location for site in sites if site.message and site.location))
                log.error("index %d was out of bounds for size %d in a compiled graph (%s)", index, size, places)
        slots.zero_()


_live: set[int] = set()
_lives = fork_lock()  # another thread may make a program while the last one ends; no other lock is taken under it


def _end(program: int) -> None:
    """Frees idle arenas and the memory that the pool of results keeps, once the last program has ended."""
    pool = native_runtime.pool()
    with _lives:
        _live.discard(program)
        last = not _live
        if last and pool:
            pool.set_limit(0)
    if last:
        arena.free_idle()
