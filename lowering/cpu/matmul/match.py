"""Recognises kernels that are matmuls of the same rows with scalar work on the results (matmul/function.py).

    parallel = "256, 3072", inner = "768"
    %a = read(%x) {map = "d0, d2"}                   rows
    %b = read(%w) {map = "d1//32, d2, d1 % 32"}      columns, in panels
    %m = mul(%a, %b);  %s = reduce(%m) {kind = "sum"};  then any outer values, the epilogue

The pass generate-matmuls makes them; dialects/ops/movement/panels.py says how panels lie. One matrix of columns may also lie
in memory as it is, read at "d2, d1" (matmul/kinds.py says what becomes of it); in bfloat16 where columns lie along k. Factors in
bfloat16 are widened first; their panels may hold pairs along k (dialects/ops/movement/pair_panels.py).
"""

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.dialects.ops.movement.pair_panels import pair_panel_map
from mlirc.dialects.ops.movement.panels import PANEL
from mlirc.lowering.kernel.axes import Axis, merge
from mlirc.lowering.kernel.matmul import has_dims, read_matmuls
from mlirc.lowering.kernel.nodes import Access, Kernel, Node

MOST_COPIED = 256 << 10  # elements of all rows where each thread copies them to its stack, at most 4 bytes each


@dataclass(eq=False)
class Gemm:
    """rows @ panels over the axis k, for one or more panels, and the nodes computed from the results' elements.

    totals   the sums, each with the access of its panels
    pairs    whether the panels hold pairs along k
    plain    where the columns lie in no panels: their strides along n and along k, in elements
    m        the axes of the rows, outermost first; together they are the rows
    n        its size is static
    lda, ka  strides of `rows` along the rows and along k, in elements
    """

    kernel: Kernel
    totals: list[tuple[Node, Access]]
    rows: Access
    m: list[Axis]
    n: Axis
    k: Axis
    lda: Int
    ka: Int
    epilogue: list[Node]
    pairs: bool
    plain: tuple[Int, Int] | None

    @property
    def dtype(self) -> torch.dtype:
        """The factors' in memory: float32 or bfloat16."""
        return self.rows.dtype

    @property
    def m_size(self) -> Int:
        return symbols.product(a.size for a in self.m)

    @property
    def n_size(self) -> int:
        assert self.n.known is not None
        return self.n.known

    @property
    def k_size(self) -> int:
        assert self.k.known is not None
        return self.k.known

    def even_rows(self, access: Access) -> Int | None:
        """Where the elements of a row lie side by side, and rows evenly: elements from row to row."""
        strides = access.address.strides
        if access.scalars or access.mask or has_dims(access.address.rest) or strides.get(self.n.name) != 1:
            return None
        return _row_stride([axis.name for axis in self.m], self.kernel, access)

    def plain_result(self) -> Int | None:
        """Where the matmul is the one result, in float32: elements from row to row, if rows lie evenly."""
        (total, _), *others = self.totals
        output, *more = self.kernel.outputs
        return None if others or more or output.node is not total else self.even_rows(output.access)

    def touched(self) -> list[tuple[Access, Int, bool]]:
        """What the epilogue reads and writes by rows that lie evenly: elements from row to row, whether it is written."""
        reads = [(n.access, False) for n in self.epilogue if n.kind == "read"]
        every = [*reads, *((output.access, True) for output in self.kernel.outputs)]
        found = [(access, self.even_rows(access), write) for access, write in every]
        return [(access, apart, write) for access, apart, write in found if apart is not None and apart != 0]


def match_matmul(kernel: Kernel) -> Gemm | None:
    """The kernel as a Gemm, or None where it is none that fast code is written for; `kernel` is then as it was. Of a Gemm, row
    dimensions that all accesses step through as through one are one."""
    found = read_matmuls(kernel, (torch.float32, torch.bfloat16))
    if found is None:
        return None
    a, k, panels = found.rows, found.k, [y for _, y in found.totals]
    columns = next((d for d in kernel.parallel if all(_is_panel(y, d, k.name) for y in panels)), None)
    pairs, plain = False, None
    if columns is None and k.known is not None:
        columns = next((d for d in kernel.parallel if all(_is_pair_panel(y, d, k.name, k.known) for y in panels)), None)
        pairs = columns is not None
    if columns is None and len(panels) == 1:
        columns = _plain_columns(panels[0], a, k.name)
        if columns is not None:
            plain = panels[0].address.strides[columns], panels[0].address.strides.get(k.name, 0)
            if a.dtype != torch.float32 and plain[1] != 1:
                return None
    if columns is None or not isinstance(kernel.parallel[columns], int):
        return None
    if (plain is None and k.known is None) or columns in a.address.dims or has_dims(a.address.rest):
        return None
    m_names = [d for d in kernel.parallel if d != columns]
    lda = _row_stride(m_names, kernel, a)
    if lda is None:
        return None
    m = merged_rows(kernel, m_names)
    n = Axis(columns, kernel.parallel[columns], False)
    ka = a.address.strides.get(k.name, 0)
    return Gemm(kernel, found.totals, a, m, n, k, lda, ka, found.epilogue, pairs, plain)


def merged_rows(kernel: Kernel, names: list[str]) -> list[Axis]:
    linears = [x.address for x in kernel.accesses] + [n.size for n in kernel.nodes if n.size]
    axes = merge(kernel, [Axis(d, kernel.parallel[d], False) for d in names], linears)
    sizes = kernel.parallel | {axis.name: axis.size for axis in axes}
    kept = {axis.name for axis in axes} | (set(sizes) - set(names))
    kernel.parallel = {d: n for d, n in sizes.items() if d in kept}
    return axes


def _is_panel(access: Access, n: str, k: str) -> bool:
    """Whether the address is (n // PANEL) * K * PANEL + k * PANEL + n % PANEL, as panels lie."""
    if set(access.address.strides) != {k} or access.address.strides[k] != PANEL:
        return False
    d = symbols.symbol(n)
    panel, column = symbols.floordiv(d, PANEL), symbols.mod(d, PANEL)
    return any(access.address.rest == panel * size + column for size in _panel_sizes(access))


def _panel_sizes(access: Access) -> list[int]:
    rest = access.address.rest
    return [] if isinstance(rest, int) else [c for c in rest.terms.values() if c > 1]


def _plain_columns(access: Access, rows: Access, k: str) -> str | None:
    """The dimension of the columns, where their address steps evenly along it and along k."""
    names = set(access.address.strides) - {k}
    if len(names) != 1 or has_dims(access.address.rest) or names & rows.address.dims:
        return None
    return names.pop()


def _is_pair_panel(access: Access, n: str, k: str, size: int) -> bool:
    """Whether the address is that of element (k, n) in panels of pairs."""
    panel, pair, column, half = pair_panel_map(symbols.symbol(k), symbols.symbol(n))
    whole = panel * (-(-size // 2) * 2 * PANEL) + pair * (2 * PANEL) + column * 2 + half
    return not access.address.strides and access.address.rest == whole


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
