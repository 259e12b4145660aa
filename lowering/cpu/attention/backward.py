"""Gradients of attention as functions in MLIR text: for each block of keys, the queries that see it, 64 at a time.

for (batch, head of the keys), shared among threads:
  delta = the sums of dout * out along the rows                  one a query, of each head that shares the keys
  for block of keys:
    keys, values = its rows; dk, dv = 0                          in scratch
    for head, block of queries:
      scores = keys @ queries^T; slopes = values @ dout^T        [keys, queries]
      the mask; exponentials = exp(scores - lse); slopes = exponentials * (slopes - delta)
      dv += exponentials @ dout; dk += slopes @ queries; dq += slopes^T @ keys

After Dao, "FlashAttention-2" (2023). A block's rows are copied to scratch, transposed too where queries lie along the lanes,
so that any strides will do. Each thread owns all that it adds to: the same bits with any number of them.
"""

from collections.abc import Callable

from mlirc.dialects.core import symbols
from mlirc.lowering.cpu.attention.backward_block import F32, KeyBlock
from mlirc.lowering.cpu.attention.call import Gradients
from mlirc.lowering.cpu.attention.memory import along_row, place_of, stage_rows, store_rows
from mlirc.lowering.cpu.emitter.addresses import advance, load_floats, load_scalar, store_scalar
from mlirc.lowering.cpu.loops.frame import KernelText
from mlirc.lowering.cpu.math.builder import Value
from mlirc.lowering.target import CpuTarget


def backward_text(g: Gradients, name: str, target: CpuTarget) -> KernelText:
    """The functions of kernel `name`, for a call that `backward_refusal` of attention/call.py has nothing against."""
    return _BackwardWriter(g, name, target).write()


class _BackwardWriter(KeyBlock):
    # ---- the function

    def write(self) -> KernelText:
        self.begin()
        self.make_room()
        batch, heads = self.a.k.shape[:2]
        self.each_head(batch, heads, self.one_head)
        work = symbols.product([*self.a.q.shape[:3], self.a.k.shape[2], self.head("k") + self.head("v")])
        return self.framed(symbols.floordiv(work * 1, 3), batch * heads)

    def one_head(self, batch: Value, shared: Value) -> None:
        """The gradients of the keys and values of a head, and of the queries that read these."""
        a, g, e, b = self.a, self.g, self.e, self.e.index
        keys, queries = e.integer(a.k.shape[2]), e.integer(a.q.shape[2])
        places = {name: place_of(e, e.env[name], self.tensors[name], batch, shared) for name in ("k", "v", "dk", "dv")}
        self.each_query_head(batch, shared, self.start)

        with e.each(0, keys, self.block) as key:
            count = b.minimum(b.sub(keys, key), e.i64(self.block))
            for which in ("k", "v"):
                info = self.tensors[which]
                here = advance(e, places[which], b.mul(key, e.integer(info.stride[2])), info.dtype)
                stage_rows(e, here, info, count, self.keys[which], self.pitch[which])
                self.clear(self.key_sums[which], self.block * self.pitch[which])
            first = b.maximum(b.sub(key, e.integer(a.diagonal)), e.i64(0)) if a.causal != "none" else e.i64(0)

            def head(rows: dict[str, Value]) -> None:
                with e.each(first, queries, self.width) as query:
                    self.query_block(rows, query, b.minimum(b.sub(queries, query), e.i64(self.width)), key, count)

            self.each_query_head(batch, shared, head)
            for which in ("k", "v"):
                info = self.tensors["d" + which]
                here = advance(e, places["d" + which], b.mul(key, e.integer(info.stride[2])), info.dtype)
                store_rows(e, here, info, count, self.key_sums[which], self.pitch[which])
        if self.sums is not g.dq:
            self.each_query_head(batch, shared, self.finish)

    def each_query_head(self, batch: Value, shared: Value, body: Callable[[dict[str, Value]], None]) -> None:
        """`body`, given where each tensor's rows start, for the heads of the query that share the keys."""
        e, b, g, a = self.e, self.e.index, self.g, self.a

        with e.each(0, a.group) as number:
            head = b.add(b.mul(shared, e.i64(a.group)), number)
            rows = {
                name: place_of(e, e.env[name], self.tensors[name], batch, head)
                for name in ("dout", "q", "out", "lse", "dq", "work")
            }
            rows["sums"] = advance(e, rows["work"], e.i64(1)) if self.sums is not g.dq else rows["dq"]
            if a.mask:
                rows["mask"] = self.mask_of(a.mask, batch, head)
            body(rows)

    # ---- before and after the blocks

    def start(self, rows: dict[str, Value]) -> None:
        """The queries' delta, and zeros to add dq to."""
        g, e, b = self.g, self.e, self.e.index

        with e.each(0, self.a.q.shape[2]) as i:
            x, y = (
                advance(e, rows[n], b.mul(i, e.integer(self.tensors[n].stride[2])), g.dout.dtype)
                for n in ("dout", "out")
            )
            delta = advance(e, rows["work"], b.mul(i, e.integer(g.work.stride[2])))
            store_scalar(e, self.row_dot(x, y), delta)
            wide = self.wide
            self.write_row(
                advance(e, rows["sums"], b.mul(i, e.integer(self.sums.stride[2]))), lambda d, mask: wide.constant(0.0)
            )

    def row_dot(self, x: Value, y: Value) -> Value:
        """The dot product of a row of dout and one of the result."""
        e, infos = self.e, (self.g.dout, self.a.out)
        wide = all(info.stride[3] == 1 for info in infos)
        f = e.builder(F32, wide)

        def part(d: Value, mask: Value | None, state: list[Value]) -> list[Value]:
            read = (
                load_floats(e, advance(e, at, d, info.dtype), info.dtype, mask)
                for at, info in zip((x, y), infos, strict=True)
            )
            return [f.fma(next(read), next(read), state[0])]

        def one(d: Value, state: list[Value]) -> list[Value]:
            places = (e.index.mul(d, e.integer(info.stride[3])) for info in infos)
            read = (
                load_scalar(e, advance(e, at, p, info.dtype), info.dtype)
                for at, p, info in zip((x, y), places, infos, strict=True)
            )
            return [f.fma(next(read), next(read), state[0])]

        zero, size = f.constant(0.0), self.head("v")
        if not wide:
            return e.loop(e.i64(0), e.i64(size), e.i64(1), [zero], ["f32"], one)[0]
        (total,) = along_row(e, size, [zero], part)
        # in any order, the same at each call: a sum lane by lane takes four times as long
        text = f"vector.reduction <add>, {total} fastmath<reassoc> : {f.type_text(F32)} into f32"
        return e.builder(F32).emit(text, F32)

    def finish(self, rows: dict[str, Value]) -> None:
        """dq in its own dtype."""
        g, e, b = self.g, self.e, self.e.index

        with e.each(0, self.a.q.shape[2]) as i:
            source = advance(e, rows["sums"], b.mul(i, e.integer(self.sums.stride[2])))
            target = advance(e, rows["dq"], b.mul(i, e.integer(g.dq.stride[2])), g.dq.dtype)
            self.write_row(target, lambda d, mask: load_floats(e, advance(e, source, d), F32, mask), g.dq.dtype)
