"""Recognises kernels that are matrix products with scalar work on the result; product_function.py writes their code.

    parallel = "256, 3072", inner = "768"
    %a = read(%x) {map = "d0, d2"}                   rows
    %b = read(%w) {map = "d1//32, d2, d1 % 32"}      columns, in panels
    %m = mul(%a, %b);  %s = reduce(%m) {kind = "sum"};  then any outer values, the epilogue

The pass generate-products makes them; dialects/ops/panels.py says how panels lie.
"""

from dataclasses import dataclass

import torch

from mlirc.dialects import symbols
from mlirc.dialects.ops.panels import PANEL
from mlirc.dialects.symbols import Int
from mlirc.lowering.kernel_axes import Axis
from mlirc.lowering.kernel_nodes import Access, Kernel, Node


@dataclass(eq=False)
class Product:
    """rows @ columns over the axis k, and the nodes computed from its elements.

    m        the axes of the rows, outermost first; together they are the rows
    n, k     names and sizes; sizes of n and k are static
    lda, ka  strides of `rows` along the rows and along k, in elements
    """

    kernel: Kernel
    total: Node
    rows: Access
    panels: Access
    m: list[Axis]
    n: Axis
    k: Axis
    lda: Int
    ka: Int
    epilogue: list[Node]

    @property
    def m_size(self) -> Int:
        return symbols.product(a.size for a in self.m)


def match_product(kernel: Kernel) -> Product | None:
    """The kernel as a Product, or None where it is none that fast code is written for. Leaves `kernel` as it was."""
    sums = [n for n in kernel.nodes if n.kind == "reduce"]
    if (
        len(sums) != 1
        or len(kernel.inner) != 1
        or sums[0].attributes["kind"] != "sum"
        or sums[0].dtype != torch.float32
    ):
        return None
    times = sums[0].operands[0]
    if times.kind != "mul" or any(x.kind != "read" or x.dtype != torch.float32 for x in times.operands):
        return None
    ((k_name, k_size),) = kernel.inner.items()
    x, y = times.operands
    columns = next((d for d in kernel.parallel if _is_panel(y.access, d, k_name)), None)
    if columns is None or not isinstance(k_size, int) or not isinstance(kernel.parallel[columns], int):
        return None
    a = x.access
    if a.scalars or a.mask or y.access.scalars or y.access.mask or columns in a.address.dims or a.address.rest != 0:
        return None
    rows = [d for d in kernel.parallel if d != columns]
    epilogue = [n for n in kernel.nodes if n not in (x, y, times, sums[0])]
    if any(k_name in n.dims or n.kind in ("scan", "check_index") for n in epilogue):
        return None
    if any(k_name in o.node.dims or k_name in o.access.address.dims for o in kernel.outputs):
        return None
    lda = _row_stride(rows, kernel, a)
    if lda is None:
        return None
    m = [Axis(d, kernel.parallel[d], False) for d in rows]
    n = Axis(columns, kernel.parallel[columns], False)
    ka = a.address.strides.get(k_name, 0)
    return Product(kernel, sums[0], a, y.access, m, n, Axis(k_name, k_size, True), lda, ka, epilogue)


def _is_panel(access: Access, n: str, k: str) -> bool:
    """Whether the address is (n // PANEL) * K * PANEL + k * PANEL + n % PANEL, as panels lie."""
    if set(access.address.strides) != {k} or access.address.strides[k] != PANEL:
        return False
    d = symbols.symbol(n)
    for size in _panel_sizes(access):
        if access.address.rest == symbols.floordiv(d, PANEL) * size + symbols.mod(d, PANEL):
            return True
    return False


def _panel_sizes(access: Access) -> list[int]:
    rest = access.address.rest
    return [] if isinstance(rest, int) else [c for c in rest.terms.values() if c > 1]


def _row_stride(rows: list[str], kernel: Kernel, a: Access) -> Int | None:
    """The stride between rows where all row dimensions step as one; None where they do not."""
    if not rows:
        return 0
    stride = a.address.strides.get(rows[-1], 0)
    running = stride
    for outer, inner in zip(reversed(rows[:-1]), reversed(rows[1:]), strict=True):
        running = running * kernel.parallel[inner]
        if a.address.strides.get(outer, 0) != running:
            return None
    return stride
