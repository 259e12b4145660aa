"""The common part of cuBLASLt and cuDNN: PyTorch's loaded library, a handle for each GPU, and workspace memory.

Native functions that call one of them return a status: 0 for success, NO_PLAN where Python has to make a plan first, ATEN where ATen
has to compute the result, because the library does not support the call or failed.
"""

import ctypes
import os
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import torch

from mlirc.codegen.cuda.driver import make_context_current
from mlirc.dialects.core.fork_locks import fork_lock

T = TypeVar("T")

NO_PLAN, ATEN = 1, 2


class NoPlan(Exception):
    """The library does not support a call, or computes it in another way than ATen; the text says why."""


def loaded(what: str, names: Sequence[str]) -> ctypes.CDLL:
    """The library that PyTorch has loaded, by the names that its file may have. Raises NoPlan where it has none."""
    for name in names:
        try:
            return ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        except OSError:
            continue
    raise NoPlan(f"PyTorch has not loaded {what}")


class Handles(Generic[T]):
    """One library handle for each GPU, made at its first use. `make` is called with the GPU's context."""

    def __init__(self, make: Callable[[], T]):
        self.make = make
        self.known: dict[int, T] = {}
        self._lock = fork_lock()

    def of(self, device: int) -> T:
        """The object of GPU number `device`. Raises what `make` raises."""
        with self._lock:
            if device not in self.known:
                with torch.cuda.device(device):
                    make_context_current(device)
                    self.known[device] = self.make()
            return self.known[device]


# allocate_workspace: *%size bytes, none if 0; stores the tensor handle and the address; returns 0 on success
WORKSPACE_TEXT = r"""
declare i32 @aoti_torch_empty_strided(i64, ptr, ptr, i32, i32, i32, ptr)
declare i32 @aoti_torch_get_data_ptr(ptr, ptr)
declare i32 @aoti_torch_delete_tensor_object(ptr)

@one_byte = private constant i64 1

define internal i32 @allocate_workspace(ptr %size, i32 %dtype, i32 %device, i32 %index, ptr %handle_at, ptr %address_at) {
  store ptr null, ptr %handle_at
  store ptr null, ptr %address_at
  %bytes = load i64, ptr %size
  %none = icmp eq i64 %bytes, 0
  br i1 %none, label %done, label %allocate
allocate:
  %status = call i32 @aoti_torch_empty_strided(i64 1, ptr %size, ptr @one_byte, i32 %dtype, i32 %device, i32 %index, ptr %handle_at)
  %failed = icmp ne i32 %status, 0
  br i1 %failed, label %done, label %ask
ask:
  %handle = load ptr, ptr %handle_at
  %told = call i32 @aoti_torch_get_data_ptr(ptr %handle, ptr %address_at)
  br label %done
done:
  %answer = phi i32 [ 0, %0 ], [ %status, %allocate ], [ %told, %ask ]
  ret i32 %answer
}

define internal void @free_workspace(ptr %handle_at) {
  %handle = load ptr, ptr %handle_at
  %none = icmp eq ptr %handle, null
  br i1 %none, label %done, label %free
free:
  %freed = call i32 @aoti_torch_delete_tensor_object(ptr %handle)
  br label %done
done:
  ret void
}
"""
