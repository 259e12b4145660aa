"""KernelBuilder: builds a `mlircx.kernel`: `k.read(x, k.dims)`, `k.add(a, b)`, `k.reduce("sum", v)`.

Values are scalars of the computed dtype: reads of half types are widened to float32 and `finish` narrows them again,
both by casts that carry {implicit = true}. Plain Python numbers stand for constants. The body grows in a block of its
own, which `finish` moves into the kernel, since an op's operands must all be known when it is made.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import OPS, Elementwise, make_attribute
from mlirc.dialects.core.graph_builder import constant_text
from mlirc.dialects.core.kernel_ops import REDUCTIONS
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import TEXT_DTYPE, TensorInfo, element_type, info_of, opmath, type_of

Scalar = Any  # ir.Value of a scalar type, or a Python number


@lru_cache
def dimension(d: int) -> symbols.Expr:
    """The iteration dimension number `d`."""
    return symbols.symbol(f"d{d}")


class KernelBuilder:
    """Builds one kernel over the iteration space `parallel` x `inner` (sizes). `label` is its name in reports; `is_read`: whether a
    value is surely computed from data, so that `operand` (kernel_forms.py) reads it and does not search whether sizes alone decide it.

    dims            the iteration dimensions d0, d1, ... as expressions: first the parallel ones, then the inner ones
    parallel_dims, inner_dims
    """

    def __init__(
        self,
        parallel: Sequence[Int],
        inner: Sequence[Int] = (),
        label: str = "",
        is_read: Callable[[ir.Value], bool] = lambda x: False,
    ):
        self.parallel, self.inner, self.label, self.is_read = tuple(parallel), tuple(inner), label, is_read
        self.dims = tuple(map(dimension, range(len(self.parallel) + len(self.inner))))
        self.parallel_dims = self.dims[: len(self.parallel)]
        self.inner_dims = self.dims[len(self.parallel) :]
        # The op that holds the block until `finish`; an abandoned kernel goes away with it.
        self._holder = ir.Operation.create("mlircx.kernel", regions=1, ip=False)
        self._block = ir.Block.create_at_start(self._holder.regions[0], [])
        self._ip = ir.InsertionPoint(self._block)
        self._location = ir.Location.current
        self._arguments: dict[ir.Value, ir.Value] = {}
        self._reads: dict[tuple, ir.Value] = {}

    # ---- reading

    def read(
        self,
        x: ir.Value,
        map_: Sequence[Int],
        scalars: Sequence[ir.Value] = (),
        mask=None,
        widen=True,
        rounded=False,
    ) -> ir.Value:
        """The element of `x` at index `map_`, or 0 where the i1 `mask` is false.

        It has the computed dtype, or the stored one if not `widen`; `rounded`: of a half type no kernel that makes `x` may
        keep more precision. `map_` may name i0, i1, ... for the i64 `scalars`. Equal reads give the same value.
        """
        info = info_of(x)
        assert len(map_) == info.rank, f"a map of {len(map_)} indices reads a tensor of rank {info.rank}"
        key = (x, tuple(map_), tuple(scalars), mask)
        found = self._reads.get(key)
        if found is None:
            operands = [self._argument(x), *scalars] + ([] if mask is None else [mask])
            attributes = {
                "map": ir.StringAttr.get(symbols.print_list(map_)),
                "masked": ir.BoolAttr.get(mask is not None),
            }
            found = self._reads[key] = self._create("read", operands, info.dtype, attributes)
        return self.cast(found, opmath(info.dtype), implicit=not rounded) if widen else found

    def _argument(self, x: ir.Value) -> ir.Value:
        found = self._arguments.get(x)
        if found is None:
            found = self._arguments[x] = self._block.add_argument(x.type, self._location)
        return found

    # ---- scalar work

    def constant(self, value: float | int | bool, dtype: torch.dtype) -> ir.Value:
        """A number of the dtype that work on `dtype` is done in."""
        dtype = opmath(dtype)
        return self._create("constant", [], dtype, {"value": ir.StringAttr.get(constant_text(value, dtype))})

    def size(self, expr: Int) -> ir.Value:
        """A size expression as an i64; it may name iteration dimensions."""
        if isinstance(expr, int):
            return self.constant(expr, torch.int64)
        return self._create("size", [], torch.int64, {"expr": ir.StringAttr.get(str(expr))})

    def cast(self, x: ir.Value, dtype: torch.dtype, implicit: bool = False) -> ir.Value:
        """Converted as `Tensor.to(dtype)` does; the value itself where it has that dtype."""
        if info_of(x).dtype == dtype:
            return x
        return self._create("cast", [x], dtype, {"implicit": ir.BoolAttr.get(True)} if implicit else None)

    def bitcast(self, x: ir.Value, dtype: torch.dtype) -> ir.Value:
        """The same bits as another dtype of the same width."""
        return self._create("bitcast", [x], dtype)

    def apply(
        self, cls: type[Elementwise], *args: Scalar, attributes: dict[str, ir.Attribute] | None = None
    ) -> ir.Value:
        """The elementwise op `cls` on scalars of its computed dtype; a Python number takes that dtype."""
        kinds = cls.operand_kinds(len(args))
        computed = torch.bool
        for x, kind in zip(args, kinds, strict=True):
            if isinstance(x, ir.Value) and kind != "bool":
                computed = info_of(x).dtype
                break
        operands = [
            x if isinstance(x, ir.Value) else self.constant(x, torch.bool if kind == "bool" else computed)
            for x, kind in zip(args, kinds, strict=True)
        ]
        return self._create(cls.mnemonic, operands, cls.scalar_result(computed), attributes)

    def __getattr__(self, name: str):
        """`k.NAME(x, ...)` for every elementwise op, at kernel level."""
        cls = OPS.get(name)
        if cls is None or not issubclass(cls, Elementwise):
            raise AttributeError(f"KernelBuilder has no '{name}', and there is no elementwise op mlirc.{name}")
        return lambda *args: self.apply(cls, *args)

    # ---- folding and checking

    def reduce(self, kind: str, x: ir.Value) -> ir.Value:
        """`x` folded over the inner dimensions; `kind` is one of kernel_ops.REDUCTIONS."""
        gives = REDUCTIONS[kind]
        dtype = info_of(x).dtype if gives == "same" else TEXT_DTYPE[gives]
        return self._create("reduce", [x], dtype, {"kind": ir.StringAttr.get(kind)})

    def scan(self, kind: str, x: ir.Value) -> ir.Value:
        """The running fold of `x` along the one inner dimension: "sum", "prod", "max" or "min"."""
        return self._create("scan", [x], info_of(x).dtype, {"kind": ir.StringAttr.get(kind)})

    def check_index(self, x: ir.Value, size: Int, wraps: bool, message: str) -> ir.Value:
        """The index `x` as an i64 in [0, size), or IndexError(message) after the kernel; see kernel_ops.CheckIndex."""
        attributes = {"size": str(size), "wraps": wraps, "message": message}
        made = {name: make_attribute(value) for name, value in attributes.items()}
        return self._create("check_index", [self.cast(x, torch.int64)], torch.int64, made)

    # ---- the end

    def finish(self, results: Sequence[tuple[ir.Value, Sequence[Int], TensorInfo]]) -> list[ir.Value]:
        """Makes the kernel at the current insertion point: each value goes to its map in a tensor like the info."""
        values = [self._narrow(value, info) for value, _, info in results]
        maps = ir.ArrayAttr.get([ir.StringAttr.get(symbols.print_list(map_)) for _, map_, _ in results])
        ir.Operation.create("mlircx.yield", operands=values, attributes={"maps": maps}, ip=self._ip)
        attributes = {
            "parallel": ir.StringAttr.get(symbols.print_list(self.parallel)),
            "inner": ir.StringAttr.get(symbols.print_list(self.inner)),
            "label": ir.StringAttr.get(self.label),
        }
        types = [type_of(info) for _, _, info in results]
        kernel = ir.Operation.create(
            "mlircx.kernel", results=types, operands=list(self._arguments), attributes=attributes, regions=1
        )
        self._block.append_to(kernel.regions[0])
        return list(kernel.results)

    def _narrow(self, value: ir.Value, info: TensorInfo) -> ir.Value:
        dtype = info_of(value).dtype
        assert dtype in (info.dtype, opmath(info.dtype)), f"a {dtype} value cannot be written as {info.dtype}: cast it"
        return self.cast(value, info.dtype, implicit=True)

    def _create(self, name: str, operands: list, dtype: torch.dtype, attributes: dict | None = None) -> ir.Value:
        op = ir.Operation.create(
            f"mlirc.{name}", results=[element_type(dtype)], operands=operands, attributes=attributes, ip=self._ip
        )
        return op.result
