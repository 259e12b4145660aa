"""Many architectures, small: right or wrong against float64, and the time of a call beside eager's.

python -m benchmarks.architectures [NAMES] [--training] [--amp bfloat16] [--dynamic] [--no-times]

For each: relative L2 distance of outputs (and gradients) from float64, mlirc's over eager's; `worst` is the same for that gradient
which does worst. Right is what is at most LIMIT. First calls are those of one process with whatever the disk cache holds.
"""

import contextlib
import copy
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import click
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from benchmarks.architectures.kinds import BATCH, LENGTH
from benchmarks.architectures.list import ARCHITECTURES
from mlirc.measurement.alternate import alternate
from mlirc.measurement.error import LIMIT, EverythingInFloat64, relative_distance

FLOOR = {torch.float32: 1e-7, torch.bfloat16: 1e-3, torch.float16: 1e-4}


@dataclass
class Architecture:
    """A module and what is asked of it; `steps` is what can be timed, by backend."""

    name: str
    training: bool
    amp: torch.dtype | None
    dynamic: bool
    first: dict[str, float] = field(default_factory=dict)
    steps: dict[str, Callable[[], None]] = field(default_factory=dict)

    def __str__(self) -> str:
        way = "training" if self.training else "inference"
        return " ".join(
            [f"{self.name:13} {way:9}", *([str(self.amp)[6:]] if self.amp else []), *["dynamic"] * self.dynamic]
        )

    @property
    def floor(self) -> float:
        return FLOOR[self.amp or torch.float32]

    def check(self, aot: bool = False) -> str:
        """Compiles and compares; a line that says what came of it."""
        module, make_inputs = ARCHITECTURES[self.name]()
        module.train(self.training)
        backends = {"eager": None, **({"aot_eager": {}} if aot else {}), "mlirc": {"options": {"fallback": "error"}}}
        modules = {backend: copy.deepcopy(module) for backend in backends}
        calls: dict[str, Callable] = {
            backend: modules[backend]
            if options is None
            else torch.compile(modules[backend], backend=backend, dynamic=self.dynamic or None, **options)
            for backend, options in backends.items()
        }
        torch._dynamo.utils.counters.clear()
        said = []
        for length in (LENGTH, LENGTH - 32) if self.dynamic else (LENGTH,):
            torch.manual_seed(length)
            inputs = make_inputs(BATCH, length)
            results = {}
            for backend, call in calls.items():
                started = time.perf_counter()
                results[backend] = self.results(modules[backend], call, inputs)
                self.first.setdefault(backend, time.perf_counter() - started)
            exact = in_float64(module)
            with EverythingInFloat64():
                doubled = {
                    name: value.double() if value.is_floating_point() else value for name, value in inputs.items()
                }
                reference = self.results(exact, exact, doubled, amp=None)
            said.append(self.compared(results["mlirc"], results["eager"], reference))
            self.steps = {
                backend: self.step(modules[backend], calls[backend], inputs) for backend in ("eager", "mlirc")
            }
        breaks = sum(torch._dynamo.utils.counters["graph_break"].values())
        firsts = ", ".join(f"{backend} {seconds:.1f}" for backend, seconds in self.first.items() if backend != "eager")
        return f"{' | '.join(said)}; breaks {breaks}; first call s: {firsts}"

    def results(self, module: nn.Module, call: Callable, inputs: dict, amp: Any = "own") -> list[list[torch.Tensor]]:
        """Outputs; in training also gradients and buffers. Running statistics stay as they were."""
        seeded()
        kept = {name: value.clone() for name, value in module.named_buffers()}
        module.zero_grad()
        with torch.set_grad_enabled(self.training), self.autocast(self.amp if amp == "own" else amp):
            outputs = floats(call(**inputs))
        if not self.training:
            return [outputs, [], []]
        score(outputs).backward()
        gradients = [p.grad.clone() for p in module.parameters() if p.grad is not None]
        buffers = [value.clone() for value in module.buffers() if value.is_floating_point()]
        for name, value in module.named_buffers():
            value.copy_(kept[name])
        return [[o.detach() for o in outputs], gradients, buffers]

    @staticmethod
    def autocast(dtype: torch.dtype | None) -> Any:
        return torch.autocast("cpu", dtype) if dtype else contextlib.nullcontext()

    def step(self, module: nn.Module, call: Callable, inputs: dict) -> Callable[[], None]:
        def infer() -> None:
            with torch.no_grad(), self.autocast(self.amp):
                call(**inputs)

        def train() -> None:
            module.zero_grad(set_to_none=True)
            with self.autocast(self.amp):
                outputs = floats(call(**inputs))
            torch.autograd.backward([o for o in outputs if o.requires_grad], [o for o in outputs if o.requires_grad])

        return train if self.training else infer

    def compared(self, ours: list, eager: list, reference: list) -> str:
        """`right` or `WRONG`, and the errors, ours/eager's, of outputs, gradients, buffers."""
        right, said = True, []
        for kind, a, b, r in zip(("out", "grad", "buffers"), ours, eager, reference, strict=True):
            if list(map(form, a)) != list(map(form, b)):
                return f"WRONG shapes, dtypes, or strides of {kind}"
            mine, theirs = relative_distance(a, r), relative_distance(b, r)
            right = right and mine <= LIMIT * theirs + self.floor
            if r:
                said.append(f"{kind} {mine:.1e}/{theirs:.1e}")
            if kind == "grad" and r:
                said.append(f"worst {max(map(self.part, a, b, r)):.1f}")
        return f"{'right' if right else 'WRONG'} {' '.join(said)}"

    def part(self, ours: torch.Tensor, eager: torch.Tensor, reference: torch.Tensor) -> float:
        allowed = relative_distance([eager], [reference]) + 5 * self.floor
        return relative_distance([ours], [reference]) / allowed


def form(x: torch.Tensor) -> tuple:
    """Shape, dtype, and the strides of sizes other than 1: those of a size of 1 say nothing, and fake tensors have others."""
    return x.shape, x.dtype, [stride for size, stride in zip(x.shape, x.stride(), strict=True) if size != 1]


def in_float64(module: nn.Module) -> nn.Module:
    from transformers import PreTrainedModel

    exact = copy.deepcopy(module).double()
    if isinstance(exact, PreTrainedModel):
        exact.set_experts_implementation("eager")  # the grouped matmul knows no float64
    return exact


def seeded() -> None:
    import numpy

    torch.manual_seed(0)
    numpy.random.seed(0)


def floats(output: Any) -> list[torch.Tensor]:
    """The floating-point tensors of an output without its caches."""
    if isinstance(output, dict):
        output = {name: value for name, value in output.items() if "cache" not in name and "past" not in name}
    leaves = (leaf for value in (output.values() if isinstance(output, dict) else [output]) for leaf in tensors(value))
    return [leaf for leaf in leaves if leaf.is_floating_point()]


def tensors(value: Any) -> Sequence[torch.Tensor]:
    if isinstance(value, dict):
        return [leaf for inner in value.values() for leaf in tensors(inner)]
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def score(outputs: list[torch.Tensor]) -> torch.Tensor:
    """The outputs times fixed random weights, summed."""
    generator = torch.Generator().manual_seed(1)
    weighted = [o * torch.randn(o.shape, generator=generator).to(o) for o in outputs]
    return torch.stack([w.double().sum() for o, w in zip(outputs, weighted, strict=True) if o.requires_grad]).sum()


def times(architecture: Architecture, rounds: int) -> str:
    samples = alternate(architecture.steps, rounds)
    eager, mlirc = (statistics.median(samples[backend].wall) for backend in ("eager", "mlirc"))
    ratio = statistics.median(a / b for a, b in zip(samples["eager"].wall, samples["mlirc"].wall, strict=True))
    return f"{architecture}  eager {1e3 * eager:7.2f} ms, mlirc {1e3 * mlirc:7.2f}  {ratio:.2f}"


@click.command()
@click.argument("names", nargs=-1)
@click.option("--training", is_flag=True, help="A step up to the gradients; else a call without gradients.")
@click.option("--amp", type=click.Choice(["bfloat16", "float16"]), help="Under torch.autocast.")
@click.option("--dynamic", is_flag=True, help="Symbolic sizes, two lengths.")
@click.option("--aot", is_flag=True, help="The first call of aot_eager, too.")
@click.option("--times/--no-times", "timed", default=True)
@click.option("--rounds", default=9)
@click.option("--threads", default=2)
def main(
    names: tuple, training: bool, amp: str | None, dynamic: bool, aot: bool, timed: bool, rounds: int, threads: int
) -> None:
    from transformers.utils import logging

    warnings.filterwarnings("ignore")
    logging.set_verbosity_error()
    torch.set_num_threads(threads)
    torch._dynamo.config.recompile_limit = 64
    checked = []
    for name in names or ARCHITECTURES:
        torch.manual_seed(0)
        architecture = Architecture(name, training, getattr(torch, amp) if amp else None, dynamic)
        try:
            said = architecture.check(aot)
            checked.append(architecture)
        except Exception as error:
            said = f"FAILED {type(error).__name__}: {' '.join(str(error).split())[:300]}"
        click.echo(f"{architecture}  {said}")
    for architecture in checked if timed else []:
        click.echo(times(architecture, rounds))


if __name__ == "__main__":
    main()
