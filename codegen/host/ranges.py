"""Ranges of a host program, with the option `profile`: a line before and after each op that does work, which read the clock.

    call void @profile_begin(i64 7)                   Python: opens the range in profiles
    call i32 @clock_gettime(i32 1, ptr %started)
    ...                                               the op
    call i32 @clock_gettime(i32 1, ptr %ended)
    call void @profile_end(i64 7, ptr %started, ptr %ended, i64 %read, i64 %written, i64 %flops)
                                                      Python: keeps the time and the work, and closes the range

The clock is read inside, so that a kernel's time has nothing of Python's. Without the option no line is written.
"""

from collections.abc import Callable
from typing import Any

import torch

from mlirc.codegen.frame.frame import Frame
from mlirc.codegen.host.inputs import unbound
from mlirc.codegen.host.parts import HostRange
from mlirc.codegen.host.range_profile import BEGIN, CLOCK, END, UNKNOWN
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import info_of
from mlirc.lowering.analysis.work import Work, operands_of
from mlirc.lowering.module.forms import is_generated
from mlirc.lowering.module.source_lines import source_lines

KINDS = {
    "run": "kernel",
    "call": "library",
    "aten": "ATen",
    "aten_effect": "ATen",
    "assign": "copy",
    "allocate": "allocation",
}
STARTED, ENDED = "%started", "%ended"
MONOTONIC = 1  # CLOCK_MONOTONIC, in Linux's time.h


def ranged(frame: Frame, op: Any, write: Callable[[], None], ranges: list[HostRange]) -> None:
    """What `write` writes for an op, in a range of its own where it does work."""
    kind = KINDS.get(op.operation.name.rpartition(".")[2])
    if kind is None:
        write()
        return
    number, text = len(ranges), frame.text
    work = Work()
    work.add(op)
    ranges.append(range_of(op, kind, work, next(iter(frame.gpus.numbers), 0)))
    clocks = [f"  {name} = alloca [2 x i64]" for name in (STARTED, ENDED)]
    if clocks[0] not in text.places:  # a function that is invoked has its own
        text.places += clocks
    text.call_link(BEGIN, "void (i64)", str(number))
    text.call_link(CLOCK, "i32 (i32, ptr)", str(MONOTONIC), STARTED)
    write()
    text.call_link(CLOCK, "i32 (i32, ptr)", str(MONOTONIC), ENDED)
    done = [size_of(frame, x) for x in (work.read, work.written, work.flops)]
    text.call_link(END, "void (i64, ptr, ptr, i64, i64, i64)", str(number), STARTED, ENDED, *done)


def size_of(frame: Frame, size: Int) -> str:
    """The value of a size; that of UNKNOWN where a symbol of it has none here."""
    return str(UNKNOWN) if not isinstance(size, int) and unbound(frame, size) else frame.sizes.of(size)


def range_of(op: Any, kind: str, work: Work, gpu: int = 0) -> HostRange:
    """The range of an op; `gpu` is the GPU that times what works on none."""
    _, written = operands_of(op)
    info = written[0] if written else info_of(op.results[0]) if len(op.results) else None
    if kind == "library" and (is_generated(label_of(op)) or "kernel" in op.attributes):
        kind = "kernel"
    device = torch.device(info.device if info else "cpu")
    return HostRange(
        kind,
        label_of(op),
        source_lines(op.location),
        str(info.dtype).removeprefix("torch.") if info else "",
        str(work.read),
        str(work.written),
        str(work.flops),
        device.type,
        gpu if device.index is None else device.index,
    )


def label_of(op: Any) -> str:
    """What profiles call it: a kernel's label, the name of a routine or of an ATen operator."""
    for name in ("label", "callee", "op"):
        if name in op.attributes:
            return attribute_value(op.attributes[name])
    return op.operation.name.rpartition(".")[2]
