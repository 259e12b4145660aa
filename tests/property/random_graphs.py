"""Random kernel-level functions for the property tests of plan-memory: kernels, views, ATen calls, products, assigns.

They are about memory, not arithmetic: the scalar work is additions and a few folds; what varies is who reads what,
where, in which layout, for how long, and what becomes of it. Sizes include 0, 1 and symbols; tensors may be 0-d.
"""

from random import Random
from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import func, ir
from mlirc.dialects.core.dialect import create
from mlirc.dialects.core.graph_builder import GraphBuilder
from mlirc.dialects.core.kernel_builder import KernelBuilder
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import TensorInfo, info_of, type_of

DTYPES = (torch.float32, torch.float32, torch.float64, torch.int32, torch.bfloat16)
S0, S1 = symbols.symbol("s0"), symbols.symbol("s1")
SIZES: tuple[Int, ...] = (0, 1, 2, 3, 5, 17, 100, S0, S0, S1, S0 * 2, S0 + 1)


class RandomGraph:
    """`module`, its one `function`, and `inputs(sizes)` that fit it. Needs an entered context."""

    def __init__(self, seed: int, op_count: int, symbolic: bool):
        self.random = Random(seed)
        self.sizes = [n for n in SIZES if symbolic or isinstance(n, int)]
        self.g = GraphBuilder()
        self.module = ir.Module.create()
        self.assigned: list[ir.Value] = []
        arguments = [TensorInfo(torch.int64, (S0,)), TensorInfo(torch.int64, (S1,))] if symbolic else []
        arguments += [self.layout(self.shape(), self.random.choice(DTYPES)) for _ in range(self.random.randint(1, 3))]
        with ir.InsertionPoint(self.module.body):
            self.function = func.FuncOp("graph", ([type_of(info) for info in arguments], []))
        block = self.function.add_entry_block()
        self.arguments = list(block.arguments)
        self.values = list(block.arguments)
        with ir.InsertionPoint(block):
            for _ in range(op_count):
                self.step()
            self.assigns()
            self.finish()

    # ---- what to choose from

    def shape(self) -> tuple[Int, ...]:
        return tuple(self.random.choice(self.sizes) for _ in range(self.random.choice((0, 1, 1, 2, 2, 2))))

    def layout(self, shape: tuple[Int, ...], dtype: torch.dtype) -> TensorInfo:
        """Row-major, or sometimes column-major."""
        if len(shape) == 2 and self.random.random() < 0.25:
            return TensorInfo(dtype, shape, (1, shape[0] if shape[0] != 0 else 1))
        return TensorInfo(dtype, shape)

    def pick(self, wanted=lambda info: True) -> ir.Value | None:
        """A value, likely a recent one."""
        found = [x for x in self.values if wanted(info_of(x))]
        if not found:
            return None
        return found[-1 - min(int(self.random.expovariate(0.6)), len(found) - 1)]

    def step(self) -> None:
        kinds = [self.elementwise] * 6 + [self.rows] * 2 + [self.view] * 3 + [self.aten, self.product, self.constant]
        self.random.choice(kinds)()

    # ---- ops

    def elementwise(self, first: ir.Value | None = None, dtype: torch.dtype | None = None) -> None:
        first = first or self.pick()
        shape = info_of(first).shape
        operands = [first]
        for _ in range(self.random.randint(0, 2)):
            other = self.pick(lambda info: fits(info.shape, shape))
            operands += [other] if other is not None else []
        k = KernelBuilder(shape, label="elementwise")
        total = None
        for x in operands:
            for map_ in self.maps(info_of(x).shape, shape, k):
                value = k.cast(k.read(x, map_), torch.float32)
                total = value if total is None else k.add(total, value)
        results = []
        for _ in range(self.random.choice((1, 1, 1, 2))):
            info = self.layout(shape, dtype or self.random.choice(DTYPES))
            results.append((k.cast(total, opmath(info.dtype)), k.dims, info))
            total = k.neg(total)
        self.values += k.finish(results)

    def maps(self, shape: tuple[Int, ...], space: tuple[Int, ...], k: KernelBuilder) -> list[tuple[Int, ...]]:
        """Where a tensor is read: at the point itself (broadcast), and now and then also mirrored at the diagonal."""
        plain = tuple(0 if n == 1 else d for n, d in zip(shape, k.dims[len(space) - len(shape) :], strict=True))
        square = len(shape) == 2 and shape == space and shape[0] == shape[1]
        if square and self.random.random() < 0.3:
            return [plain, (plain[1], plain[0])]
        return [plain]

    def rows(self) -> None:
        """A reduction, and something that reads the row again after it: like a softmax."""
        x = self.pick(lambda info: info.rank == 2)
        if x is None:
            return
        info = info_of(x)
        k = KernelBuilder(info.shape[:1], info.shape[1:], label="rows")
        row = k.cast(k.read(x, k.dims), torch.float32)
        most = k.reduce("max", row)
        shifted = k.add(row, k.neg(most))
        total = k.reduce("sum", shifted)
        dtype = self.random.choice((torch.float32, torch.float32, torch.float64))
        choices = [
            (k.cast(row, dtype), k.dims, self.layout(info.shape, dtype)),
            (k.cast(shifted, dtype), k.dims, self.layout(info.shape, dtype)),
            (k.cast(k.add(shifted, total), dtype), k.dims, self.layout(info.shape, dtype)),
            (k.cast(total, dtype), k.parallel_dims, TensorInfo(dtype, info.shape[:1])),
        ]
        self.values += k.finish(self.random.sample(choices, self.random.choice((1, 1, 2))))

    def view(self) -> None:
        x = self.pick(lambda info: info.rank > 0)
        if x is None:
            return
        info = info_of(x)
        kind = self.random.choice(("flip", "expand", "slice", "flatten"))
        if kind == "flip" and info.rank == 2:
            self.values.append(self.g.permute(x, (1, 0)))
        elif kind == "expand" and info.rank == 1:
            self.values.append(self.g.expand(x, (self.random.choice(self.sizes), *info.shape)))
        elif kind == "slice" and isinstance(info.shape[0], int) and info.shape[0] > 1:
            start = self.random.randrange(info.shape[0])
            shape = (self.random.randint(1, info.shape[0] - start), *info.shape[1:])
            self.values.append(self.g.view(x, shape, info.stride, None, info.stride[0] * start))
        elif kind == "flatten" and info.is_contiguous:
            self.values.append(self.g.view(x, (info.numel,), (1,), None))

    def aten(self) -> None:
        x = self.pick()
        if x is None:
            return
        info = info_of(x)
        if info.rank == 2 and self.random.random() < 0.5:
            out = TensorInfo(info.dtype, info.shape[::-1], info.stride[::-1])
            self.values.append(self.call(x, "aten.t.default", "0", out))
        elif info.is_contiguous:
            self.values.append(self.call(x, "aten.neg.default", "-1", info))

    def call(self, x: ir.Value, name: str, aliases: str, out: TensorInfo) -> ir.Value:
        attributes = {"op": name, "args": '[{"$": 0}]', "aliases": aliases}
        return create("aten", [x], [type_of(out)], attributes).operation.results[0]

    def product(self) -> None:
        x = self.pick(lambda info: info.rank == 2 and info.dtype == torch.float32)
        if x is None:
            return
        rows, depth = info_of(x).shape
        y = self.pick(lambda info: info.rank == 2 and info.dtype == torch.float32 and info.shape[0] == depth)
        if y is not None:
            out = TensorInfo(torch.float32, (rows, info_of(y).shape[1]))
            self.values.append(create("matmul", [x, y], [type_of(out)]).operation.results[0])

    def constant(self) -> None:
        self.values.append(self.g.constant(self.random.choice((0, 1.5)), torch.float32))

    # ---- the end

    def assigns(self) -> None:
        for _ in range(self.random.choice((0, 0, 1, 2, 3))):
            target = self.random.choice([x for x in self.values if self.base(x) in self.arguments])
            info = info_of(target)
            if self.random.random() < 0.5:  # an update in place: target += ...
                self.elementwise(target, info.dtype)
            same = [x for x in self.values if info_of(x).dtype == info.dtype]
            fitting = [x for x in same if fits(info_of(x).shape, info.shape)]
            value = self.random.choice([*fitting, fitting[-1], fitting[-1]])
            if info.is_dense:
                create("assign", [target, value], [])
                self.assigned.append(self.base(target))

    def base(self, x: ir.Value) -> ir.Value:
        """The value whose memory `x` is in, as the ops say."""
        while not isinstance(x.owner, ir.Block) and x.owner.name in ("mlirc.view", "mlircx.aten"):
            if x.owner.name == "mlircx.aten" and ir.StringAttr(x.owner.attributes["aliases"]).value == "-1":
                break
            x = x.owner.operands[0]
        return x

    def finish(self) -> None:
        results = self.random.sample(self.values, min(len(self.values), self.random.randint(1, 4)))
        groups = []
        for k, x in enumerate(results):
            base = self.base(x)
            is_argument = base in self.arguments and self.random.random() < 0.5
            groups.append(f"arg{self.arguments.index(base)}" if is_argument else f"g{self.random.choice((k, k // 2))}")
        func.ReturnOp(results)
        inputs = self.function.type.inputs
        type_ = ir.FunctionType.get(inputs, [x.type for x in results])
        self.function.attributes["function_type"] = ir.TypeAttr.get(type_)
        self.function.attributes["mlirc.results"] = ir.ArrayAttr.get([ir.StringAttr.get(g) for g in groups])

    def inputs(self, sizes: dict[str, int]) -> list[torch.Tensor]:
        """Small whole numbers: every sum is exact, in any order."""
        generator = torch.Generator().manual_seed(self.random.randrange(1 << 30))
        made: list[Any] = []
        for x in self.arguments:
            info = info_of(x)
            shape = [symbols.evaluate(n, sizes) for n in info.shape]
            stride = [symbols.evaluate(n, sizes) for n in info.stride]
            values = torch.randint(-4, 5, shape, generator=generator).to(info.dtype)
            made.append(torch.empty_strided(shape, stride, dtype=info.dtype).copy_(values))
        return made


def fits(shape: tuple[Int, ...], space: tuple[Int, ...]) -> bool:
    """Whether `shape` broadcasts to `space`."""
    if len(shape) > len(space):
        return False
    return all(n in (1, m) for n, m in zip(shape, space[len(space) - len(shape) :], strict=True))


def opmath(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype == torch.bfloat16 else dtype
