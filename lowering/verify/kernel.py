"""Checks a kernel's body: the rules of kernel_ops.py, as far as they hold for all sizes."""

from collections.abc import Sequence
from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import OPS, Elementwise, attribute_value
from mlirc.dialects.core.kernel_ops import reductions, scans
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import KERNEL_DTYPES, TEXT_DTYPE, TensorInfo, info_of
from mlirc.lowering.module.rules import StageError, expect, expression, list_attribute, text_attribute


def verify_kernel(op: Any, inputs: Sequence[TensorInfo]) -> list[tuple[torch.dtype, int]]:
    """Checks the body of a kernel or launch that reads `inputs`. Returns dtype and rank of each value it yields."""
    parallel, inner = list_attribute(op, "parallel"), list_attribute(op, "inner")
    text_attribute(op, "label")
    for size in (*parallel, *inner):
        here = not any(is_dim(name) for name in symbols.free_symbols(size))
        expect(here, op, f"the size {size} names an iteration dimension", "sizes are known before the kernel runs")
    blocks = sum(len(region.blocks) for region in op.regions)
    expect(blocks == 1, op, f"{blocks} blocks", "a body is one block")
    block = op.regions[0].blocks[0]
    arguments = [str(x.type) for x in block.arguments]
    operands = [str(x.type) for x in list(op.operands)[: len(inputs)]]
    expect(arguments == operands, op, f"the body takes {arguments}, the operands are {operands}", "make them the same")
    return verify_block(op, inputs, parallel, inner)


def verify_body(op: Any, inputs: Sequence[TensorInfo]) -> list[tuple[torch.dtype, int]]:
    """Verifies the body of an op whose block arguments have the types `inputs`, other than its operands. Returns what verify_kernel
    returns."""
    parallel, inner = list_attribute(op, "parallel"), list_attribute(op, "inner")
    blocks = sum(len(region.blocks) for region in op.regions)
    expect(blocks == 1, op, f"{blocks} blocks", "a body is one block")
    arguments = [info_of(x) for x in op.regions[0].blocks[0].arguments]
    expect(arguments == list(inputs), op, f"the body takes {arguments}", f"it takes {list(inputs)}")
    return verify_block(op, inputs, parallel, inner)


def verify_block(
    op: Any, inputs: Sequence[TensorInfo], parallel: Sequence[Int], inner: Sequence[Int]
) -> list[tuple[torch.dtype, int]]:
    block = op.regions[0].blocks[0]
    body = _Body(list(block.arguments), inputs, parallel, inner)
    for item in block.operations:
        if item.operation.name == "mlircx.yield":
            return body.check_yield(item)
        body.check(item)
    raise StageError(op, "the body does not end in mlircx.yield", "yield the results")


def is_dim(name: str) -> bool:
    return name[0] == "d" and name[1:].isdigit()


class _Body:
    def __init__(
        self, arguments: list[ir.Value], inputs: Sequence[TensorInfo], parallel: Sequence[Int], inner: Sequence[Int]
    ):
        self.inputs = dict(zip(arguments, inputs, strict=True))
        sizes = {f"d{d}": n for d, n in enumerate((*parallel, *inner))}
        self.dims = set(sizes)
        self.inner_dims = set(list(sizes)[len(parallel) :])
        self.long_inner_dims = {d for d in self.inner_dims if sizes[d] != 1}
        self.on_cpu = bool(inputs) and all(info.device == "cpu" for info in inputs)
        self.is_inner: dict[ir.Value, bool] = {}
        self.dtypes: dict[ir.Value, torch.dtype] = {}

    def check(self, op: Any) -> None:
        name = op.operation.name
        for x in op.operands:
            known = x in self.is_inner or (x in self.inputs and name == "mlirc.read" and x == op.operands[0])
            expect(known, op, "an operand is no scalar of this body", "read tensors with mlirc.read")
        inner = any(self.is_inner.get(x, False) for x in op.operands)
        names: set[str] = set()
        if name == "mlirc.read":
            names = self.check_read(op)
        elif name == "mlirc.size":
            names = self.expression_names(op, "expr")
        elif name == "mlirc.check_index":
            names = self.expression_names(op, "size")
            self.same_dtype(op, torch.int64)
        elif name in ("mlirc.reduce", "mlirc.scan"):
            inner = self.check_fold(op, name == "mlirc.scan")
        elif name != "mlirc.constant":
            cls = OPS.get(name.removeprefix("mlirc."))
            scalar = cls is not None and issubclass(cls, Elementwise)
            expect(scalar, op, "no op of a kernel's body", "read, size, constant, reduce, scan and elementwise ops are")
            self.check_elementwise(cls, op)
        self.is_inner[op.results[0]] = inner or bool(names & self.inner_dims)
        dtype = self.dtype(op, op.results[0])
        expect(dtype in KERNEL_DTYPES, op, f"computes {dtype}", "kernels do not; call ATen")

    def dtype(self, op: Any, value: ir.Value) -> torch.dtype:
        found = self.dtypes.get(value)
        if found is None:
            text = str(value.type)
            expect(text in TEXT_DTYPE, op, f"{text} is no scalar type", "a body computes on scalars")
            found = self.dtypes[value] = TEXT_DTYPE[text]
        return found

    def same_dtype(self, op: Any, dtype: torch.dtype | None = None) -> None:
        dtypes = {self.dtype(op, x) for x in (*op.operands, *op.results)} | ({dtype} if dtype else set())
        expect(len(dtypes) == 1, op, "operand and result differ in dtype", "cast the operand")

    def check_elementwise(self, cls: Any, op: Any) -> None:
        if cls.mnemonic in ("cast", "bitcast"):
            return
        kinds = cls.operand_kinds(len(op.operands))
        dtypes = {self.dtype(op, x) for x, kind in zip(op.operands, kinds, strict=True) if kind != "bool"}
        expect(len(dtypes) <= 1, op, f"operands of {', '.join(map(str, dtypes))}", "cast them to the computed dtype")
        for x, kind in zip(op.operands, kinds, strict=True):
            expect(kind != "bool" or self.dtype(op, x) == torch.bool, op, f"{x.type} as a boolean", "cast it to i1")
        gives, got = cls.scalar_result(next(iter(dtypes), torch.bool)), self.dtype(op, op.results[0])
        expect(got == gives, op, f"the result is {got}, the op gives {gives}", "cast the result")

    def known_names(self, op: Any, exprs: Sequence[Int], indices: int) -> set[str]:
        """The names in index expressions, all of them checked to mean something here."""
        names = set().union(*map(symbols.free_symbols, exprs)) if exprs else set()
        for name in names:
            outside = is_dim(name) and name not in self.dims
            expect(not outside, op, f"{name} is no iteration dimension", f"there are {len(self.dims)}")
            index = name[0] == "i" and name[1:].isdigit()
            expect(not index or int(name[1:]) < indices, op, f"{name} stands for nothing", "add the i64 operand")
        return names

    def expression_names(self, op: Any, attribute: str) -> set[str]:
        return self.known_names(op, [expression(op, attribute)], 0)

    def check_read(self, op: Any) -> set[str]:
        tensor, *scalars = op.operands
        expect(tensor in self.inputs, op, "reads no operand of the kernel", "the first operand is a block argument")
        info = self.inputs[tensor]
        if "masked" in op.attributes and attribute_value(op.attributes["masked"]) is True:
            mask = scalars.pop() if scalars else None
            here = mask is not None and self.dtype(op, mask) == torch.bool
            expect(here, op, "masked, and the last operand is no i1", "pass the mask last")
        map_ = list_attribute(op, "map")
        expect(len(map_) == info.rank, op, f"{len(map_)} indices into {info.rank} dimensions", "one for each")
        for x in scalars:
            expect(self.dtype(op, x) == torch.int64, op, f"an index of type {x.type}", "indices are i64")
        got = self.dtype(op, op.results[0])
        expect(got == info.dtype, op, f"reads {got} from a tensor of {info.dtype}", "cast after reading")
        return self.known_names(op, map_, len(scalars))

    def check_fold(self, op: Any, is_scan: bool) -> bool:
        """Returns whether the result is inner."""
        kind = text_attribute(op, "kind")
        kinds = dict.fromkeys(scans(), "same") if is_scan else reductions()
        expect(kind in kinds, op, f"no kind '{kind}'", f"there are {', '.join(kinds)}")
        expect(bool(self.inner_dims), op, "there is no inner dimension to fold", "give the kernel one")
        if is_scan:
            expect(len(self.inner_dims) == 1, op, f"{len(self.inner_dims)} inner dimensions", "a scan runs along one")
        gives = kinds[kind]
        if gives == "same":
            self.same_dtype(op)
            floats = self.dtype(op, op.results[0]).is_floating_point
            expect(kind != "mean" or floats, op, "the mean of integers", "cast the operand to f32")
            expect(kind != "mean" or not self.on_cpu, op, "a CPU's kernel has no mean", "divide the sum")
        else:
            expect(str(op.results[0].type) == gives, op, f"{kind} gives {op.results[0].type}", f"it gives {gives}")
        return is_scan

    def check_yield(self, op: Any) -> list[tuple[torch.dtype, int]]:
        expect("maps" in op.attributes, op, "no attribute maps", 'write maps = ["d0, d1"], one for each value')
        texts = attribute_value(op.attributes["maps"])
        expect(len(texts) == len(op.operands), op, f"{len(texts)} maps for {len(op.operands)} values", "one for each")
        found = []
        for x, text in zip(op.operands, texts, strict=True):
            expect(x in self.is_inner, op, "yields what is no scalar of this body", "read tensors with mlirc.read")
            try:
                map_ = symbols.parse_list(text)
            except ValueError as error:
                raise StageError(op, f"maps: {error}", "write index expressions in d0, d1, ...") from error
            names = self.known_names(op, map_, 0)
            if self.is_inner[x]:
                missing = self.long_inner_dims - names
                expect(not missing, op, f"an inner value's map leaves out {', '.join(sorted(missing))}", "name each")
            found.append((self.dtype(op, x), len(map_)))
        return found
