"""Describes a matmul as a host program asks for it, and translates it to cuBLAS's conventions.

cuBLAS thinks in columns: a matrix with `rows` and `columns` has its element (i, j) at i + j * lead. A row-major result is
therefore computed transposed, d^T = b^T a^T. Source: cublasLt.h of CUDA 12.
"""

from collections.abc import Sequence

from mlirc.codegen.frame.gpu_calls import CublasMatmul
from mlirc.codegen.libraries.gpu_library import NoPlan
from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_info import TensorInfo
from mlirc.dialects.lazy_dataclass import dataclass


@dataclass(frozen=True)
class CublasMatrix:
    rows: int
    columns: int
    lead: int
    step: int  # from one matrix of a batch to the next


@dataclass(frozen=True)
class Problem:
    """d = op(a) op(b) + c, each matrix column-major. `bias`: in place of c a vector is added, one element for each row of d."""

    transpose_a: bool
    transpose_b: bool
    a: CublasMatrix
    b: CublasMatrix
    c: CublasMatrix
    d: CublasMatrix
    swapped: bool  # `a` is the matmul's b
    bias: bool
    batch: int


def problem_of(matmul: CublasMatmul, values: Sequence[int]) -> Problem:
    """The matmul for these values of its symbols. Raises NoPlan for strides or sizes that cuBLAS has no words for."""
    known = dict(zip(matmul.symbols, values, strict=True))
    *addend, a, b, out = [_sized(info, known) for info in matmul.operands]
    if 0 in (*a[0], *b[0]):
        raise NoPlan("an empty matrix")
    batch = out[0][0] if len(out[0]) == 3 else 1
    d, by_columns = _result(*out)
    first, second = (a, b) if by_columns else (b, a)
    sides = [_side(*side, transposed=not by_columns) for side in (first, second)]
    bias = bool(addend) and len(addend[0][0]) == 1
    c = d
    if bias and (by_columns or batch != 1 or addend[0][1] != (1,)):
        raise NoPlan("a bias along the columns of the result as it lies")
    if matmul.gelu and not bias:
        raise NoPlan("GELU without a bias of columns")
    if addend and not bias:
        c, same = _result(*addend[0])
        if same != by_columns or addend[0][0] != out[0]:
            raise NoPlan("an addend that lies otherwise than the result")
    (x, transpose_a), (y, transpose_b) = sides
    return Problem(transpose_a, transpose_b, x, y, c, d, not by_columns, bias, batch)


Strided = tuple[tuple[int, ...], tuple[int, ...]]  # sizes and strides


def _sized(info: TensorInfo, known: dict[str, int]) -> Strided:
    def number(x: Int) -> int:
        return x if isinstance(x, int) else symbols.evaluate(x, known)

    return tuple(map(number, info.shape)), tuple(map(number, info.stride))


def _by_columns(shape: Sequence[int], stride: Sequence[int]) -> CublasMatrix | None:
    """The matrix if its columns are dense."""
    (rows, columns), (down, across) = shape[-2:], stride[-2:]
    if (down != 1 and rows != 1) or (across < rows and columns != 1):
        return None
    return CublasMatrix(rows, columns, across if columns != 1 else rows, stride[0] if len(shape) == 3 else 0)


def _transposed(shape: Sequence[int], stride: Sequence[int]) -> CublasMatrix | None:
    return _by_columns((*shape[:-2], shape[-1], shape[-2]), (*stride[:-2], stride[-1], stride[-2]))


def _result(shape: tuple[int, ...], stride: tuple[int, ...]) -> tuple[CublasMatrix, bool]:
    """The result as a column-major matrix, and whether it was one already: of a row-major one the transpose is taken."""
    if matrix := _transposed(shape, stride):
        return matrix, False
    if matrix := _by_columns(shape, stride):
        return matrix, True
    raise NoPlan("neither rows nor columns are dense")


def _side(shape: tuple[int, ...], stride: tuple[int, ...], transposed: bool) -> tuple[CublasMatrix, bool]:
    """An operand as a column-major matrix, and whether cuBLAS is to transpose that matrix."""
    plain, swapped = (_transposed, _by_columns) if transposed else (_by_columns, _transposed)
    for look, flag in ((plain, False), (swapped, True)):
        if matrix := look(shape, stride):
            return matrix, flag
    raise NoPlan("neither rows nor columns are dense")
