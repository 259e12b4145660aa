"""What fusion leaves as it is, for product_match.py to recognise: sums of rows times panels, then scalar work on them."""

from mlirc.dialects import symbols
from mlirc.dialects.bindings import ir
from mlirc.dialects.ops.panels import PANEL
from mlirc.lowering.kernel_body import FOLDS, Body, Node

MOST = 4  # products over the same rows in one kernel: each has a tile in the first-level cache


def contractions(nodes: list[Node]) -> dict[int, tuple[Node, Node]]:
    """id of each sum of rows times panels -> its two reads, rows first."""
    found = {}
    for node in nodes:
        if node.name != "reduce" or ir.StringAttr(dict(node.attributes)["kind"]).value != "sum":
            continue
        times = node.operands[0]
        if times.name == "mul" and all(x.name == "read" for x in times.operands) and is_panel_read(times.operands[1]):
            found[id(node)] = times.operands
    return found


def is_panel_read(read: Node) -> bool:
    """Whether it reads panels [N / PANEL, K, PANEL] at (n // PANEL, k, n % PANEL)."""
    if len(read.map) != 3 or read.tensor.info.shape[-1] != PANEL or read.masked:
        return False
    names = symbols.free_symbols(read.map[2])
    if len(names) != 1:
        return False
    column = symbols.symbol(names.pop())
    return read.map[0] == symbols.floordiv(column, PANEL) and read.map[2] == symbols.mod(column, PANEL)


def operands_of_products(body: Body) -> set[int]:
    """ids of the reads that stay reads: the rows and panels of products."""
    return {id(x) for reads in contractions(body.nodes()).values() for x in reads}


def keeps_products(merged: Body, *parts: Body) -> bool:
    """Whether the products of `parts` are still products in the kernel merged of them.

    All folds are products of the same rows, and everything else is outside of the sums.
    """
    if not any(contractions(part.nodes()) for part in parts):
        return True
    nodes = merged.nodes()
    found = contractions(nodes)
    folds = [n for n in nodes if n.name in FOLDS]
    rows = {(id(x.tensor), x.map) for x, _ in found.values()}
    if len(folds) != len(found) or len(rows) != 1 or len(found) > MOST:
        return False
    inside = {id(x) for n in folds for x in (n.operands[0], *n.operands[0].operands)}
    return not any(n.dims & merged.inner_dims for n in nodes if id(n) not in inside)
