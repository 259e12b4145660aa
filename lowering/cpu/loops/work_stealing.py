"""Work stealing: a thread processes its own chunks in order, then takes chunks from the ends of other threads' parts.

    for owner in this thread, and the next few:
      while asked[owner]++ < chunks(owner):             atomic, so that no chunk is processed twice
        own:     chunk number front[owner]++            in memory order, so that reads stay one stream
        another: chunk number chunks - 1 - back[owner]++

With equal parts alone, all threads wait for the one that another program interrupts or that gets less memory bandwidth. The result does
not depend on which thread processes a chunk.
"""

from collections.abc import Callable

import torch

from mlirc.lowering.cpu.emitter.emitter import VectorEmitter
from mlirc.lowering.cpu.math.builder import Value

COUNTER_BYTES = 64  # of a thread's counters, which are zero at first: a cache line
ASKED, FRONT, BACK = range(3)  # of a thread
MOST_OWNERS = 4  # whose parts a thread works on


def part_of(e: VectorEmitter, count: Value, thread: Value) -> tuple[Value, Value]:
    """A thread's part of `count` chunks or points."""
    b, threads = e.index, e.env["threads"]
    lo = b.binary("arith.divui", b.mul(count, thread), threads)
    return lo, b.binary("arith.divui", b.mul(count, b.add(thread, e.i64(1))), threads)


class WorkStealing:
    """`counters` is where those of all threads are; a chunk has `chunk` units, or what is left."""

    def __init__(self, e: VectorEmitter, counters: Value, count: Value, chunk: Value):
        self.e, self.counters, self.count, self.chunk = e, counters, count, chunk

    def each(self, body: Callable[[Value, Value], None]) -> None:
        """`body(first unit, end)` for each chunk that this thread gets."""
        e = self.e

        owners = e.index.minimum(e.env["threads"], e.i64(MOST_OWNERS))
        with e.each(0, owners) as number:
            self.chunks_of(number, body)

    def chunks_of(self, number: Value, body: Callable[[Value, Value], None]) -> None:
        """Pieces of the thread that is `number` threads after this one."""
        e, b = self.e, self.e.index
        owner = b.add(e.env["thread"], number)
        owner = b.select(b.lt(owner, e.env["threads"]), owner, b.sub(owner, e.env["threads"]))
        own = b.eq(number, e.i64(0))
        first, end = part_of(e, self.count, owner)
        above = b.sub(self.chunk, e.i64(1))
        chunks = b.binary("arith.divui", b.add(b.sub(end, first), above), self.chunk)
        counters = b.emit(
            f"llvm.getelementptr {self.counters}[{b.mul(owner, e.i64(COUNTER_BYTES))}] "
            ": (!llvm.ptr, i64) -> !llvm.ptr, i8",
            torch.int64,
        )
        side = b.select(own, e.i64(FRONT), e.i64(BACK))

        def one(_: Value) -> Value:
            b = e.index
            taken = self.add_one(counters, side)
            at = b.select(own, taken, b.sub(b.sub(chunks, e.i64(1)), taken))
            start = b.add(first, b.mul(at, self.chunk))
            body(start, b.minimum(b.add(start, self.chunk), end))
            return self.add_one(counters, e.i64(ASKED))

        e.repeat(self.add_one(counters, e.i64(ASKED)), lambda asked: e.index.lt(asked, chunks), one)

    def add_one(self, counters: Value, counter: Value) -> Value:
        """A counter's value, which grows by one."""
        b = self.e.index
        place = b.emit(f"llvm.getelementptr {counters}[{counter}] : (!llvm.ptr, i64) -> !llvm.ptr, i64", torch.int64)
        return b.emit(f"llvm.atomicrmw add {place}, {self.e.i64(1)} monotonic : !llvm.ptr, i64", torch.int64)
