"""Recognises kernels that are matmuls with an epilogue, for both targets: one first factor, and one or more second factors.

%a = read(%x)   %b = read(%w)   %m = mul(%a, %b)   %s = reduce(%m) {kind = "sum"}   then the epilogue: outer values
"""

from collections.abc import Collection
from dataclasses import dataclass

import torch

from mlirc.dialects.core.symbols import Int, free_symbols
from mlirc.lowering.kernel.axes import Axis
from mlirc.lowering.kernel.nodes import Access, Kernel, Node, is_dim


@dataclass(frozen=True)
class Matmuls:
    """The matmuls of a kernel.

    totals    for each matmul its sum, a float32 node, and the access of its second factor
    rows      the access of the first factor, which all matmuls share
    k         the axis that is summed over
    epilogue  all other nodes: what is computed from the sums, and what that reads
    """

    totals: list[tuple[Node, Access]]
    rows: Access
    k: Axis
    epilogue: list[Node]


def read_matmuls(kernel: Kernel, dtypes: Collection[torch.dtype]) -> Matmuls | None:
    """The matmuls of a kernel; None of a kernel that is anything else.

    dtypes   of factors: one of these, read as it is or widened to float32
    """
    sums = [n for n in kernel.nodes if n.kind == "reduce"]
    if not sums or len(kernel.inner) != 1:
        return None
    ((k, size),) = kernel.inner.items()
    totals: list[tuple[Node, Access]] = []
    rows: list[Access] = []
    inside: set[Node] = set()
    for total in sums:
        times = total.operands[0]
        if total.attributes["kind"] != "sum" or total.dtype != torch.float32 or times.kind != "mul":
            return None
        x, y = (f.operands[0] if f.kind == "cast" and f.dtype == torch.float32 else f for f in times.operands)
        if not x.kind == y.kind == "read" or x.dtype != y.dtype or x.dtype not in dtypes:
            return None
        totals.append((total, y.access))
        rows.append(x.access)
        inside |= {x, y, *times.operands, times, total}
    if any(x.operand != rows[0].operand or not x.same_element_as(rows[0]) for x in rows[1:]):
        return None
    if any(x.scalars or x.mask for x in (rows[0], *(y for _, y in totals))):
        return None
    epilogue = [n for n in kernel.nodes if n not in inside]
    if any(k in n.dims or n.kind in ("scan", "check_index") for n in epilogue):
        return None
    if any(k in o.node.dims or k in o.access.address.dims for o in kernel.outputs):
        return None
    return Matmuls(totals, rows[0], Axis(k, size, True), epilogue)


def has_dims(rest: Int) -> bool:
    """Whether an address is not linear in its dimensions. `rest` is what is left of it without its strides (nodes.Linear): d0 // 4, say."""
    return any(map(is_dim, free_symbols(rest)))
