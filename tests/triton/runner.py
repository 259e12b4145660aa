"""One kernel, built with KernelBuilder, as Triton's interpreter runs it and as ours does. The same face as NativeKernel.

kernel = TritonKernel([x_info], "8", "", lambda k, x: [(k.neg(k.read(x, k.dims)), k.dims, x_info)])
kernel.check(x)
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy
import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.context import context
from mlirc.dialects.core.tensor_types import TensorInfo, info_of
from mlirc.execution.triton_code import bytes_of, memory_of
from mlirc.lowering.gpu.kernel import triton_kernel
from mlirc.lowering.gpu.triton.schedule import TritonSchedule
from mlirc.lowering.kernel.nodes import read_kernel
from mlirc.lowering.target import GpuTarget
from tests.kernel_runner import KernelRunner, launch_module, launch_of
from tests.triton import interpreter_worker


class TritonKernel(KernelRunner):
    """`source` is the kernel's text.

    shrink  turns the schedule into another one: small blocks, say, so that a small tensor is a row of many
    """

    def __init__(
        self,
        inputs: Sequence[TensorInfo],
        parallel: str,
        inner: str,
        build: Callable,
        vector_bytes: int = 0,
        shrink: Callable[[TritonSchedule], TritonSchedule] | None = None,
        aligned: bool = False,
        programs: int = 132,
    ):
        with context():
            self.module, self.order, self.outputs = launch_module(inputs, parallel, inner, build)
            self.launch = launch_of(self.module)
            infos = [info_of(x) for x in self.launch.operands]
            places = range(len(infos)) if aligned else ()
            kernel = read_kernel(self.launch)
            self.made = triton_kernel(kernel, "kernel_0", infos, GpuTarget("sm_90", programs), places, change=shrink)
        self.mlir = self.source = self.made.source
        self.symbols = self.made.symbols
        self.fails = self.made.signature[-1] == "*i64" and len(self.made.signature) > len(infos) + len(self.symbols)

    def __call__(self, inputs, outputs, threads: int = 1, **values: int) -> tuple[int, int, int]:
        """Runs it; returns (number of a check that failed, bad index, its size)."""
        tensors = [*(inputs[k] for k in self.order), *outputs]
        memory, arguments = memory_of(tensors)
        arguments += [values[s] for s in self.symbols]
        if self.fails:
            arguments.append((len(memory), 0, "int64"))
            memory.append(numpy.zeros(24, numpy.uint8))
        grid = [symbols.evaluate(n, values) for n in self.made.grid]
        after = interpreter_worker.run(self.source, "kernel_0", self.made.constants, grid, memory, arguments)
        for x, (place, *_) in zip(outputs, arguments[len(self.order) :], strict=False):
            if x.untyped_storage().nbytes():
                bytes_of(x).copy_(torch.from_numpy(after[place]))
        return tuple(after[-1].view(numpy.int64).tolist()) if self.fails else (0, 0, 0)


def small(limit: int) -> Callable[[TritonSchedule], TritonSchedule]:
    """Blocks of at most `limit` points; rows that are longer go in a loop."""

    def shrink(schedule: TritonSchedule) -> TritonSchedule:
        tiles = tuple(replace(t, block=min(t.block, limit)) for t in schedule.tiles)
        row = next((t for t in tiles if t.name == "r"), None)
        looped = schedule.looped or (row is not None and not (isinstance(row.size, int) and row.size <= row.block))
        return replace(schedule, tiles=tiles, looped=looped)

    return shrink
