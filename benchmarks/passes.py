"""What single passes buy: one program each, with the pass and without it, alternating in one process.

python -m benchmarks.passes [NAMES] [--device cpu|cuda] [--rounds 15]

A name is that of a case, or of a pass, which means all of its cases. A pass without a case here is measured by `mlirc compare`.
For each: microseconds of a call without the pass and with it, their ratio with its interval, the same for a second compilation with the
pass (what is noise), and how often the pass changed the program. On a CPU it is processor time, which other programs change less than
the wall clock. Cases of a GPU are left out where there is none. About 100 s on an H200
with 16 cores; compiling is most of it.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FunctionType
from typing import Any
from unittest import mock

import click
import torch
import torch.nn.functional as F

import mlirc
from mlirc.lowering.pipeline.parser import parse
from mlirc.lowering.pipeline.pipelines import pipeline
from mlirc.measurement.alternate import alternate
from mlirc.measurement.intervals import ratio_of_medians

Program = tuple[Callable, tuple]  # a function, and its arguments


@dataclass(frozen=True)
class Case:
    """A program that a pass is for.

    drops      the pass that is left out; "" for volumes, which are a rule within generate-convolutions
    base       the pipeline that has it
    training   whether the call has a backward pass
    """

    name: str
    device: str
    drops: str
    base: str
    make: Callable[[], Program]
    training: bool = False


def cross_entropy(device: str, rows: int, dtype: torch.dtype, training: bool) -> Program:
    """Rows of GPT-2's vocabulary. The gather of the label's logit is what hoist-gathers moves."""
    logits = torch.randn(rows, 50257, device=device, dtype=dtype, requires_grad=training)
    labels = torch.randint(50257, (rows,), device=device)
    return (lambda x, y: F.cross_entropy(x.float(), y)), (logits, labels)


def volume() -> Program:
    layer = torch.nn.Sequential(
        torch.nn.Conv3d(16, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv3d(16, 16, 3, padding=1)
    ).eval()
    return layer, (torch.randn(1, 16, 8, 16, 16),)


def norm_of_activation() -> Program:
    """A training step: several kernels of the gradients read the same tensors."""
    layer = torch.nn.Sequential(torch.nn.GELU(), torch.nn.LayerNorm(768), torch.nn.Tanh())
    x = torch.randn(4096, 768, requires_grad=True)
    return (lambda x: layer(x).sum()), (x,)


def model(name: str, batch: int) -> Program:
    from benchmarks.on_gpu.models import MODELS

    made = MODELS[name]()
    module, inputs = made.build(training=False), made.inputs(batch or made.batch, training=False)
    return (lambda *values: module(**dict(zip(inputs, values, strict=True))).logits), tuple(inputs.values())


CASES = [
    Case("volumes", "cpu", "", "cpu", volume),
    Case("fuse-horizontally", "cpu", "fuse-horizontally", "cpu", norm_of_activation, True),
    Case("hoist-gathers-cpu", "cpu", "hoist-gathers", "cpu", lambda: cross_entropy("cpu", 512, torch.float32, False)),
    Case(
        "hoist-gathers-gpu", "cuda", "hoist-gathers", "gpu", lambda: cross_entropy("cuda", 8192, torch.bfloat16, False)
    ),
    Case(
        "hoist-gathers-gpu-training",
        "cuda",
        "hoist-gathers",
        "gpu",
        lambda: cross_entropy("cuda", 8192, torch.bfloat16, True),
        True,
    ),
    Case("fuse-matmul-epilogue", "cuda", "fuse-matmul-epilogue", "gpu", lambda: model("gpt2", 0)),
    Case("convolve-channels-last", "cuda", "convolve-channels-last", "gpu", lambda: model("resnet50", 0)),
    Case("batch-parameters", "cuda", "batch-parameters", "gpu", lambda: model("resnet50", 0)),
    Case("batch-parameters-batch-1", "cuda", "batch-parameters", "gpu", lambda: model("resnet50", 1)),
    Case("merge-matmuls", "cuda", "merge-matmuls", "gpu-frozen", lambda: model("bert", 0)),
    Case("merge-matmuls-batch-1", "cuda", "merge-matmuls", "gpu-frozen", lambda: model("bert", 1)),
]


def options_of(case: Case, has_pass: bool) -> dict[str, Any]:
    """The stage lower is added by itself. The disk cache is off, because a patched rule is no part of a key."""
    steps = [step for step in parse(pipeline(case.base, "plan")) if has_pass or step.name != case.drops]
    options = {"pipeline": ",".join(map(str, steps)), "cache": False, "fallback": "error"}
    return options | ({"freeze": True} if case.base == "gpu-frozen" else {})


@contextlib.contextmanager
def settings(case: Case, has_pass: bool) -> Iterator[None]:
    """No rule for volumes where that is what is left out."""
    from mlirc.lowering.passes.simplify import generate_convolutions

    if case.drops or has_pass:
        yield
        return
    with mock.patch.object(generate_convolutions, "choice_of_slices", lambda *given: None):
        yield


def step_of(case: Case, program: Program, has_pass: bool) -> Callable[[], None]:
    """A call, compiled and made once."""
    function, arguments = program

    def call(*values: Any) -> Any:
        return function(*values)

    # A code object of its own: Dynamo would give what it compiled of another one with these options.
    own = FunctionType(call.__code__.replace(), call.__globals__, "own", None, call.__closure__)
    compiled = torch.compile(own, backend="mlirc", options=options_of(case, has_pass))

    def step() -> None:
        if case.training:
            arguments[0].grad = None
            compiled(*arguments).backward()
        else:
            compiled(*arguments)

    with settings(case, has_pass), torch.set_grad_enabled(case.training):
        step()
    return step


def changes(case: Case, program: Program) -> int:
    """How often the pass changed the program, by the ledger."""
    function, arguments = program
    with settings(case, True), torch.set_grad_enabled(case.training):
        graphs = mlirc.explain(function, options=options_of(case, True))(*arguments).data["graphs"]
    name = case.drops or "generate-convolutions"
    return sum(entry["pass_name"] == name and entry["taken"] for graph in graphs for entry in graph["ledger"])


def measured(case: Case, rounds: int) -> str:
    torch._dynamo.reset()
    torch.manual_seed(0)
    program = case.make()
    count = changes(case, program)
    steps = {
        "without": step_of(case, program, False),
        "with": step_of(case, program, True),
        "again": step_of(case, program, True),
    }
    with settings(case, True), torch.set_grad_enabled(case.training):
        samples = alternate(steps, rounds, torch.cuda.synchronize if case.device == "cuda" else None)
    times = {name: found.wall if case.device == "cuda" else found.cpu for name, found in samples.items()}
    faster, noise = ratio_of_medians(times["without"], times["with"]), ratio_of_medians(times["again"], times["with"])
    before, after = (1e6 * sorted(times[name])[rounds // 2] for name in ("without", "with"))
    return (
        f"{case.name:28} {before:10.1f} us -> {after:10.1f} us  {faster.value:.3f} ({faster.low:.3f} to {faster.high:.3f}) "
        f"times as fast; noise {noise.low:.3f} to {noise.high:.3f}; {count} changes"
    )


@click.command()
@click.argument("names", nargs=-1)
@click.option("--device", type=click.Choice(["cpu", "cuda"]))
@click.option("--rounds", type=click.IntRange(2), default=15, show_default=True)
def main(names, device, rounds) -> None:
    """What passes buy. NAMES are cases, or passes, which mean all of their cases (default: all)."""
    known = list(dict.fromkeys(name for case in CASES for name in (case.name, case.drops) if name))
    for name in names:
        if name not in known:
            hint = f'a pass without a case is measured by `mlirc compare cpu "cpu + {name} before OTHER" SCRIPT.py`'
            raise click.UsageError(f"no case of '{name}'; there are {', '.join(known)}; {hint}")
    for case in CASES:
        if (names and not {case.name, case.drops} & set(names)) or (device and case.device != device):
            continue
        if case.device == "cuda" and not torch.cuda.is_available():
            click.echo(f"{case.name:28} needs a GPU")
            continue
        try:
            click.echo(measured(case, rounds))
        except Exception as error:  # one case that fails does not stop the others
            click.echo(f"{case.name:28} FAILED {type(error).__name__}: {' '.join(str(error).split())[:300]}")


if __name__ == "__main__":
    main()
