"""Modes "max-autotune": measures whether a matmul is faster as our kernel with its epilogue, or as the library's and a kernel after it.

That is decided before memory is planned, when the graph has no kernels yet. So the matmul and its epilogue are taken out
into a function of their own, which is compiled in both ways and timed as a whole, on tensors of its sizes, with a cold
cache. What was chosen is kept on disk, by that function's text.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import torch

from mlirc.codegen.cache import environment
from mlirc.codegen.cache.entry import CacheEntry
from mlirc.codegen.cache.folder import CacheFolder
from mlirc.codegen.emit.emit import compile_module
from mlirc.codegen.tuning.autotune import GAIN, NOISE, Tuned
from mlirc.codegen.tuning.device import CACHE, plain
from mlirc.dialects.core.bindings import func, ir
from mlirc.dialects.core.tensor_types import TensorInfo, info_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.kernel.typical_sizes import static
from mlirc.lowering.module.target_attribute import set_target, target_of
from mlirc.lowering.pipeline.pass_manager import run_pipeline
from mlirc.lowering.pipeline.pipelines import GPU_STAGES

KIND = "choice"  # of entries of the cache folder
PASS = "generate-triton-matmuls"
WAYS = {"kernel": f"{PASS}{{always=true}},", "library": ""}
RUNS, WARM_UP = 15, 3

_known: dict[str, dict[str, float]] = {}  # key, or the text where there is none -> what each way took, in microseconds


@dataclass
class MatmulTuning:
    """A Chooser of the pass generate-triton-matmuls.

    seconds  what measuring may take: when that is `spent` it begins no more of it
    clock    what gives the microseconds of lowered modules of one function each, @graph
    found    what it decided
    """

    seconds: float
    folder: CacheFolder | None = None
    clock: Callable[[Sequence[ir.Module]], Sequence[float]] = field(default=lambda modules: timed(modules))
    found: list[Tuned] = field(default_factory=list)
    spent: float = 0.0

    def __call__(self, ops: Sequence[Any], modelled: bool) -> bool:
        text = str(excerpt(ops))
        device = info_of(ops[0].results[0]).device
        key = environment.key_or_none(
            KIND, text, torch.cuda.get_device_name(device) if torch.cuda.is_available() else ""
        )
        times, how = self._cached(key, text), "from the cache"
        if times is None:
            if self.spent >= self.seconds:
                return modelled
            start = time.perf_counter()
            took = self.clock([lowered(text, passes) for passes in WAYS.values()])
            times, how = dict(zip(WAYS, took, strict=True)), "measured"
            self.spent += time.perf_counter() - start
            _known[key or text] = times
            if self.folder and key:
                self.folder.put(KIND, [key], CacheEntry({"microseconds": times}))
        taken = better(times, modelled)
        sizes = " x ".join(map(str, (*info_of(ops[0].results[0]).shape, info_of(ops[0].operands[-2]).shape[1])))
        self.found.append(Tuned(f"matmul {sizes}", "kernel" if taken else "library", times, how))
        return taken

    def _cached(self, key: str | None, text: str) -> dict[str, float] | None:
        """What is known of the excerpt. Without a key, as a file of ours was changed, what this process found."""
        if key and key not in _known and self.folder and (entry := self.folder.get(KIND, key)):
            _known[key] = entry.data["microseconds"]
        return _known.get(key or text)


def better(times: dict[str, float], modelled: bool) -> bool:
    """Whether the kernel is. What is hardly faster than what the cost model chose may be noise."""
    first, other = ("kernel", "library") if modelled else ("library", "kernel")
    return (times[other] < min(GAIN * times[first], times[first] - NOISE)) != modelled


def excerpt(ops: Sequence[Any]) -> ir.Module:
    """A module whose @graph is the ops, in order; its arguments are what they need, its results what others need of them."""
    made = dict.fromkeys(result for op in ops for result in op.results)
    needed = list(dict.fromkeys(x for op in ops for x in op.operands if x not in made))
    inside = [op.operation for op in ops]
    given = [x for x in made if any(use.owner.operation not in inside for use in x.uses)]
    unknown = ir.Location.unknown()
    module = ir.Module.parse("module {}")
    set_target(module, target_of(ops[0]))
    with ir.InsertionPoint(module.body), unknown:
        function = func.FuncOp("graph", ([x.type for x in needed], [x.type for x in given]))
    block = function.add_entry_block()
    values = dict(zip(needed, block.arguments, strict=True))
    with ir.InsertionPoint(block), unknown:
        for op in ops:
            copy = op.operation.clone()
            for k, x in enumerate(op.operands):
                copy.operands[k] = values[x]
            values |= zip(op.results, copy.results, strict=True)
        func.ReturnOp([values[x] for x in given])
    function.attributes["mlirc.results"] = ir.ArrayAttr.get([ir.StringAttr.get(f"g{k}") for k in range(len(given))])
    return module


def lowered(text: str, first: str) -> ir.Module:
    """The function after the passes `first`, and what follows on the way down."""
    module, aside = ir.Module.parse(text), ir.Module.parse("module {}")
    _, _, rest = GPU_STAGES["simplify"].partition(f"{PASS},")
    with ir.InsertionPoint(aside.body):  # where copies go that would else go where the asking pass is writing
        for passes in (first + rest, *(GPU_STAGES[stage] for stage in ("fuse", "plan", "lower"))):
            run_pipeline(module, passes)
    return module


def timed(modules: Sequence[ir.Module]) -> list[float]:
    """Microseconds of a run of each, the median, while they take turns; infinite where there is no memory for them."""
    (function,) = [op for op in modules[0].body.operations if op.operation.name == "func.func"]
    infos = [info_of(x) for x in function.regions[0].blocks[0].arguments]
    device = torch.device(infos[0].device)
    try:
        with plain(), torch.cuda.device(device):
            programs = [compile_module(module) for module in modules]
            inputs = [memory(info, device) for info in infos]
            flush = torch.zeros(CACHE // 4, device=device)
            for program in programs * WARM_UP:
                program(list(inputs))
            rounds = [[_once(program, inputs, flush) for program in programs] for _ in range(RUNS)]
            return [statistics.median(times) for times in zip(*rounds, strict=True)]
    except torch.OutOfMemoryError:
        return [float("inf")] * len(modules)


def _once(program: Callable[[list], list], inputs: list[torch.Tensor], flush: torch.Tensor) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(3):  # long enough for all launches to be under way when it is done
        flush.sum()
    start.record()
    held = program(list(inputs))
    end.record()
    end.synchronize()
    del held
    return 1e3 * start.elapsed_time(end)


def memory(info: TensorInfo, device: torch.device) -> torch.Tensor:
    """Normal numbers of that dtype, of those sizes, which are known, and strides."""
    sizes, strides = static(info.shape), static(info.stride)
    generator = torch.Generator(device).manual_seed(0)  # the user's stays as it is
    return torch.empty_strided(sizes, strides, dtype=info.dtype, device=device).normal_(generator=generator)
