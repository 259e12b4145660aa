"""Recognises kernels that multiply rows by matrices of columns and compute on the results, for both targets.

%a = read(%x);  %b = read(%w);  %m = mul(%a, %b);  %s = reduce(%m) {kind = "sum"};  then any outer values, the epilogue
"""

from collections.abc import Collection
from dataclasses import dataclass

import torch

from mlirc.dialects.core.symbols import Int, free_symbols
from mlirc.lowering.kernel.axes import Axis
from mlirc.lowering.kernel.nodes import Access, Kernel, Node, is_dim


@dataclass(frozen=True)
class Matmuls:
    """totals   the sums, in float32, each with the access of its columns
    rows     the access of the first factor, which all share
    k        the axis that is summed over
    epilogue the nodes that are computed from the sums, and beside them
    """

    totals: list[tuple[Node, Access]]
    rows: Access
    k: Axis
    epilogue: list[Node]


def read_matmuls(kernel: Kernel, dtypes: Collection[torch.dtype]) -> Matmuls | None:
    """The matmuls of a kernel, of factors of one of `dtypes`, widened or not; None where it has others."""
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
    """Whether a dimension occurs in what strides leave of an address: as a quotient, say."""
    return any(map(is_dim, free_symbols(rest)))
