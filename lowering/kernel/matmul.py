"""Recognises kernels that are matmuls with an epilogue, for both targets: one first factor, and one or more second factors.

%a = read(%x)   %b = read(%w)   %m = mul(%a, %b)   %s = reduce(%m) {kind = "sum"}   then the epilogue: outer values
"""

from collections.abc import Collection

import torch

from mlirc.dialects.core.symbols import Int, free_symbols
from mlirc.dialects.lazy_dataclass import dataclass
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


@dataclass(frozen=True)
class Contraction:
    """The one reduction of a kernel, a sum of products of two factors over all of its inner dimensions.

    epilogue  the nodes that it is not computed from: they run over no inner dimension
    """

    total: Node
    factors: tuple[Node, Node]
    epilogue: list[Node]


def contraction_of(kernel: Kernel, dtype: torch.dtype) -> Contraction | None:
    """The sum of a kernel, if it is of this dtype; None of a kernel that is anything else."""
    sums = [n for n in kernel.nodes if n.kind == "reduce"]
    if len(sums) != 1 or sums[0].attributes["kind"] != "sum" or sums[0].dtype != dtype:
        return None
    (total,), inner = sums, set(kernel.inner)
    if total.operands[0].kind != "mul":
        return None
    inside = below(total)
    epilogue = [n for n in kernel.nodes if n not in inside]
    if any(inner & n.dims or n.kind in ("scan", "check_index") for n in epilogue):
        return None
    if any(inner & (o.node.dims | o.access.address.dims) for o in kernel.outputs):
        return None
    x, y = total.operands[0].operands
    return Contraction(total, (x, y), epilogue)


def below(root: Node) -> set[Node]:
    """The nodes that it depends on, and itself."""
    found, stack = {root}, [root]
    while stack:
        new = [x for x in stack.pop().operands if x not in found]
        found.update(new)
        stack += new
    return found


def has_dims(rest: Int) -> bool:
    """Whether an address is not linear in its dimensions. `rest` is what is left of it without its strides (nodes.Linear): d0 // 4, say."""
    return any(map(is_dim, free_symbols(rest)))
