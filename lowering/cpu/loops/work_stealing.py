"""Work stealing: a thread processes its own chunks in order, then takes chunks from the ends of other threads' parts.

    for owner in this thread and the next three:
      while claimed[owner]++ < chunks(owner):           so front + back <= chunks, and the two ends never cross
        own:     chunk number front[owner]++            in the order of addresses, which the hardware prefetcher follows
        another: chunk number chunks - 1 - back[owner]++

With a static split alone all threads wait for the slowest: one that was preempted, or has less memory bandwidth. The result does
not depend on which thread processes a chunk.
"""

from collections.abc import Callable

import torch

from mlirc.lowering.cpu.emitter.emitter import VectorEmitter
from mlirc.lowering.cpu.math.builder import Value

COUNTER_BYTES = 64  # of one thread's counters: a cache line, against false sharing; the caller zeroes them (entry.py)
# the numbers of a thread's i64 counters: claims, chunks given out from the front, and from the back
CLAIMED, FRONT, BACK = range(3)
MOST_OWNERS = 4  # threads whose ranges a thread takes chunks from, its own included


def part_of(e: VectorEmitter, count: Value, thread: Value) -> tuple[Value, Value]:
    """[begin, end) of what `thread` does of `count` work items, split evenly."""
    b, threads = e.index, e.env["threads"]
    lo = b.binary("arith.divui", b.mul(count, thread), threads)
    return lo, b.binary("arith.divui", b.mul(count, b.add(thread, e.i64(1))), threads)


class WorkStealing:
    """Emits the loops over a thread's chunks.

    counters   the address of all threads' counters, COUNTER_BYTES for each
    count      work items of the whole kernel
    chunk      work items of a chunk; the last one of a thread's range may have fewer
    """

    def __init__(self, e: VectorEmitter, counters: Value, count: Value, chunk: Value):
        self.e, self.counters, self.count, self.chunk = e, counters, count, chunk

    def each(self, body: Callable[[Value, Value], None]) -> None:
        """Emits `body(begin, end)`, numbers of work items, for each chunk that this thread claims."""
        e = self.e
        owners = e.index.minimum(e.env["threads"], e.i64(MOST_OWNERS))
        with e.each(0, owners) as distance:
            self.take_chunks_of(distance, body)

    def take_chunks_of(self, distance: Value, body: Callable[[Value, Value], None]) -> None:
        """Claims chunks of the thread that is `distance` after this one, modulo the number of threads."""
        e, b = self.e, self.e.index
        owner = b.add(e.env["thread"], distance)
        owner = b.select(b.lt(owner, e.env["threads"]), owner, b.sub(owner, e.env["threads"]))
        own = b.eq(distance, e.i64(0))
        first, end = part_of(e, self.count, owner)
        chunks = e.ceildiv(b.sub(end, first), self.chunk)
        counters = b.emit(
            f"llvm.getelementptr {self.counters}[{b.mul(owner, e.i64(COUNTER_BYTES))}] "
            ": (!llvm.ptr, i64) -> !llvm.ptr, i8",
            torch.int64,
        )
        end_counter = b.select(own, e.i64(FRONT), e.i64(BACK))

        def process_chunk(_: Value) -> Value:
            b = e.index
            taken = self.fetch_add_one(counters, end_counter)
            number = b.select(own, taken, b.sub(b.sub(chunks, e.i64(1)), taken))
            start = b.add(first, b.mul(number, self.chunk))
            body(start, b.minimum(b.add(start, self.chunk), end))
            return self.fetch_add_one(counters, e.i64(CLAIMED))

        e.repeat(
            self.fetch_add_one(counters, e.i64(CLAIMED)), lambda claimed: e.index.lt(claimed, chunks), process_chunk
        )

    def fetch_add_one(self, counters: Value, counter: Value) -> Value:
        """The value of a counter before it is incremented. Monotonic order: the counters guard no data."""
        b = self.e.index
        place = b.emit(f"llvm.getelementptr {counters}[{counter}] : (!llvm.ptr, i64) -> !llvm.ptr, i64", torch.int64)
        return b.emit(f"llvm.atomicrmw add {place}, {self.e.i64(1)} monotonic : !llvm.ptr, i64", torch.int64)
