"""Splits a gemm among threads: a ticket is one part of its rows by one group of its panels, and threads take tickets.

With few threads, each takes some panels and all rows, or some rows and all panels. With many threads, or few panels, one would have few of
them: of 24 panels 8 of 16 threads get two, the others one and wait, and each packs all rows for them. So rows are cut into `parts`, and panels
into groups of `size`, which minimize

    rounds * (blocks * size * tile + blocks * row_pack + size * panel_pack)      rounds = ceil(tickets / threads), blocks of a part

over parts of 1, 2, 4, ... and about 1 to 3 tickets for each thread. Which thread computes a tile changes no bit of it.
"""

from collections.abc import Callable

from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.cpu.emitter.emitter import VectorEmitter
from mlirc.lowering.cpu.emitter.scope import Range
from mlirc.lowering.cpu.math.builder import Value
from mlirc.lowering.cpu.matmul.panel_groups import Groups

MANY_THREADS = 4
MOST_TICKETS = 3  # tickets for each thread, about, at most


@dataclass(frozen=True)
class Costs:
    """Half cycles for each k: to compute a tile, to read and pack a block of rows, to pack a panel."""

    tile: int
    row_pack: int
    panel_pack: int


class ThreadGrid(Groups):
    """Tickets for `panels` panels and `blocks` blocks of rows.

    group    panels of a ticket where threads are few; None: threads take equal parts, of the panels or, with `by_rows`, of the rows
    """

    def __init__(
        self,
        e: VectorEmitter,
        panels: int,
        blocks: Value,
        costs: Costs,
        group: int | None = None,
        by_rows: bool = False,
    ):
        b, threads, one = e.index, e.env["threads"], e.i64(1)
        self.e, self.every, self.blocks = e, e.i64(panels), blocks
        many = b.ge(threads, e.i64(MANY_THREADS))
        if group is not None:
            # with a few groups a thread that keeps its next ticket would do two thirds of the work
            few_groups = b.ge(b.mul(threads, e.i64(group)), e.i64(panels))
            many = b.or_(many, b.and_(few_groups, b.gt(threads, one)))
            large, small, parts = e.i64(group), e.i64(self.smaller(group)), one
        else:
            large = small = e.i64(max(panels, 1)) if by_rows else e.ceildiv(e.i64(max(panels, 1)), threads)
            parts = threads if by_rows else one
        # a thread that knows its next ticket keeps it from the others, which matters where tickets are few
        self.ahead = e.i64(0) if group is None else b.select(many, e.i64(0), one)
        best_parts, best_size = self.choose(costs, b.select(many, threads, one))
        self.parts = b.select(many, best_parts, parts)
        super().__init__(e, panels, b.select(many, best_size, large), b.select(many, best_size, small))
        self.tickets = b.mul(self.tickets, self.parts)

    def choose(self, costs: Costs, threads: Value) -> tuple[Value, Value]:
        """The number of parts and the size of a group that cost least."""
        e, b, one = self.e, self.e.index, self.e.i64(1)
        panels = b.maximum(self.every, one)

        def with_parts(parts: Value, best: list[Value]) -> list[Value]:
            b = e.index
            blocks = e.ceildiv(self.blocks, parts)

            def with_tickets(each: Value, best: list[Value]) -> list[Value]:
                b = e.index
                groups = b.maximum(b.binary("arith.divui", b.mul(threads, each), parts), one)
                size = e.ceildiv(panels, groups)
                tickets = b.mul(parts, e.ceildiv(panels, size))
                once = b.add(b.mul(blocks, e.i64(costs.row_pack)), b.mul(size, e.i64(costs.panel_pack)))
                once = b.add(once, b.mul(b.mul(blocks, size), e.i64(costs.tile)))
                cost = b.mul(e.ceildiv(tickets, threads), once)
                better = b.le(cost, best[0])
                return [b.select(better, x, y) for x, y in zip((cost, parts, size), best, strict=True)]

            best = e.loop(one, e.i64(MOST_TICKETS + 1), one, best, ["i64"] * 3, with_tickets)
            return [*best, b.add(parts, parts)]

        # scf.for counts by a constant: the parts are doubled beside it
        def doubled(_: Value, state: list[Value]) -> list[Value]:
            b = e.index
            parts = state[3]
            tried = b.le(parts, b.minimum(threads, b.maximum(self.blocks, one)))
            found = with_parts(parts, state[:3])
            return [*(b.select(tried, x, y) for x, y in zip(found[:3], state[:3], strict=True)), found[3]]

        start = [e.i64(2**62), one, panels, one]
        doublings = b.select(b.gt(threads, one), e.i64(7), e.i64(0))
        found = e.loop(e.i64(0), doublings, one, start, ["i64"] * 4, doubled)
        return found[1], found[2]

    def each(self, body: Callable[[Range, Range, Value], None]) -> None:
        """`body((first panel, end), (first block of rows, end), then)` for what this thread takes; `then` is the first panel of its
        next ticket, if that is known, else the end."""
        e = self.e

        def one(ticket: Value) -> Value:
            b, early = e.index, self.take(self.ahead)
            group, part = (b.binary(op, ticket, self.parts) for op in ("arith.divui", "arith.remui"))
            panels = self.start(group), self.start(b.add(group, e.i64(1)))
            lo = b.binary("arith.divui", b.mul(self.blocks, part), self.parts)
            hi = b.binary("arith.divui", b.mul(self.blocks, b.add(part, e.i64(1))), self.parts)
            knows = b.ne(self.ahead, e.i64(0))
            body(panels, (lo, hi), b.select(knows, self.start(early), panels[1]))
            b = e.index
            return b.select(knows, early, self.take(b.sub(e.i64(1), self.ahead)))

        e.repeat(self.take(), lambda ticket: e.index.gt(self.tickets, ticket), one)
