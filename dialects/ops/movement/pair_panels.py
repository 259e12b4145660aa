"""Packs a matrix of half types into panels of pairs along K, for processors that multiply pairs."""

from collections.abc import Callable
from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ext, ir
from mlirc.dialects.core.dialect import Op
from mlirc.dialects.core.kernel_builder import KernelBuilder
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import TensorInfo, info_of
from mlirc.dialects.ops.movement.panels import PANEL


class PairPanels(Op, name="pair_panels", traits=[ext.Pure]):
    """A matrix [K, N] as panels [ceil(N / 32), ceil(K / 2), 32, 2]: for every two k, the pairs of 32 columns side by side.

    Zeros past the last column, and in the last pair of an odd K.
    """

    x: ext.Operand[Any]
    out: ext.Result[Any]

    @staticmethod
    def reference(x: torch.Tensor) -> torch.Tensor:
        k, n = x.shape
        padded = torch.nn.functional.pad(x, (0, -n % PANEL, 0, k % 2))
        return padded.view(-(-k // 2), 2, -1, PANEL).permute(2, 0, 3, 1).contiguous()

    @staticmethod
    def kernel(make: Callable[..., KernelBuilder], op: Any) -> list[ir.Value]:
        x = op.operands[0]
        packed, (rows, columns) = info_of(op.results[0]), info_of(x).shape
        k = make(packed.shape, (), "pack_panels")
        panel, pair, lane, half = k.dims
        column, row = panel * PANEL + lane, pair * 2 + half
        mask = None if columns % PANEL == 0 else k.lt(k.size(column), k.size(columns))
        if rows % 2:
            inside = k.lt(k.size(row), k.size(rows))
            mask = inside if mask is None else k.logical_and(mask, inside)
        return k.finish([(k.read(x, (row, column), mask=mask, widen=False), k.dims, packed)])


def pair_panels_info(x: TensorInfo) -> TensorInfo:
    """The panels of a matrix."""
    k, n = x.shape
    return TensorInfo(x.dtype, (symbols.floordiv(n + PANEL - 1, PANEL), symbols.floordiv(k + 1, 2), PANEL, 2))


def pair_panel_map(k: Int, n: Int) -> tuple[Int, Int, Int, Int]:
    """The index in the panels of the matrix's element [k, n]."""
    return symbols.floordiv(n, PANEL), symbols.floordiv(k, 2), symbols.mod(n, PANEL), symbols.mod(k, 2)
