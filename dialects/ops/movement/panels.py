"""Packs a matrix into panels for generated gemms."""

from collections.abc import Callable
from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ext, ir
from mlirc.dialects.core.dialect import Op
from mlirc.dialects.core.kernel_builder import KernelBuilder
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import TensorInfo, info_of

PANEL = 32  # columns of a panel: two vectors of AVX-512, four of AVX2


class Panels(Op, name="panels", traits=[ext.Pure]):
    """A matrix [K, N] as panels [ceil(N / 32), K, 32]: 32 columns side by side for every k, zeros past the last column."""

    x: ext.Operand[Any]
    out: ext.Result[Any]

    @staticmethod
    def reference(x: torch.Tensor) -> torch.Tensor:
        k, n = x.shape
        padded = torch.nn.functional.pad(x, (0, -n % PANEL))
        return padded.view(k, -1, PANEL).transpose(0, 1).contiguous()

    @staticmethod
    def kernel(make: Callable[..., KernelBuilder], op: Any) -> list[ir.Value]:
        x = op.operands[0]
        packed, columns = info_of(op.results[0]), info_of(x).shape[1]
        k = make(packed.shape, (), "pack_panels")
        panel, row, lane = k.dims
        column = panel * PANEL + lane
        mask = None if columns % PANEL == 0 else k.lt(k.size(column), k.size(columns))
        return k.finish([(k.read(x, (row, column), mask=mask, widen=False), k.dims, packed)])


def panels_info(x: TensorInfo) -> TensorInfo:
    """The panels of a matrix."""
    k, n = x.shape
    return TensorInfo(x.dtype, (symbols.floordiv(n + PANEL - 1, PANEL), k, PANEL))


def panel_map(k: Int, n: Int) -> tuple[Int, Int, Int]:
    """The index in the panels of the matrix's element [k, n]."""
    return symbols.floordiv(n, PANEL), k, symbols.mod(n, PANEL)
