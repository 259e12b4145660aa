"""Measures flex_attention on an NVIDIA GPU beside Inductor: python -m benchmarks.on_gpu.flex_attention --out FILE

    --patterns causal,alibi --sizes 64,128    some alone
    --tilings                                 in place of that, each kernel's time with each of some tiles, by PyTorch's profiler

For each pattern and size of a head, in bfloat16: the milliseconds of a forward pass, and of a forward and a backward pass, by CUDA events,
Inductor and mlirc in turns, medians; and the largest error of the result and of each gradient beside float64, of two heads. The forward pass
is that of training, which writes the logarithms of the sums too. Writes a line of JSON for each to FILE, and a table.
"""

import argparse
import json
import os
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("MLIRC_CACHE_DIR", "off")
os.environ.setdefault("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")

import torch

from benchmarks.on_gpu.flex import PATTERNS, ROWS, Pattern
from mlirc.lowering.gpu.attention import kernel as attention_kernel
from mlirc.lowering.gpu.attention.tiling import FlexTiling
from mlirc.lowering.kernel.flex_attention import FORWARD, KEYS, QUERIES

ROUNDS, CALLS = 9, 5
CHECKED = 2  # heads of the first batch that are compared with float64
BACKENDS: dict[str, Callable] = {
    "inductor": torch.compile,
    "mlirc": lambda function: torch.compile(function, backend="mlirc", options={"fallback": "error"}),
}
TILINGS = [
    FlexTiling(queries, keys, warps, stages)
    for queries, keys, warps, stages in (
        (128, 64, 4, 2), (128, 64, 4, 3), (128, 64, 8, 2), (128, 64, 8, 3), (128, 128, 8, 2), (128, 128, 8, 3), (128, 128, 4, 2),
        (64, 128, 4, 2), (64, 128, 8, 2), (64, 128, 8, 3), (64, 64, 4, 2), (64, 64, 4, 3), (64, 64, 8, 2), (128, 32, 4, 3),
        (32, 128, 8, 3),
    )
]  # fmt: skip


class Results:
    def __init__(self, file: Path):
        self.file = file.open("a")
        self.about = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}

    def add(self, **values: Any) -> None:
        self.file.write(json.dumps({**self.about, **values}) + "\n")
        self.file.flush()
        print("  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in values.items()), flush=True)


def exact(pattern: Pattern, inputs: list[torch.Tensor], slope: torch.Tensor) -> list[torch.Tensor]:
    """The result and the gradients of the first heads, in float64."""
    q, k, v = (x[:1, :CHECKED].detach().double().requires_grad_() for x in inputs)
    places = [
        torch.arange(n, device="cuda").view([-1 if d == e else 1 for e in range(4)])
        for d, n in enumerate((1, CHECKED, ROWS, ROWS))
    ]
    scores = q @ k.mT / q.shape[3] ** 0.5
    scores = pattern.score_mod(scores, *places) if pattern.score_mod else scores
    if pattern.mask_mod:
        scores = scores.masked_fill(~pattern.mask_mod(*places), float("-inf"))
    out = scores.softmax(-1) @ v
    return [out.detach(), *torch.autograd.grad(out, (q, k, v), slope[:1, :CHECKED].double())]


def milliseconds(step: Callable[[], Any]) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(CALLS):
        step()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / CALLS


def measure(pattern: Pattern, size: int, results: Results) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    function, inputs = pattern.call(size)
    slope = torch.randn_like(inputs[0])
    best = exact(pattern, inputs, slope)
    about = {"pattern": pattern.name, "size": size}
    steps: dict[tuple[str, str], Callable[[], Any]] = {}
    for name, make in BACKENDS.items():
        call = make(function)

        def both(call: Callable = call) -> list[torch.Tensor]:
            out = call(*inputs)
            return [out.detach(), *torch.autograd.grad(out, inputs, slope)]

        try:
            made = both()
        except Exception as error:
            results.add(**about, backend=name, failure=" ".join(str(error).split())[:500])
            continue
        errors = [(x[:1, :CHECKED].double() - y).abs().max().item() for x, y in zip(made, best, strict=True)]
        results.add(**about, backend=name, **dict(zip(("out", "dq", "dk", "dv"), errors, strict=True)))
        steps[name, "forward"] = lambda call=call: call(*inputs)
        steps[name, "forward and backward"] = both
    times: dict[tuple[str, str], list[float]] = {key: [] for key in steps}
    for step in steps.values():
        milliseconds(step)
    for _ in range(ROUNDS):
        for key, step in steps.items():
            times[key].append(milliseconds(step))
    for way in ("forward", "forward and backward"):
        found = {name: statistics.median(times[name, way]) for name in BACKENDS if (name, way) in times}
        if len(found) == len(BACKENDS):
            results.add(**about, what=way, **found, faster=found["inductor"] / found["mlirc"])
    torch.cuda.empty_cache()


# ---- tiles


def kernel_times(step: Callable[[], Any]) -> dict[str, float]:
    """Milliseconds of each kernel in a call, by name."""
    for _ in range(2):
        step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(CALLS):
            step()
        torch.cuda.synchronize()
    return {x.key: x.self_device_time_total / CALLS / 1e3 for x in profile.key_averages()}


def kind_of(name: str) -> str:
    """Which kernel of ours that is."""
    return next((kind for kind in (KEYS, QUERIES, FORWARD) if kind in name), "others")


def measure_tilings(pattern: Pattern, size: int, results: Results) -> None:
    function, inputs = pattern.call(size)
    slope = torch.randn_like(inputs[0])
    chosen = attention_kernel.choose_tiling
    for tiling in (None, *TILINGS):
        torch._dynamo.reset()
        call = BACKENDS["mlirc" if tiling else "inductor"](function)
        attention_kernel.choose_tiling = lambda problem, gpu, tiling=tiling: tiling if tiling else chosen(problem, gpu)
        about = {"pattern": pattern.name, "size": size, "tiling": str(tiling) if tiling else "Inductor"}
        try:
            found = kernel_times(lambda call=call: torch.autograd.grad(call(*inputs), inputs, slope))
        except Exception as error:
            results.add(**about, failure=" ".join(str(error).split())[:200])
            continue
        finally:
            attention_kernel.choose_tiling = chosen
        if tiling:
            by_kind: dict[str, float] = {}
            for name, ms in found.items():
                by_kind[kind_of(name)] = by_kind.get(kind_of(name), 0.0) + ms
            found = by_kind
        results.add(**about, **{name[:60]: ms for name, ms in found.items() if ms > 0.005})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--patterns", default="causal,sliding window,alibi,document mask,soft cap")
    parser.add_argument("--sizes", default="64,128")
    parser.add_argument("--tilings", action="store_true")
    given = parser.parse_args()
    results = Results(given.out)
    names = given.patterns.split(",")
    for size in map(int, given.sizes.split(",")):
        for pattern in (x for x in PATTERNS if x.name in names):
            (measure_tilings if given.tilings else measure)(pattern, size, results)


if __name__ == "__main__":
    main()
