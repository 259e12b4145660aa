"""KernelBuilder builds a `mlircx.kernel`: `k.read(x, k.dims)`, `k.add(a, b)`, `k.reduce("sum", v)`.

Values are scalars of the computed dtype. A read of a half type is widened to float32, and `finish` narrows what is written. Both
are casts with the attribute {implicit = true}: fusion may drop a pair of them. A Python number stands for a constant.

MLIR wants all operands of an op when the op is made, and a kernel's are known at the end. So the body grows in a block outside of
it, which `finish` moves into the kernel.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import OPS, Elementwise, make_attribute
from mlirc.dialects.core.graph_builder import constant_text
from mlirc.dialects.core.kernel_ops import reductions
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import TEXT_DTYPE, TensorInfo, element_type, info_of, opmath, type_of

Scalar = Any  # ir.Value of a scalar type, or a Python number


@lru_cache
def dimension(d: int) -> symbols.Expr:
    """The iteration dimension number `d`."""
    return symbols.symbol(f"d{d}")


class KernelBuilder:
    """Builds one kernel over the iteration space `parallel` x `inner`.

    parallel        sizes of the dimensions that results have
    inner           sizes of the dimensions that reductions and scans fold
    label           the kernel's name in reports
    is_read         True of a tensor that is known to be computed from data. `operand` (kernel_forms.py) reads it. Of any other it first
                    looks whether its elements follow from sizes alone, and then computes them in the kernel
    dims            the iteration dimensions d0, d1, ... as expressions: first the parallel ones, then the inner ones
    parallel_dims, inner_dims   the two parts of dims
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
        # This op holds the block until `finish`. If that is never called, both are freed with the builder.
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
        """The element of `x` at index `map_`. Equal reads give the same value.

        map_      an expression for each dimension of `x`; in it i0, i1, ... stand for `scalars`
        scalars   i64 values, indices that the kernel computes
        mask      an i1 value; where it is false, nothing is read and the result is 0
        widen     the result has the computed dtype; else the dtype of `x`
        rounded   for `x` of a half type: a kernel that computes `x` and is fused into this one must round the element to that type.
                  Without it, the element may stay float32
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
        """A number of opmath(dtype), the dtype that elements of `dtype` are computed in."""
        dtype = opmath(dtype)
        return self._create("constant", [], dtype, {"value": ir.StringAttr.get(constant_text(value, dtype))})

    def size(self, expr: Int) -> ir.Value:
        """The value of a size expression as an i64. The expression may contain iteration dimensions."""
        if isinstance(expr, int):
            return self.constant(expr, torch.int64)
        return self._create("size", [], torch.int64, {"expr": ir.StringAttr.get(str(expr))})

    def cast(self, x: ir.Value, dtype: torch.dtype, implicit: bool = False) -> ir.Value:
        """`x` converted to `dtype` as by `Tensor.to`; `x` itself where it has that dtype. `implicit`: fusion may drop the rounding."""
        if info_of(x).dtype == dtype:
            return x
        return self._create("cast", [x], dtype, {"implicit": ir.BoolAttr.get(True)} if implicit else None)

    def bitcast(self, x: ir.Value, dtype: torch.dtype) -> ir.Value:
        """The bits of `x`, read as another dtype of the same width."""
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
        """`x` folded over the inner dimensions; `kind` is one of kernel_ops.reductions()."""
        gives = reductions()[kind]
        dtype = info_of(x).dtype if gives == "same" else TEXT_DTYPE[gives]
        return self._create("reduce", [x], dtype, {"kind": ir.StringAttr.get(kind)})

    def scan(self, kind: str, x: ir.Value) -> ir.Value:
        """The running fold of `x` along the one inner dimension; `kind` is one of kernel_ops.scans()."""
        return self._create("scan", [x], info_of(x).dtype, {"kind": ir.StringAttr.get(kind)})

    def check_index(self, x: ir.Value, size: Int, wraps: bool, message: str) -> ir.Value:
        """The index `x` as an i64 in [0, size). With `wraps` a negative one counts from the end, as in Python.

        For any other index this gives 0, and the call raises IndexError(message) once the kernel has ended (kernel_ops.CheckIndex).
        """
        attributes = {"size": str(size), "wraps": wraps, "message": message}
        made = {name: make_attribute(value) for name, value in attributes.items()}
        return self._create("check_index", [self.cast(x, torch.int64)], torch.int64, made)

    # ---- the end

    def finish(self, results: Sequence[tuple[ir.Value, Sequence[Int], TensorInfo]]) -> list[ir.Value]:
        """Makes the kernel at the current insertion point; its results, a tensor for each of `results`.

        A result is a scalar, the index that it is written to (an expression for each dimension of the tensor), and the tensor's type.
        """
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
