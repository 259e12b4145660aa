"""Sums of the rows that a sorted index names, the gradient of an embedding, as a Triton kernel.

    parallel = "V, D", inner = "T"           V rows of a table of D columns, T tokens
    %i = read(%ids) {map = "d2"};  %e = eq(%i, size d0), perhaps logical_and(%e, ne(%i, 3))
    %o = read(%order) {map = "d2"};  %g = read(%rows, %o) {map = "i0, d1"}
    %s = reduce(select(%e, %g, 0)) {kind = "sum", sorted = true};  yield %s at "d0, d1"

As loops it would take V * D * T steps. A program has a block of rows of the table and of columns: it looks for the first of its
ids, sums up the tokens of each in their order, in float32, and writes 0 where there were none: the same at every call.
"""

from dataclasses import dataclass

import torch

from mlirc.lowering.kernel_axes import Axis
from mlirc.lowering.kernel_nodes import Access, Kernel, Node, Output
from mlirc.lowering.triton_builder import TL_DTYPE
from mlirc.lowering.triton_emitter import Emitter
from mlirc.lowering.triton_folds import function_text
from mlirc.lowering.triton_schedule import Schedule, Tile, next_power

COLUMNS, ELEMENTS, WARPS = 1024, 32768, 4  # of a program, at most
PER_PROGRAM, FEWEST_ROWS = 8, 8  # tokens that a program has, and rows of the table that it has at least
TOKENS, READ = "TOKENS", 16  # the constant: tokens whose rows are read together


@dataclass(frozen=True)
class RowSums:
    """ids, order, rows   what is read: ids in ascending order, and where the row of each is
    none                  the id that counts for nothing, if there is one
    table, columns, tokens   the sizes
    """

    ids: Access
    order: Access
    rows: Access
    output: Output
    none: int | None
    table: int
    columns: int
    tokens: int


def match_row_sums(kernel: Kernel) -> RowSums | None:
    """The kernel as RowSums, or None where it is none. Leaves `kernel` as it was."""
    if len(kernel.outputs) != 1 or len(kernel.inner) != 1 or len(kernel.parallel) != 2:
        return None
    (v, d), (t,) = kernel.parallel, kernel.inner
    sizes = [kernel.parallel[v], kernel.parallel[d], kernel.inner[t]]
    output = kernel.outputs[0]
    total = _unwrapped(output.node)
    if total.kind != "reduce" or not total.attributes.get("sorted") or total.operands[0].kind != "select":
        return None
    condition, value, other = total.operands[0].operands
    row, found = _unwrapped(value), _compared(condition, v)
    zero = other.kind == "constant" and other.attributes["value"] == 0
    if not zero or row.kind != "read" or found is None or not all(isinstance(n, int) for n in sizes):
        return None
    order = row.operands[0] if len(row.operands) == 1 and row.access.mask is None else row
    ids, none = found
    table, columns, tokens = (n for n in sizes if isinstance(n, int))
    gathered = row.access.address.strides == {d: 1} and str(row.access.address.rest) == f"{columns}*i0"
    plain = order is not row and order.kind == "read" and gathered
    plain = plain and _is_plain(ids, {t: 1}) and _is_plain(order.access, {t: 1})
    plain = plain and _is_plain(output.access, {v: columns, d: 1})
    return RowSums(ids, order.access, row.access, output, none, table, columns, tokens) if plain else None


def _unwrapped(node: Node) -> Node:
    return node.operands[0] if node.kind == "cast" else node


def _compared(condition: Node, v: str) -> tuple[Access, int | None] | None:
    """What is compared with the number of the table's row, and the number that it may not be."""
    none = None
    if condition.kind == "logical_and":
        condition, other = condition.operands
        if other.kind != "ne" or other.operands[1].kind != "constant":
            return None
        none = other.operands[1].attributes["value"]
        if other.operands[0] is not condition.operands[0]:
            return None
    if condition.kind != "eq":
        return None
    x, number = _unwrapped(condition.operands[0]), condition.operands[1]
    plain = number.kind == "size" and number.size.strides == {v: 1} and number.size.rest == 0
    return (x.access, none) if plain and x.kind == "read" and x.dtype in (torch.int64, torch.int32) else None


def _is_plain(access: Access, strides: dict[str, int]) -> bool:
    return access.address.strides == strides and access.address.rest == 0 and not access.scalars and not access.mask


def schedule_of(found: RowSums, kernel: Kernel) -> Schedule:
    axes = [Axis(name, size, False) for name, size in kernel.parallel.items()]
    across = min(COLUMNS, next_power(found.columns))
    few = max(PER_PROGRAM * found.table // found.tokens, FEWEST_ROWS)  # a program's tokens come one after another
    down = next_power(min(few, ELEMENTS // across) + 1) // 2
    blocks = (min(down, next_power(found.table)), across)
    tiles = tuple(Tile(n, (a,), block) for n, a, block in zip("yx", axes, blocks, strict=True))
    return Schedule(tiles, (), False, WARPS)


def constants_of(found: RowSums) -> dict[str, int]:
    return {TOKENS: READ}


def write_row_sums(e: Emitter, found: RowSums) -> None:
    """The function's statements. Ids outside of the table are in no program's block."""
    y, x = e.schedule.tiles
    e.functions["sum"] = function_text("sum")
    across = -(-found.columns // x.block)
    e.lines.add("program = tl.program_id(0)")
    e.lines.add(f"first = program // {across} * YBLOCK")
    e.bind(y, "first")
    e.bind(x, f"program % {across} * XBLOCK")
    x_mask, all_mask = e.mask(frozenset("x"))[0], e.mask(frozenset("xy"))[0]
    ids, order, rows, out = (f"p{a.operand}" for a in (found.ids, found.order, found.rows, found.output.access))
    count, width, dtype = found.tokens, found.columns, TL_DTYPE[found.output.access.dtype]
    counts = "tl.full([], True, tl.int1)" if found.none is None else f"row != {found.none}"
    for line in (
        "low = tl.full([], 0, tl.int32)",
        f"high = tl.full([], {count}, tl.int32)",
        "while low < high:",
        "    middle = (low + high) // 2",
        f"    less = tl.load({ids} + middle) < first",
        "    low = tl.where(less, middle + 1, low)",
        "    high = tl.where(less, high, middle)",
        "seen = tl.zeros([YBLOCK, 1], tl.int32)",
        f"row = tl.load({ids} + low, low < {count}, other={found.table})",
        f"while (row < first + YBLOCK) & (row < {found.table}):",
        "    near = low + tl.arange(0, TOKENS)",
        f"    alike = tl.load({ids} + near, near < {count}, other={found.table}) == row",
        "    end = low + tl.sum(alike.to(tl.int32), 0)",
        f"    high = tl.where(end == low + TOKENS, {count}, end)  # of many that are alike the last one is looked for",
        "    while end < high:",
        "        middle = (end + high) // 2",
        f"        same = tl.load({ids} + middle) == row",
        "        end = tl.where(same, middle + 1, end)",
        "        high = tl.where(same, high, middle)",
        "    total = tl.zeros([1, XBLOCK], tl.float32)",
        "    for at in tl.range(low, end, TOKENS):",
        "        step = at + tl.arange(0, TOKENS)[:, None]",
        f"        token = tl.load({order} + step, step < end, other=0).to(tl.int32)",
        f"        part = tl.load({rows} + (token * {width} + x), {_and('(step < end)', x_mask)}, other=0)",
        "        total += tl.reduce(part.to(tl.float32), 0, fold_sum, keep_dims=True)",
        "    low = end",
        f"    counts = {counts}",
        f"    tl.store({out} + (row.to(tl.int32) * {width} + x), total.to({dtype}), {_and('counts', x_mask)})",
        "    seen = tl.where((y == row) & counts, 1, seen)",
        f"    row = tl.load({ids} + low, low < {count}, other={found.table})",
        f"nothing = tl.zeros([YBLOCK, XBLOCK], {dtype})",
        f"tl.store({out} + (y * {width} + x), nothing, {_and('(seen == 0)', all_mask)})",
    ):
        e.lines.add(line)


def _and(mask: str, more: str) -> str:
    return f"{mask} & {more}" if more else mask
