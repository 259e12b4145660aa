"""Measures kernels on a GPU: operands of the right sizes and strides, a cold cache, the median of several runs."""

import ctypes
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import torch

from mlirc.codegen.abi.modes import without_modes
from mlirc.codegen.cuda.driver import CudaError, Record, driver, error_text, load_module, unload_module
from mlirc.codegen.cuda.triton_compile import CompiledKernel, KernelSource, compile_candidates
from mlirc.codegen.frame.failures import FAILURE_FIELDS
from mlirc.codegen.tuning.autotune import Request
from mlirc.dialects.core import symbols

CACHE = 128 << 20  # bytes that are read before each run: more than any GPU's cache holds
FEW, MANY = 3, 12  # runs of a kernel: MANY where the first few are not far behind the best
PAIRS = 25  # runs of two that are compared
BEHIND = 1.25


class TuningDevice:
    """GPU number `index`. Its tensors are freed with it."""

    def __init__(self, index: int):
        self.index = index
        self.device = torch.device("cuda", index)
        self.name = torch.cuda.get_device_name(index)
        major, minor = torch.cuda.get_device_capability(index)
        self.capability = 10 * major + minor
        self.best: dict[int, float] = {}  # of what was timed with the same tensors
        self.tensors: dict[int, list[torch.Tensor]] = {}
        with plain():
            self.flush = torch.zeros(CACHE // 4, device=self.device)
            self.generator = torch.Generator(self.device).manual_seed(0)  # the user's stays as it is

    def compile(self, kernels: Sequence[KernelSource]) -> list[CompiledKernel | None]:
        return compile_candidates(kernels, self.capability)

    def time(self, request: Request) -> float:
        """Microseconds of a launch, the median of several; infinite where there is no memory for it."""
        key = id(request.infos)
        try:
            with plain(), torch.cuda.device(self.device), self._ready(request) as launch:
                times = [self._once(launch) for _ in range(FEW)]
                if min(times) < BEHIND * self.best.get(key, float("inf")):
                    times += [self._once(launch) for _ in range(MANY)]
        except (torch.OutOfMemoryError, CudaError):
            return float("inf")
        median = statistics.median(times)
        self.best[key] = min(self.best.get(key, median), median)
        return median

    def compare(self, first: Request, second: Request) -> tuple[float, float]:
        """Microseconds of two variants of a kernel, launched in turns, so that other work on the GPU slows both alike."""
        try:
            with plain(), torch.cuda.device(self.device), self._ready(first) as one, self._ready(second) as other:
                pairs = [(self._once(one), self._once(other)) for _ in range(PAIRS)]
        except (torch.OutOfMemoryError, CudaError):
            return 0.0, float("inf")
        a, b = map(statistics.median, zip(*pairs, strict=True))
        return a, b

    @contextmanager
    def _ready(self, request: Request) -> Iterator[Callable[[], None]]:
        """What launches the kernel, which ran once already."""
        if id(request.infos) not in self.tensors:
            self.tensors = {id(request.infos): self._make(request)}
        code = request.compiled
        record, module = load_module(code.cubin, code.name, code.num_warps, code.shared, self.index)
        try:
            launch = self._launch(request, record, self.tensors[id(request.infos)])
            launch()
            yield launch
        finally:
            torch.cuda.synchronize(self.device)
            unload_module(module)

    def _once(self, launch: Callable[[], None]) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.flush.sum()  # read, not written: what is written would have to go to memory during the run
        start.record()
        launch()
        end.record()
        end.synchronize()
        return 1e3 * start.elapsed_time(end)

    def _make(self, request: Request) -> list[torch.Tensor]:
        """Memory for each operand: numbers in [0, 1), or integers below the bound."""
        made = []
        for info in request.infos:
            size = max(symbols.evaluate(symbols.maximum(info.extent, 1), request.symbols), 1)
            memory = torch.empty(size, dtype=info.dtype, device=self.device)
            if info.dtype.is_floating_point:
                memory.uniform_(generator=self.generator)
            elif info.dtype == torch.bool:
                memory.random_(0, 2, generator=self.generator)
            else:
                most = min(request.bound, torch.iinfo(info.dtype).max)
                memory.random_(0, max(most, 1), generator=self.generator)
            made.append(memory)
        return made

    def _launch(self, request: Request, record: Record, tensors: list[torch.Tensor]) -> Callable[[], None]:
        kernel = request.kernel
        grid = [symbols.evaluate(n, request.symbols) for n in kernel.grid]
        slots = [t.data_ptr() for t in tensors] + [request.symbols[name] for name in kernel.symbols]
        if len(kernel.signature) > len(slots):
            slots.append(_failures(self.index).data_ptr())
        scratch = torch.empty(max(kernel.scratch * grid[0], 1), dtype=torch.uint8, device=self.device)
        slots += [scratch.data_ptr(), 0]
        values = (ctypes.c_int64 * len(slots))(*slots)
        places = (ctypes.c_void_p * len(slots))(*(ctypes.addressof(values) + 8 * k for k in range(len(slots))))
        stream = ctypes.c_void_p(torch.cuda.current_stream(self.device).cuda_stream)
        function = ctypes.c_void_p(record.function)
        shape = [*map(ctypes.c_uint, grid), ctypes.c_uint(int(record.threads)), ctypes.c_uint(1), ctypes.c_uint(1)]
        shape.append(ctypes.c_uint(int(record.shared)))

        def launch(*held: Any) -> None:
            if min(grid) > 0 and (code := driver().cuLaunchKernel(function, *shape, stream, places, None)):
                raise CudaError(error_text(code))

        return partial(launch, scratch, values)


@cache
def _failures(index: int) -> torch.Tensor:
    """The memory in which a kernel notes a bad index."""
    return torch.zeros(FAILURE_FIELDS, dtype=torch.int64, device=f"cuda:{index}")


@contextmanager
def plain() -> Iterator[None]:
    """Tensors are real, whatever the graph is being traced with."""
    with without_modes(), torch.no_grad(), torch.inference_mode(False):
        yield
