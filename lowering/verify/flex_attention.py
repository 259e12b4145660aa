"""Checks attention with a body: its operands, which it reads by the lists of a block mask, and the body, which is a kernel's.

What a list says is data: kernels read no block that there is not, whatever it says.
"""

from collections.abc import Sequence
from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import TensorInfo, info_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.module.rules import expect, list_attribute, text_attribute
from mlirc.lowering.verify.accesses import verify_accesses
from mlirc.lowering.verify.kernel import verify_body
from mlirc.lowering.verify.memory import MemoryVerifier

FORWARD, QUERIES, KEYS = (
    "flex_attention",
    "flex_attention_query_gradient",
    "flex_attention_key_gradients",
)
LEAST = 16  # queries or keys that a block has a multiple of


@dataclass(frozen=True)
class FlexParts:
    """What the operands and results of such an op are."""

    name: str
    space: tuple[Int, ...]
    tensors: list[TensorInfo]
    lists: list[TensorInfo]
    captured: list[TensorInfo]
    results: list[TensorInfo]

    @property
    def virtual(self) -> list[TensorInfo]:
        """The first arguments of the body: scores, and in gradients slopes."""
        wide = TensorInfo(torch.float32, self.space, device=self.tensors[0].device)
        return [wide] if self.name == FORWARD else [wide, wide]

    @property
    def yields(self) -> list[TensorInfo]:
        scores, *slopes = self.virtual
        return [scores, TensorInfo(torch.bool, self.space, device=scores.device), *slopes]


def parts_of(op: Any) -> FlexParts:
    """Raises StageError where there are too few of something."""
    name = op.operation.name.partition(".")[2]
    name = text_attribute(op, "callee") if name == "call" else name
    infos = [info_of(x) for x in op.operands]
    results = [info_of(x) for x in op.results]
    if "inputs" in op.attributes:
        count = attribute_value(op.attributes["inputs"])
        infos, results = infos[:count], infos[count:]
    for attribute, kind in (("full", bool), ("rows", int), ("columns", int), ("scale", float)):
        value = attribute_value(op.attributes[attribute]) if attribute in op.attributes else None
        expect(type(value) is kind, op, f"{attribute} = {value}", f"a {kind.__name__}")
    space = list_attribute(op, "parallel")
    expect(len(space) == 4 and not list_attribute(op, "inner"), op, f"a space of {len(space)} sizes", "[B, H, L, S]")
    tensors = 3 if name == FORWARD else 6
    lists = 4 if attribute_value(op.attributes["full"]) else 2
    expect(
        len(infos) >= tensors + lists, op, f"{len(infos)} operands", f"{tensors} tensors and {lists} lists come first"
    )
    many = {FORWARD: (2, 3), QUERIES: (1,), KEYS: (2,)}[name]
    expect(len(results) in many, op, f"{len(results)} results", f"there are {many[-1]}")
    ends = tensors, tensors + lists
    return FlexParts(name, tuple(space), infos[: ends[0]], infos[ends[0] : ends[1]], infos[ends[1] :], results)


def verify_flex_attention(op: Any) -> None:
    """Raises StageError where operands, results, attributes and body do not belong together."""
    p = parts_of(op)
    text_attribute(op, "label")
    verify_tensors(op, p)
    verify_lists(op, p)
    expect(len(op.regions) == 1, op, f"{len(op.regions)} regions", "one, the body")
    made = verify_body(op, [*p.virtual, *p.captured])
    wanted = [(info.dtype, 4) for info in p.yields]
    expect(made == wanted, op, f"yields {made}", f"it yields {wanted}")


def verify_tensors(op: Any, p: FlexParts) -> None:
    q, k, v, *more = p.tensors
    batch, heads, rows, keys = p.space
    infos = [*p.tensors, *p.lists, *p.captured, *p.results]
    devices = sorted({info.device for info in infos})
    expect(len(devices) == 1, op, f"tensors on {' and '.join(devices)}", "on one device")
    expect(len({x.dtype for x in (q, k, v)}) == 1, op, "queries, keys and values of several dtypes", "cast them")
    here = q.dtype in (torch.float16, torch.bfloat16, torch.float32)
    expect(here, op, f"attention of {q.dtype}", "of float32, float16 or bfloat16")
    expect(all(x.rank == 4 for x in (q, k, v)), op, "a tensor without four dimensions", "[B, H, L, D]")
    head, of_values = q.shape[3], v.shape[3]
    known = all(isinstance(n, int) and n > 0 for n in (head, of_values))
    expect(known, op, f"heads of {head} and {of_values}", "numbers above 0")
    expect(q.shape[:3] == (batch, heads, rows), op, f"queries {list(q.shape)}", "[B, H, L, D]")
    expect(k.shape[2:] == (keys, head), op, f"keys {list(k.shape)} for {list(q.shape)}", "[B, G, S, D]")
    expect(v.shape[:3] == k.shape[:3], op, f"values {list(v.shape)} for {list(k.shape)}", "[B, G, S, Dv]")
    expect(k.shape[0] in (1, batch), op, f"{k.shape[0]} batches of keys for {batch}", "as many, or one")
    group = (heads, k.shape[1])
    fits = group[0] == group[1] or (all(isinstance(n, int) for n in group) and group[1] and group[0] % group[1] == 0)
    expect(bool(fits), op, f"{group[0]} heads share {group[1]}", "as many, or a multiple")
    result, sums = (batch, heads, rows, of_values), (batch, heads, rows)
    given = [(result, q.dtype), (sums, torch.float32), (sums, torch.float32)]
    verify_each(op, more, given[: len(more)], "operand")
    gradients = {QUERIES: [q], KEYS: [k, v]}.get(p.name)
    if gradients is not None:
        given = [(x.shape, x.dtype) for x in gradients]
    verify_each(op, p.results, given[: len(p.results)], "result")


def verify_each(op: Any, infos: Sequence[TensorInfo], given: Sequence[tuple], what: str) -> None:
    for info, (shape, dtype) in zip(infos, given, strict=True):
        same = (info.shape, info.dtype) == (tuple(shape), dtype)
        expect(same, op, f"{what} {info.dtype} {list(info.shape)}", f"{dtype} {list(shape)}")


def verify_lists(op: Any, p: FlexParts) -> None:
    rows, columns = (attribute_value(op.attributes[name]) for name in ("rows", "columns"))
    expect(rows > 0 and columns > 0, op, f"blocks of {rows} by {columns}", "numbers above 0")
    expect(rows % LEAST == columns % LEAST == 0, op, f"blocks of {rows} by {columns}", f"multiples of {LEAST}")
    for counts, indices in zip(p.lists[::2], p.lists[1::2], strict=True):
        expect(
            (counts.rank, indices.rank) == (3, 4), op, "lists of other ranks", "[B, H, blocks], [B, H, blocks, blocks]"
        )
        same = counts.shape == indices.shape[:3] and {counts.dtype, indices.dtype} <= {torch.int32, torch.int64}
        expect(same, op, f"counts {list(counts.shape)} of {list(indices.shape)}", "an integer for each row")
        places = list(zip(counts.shape[:2], p.space[:2], strict=True))
        fits = all(n in (1, size) or not (isinstance(n, int) and isinstance(size, int)) for n, size in places)
        expect(fits, op, f"lists {list(counts.shape)} for {list(p.space)}", "sizes 1, or those of batch and heads")
        least = counts.shape[2]
        expect(not isinstance(least, int) or least > 0, op, "no blocks", "one at least")


def verify_flex_accesses(op: Any, memory: MemoryVerifier) -> None:
    """Raises StageError where the body reads beyond what it is given."""
    p = parts_of(op)
    sizes = [n for n in p.space if isinstance(n, symbols.Expr)]
    memory.known(op, sizes)
    for counts in p.lists[::2]:
        for n, size in zip(counts.shape[:2], p.space[:2], strict=True):
            if n not in (1, size):
                wrong = f"lists {list(counts.shape)} for {list(p.space)}"
                memory.nonnegative(op, n - size, wrong, "sizes 1, or those of batch and heads")
    verify_accesses(op, [*p.virtual, *p.captured], p.yields, memory)
