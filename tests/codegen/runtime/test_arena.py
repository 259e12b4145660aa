"""Idle arenas, which are freed while calls take others and give them back."""

import ctypes
import sys
from itertools import count
from typing import Any

import torch

from mlirc.codegen.runtime import arena, native_runtime
from tests.memory_level import build, call, slot

X = "tensor<64xf32>"
BYTES = 256


class Record(ctypes.Structure):
    """An arena, with the fields that native_runtime_text.py gives it."""

    _fields_ = [("next", ctypes.c_void_p), ("memory", ctypes.c_void_p), ("bytes", ctypes.c_int64)]


def native(name: str, result: Any, *arguments: Any) -> Any:
    return ctypes.PYFUNCTYPE(result, *arguments)(native_runtime.address(name))


def test_an_arena_that_a_call_takes_while_idle_ones_are_freed_is_not_freed():
    """Python may give the GIL to another thread between any two instructions: the other call takes its arena there, and gives it back later."""
    take = native("take_arena", ctypes.c_void_p, ctypes.c_int64)
    finish = native("finish", None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
    arena.free_idle()
    for place in count():
        records = [take(BYTES) for _ in range(3)]
        for record in records:
            finish(None, 0, record)
        taken = taken_at(place, lambda: take(BYTES))
        if taken is None:
            break
        record = Record.from_address(taken[0])
        assert (record.memory, record.bytes) == taken[1:], (
            f"it was freed, where the GIL was lost at instruction {place}"
        )
        finish(None, 0, taken[0])
        assert arena.idle_bytes() == record.bytes
        arena.free_idle()
    assert place > 2
    assert arena.idle_bytes() == 0


def taken_at(place: int, take: Any) -> tuple[int, int, int] | None:
    """The arena that `take` gives at one of the instructions of `free_idle`, and its fields then; None where it has fewer."""
    found, passed = [], count()

    def trace(frame: Any, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != arena.__file__:
            return None
        frame.f_trace_opcodes = True
        if next(passed) == place:
            record = take()
            fields = Record.from_address(record)
            found.append((record, fields.memory, fields.bytes))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        arena.free_idle()
    finally:
        sys.settrace(before)
    return found[0] if found else None


def test_bytes_of_idle_arenas_are_those_of_calls_that_have_ended():
    program = build(
        f'(%x: {X}) -> i64 attributes {{mlirc.arena = "{BYTES}"}}',
        [
            slot("%0", X),
            call("copy", "%x, %0", f"{X}, {X}"),
            '%1 = "mlirc.constant"() {value = "1"} : () -> i64',
            "return %1 : i64",
        ],
    )
    arena.free_idle()
    with torch.no_grad():
        assert program([torch.ones(64)]) == [1]
    assert arena.idle_bytes() >= BYTES
    arena.free_idle()
    assert arena.idle_bytes() == 0
