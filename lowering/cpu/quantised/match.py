"""Recognises kernels that multiply a few rows by a quantised matrix (quantised/dequantising.py).

    parallel = "1, 4096", inner = "4096"
    %x = read(%rows) {map = "d0, d2"}
    %q = cast(read(%w) {map = "d1, d2"})                                       8 bits, or
    %q = cast(and(shift_right(read(%w) {map = "d1, d2//2"}, 4 * (d2 % 2)), 15))   4 bits, two in a byte
    %c = mul(sub(%q, read(%zero) {map = "d1, d2//64"}), read(%scale) {map = "d1, d2//64"})   either may be missing
    %s = reduce(mul(%x, %c)) {kind = "sum"}

The pass generate-quantised-matmuls makes them.
"""

from collections.abc import Collection
from dataclasses import field, replace

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.cpu.matmul.match import Gemm
from mlirc.lowering.kernel.axes import Axis
from mlirc.lowering.kernel.matmul import Contraction, contraction_of, has_dims
from mlirc.lowering.kernel.nodes import Access, Kernel, Node

MOST_ROWS = 8
FLOATS = (torch.float32, torch.bfloat16)
INTEGERS = (torch.int8, torch.int32, torch.int64)
SMALL = 1 << 30  # an int64 zero below it is subtracted in 32 bits
BYTES = (torch.int8, torch.uint8)


@dataclass(frozen=True)
class GroupNumbers:
    """A number for each group of steps of a column: where it is read, or the one number of all.

    apart   elements from column to column
    group   steps along k that share a number; all of them where it is k
    step    elements from group to group
    """

    access: Access | float
    apart: int
    group: int
    step: int

    def is_read_or_below(self, limit: int) -> bool:
        return isinstance(self.access, Access) or abs(self.access) < limit


@dataclass(frozen=True)
class QuantisedGemm:
    """rows @ ((q - zero) * scale), for a static number of rows that is small.

    factor  of its bits: 8, or 4 where a byte holds steps 2 * k (low where `first` is 0) and 2 * k + 1; the dtype that the zero is
            subtracted in if it is an integer's, and the dtype that it is rounded to
    scale, zero   None where there is none
    group   steps that share all of these numbers
    """

    gemm: Gemm
    factor: "Factor"
    scale: GroupNumbers | None
    zero: GroupNumbers | None
    group: int


def match_quantised(kernel: Kernel) -> QuantisedGemm | None:
    """The kernel as a QuantisedGemm, or None where it is none. Leaves `kernel` as it was."""
    contraction = contraction_of(kernel, torch.float32)
    if contraction is None or len(kernel.inner) != 1:
        return None
    ((k, steps),) = kernel.inner.items()
    x, w = contraction.factors
    rows, found = read_of(x), peel(w, k)
    if rows is None or rows.dtype not in FLOATS or found is None:
        return None
    packed = found.packed
    gemm = few_rows(kernel, contraction, rows, packed.address.dims, packed)
    if gemm is None:
        return None
    n = gemm.n.name
    place = packed_place(packed, n, k, found.bits)
    made = {name: numbers_of(x, n, k, gemm.k_size) for name, x in found.numbers.items()}
    if place is None or None in made.values():
        return None
    zero = made.get("zero")
    if found.integer == torch.int64 and zero is not None and not (zero.step == 0 and zero.is_read_or_below(SMALL)):
        return None
    groups = {x.group for x in made.values() if x is not None and x.group != steps}
    if len(groups) > 1:
        return None
    group = groups.pop() if groups else gemm.k_size
    return QuantisedGemm(replace(gemm, plain=(place, 1)), found, made.get("scale"), zero, group)


def few_rows(
    kernel: Kernel, contraction: Contraction, rows: Access, weight: Collection[str], columns: Access
) -> Gemm | None:
    """A static number of rows, at most MOST_ROWS, which lie along k, times a weight of these dimensions, whose columns are a static
    number, read by `columns`. None where they are not so."""
    ((k, steps),) = kernel.inner.items()
    names = set(weight) - {k}
    if len(names) != 1 or names & rows.address.dims or not isinstance(steps, int):
        return None
    (n,) = names
    m = [d for d in kernel.parallel if d != n]
    m_size = symbols.product(kernel.parallel[d] for d in m)
    lda = rows.address.strides.get(m[0], 0) if m else 0
    if len(m) > 1 or not isinstance(m_size, int) or not 0 < m_size <= MOST_ROWS or not isinstance(lda, int):
        return None
    if not isinstance(kernel.parallel.get(n), int) or rows.address.strides.get(k) != 1 or has_dims(rows.address.rest):
        return None
    axes, totals = [Axis(d, kernel.parallel[d], False) for d in m], [(contraction.total, columns)]
    n_axis, k_axis = Axis(n, kernel.parallel[n], False), Axis(k, steps, True)
    return Gemm(kernel, totals, rows, axes, n_axis, k_axis, lda, 1, contraction.epilogue, False, (0, 1))


def read_of(x: Node) -> Access | None:
    """What is read, widened or not; None where it is masked or gathered, or no read at all."""
    return plain_read(x.operands[0] if x.kind == "cast" and x.dtype == torch.float32 else x)


def plain_read(x: Node) -> Access | None:
    return None if x.kind != "read" or x.access.scalars or x.access.mask else x.access


@dataclass
class Factor:
    """(q - zero) * scale: the read of q, and what it is made of; see QuantisedGemm."""

    packed: Access
    bits: int = 8
    first: int = 0
    integer: torch.dtype | None = None
    rounded: torch.dtype | None = None
    numbers: dict[str, Access | float] = field(default_factory=dict)


def peel(w: Node, k: str) -> Factor | None:
    """Matches what the pass writes. None if `w` is something else."""
    numbers: dict[str, Access | float] = {}
    rounded = integer = None
    if w.kind == "cast" and w.operands[0].kind == "cast" and w.operands[0].dtype == torch.bfloat16:
        rounded, w = torch.bfloat16, w.operands[0].operands[0]
    for kind, name in (("mul", "scale"), ("sub", "zero")):
        if w.kind == kind and w.dtype == torch.float32:
            number = number_of(w.operands[1], (*FLOATS, *INTEGERS))
            if number is None:
                return None
            numbers[name], w = number, w.operands[0]
    if w.kind != "cast" or w.dtype != torch.float32:
        return None
    q, bits, first = w.operands[0], 8, 0
    if q.kind == "sub" and q.dtype in INTEGERS and "zero" not in numbers:
        number, integer = number_of(q.operands[1], (q.dtype,)), q.dtype
        if number is None:
            return None
        numbers["zero"], q = number, q.operands[0]
    while q.kind == "cast" and q.dtype in (*INTEGERS, torch.uint8):
        inner = q.operands[0].dtype
        if inner not in BYTES or (q.dtype.itemsize == 1 and q.operands[0].kind == "read"):
            return None  # of a byte, the sign bit would mean something else
        q = q.operands[0]
    if q.kind == "bitwise_and":
        shifted, mask = q.operands
        if shifted.kind != "shift_right" or mask.attributes.get("value") != 15 or q.dtype != torch.uint8:
            return None
        q, amount = shifted.operands
        if amount.kind != "cast" or amount.operands[0].kind != "size":
            return None
        at, size = symbols.symbol(k), amount.operands[0].size
        turns = [symbols.mod(at + n, 2) * 4 for n in (0, 1)]
        if size.strides or size.rest not in turns:
            return None
        bits, first = 4, turns.index(size.rest)
        q = q.operands[0] if q.kind == "cast" and q.dtype == torch.uint8 and q.operands[0].dtype == torch.int8 else q
    access = plain_read(q)
    return (
        None if access is None or access.dtype not in BYTES else Factor(access, bits, first, integer, rounded, numbers)
    )


def number_of(x: Node, dtypes: tuple[torch.dtype, ...]) -> Access | float | None:
    """Where a number is read, or the number itself."""
    if x.kind == "constant":
        return x.attributes["value"]
    access = read_of(x)
    return access if access is not None and access.dtype in dtypes else None


def packed_place(packed: Access, n: str, k: str, bits: int) -> Int | None:
    """Bytes from column to column, where a column's steps lie side by side; else None. The first byte is the operand's."""
    address, at = packed.address, symbols.symbol(k)
    if bits == 8:
        return address.strides.get(n) if address.strides.get(k) == 1 and address.rest == 0 else None
    whole = set(address.strides) == {n} and address.rest == symbols.floordiv(at, 2)
    return address.strides[n] if whole else None


def numbers_of(access: Access | float, n: str, k: str, steps: int) -> GroupNumbers | None:
    """How the numbers of groups lie; None where groups are not evenly cut, or their addresses are symbolic."""
    if not isinstance(access, Access):
        return GroupNumbers(access, 0, steps, 0)
    address = access.address
    apart = address.strides.get(n, 0)
    if set(address.strides) - {n} or not isinstance(apart, int):
        return None
    if address.rest == 0:
        return GroupNumbers(access, apart, steps, 0)
    at = symbols.symbol(k)
    if isinstance(address.rest, int) or len(address.rest.terms) != 1:
        return None
    (atoms, step), *_ = address.rest.terms.items()
    atom = atoms[0] if len(atoms) == 1 else None
    if not isinstance(atom, tuple) or atom[0] != "floordiv" or atom[1] != at or not isinstance(atom[2], int):
        return None
    return GroupNumbers(access, apart, atom[2], step)
