"""Variants of a GPU kernel, which codegen/tuning/autotune.py measures: blocks and warps of a schedule, tiles of a matmul."""

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import Any

from mlirc.dialects.core import symbols
from mlirc.dialects.core.tensor_types import TensorInfo, info_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.gpu.kernel import TritonKernel, triton_kernel
from mlirc.lowering.gpu.matmul.function import Tiling, match_matmul
from mlirc.lowering.gpu.triton.emitter import expression
from mlirc.lowering.gpu.triton.schedule import TritonSchedule, alternatives
from mlirc.lowering.kernel.nodes import Kernel, read_kernel
from mlirc.lowering.kernel.shared_operands import parts_of_operands, shared_operands
from mlirc.lowering.module.target_attribute import target_of
from mlirc.lowering.target import GpuTarget

Choice = TritonSchedule | Tiling | None  # None: as the cost model writes a matmul

TILINGS = tuple(
    Tiling(rows, columns, steps, warps, stages)
    for rows, columns, steps, warps, stages in (
        (128, 128, 64, 4, 3),
        (128, 256, 64, 8, 3),
        (256, 128, 64, 8, 3),
        (128, 64, 64, 4, 4),
        (64, 128, 64, 4, 4),
        (64, 64, 64, 4, 4),
        (64, 256, 64, 8, 3),
        (32, 64, 64, 4, 4),
        (16, 64, 128, 4, 4),
    )
)


@dataclass(eq=False)
class Candidates:
    """The ways to write the kernel of a `mlircx.run` on a GPU.

    name     of its `mlirc.triton`
    aligned  the operands that begin at multiples of 16 bytes
    first    what the cost model chose
    """

    run: Any
    name: str
    aligned: tuple[int, ...]
    infos: list[TensorInfo] = field(init=False)
    gpu: GpuTarget = field(init=False)
    first: Choice = field(init=False, default=None)
    is_matmul: bool = field(init=False)

    def __post_init__(self) -> None:
        self.infos = [info_of(x) for x in self.run.operands]
        self.gpu = target_of(self.run).gpu(self.infos[0].device)
        kernel = self.read()
        self.is_matmul = match_matmul(kernel) is not None
        if not self.is_matmul:
            found: list[TritonSchedule] = []
            triton_kernel(kernel, self.name, self.infos, self.gpu, self.aligned, lambda s: found.append(s) or s)
            self.first = found[0]

    def read(self) -> Kernel:
        shared, within = shared_operands(self.run), parts_of_operands(self.run)
        return replace(read_kernel(self.run), may_alias=shared, subviews=within)

    def bound(self, values: Mapping[str, int]) -> int:
        """Integers below this are good indices wherever the kernel looks one up."""
        sizes = [symbols.evaluate(expression(n.size), values) for n in self.read().nodes if n.kind == "check_index"]
        return max(min(sizes, default=1), 1)

    def near(self, choice: Choice) -> Iterator[Choice]:
        """Choices that differ a little from this one; of a matmul, all there are."""
        if not self.is_matmul:
            assert isinstance(choice, TritonSchedule)
            yield from alternatives(choice)
        elif choice is None:
            matmul = match_matmul(self.read())
            assert matmul is not None
            sizes = [size if isinstance(size, int) else 1 << 30 for size in (matmul.m_size, matmul.n_size)]
            for tiling in TILINGS:
                if all(tile <= max(2 * n, 16) for tile, n in zip((tiling.rows, tiling.columns), sizes, strict=True)):
                    yield tiling

    def write(self, choice: Choice) -> TritonKernel:
        if isinstance(choice, TritonSchedule):
            return triton_kernel(self.read(), self.name, self.infos, self.gpu, self.aligned, lambda _: choice)
        return triton_kernel(self.read(), self.name, self.infos, self.gpu, self.aligned, tiling=choice)


def describe(choice: Choice) -> str:
    """A choice in words, different for different ones: "x 4, r 512, 8 warps"."""
    if choice is None:
        return "the cost model's tiles"
    if isinstance(choice, Tiling):
        tile = f"{choice.rows} x {choice.columns} x {choice.steps}"
        return f"{tile}, {choice.num_warps} warps, {choice.num_stages} stages"
    blocks = [f"{t.name} {t.block}" for t in choice.tiles]
    more = ["looped"] * choice.looped + [f"{choice.rows} rows in turn"] * (choice.rows > 1)
    return ", ".join([*blocks, *more, f"{choice.num_warps} warps"])
