"""Groups of panels that threads take one after the other by a counter.

    for ticket = next++; ticket < tickets; ticket = then:     an atomic counter in the kernel's frame
      then = next++                                           so that it is known what is packed after this group
      group(ticket)

A thread that another program disturbs takes fewer groups: with equal parts the other threads waited for it. The last groups
are smaller, so that all end at about the same time. Which thread computes a panel changes no bit of it.
"""

from collections.abc import Callable

import torch

from mlirc.lowering.cpu.emitter.emitter import VectorEmitter
from mlirc.lowering.cpu.emitter.scope import Range
from mlirc.lowering.cpu.loops.entry import NEXT
from mlirc.lowering.cpu.math.builder import Value

SMALLER = 3  # how much smaller the last groups are


class Groups:
    """Numbers 0 to `count` in groups of `large`, the last ones of `small`, each with a ticket; `tickets` is how many.
    Needs %frame, the kernel's. May be gone through several times: tickets of the next round follow."""

    def __init__(self, e: VectorEmitter, count: int, large: Value, small: Value):
        b = e.index
        self.e, self.every, self.large, self.small = e, e.i64(count), large, small
        # as much as all threads do at once is left for the smaller ones
        before = b.maximum(e.i64(0), b.sub(self.every, b.mul(e.env["threads"], self.large)))
        self.many = b.binary("arith.divui", before, self.large)
        rest = b.sub(self.every, b.mul(self.many, self.large))
        self.tickets = b.add(self.many, e.ceildiv(rest, self.small))
        place = f"llvm.getelementptr %frame[{NEXT}] : (!llvm.ptr) -> !llvm.ptr, i64"
        self.counter = b.emit(place, torch.int64)

    @staticmethod
    def smaller(group: int) -> int:
        """The last groups' size, where the others' is `group`."""
        return -(-group // SMALLER)

    def take(self, count: Value | None = None) -> Value:
        """The next ticket, of one that are taken; of none, what it would be."""
        text = f"llvm.atomicrmw add {self.counter}, {count or self.e.i64(1)} monotonic : !llvm.ptr, i64"
        return self.e.index.emit(text, torch.int64)

    def start(self, ticket: Value) -> Value:
        """The first number of a ticket; of one past the last, the end."""
        e, b = self.e, self.e.index
        in_large = b.mul(b.minimum(ticket, self.many), self.large)
        in_small = b.mul(b.maximum(b.sub(ticket, self.many), e.i64(0)), self.small)
        return b.minimum(b.add(in_large, in_small), self.every)

    def round(self, ticket: Value, before: Value, body: Callable[[Range, Value], None]) -> Value:
        """`body((first number, end), first of the next group)` for this ticket and those taken after it, to the end of the
        round that `before` tickets precede; the first ticket past it."""
        e = self.e
        end = e.index.add(before, self.tickets)

        def one(ticket: Value) -> Value:
            b, then = e.index, self.take()
            number = b.sub(ticket, before)
            body((self.start(number), self.start(b.add(number, e.i64(1)))), self.start(b.sub(then, before)))
            return then

        return e.repeat(ticket, lambda ticket: e.index.gt(end, ticket), one)
