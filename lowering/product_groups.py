"""Groups of panels, which threads take one after the other as they come for them.

    for ticket = next++; ticket < tickets; ticket = then:     an atomic counter in the kernel's frame
      then = next++                                           so that it is known what is packed after this group
      group(ticket)

A thread that another program disturbs takes fewer groups: with equal shares the other threads waited for it. The last groups
are smaller, so that all end at about the same time. Which thread computes a panel changes no bit of it.
"""

from collections.abc import Callable

import torch

from mlirc.lowering.kernel_emitter import Emitter
from mlirc.lowering.kernel_function import NEXT
from mlirc.lowering.vector_builder import Value

SMALLER = 3  # how much smaller the last groups are

Range = tuple[Value, Value]


def take_groups(e: Emitter, panels: int, group: int, body: Callable[[Range, Value], None]) -> None:
    """`body((first panel, end), first panel of the next)` for each group that this thread takes, of at most `group` panels.
    Needs %frame, the kernel's."""
    b = e.index
    every, large, small = e.i64(panels), e.i64(group), e.i64(-(-group // SMALLER))
    # as much as all threads do at once is left for the smaller ones
    before = b.maximum(e.i64(0), b.sub(every, b.mul(e.env["threads"], large)))
    many = b.binary("arith.divui", before, large)
    rest = b.sub(every, b.mul(many, large))
    tickets = b.add(many, b.binary("arith.divui", b.add(rest, b.sub(small, e.i64(1))), small))
    counter = b.emit(f"llvm.getelementptr %frame[{NEXT}] : (!llvm.ptr) -> !llvm.ptr, i64", torch.int64)

    def take() -> Value:
        text = f"llvm.atomicrmw add {counter}, {e.i64(1)} monotonic : !llvm.ptr, i64"
        return e.index.emit(text, torch.int64)

    def start(ticket: Value) -> Value:
        b = e.index
        in_large = b.mul(b.minimum(ticket, many), large)
        in_small = b.mul(b.maximum(b.sub(ticket, many), e.i64(0)), small)
        return b.minimum(b.add(in_large, in_small), every)

    def one(ticket: Value) -> Value:
        then = take()
        body((start(ticket), start(e.index.add(ticket, e.i64(1)))), start(then))
        return then

    e.repeat(take(), lambda ticket: e.index.gt(tickets, ticket), one)
