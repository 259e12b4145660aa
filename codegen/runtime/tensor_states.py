"""Checks natively, at every call, whether a graph's parameters moved or were written to.

From Python, `data_ptr()` and `_version` take 0.2 us for each tensor: 50 us for ResNet-50. Native code reads both from the tensor's
memory in a nanosecond, at offsets that abi/tensor_layout.py finds. Where it finds none, Python asks PyTorch.
"""

import ctypes
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import torch

from mlirc.codegen.abi.tensor_layout import places
from mlirc.codegen.llvm.machine_code import Code
from mlirc.codegen.runtime.runtime_code import runtime_code
from mlirc.dialects.core.fork_locks import fork_lock

ROW = 4  # slots of a tensor: its position in the list, bytes of an element, address, version (UNCOUNTED: not looked at)
UNCOUNTED = -1

TEXT = r"""
declare ptr @PyList_GetItem(ptr, i64)

; The TensorImpl of the list's item that the row is of; null where there is none.
define internal ptr @tensor(ptr %list, ptr %row) {
entry:
  %position = load i64, ptr %row
  %object = call ptr @PyList_GetItem(ptr %list, i64 %position)
  %none = icmp eq ptr %object, null
  br i1 %none, label %missing, label %there
there:
  %at = getelementptr i64, ptr %object, i64 IMPL_AT
  %impl = load ptr, ptr %at
  ret ptr %impl
missing:
  ret ptr null
}

define internal i64 @address(ptr %impl, ptr %row) {
entry:
  %storage_at = getelementptr i64, ptr %impl, i64 STORAGE_AT
  %storage = load ptr, ptr %storage_at
  %none = icmp eq ptr %storage, null
  br i1 %none, label %nowhere, label %somewhere
somewhere:
  %data_at = getelementptr i64, ptr %storage, i64 DATA_AT
  %data = load i64, ptr %data_at
  %offset_at = getelementptr i64, ptr %impl, i64 OFFSET_AT
  %offset = load i64, ptr %offset_at
  %size_at = getelementptr i64, ptr %row, i64 1
  %size = load i64, ptr %size_at
  %bytes = mul i64 %offset, %size
  %address = add i64 %data, %bytes
  ret i64 %address
nowhere:
  ret i64 0
}

; -2 for an inference tensor, which has none.
define internal i64 @version(ptr %impl) {
entry:
  %counter_at = getelementptr i64, ptr %impl, i64 COUNTER_AT
  %counter = load ptr, ptr %counter_at
  %none = icmp eq ptr %counter, null
  br i1 %none, label %uncounted, label %counted
counted:
  %version_at = getelementptr i32, ptr %counter, i64 VERSION_AT
  %version = load atomic i32, ptr %version_at monotonic, align 4
  %wide = zext i32 %version to i64
  ret i64 %wide
uncounted:
  ret i64 -2
}

; Fills in n rows. 0 when it is done, 1 where a version is asked for that there is not.
define i32 @note(ptr %list, ptr %rows, i64 %n) {
entry:
  br label %head
head:
  %k = phi i64 [ 0, %entry ], [ %next, %done ]
  %more = icmp slt i64 %k, %n
  br i1 %more, label %body, label %good
body:
  %next = add i64 %k, 1
  %at = mul i64 %k, ROW
  %row = getelementptr i64, ptr %rows, i64 %at
  %impl = call ptr @tensor(ptr %list, ptr %row)
  %missing = icmp eq ptr %impl, null
  br i1 %missing, label %bad, label %place
place:
  %address = call i64 @address(ptr %impl, ptr %row)
  %address_at = getelementptr i64, ptr %row, i64 2
  store i64 %address, ptr %address_at
  %version_at = getelementptr i64, ptr %row, i64 3
  %wanted = load i64, ptr %version_at
  %uncounted = icmp eq i64 %wanted, UNCOUNTED
  br i1 %uncounted, label %done, label %count
count:
  %version = call i64 @version(ptr %impl)
  store i64 %version, ptr %version_at
  %inference = icmp eq i64 %version, -2
  br i1 %inference, label %bad, label %done
done:
  br label %head
good:
  ret i32 0
bad:
  ret i32 1
}

; 1 where n rows hold, else 0.
define i32 @same(ptr %list, ptr %rows, i64 %n) {
entry:
  br label %head
head:
  %k = phi i64 [ 0, %entry ], [ %next, %unchanged ]
  %more = icmp slt i64 %k, %n
  br i1 %more, label %body, label %good
body:
  %next = add i64 %k, 1
  %at = mul i64 %k, ROW
  %row = getelementptr i64, ptr %rows, i64 %at
  %impl = call ptr @tensor(ptr %list, ptr %row)
  %missing = icmp eq ptr %impl, null
  br i1 %missing, label %bad, label %place
place:
  %address = call i64 @address(ptr %impl, ptr %row)
  %address_at = getelementptr i64, ptr %row, i64 2
  %known = load i64, ptr %address_at
  %moved = icmp ne i64 %address, %known
  br i1 %moved, label %bad, label %count
count:
  %version_at = getelementptr i64, ptr %row, i64 3
  %wanted = load i64, ptr %version_at
  %version = call i64 @version(ptr %impl)
  %uncounted = icmp eq i64 %wanted, UNCOUNTED
  %equal = icmp eq i64 %version, %wanted
  %holds = or i1 %uncounted, %equal
  br i1 %holds, label %unchanged, label %bad
unchanged:
  br label %head
good:
  ret i32 1
bad:
  ret i32 0
}
"""

State = Any
"""The result of `States.of`: the addresses of the tensors, and their versions."""


class States:
    """The state of the tensors at `positions` of a list: their addresses and, where `counted`, their version counters."""

    def __init__(self, positions: Sequence[int], counted: bool):
        self.positions, self.counted = list(positions), counted

    def of(self, inputs: list) -> State | None:
        """The state now; None if a tensor has no version counter to tell a write by, as an inference tensor."""
        native = _functions()
        if native is None:
            return _asked(self, inputs)
        rows = (ctypes.c_int64 * (ROW * len(self.positions)))()
        rows[::ROW], rows[1::ROW] = self.positions, [inputs[k].element_size() for k in self.positions]
        rows[3::ROW] = [0 if self.counted else UNCOUNTED] * len(self.positions)
        return None if native[0](inputs, rows, len(self.positions)) else rows

    def same(self, inputs: list, state: State) -> bool:
        """Whether the state is still that one."""
        native = _functions()
        if native is None:
            return _asked(self, inputs) == state
        return bool(native[1](inputs, state, len(self.positions)))


_address, _version = torch.Tensor.data_ptr, attrgetter("_version")


def _asked(states: States, inputs: list) -> State | None:
    """The state as PyTorch tells it."""
    tensors = [inputs[k] for k in states.positions]
    try:
        return list(map(_address, tensors)), list(map(_version, tensors)) if states.counted else []
    except RuntimeError:  # an inference tensor
        return None


_lock = fork_lock()


def make_ready() -> None:
    """Makes the native code now. Otherwise the first call of `of` does, which would load the compiler's pages again.

    Runs on a thread of its own: it reads real tensors, and the caller may be in a fake-tensor mode."""
    _functions()


def _functions() -> tuple[Callable, Callable, Code] | None:
    """`note` and `same`, and the code that they are in."""
    return _made[0] if _made else _make()


_made: list[tuple[Callable, Callable, Code] | None] = []


def _make() -> tuple[Callable, Callable, Code] | None:
    with _lock:
        if not _made:
            known = places()
            if known is None:
                _made.append(None)
            else:
                code = _code(known)
                kind = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p, ctypes.c_int64)
                _made.append((kind(code.address("note")), kind(code.address("same")), code))
        return _made[0]


def _code(known: dict[str, int]) -> Code:
    text = TEXT
    for name, number in (known | {"ROW": ROW, "UNCOUNTED": UNCOUNTED}).items():
        text = text.replace(name, str(number))
    return runtime_code(text)
