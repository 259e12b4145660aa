"""Modes "max-autotune": measures variants of each GPU kernel once, on that GPU, and keeps the fastest.

A kernel begins with what the cost model chose. Its neighbours (candidates.py) are compiled by the worker processes,
all kernels' together, and timed; the best one's neighbours follow, until none is faster, or the time is spent: then a
kernel keeps the best that was found so far. What was chosen is kept on disk, by the kernel's structure, so that a second
run measures nothing and chooses the same. Symbolic sizes are what they were when the graph was traced.
Library matmuls are measured by cublas_tuning.py.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol

from mlirc.codegen.cache import environment
from mlirc.codegen.cache.entry import CacheEntry
from mlirc.codegen.cache.folder import CacheFolder
from mlirc.codegen.cuda.triton_compile import CompiledKernel, KernelSource, source_of
from mlirc.codegen.libraries.cublas_call import CALLEES, TUNED
from mlirc.codegen.tuning.progress import Progress
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import attribute_value, make_attribute
from mlirc.dialects.core.tensor_info import TensorInfo
from mlirc.dialects.core.tensor_types import info_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.gpu.candidates import Candidates, Choice, describe
from mlirc.lowering.gpu.kernel import TritonKernel
from mlirc.lowering.gpu.triton_op import attributes
from mlirc.lowering.kernel.nodes import structural_key
from mlirc.lowering.kernel.shared_operands import shared_operands
from mlirc.lowering.kernel.typical_sizes import TYPICAL
from mlirc.lowering.pipeline.pass_manager import Seen, all_functions

KIND = "tuned"  # of entries of the cache folder
ROUNDS = 5  # each goes one step from the best so far
GAIN, NOISE = 0.97, 0.2  # what is hardly faster than the cost model's choice, by part or by microseconds, may be noise
AT_ONCE = 64  # kernels that are compiled before the clock is looked at


@dataclass(frozen=True)
class Request:
    """A kernel to time. `bound`: the integers that it is given are below it."""

    kernel: TritonKernel
    compiled: CompiledKernel
    infos: Sequence[TensorInfo]
    symbols: Mapping[str, int]
    bound: int


class Device(Protocol):
    """A GPU that kernels are measured on (tuning/device.py); tests have one of their own."""

    name: str

    def compile(self, kernels: Sequence[KernelSource]) -> list[CompiledKernel | None]:
        """The code of each kernel, None where there is none."""
        ...

    def time(self, request: Request) -> float:
        """Microseconds, infinite where it cannot be launched."""
        ...

    def compare(self, first: Request, second: Request) -> tuple[float, float]:
        """Microseconds of both, launched in turns."""
        ...


@dataclass
class Tuned:
    """What was found for a kernel: `microseconds` of each way to write it, the first is the cost model's.

    how   "measured", "from the cache", or "out of time"
    """

    kernel: str
    chosen: str
    microseconds: dict[str, float]
    how: str


@dataclass(eq=False)
class _Job:
    op: Any
    candidates: Candidates
    label: str
    launches: int = 1
    times: dict[str, float] = field(default_factory=dict)
    choices: dict[str, Choice] = field(default_factory=dict)
    requests: dict[str, Request] = field(default_factory=dict)  # of what could be timed
    expanded: set[str] = field(default_factory=set)
    done: bool = False

    @property
    def best(self) -> str:
        """The fastest one, if it is faster than the first one by more than noise."""
        first = next(iter(self.times))
        fastest = min(self.times, key=lambda text: self.times[text])
        faster = self.times[fastest] < min(GAIN * self.times[first], self.times[first] - NOISE)
        return fastest if faster else first

    def next(self) -> list[str]:
        """What is to be measured now: at first the cost model's choice and its neighbours."""
        if not self.choices:
            self.choices[describe(self.candidates.first)] = self.candidates.first
            centre = describe(self.candidates.first)
        else:
            centre = self.best
        if centre not in self.expanded:
            self.expanded.add(centre)
            for choice in self.candidates.near(self.choices[centre]):
                self.choices.setdefault(describe(choice), choice)
        fresh = [text for text in self.choices if text not in self.times]
        self.done = not fresh
        return fresh


def tune(
    module: ir.Module,
    device_of: Callable[[int], Device],
    symbols: Mapping[str, int],
    seconds: float,
    folder: CacheFolder | None = None,
) -> list[Tuned]:
    """Writes each `mlirc.triton` of the module in the way that is fastest. Takes at most about `seconds`.

    device_of  the GPU of that number
    symbols    a value for each size symbol
    """
    end = time.perf_counter() + seconds
    _mark_matmuls(module)
    found: list[Tuned] = []
    jobs: dict[int, list[_Job]] = {}
    devices: dict[int, Device] = {}
    for job in _jobs(module):
        index = int(job.candidates.infos[-1].device.partition(":")[2] or 0)
        devices.setdefault(index, device_of(index))
        known = _known(job, devices[index].name, folder)
        if known is None:
            jobs.setdefault(index, []).append(job)
        else:
            found.append(known)
    with Progress(sum(map(len, jobs.values()))) as progress:
        for index, group in jobs.items():
            _search(group, devices[index], symbols, end, progress)
            found += [_finish(job, devices[index], folder) for job in group if job.times]
    return found


def _finish(job: _Job, device: Device, folder: CacheFolder | None) -> Tuned:
    """Writes the kernel in the best way that was found, and keeps that where nothing was left to be tried."""
    _confirm(job, device)
    _apply(job, job.best)
    if job.done:
        _keep(job, device.name, folder)
    return Tuned(job.label, job.best, _finite(job.times), "measured" if job.done else "out of time")


def _jobs(module: ir.Module) -> list[_Job]:
    """The kernels for GPUs, those launched most first."""
    ops = {attribute_value(op.attributes["sym_name"]): op for op in module.body.operations if _is_triton(op)}
    jobs: dict[str, _Job] = {}
    for function in all_functions(module, Seen()):
        for run in function.regions[0].blocks[0].operations:
            if run.operation.name != "mlircx.run":
                continue
            name = attribute_value(run.attributes["kernel"])
            if name in jobs:
                jobs[name].launches += 1
            elif name in ops:
                op = ops[name]
                aligned = tuple(attribute_value(op.attributes["divisible"]))
                label = attribute_value(run.attributes["label"])
                jobs[name] = _Job(op, Candidates(run.operation, name, aligned), label)
    return sorted(jobs.values(), key=lambda job: -job.launches)


def _mark_matmuls(module: ir.Module) -> None:
    """The library's algorithms are measured when the program meets a matmul's sizes for the first time."""
    for function in all_functions(module, Seen()):
        for op in function.regions[0].blocks[0].operations:
            if op.operation.name == "mlircx.call" and attribute_value(op.attributes["callee"]) in CALLEES:
                op.attributes[TUNED] = ir.UnitAttr.get()


def on_gpu(module: ir.Module) -> bool:
    """Whether there is anything to measure."""
    graphs = [function.regions[0].blocks[0] for function in all_functions(module, Seen())]
    values = [x for block in graphs for op in block.operations for x in (*op.operands, *op.results)]
    return any(isinstance(x.type, ir.RankedTensorType) and info_of(x).device.startswith("cuda") for x in values)


def _is_triton(op: Any) -> bool:
    return op.operation.name == "mlirc.triton"


def _search(jobs: list[_Job], device: Device, symbols: Mapping[str, int], end: float, progress: Progress) -> None:
    active = list(jobs)
    for _ in range(ROUNDS):
        wanted = [(job, text) for job in active for text in job.next()]
        for k in range(0, len(wanted), AT_ONCE):
            if time.perf_counter() > end:
                return
            _measure(wanted[k : k + AT_ONCE], device, symbols)
        progress.finished(sum(job.done for job in active))
        active = [job for job in active if not job.done]
    for job in active:
        job.done = True
    progress.finished(len(active))


def _measure(wanted: list[tuple[_Job, str]], device: Device, symbols: Mapping[str, int]) -> None:
    kernels = [job.candidates.write(job.choices[text]) for job, text in wanted]
    sources = [source_of(job.candidates.name, kernel) for (job, _), kernel in zip(wanted, kernels, strict=True)]
    for (job, text), kernel, code in zip(wanted, kernels, device.compile(sources), strict=True):
        job.times[text] = float("inf")
        if code is not None:
            values = dict.fromkeys(kernel.symbols, TYPICAL) | dict(symbols)
            request = Request(kernel, code, job.candidates.infos, values, job.candidates.bound(values))
            job.times[text] = device.time(request)
            job.requests[text] = request


def _confirm(job: _Job, device: Device) -> None:
    """Times what seems to be the best in turns with the first one: of many that are equally fast, one always seems faster."""
    first, compared = next(iter(job.times)), set[str]()
    while first in job.requests and (best := job.best) not in (first, *compared):
        compared.add(best)
        times = device.compare(job.requests[first], job.requests[best])
        job.times |= zip((first, best), times, strict=True)


def _apply(job: _Job, text: str) -> None:
    """Writes the kernel so; what the cost model chose is there already."""
    if text == next(iter(job.choices)):
        return
    for name, value in attributes(job.candidates.name, job.candidates.write(job.choices[text])).items():
        job.op.attributes[name] = make_attribute(value)


# ---- what is known

_chosen: dict[str, tuple[list[str], dict[str, float]]] = {}  # key -> the way to the choice, and what all took


def _key(job: _Job, device: str) -> str | None:
    c = job.candidates
    shared = sorted(shared_operands(c.run))
    return environment.key_or_none(KIND, repr(structural_key(c.run)), list(c.aligned), shared, device)


def _known(job: _Job, device: str, folder: CacheFolder | None) -> Tuned | None:
    """The kernel as it was found to be fastest earlier."""
    key = _key(job, device)
    if key is None:
        return None
    if key not in _chosen and folder and (entry := folder.get(KIND, key)):
        _chosen[key] = (entry.data["way"], entry.data["microseconds"])
    if key not in _chosen:
        return None
    way, times = _chosen[key]
    job.next()
    for step in way:  # choices are made of their neighbours
        choice = job.choices.get(step)
        if choice is None:
            job.choices, job.expanded = {}, set()
            return None
        for near in job.candidates.near(choice):
            job.choices.setdefault(describe(near), near)
    _apply(job, way[-1])
    return Tuned(job.label, way[-1], times, "from the cache")


def _keep(job: _Job, device: str, folder: CacheFolder | None) -> None:
    key = _key(job, device)
    if key is None:
        return
    way = [
        *(text for text in job.choices if text in job.expanded),
        job.best,
    ]  # others may be neighbours of the best alone
    _chosen[key] = (way, _finite(job.times))
    if folder:
        folder.put(KIND, [key], CacheEntry({"way": way, "microseconds": _finite(job.times)}))


def _finite(times: Mapping[str, float]) -> dict[str, float]:
    return {text: us for text, us in times.items() if us < float("inf")}
