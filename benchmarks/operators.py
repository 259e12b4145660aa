"""Single operators at common sizes: mlirc's time and eager's, alternating in one process.

python -m benchmarks.operators                            inference, the calls that are slower than eager
python -m benchmarks.operators --gradients pool resize    steps with gradients of the groups of these names

A model hides an operator that is slow alone, as it is a small share of it. This sweep shows each: a ratio below 1 is slower than
eager. It needs a quiet machine; 400 calls take some 4 minutes, with gradients 6.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mlirc.measurement.alternate import alternate, spread

LAST = torch.channels_last
ELEMENTWISE = [
    "abs",
    "acos",
    "asinh",
    "atan",
    "ceil",
    "cos",
    "cosh",
    "digamma",
    "erf",
    "erfinv",
    "exp",
    "expm1",
    "floor",
    "frac",
    "lgamma",
    "log",
    "log1p",
    "neg",
    "reciprocal",
    "relu",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "trunc",
]
ACTIVATIONS = [
    "celu",
    "elu",
    "gelu",
    "glu",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "leaky_relu",
    "logsigmoid",
    "mish",
    "relu6",
    "selu",
    "silu",
    "softplus",
    "softshrink",
    "softsign",
    "tanhshrink",
]
BINARY = [
    "add",
    "sub",
    "mul",
    "div",
    "maximum",
    "minimum",
    "atan2",
    "fmod",
    "remainder",
    "hypot",
    "logaddexp",
    "pow",
    "copysign",
]
REDUCTIONS = [
    "sum",
    "mean",
    "amax",
    "amin",
    "prod",
    "std",
    "var",
    "norm",
    "logsumexp",
    "argmax",
    "argmin",
    "median",
    "nanmean",
]
SCANS = ["cumsum", "cumprod", "logcumsumexp", "cummax", "cummin"]
LOSSES = [
    "mse_loss",
    "l1_loss",
    "smooth_l1_loss",
    "huber_loss",
    "binary_cross_entropy_with_logits",
    "kl_div",
    "poisson_nll_loss",
    "soft_margin_loss",
    "hinge_embedding_loss",
]


@dataclass(frozen=True)
class Call:
    """function(*inputs). Gradients are of the floating-point inputs."""

    group: str
    name: str
    function: Callable[..., Any]
    inputs: tuple[Tensor, ...]


def rows(*shape: int) -> Tensor:
    return torch.randn(*(shape or (512, 1024)))


def images(layout: torch.memory_format = torch.contiguous_format, channels: int = 64, size: int = 56) -> Tensor:
    return torch.randn(8, channels, size, size).contiguous(memory_format=layout)


def calls() -> Iterator[Call]:
    for make in (elementwise, reductions, scans, movement, indexing, norms, losses):
        yield from make()
    for layout, name in ((torch.contiguous_format, ""), (LAST, " channels-last")):
        for make in (pools, resizes, pads, image_norms):
            for call in make(layout):
                yield Call(call.group, call.name + name, call.function, call.inputs)


def elementwise() -> Iterator[Call]:
    for name in ELEMENTWISE:
        yield Call(
            "elementwise", name, getattr(torch, name), (rows().abs() / 5 + 1e-3 if name != "erfinv" else rows().tanh(),)
        )
    for name in ACTIVATIONS:
        yield Call("activation", name, getattr(F, name), (rows(),))
    for name in BINARY:
        function = getattr(torch, name)
        yield Call("binary", name, function, (rows().abs() + 0.1, rows().abs() + 0.1))
        yield Call("binary", f"{name} of a row", function, (rows().abs() + 0.1, rows(1024).abs() + 0.1))
        yield Call("binary", f"{name} of a column", function, (rows().abs() + 0.1, rows(512, 1).abs() + 0.1))
        yield Call("binary", f"{name} transposed", function, (rows().abs() + 0.1, rows(1024, 512).abs().t() + 0.1))
    yield Call("elementwise", "where", lambda x, y: torch.where(x > y, x, y), (rows(), rows()))
    yield Call("elementwise", "lerp", lambda x, y: torch.lerp(x, y, 0.3), (rows(), rows()))
    yield Call("elementwise", "addcmul", torch.addcmul, (rows(), rows(), rows()))
    yield Call("elementwise", "clamp", lambda x: x.clamp(-0.5, 0.5), (rows(),))
    yield Call("elementwise", "to bfloat16", lambda x: x.bfloat16(), (rows(),))
    yield Call("elementwise", "to int64", lambda x: x.long(), (rows(),))
    yield Call("elementwise", "prelu", F.prelu, (images(), torch.rand(64)))


def reductions() -> Iterator[Call]:
    shapes = {
        "last": (rows(), -1),
        "first": (rows(), 0),
        "middle": (rows(16, 128, 256), 1),
        "short": (rows(16384, 16), -1),
    }
    for name in REDUCTIONS:
        function = getattr(torch, name)
        for place, (x, dim) in shapes.items():
            yield Call("reduction", f"{name} {place}", lambda x, f=function, dim=dim: chosen(f(x, dim=dim)), (x,))
    for name in ("sum", "mean", "amax", "var", "prod"):
        yield Call("reduction", f"{name} all", getattr(torch, name), (rows(),))
    for name in ("sum", "mean", "amax"):
        for layout, kind in ((torch.contiguous_format, ""), (LAST, " channels-last")):
            for dims in ((2, 3), (0, 2, 3), (1,)):
                function = lambda x, f=getattr(torch, name), dims=dims: f(x, dim=dims)
                yield Call("reduction", f"{name} {dims}{kind}", function, (images(layout),))
    for dim in (0, -1):
        for name in ("softmax", "log_softmax"):
            yield Call("reduction", f"{name} {dim}", lambda x, f=getattr(F, name), dim=dim: f(x, dim), (rows(),))
        yield Call("reduction", f"normalize {dim}", lambda x, dim=dim: F.normalize(x, dim=dim), (rows(),))
        yield Call(
            "reduction", f"cosine_similarity {dim}", lambda x, y, d=dim: F.cosine_similarity(x, y, d), (rows(), rows())
        )


def scans() -> Iterator[Call]:
    for name in SCANS:
        for dim in (0, -1):
            function = getattr(torch, name)
            yield Call("scan", f"{name} {dim}", lambda x, f=function, dim=dim: chosen(f(x, dim)), (rows(),))
    for dtype in (torch.int64, torch.int32):
        for dim in (0, -1):
            x = torch.randint(9, (512, 1024), dtype=dtype)
            yield Call("scan", f"cumsum {dim} {dtype}", lambda x, dim=dim: x.cumsum(dim), (x,))
    for dim in (0, -1):
        yield Call("sort", f"sort {dim}", lambda x, dim=dim: x.sort(dim)[0], (rows(),))
        yield Call("sort", f"topk {dim}", lambda x, dim=dim: x.topk(8, dim)[0], (rows(),))
    yield Call("sort", "kthvalue", lambda x: x.kthvalue(8, -1)[0], (rows(),))


def movement() -> Iterator[Call]:
    for dim in (0, 1, 2):
        x = rows(16, 128, 256)
        yield Call("movement", f"cat {dim}", lambda x, y, d=dim: torch.cat((x, y), d), (x, rows(16, 128, 256)))
        yield Call("movement", f"stack {dim}", lambda x, y, d=dim: torch.stack((x, y), d), (x, rows(16, 128, 256)))
        yield Call("movement", f"roll {dim}", lambda x, d=dim: torch.roll(x, 3, d), (x,))
        yield Call("movement", f"flip {dim}", lambda x, d=dim: x.flip(d), (x,))
        yield Call("movement", f"repeat_interleave {dim}", lambda x, d=dim: x.repeat_interleave(2, d), (x,))
        yield Call("movement", f"diff {dim}", lambda x, d=dim: x.diff(dim=d), (x,))
        yield Call("movement", f"part {dim}", lambda x, d=dim: x.narrow(d, 3, 8).clone(), (x,))
        yield Call(
            "movement", f"every second {dim}", lambda x, d=dim: x.movedim(d, 0)[::2].movedim(0, d).contiguous(), (x,)
        )
    for order in ((0, 2, 1), (1, 0, 2), (2, 1, 0), (2, 0, 1)):
        yield Call("movement", f"permute {order}", lambda x, o=order: x.permute(o).contiguous(), (rows(16, 128, 256),))
    for layout in (torch.contiguous_format, LAST):
        other = LAST if layout is torch.contiguous_format else torch.contiguous_format
        yield Call("movement", f"to {other}", lambda x, o=other: x.contiguous(memory_format=o), (images(layout),))
        yield Call("movement", f"pixel_shuffle of {layout}", lambda x: F.pixel_shuffle(x, 2), (images(layout),))
        yield Call("movement", f"pixel_unshuffle of {layout}", lambda x: F.pixel_unshuffle(x, 2), (images(layout),))
        yield Call("movement", f"channel_shuffle of {layout}", lambda x: F.channel_shuffle(x, 4), (images(layout),))
        yield Call(
            "movement", f"cat channels of {layout}", lambda x, y: torch.cat((x, y), 1), (images(layout), images(layout))
        )
        yield Call("movement", f"chunk of {layout}", lambda x: x.chunk(2, 1)[0] * x.chunk(2, 1)[1], (images(layout),))
    yield Call("movement", "heads", lambda x: x.view(8, 128, 12, 64).transpose(1, 2).contiguous(), (rows(8, 128, 768),))
    yield Call("movement", "windows", windows, (rows(8, 56, 56, 96),))
    yield Call("movement", "unfold", lambda x: F.unfold(x, 3, padding=1), (rows(4, 16, 56, 56),))
    yield Call("movement", "fold", lambda x: F.fold(x, (56, 56), 3, padding=1), (rows(4, 144, 3136),))
    yield Call("movement", "tril", torch.tril, (rows(),))
    yield Call("movement", "diag_embed", torch.diag_embed, (rows(64, 128),))
    yield Call("movement", "repeat", lambda x: x.repeat(2, 2), (rows(),))
    yield Call("movement", "masked_fill", lambda x, m: x.masked_fill(m, 0.0), (rows(), rows() > 0))


def indexing() -> Iterator[Call]:
    index = torch.randint(512, (512,))
    yield Call("index", "index_select 0", lambda x, i: x.index_select(0, i), (rows(), index))
    yield Call("index", "index_select 1", lambda x, i: x.index_select(1, i), (rows(), index))
    yield Call("index", "x[i]", lambda x, i: x[i], (rows(), index))
    yield Call("index", "x[:, i]", lambda x, i: x[:, i], (rows(), index))
    yield Call("index", "x[i, j]", lambda x, i, j: x[i, j], (rows(), index, index.flip(0)))
    for shape in ((512, 1024), (8, 64, 56, 56)):
        for dim in (0, -1):
            places = torch.randint(shape[dim], shape)
            yield Call("index", f"gather {shape} {dim}", lambda x, i, d=dim: x.gather(d, i), (rows(*shape), places))
            yield Call(
                "index",
                f"scatter {shape} {dim}",
                lambda x, i, y, d=dim: x.scatter(d, i, y),
                (rows(*shape), places, rows(*shape)),
            )
            added = lambda x, i, y, d=dim: x.scatter_add(d, i, y)
            yield Call("index", f"scatter_add {shape} {dim}", added, (rows(*shape), places, rows(*shape)))
    yield Call("index", "take_along_dim", lambda x, i: x.take_along_dim(i, -1), (rows(), torch.randint(1024, (512, 4))))
    yield Call("index", "index_add", lambda x, i, y: x.index_add(0, i, y), (rows(), index, rows()))
    yield Call("index", "index_copy", lambda x, i, y: x.index_copy(0, i, y), (rows(), torch.randperm(512), rows()))
    yield Call(
        "index",
        "scatter_reduce",
        lambda x, i, y: x.scatter_reduce(0, i, y, "amax"),
        (rows(), torch.randint(512, (512, 1024)), rows()),
    )
    yield Call("index", "embedding", F.embedding, (torch.randint(30000, (8, 128)), rows(30000, 256)))
    yield Call(
        "index",
        "embedding_bag",
        lambda i, w: F.embedding_bag(i, w, mode="sum"),
        (torch.randint(30000, (128, 20)), rows(30000, 64)),
    )
    yield Call("index", "one_hot", lambda i: F.one_hot(i, 1000), (torch.randint(1000, (512,)),))
    yield Call("index", "bucketize", torch.bucketize, (rows(), rows(64).sort()[0]))
    yield Call("index", "isin", torch.isin, (torch.randint(99, (512, 1024)), torch.arange(7)))


def norms() -> Iterator[Call]:
    yield Call("norm", "layer_norm", lambda x, w, b: F.layer_norm(x, (1024,), w, b), (rows(), rows(1024), rows(1024)))
    yield Call(
        "norm", "layer_norm of 64", lambda x, w, b: F.layer_norm(x, (64,), w, b), (rows(8192, 64), rows(64), rows(64))
    )
    yield Call("norm", "rms_norm", lambda x, w: F.rms_norm(x, (1024,), w), (rows(), rows(1024)))
    yield Call(
        "norm",
        "batch_norm of rows",
        lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
        (rows(), rows(1024), rows(1024)),
    )


def losses() -> Iterator[Call]:
    for name in LOSSES:
        yield Call("loss", name, getattr(F, name), (rows(), rows().abs()))
    labels = torch.randint(1024, (512,))
    yield Call("loss", "cross_entropy", F.cross_entropy, (rows(), labels))
    yield Call(
        "loss", "cross_entropy smooth", lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1), (rows(), labels)
    )
    yield Call(
        "loss", "cross_entropy of images", F.cross_entropy, (rows(4, 21, 64, 64), torch.randint(21, (4, 64, 64)))
    )
    yield Call("loss", "binary_cross_entropy", F.binary_cross_entropy, (torch.rand(512, 1024), torch.rand(512, 1024)))
    yield Call("loss", "triplet_margin_loss", F.triplet_margin_loss, (rows(), rows(), rows()))
    yield Call("loss", "cdist", torch.cdist, (rows(256, 64), rows(256, 64)))
    yield Call("loss", "pdist", F.pdist, (rows(256, 64),))


def pools(layout: torch.memory_format) -> Iterator[Call]:
    x = images(layout)
    for kind in ("max", "avg"):
        pool = getattr(F, f"{kind}_pool2d")
        for size, stride, padding in ((2, 2, 0), (3, 2, 1), (3, 1, 1), (7, 7, 0)):
            function = lambda x, f=pool, s=size, t=stride, p=padding: f(x, s, t, p)
            yield Call("pool", f"{kind}_pool2d {size} {stride} {padding}", function, (x,))
        adaptive = getattr(F, f"adaptive_{kind}_pool2d")
        for size in (1, 7, 8):
            yield Call("pool", f"adaptive_{kind}_pool2d {size}", lambda x, f=adaptive, s=size: f(x, s), (x,))


def resizes(layout: torch.memory_format) -> Iterator[Call]:
    x = images(layout, size=28)
    for mode in ("nearest", "nearest-exact", "bilinear", "bicubic", "area"):
        for scale in (2, 1.5, 0.5):
            function = lambda x, mode=mode, scale=scale: F.interpolate(x, scale_factor=scale, mode=mode)
            yield Call("resize", f"{mode} by {scale}", function, (x,))
    yield Call(
        "resize", "bilinear corners", lambda x: F.interpolate(x, (56, 56), mode="bilinear", align_corners=True), (x,)
    )
    grid = torch.rand(8, 28, 28, 2) * 2 - 1
    for mode in ("bilinear", "nearest"):
        yield Call(
            "resize", f"grid_sample {mode}", lambda x, g, m=mode: F.grid_sample(x, g, m, align_corners=False), (x, grid)
        )


def pads(layout: torch.memory_format) -> Iterator[Call]:
    for channels in (3, 64):
        for mode in ("constant", "reflect", "replicate", "circular"):
            function = lambda x, m=mode: F.pad(x, (1, 1, 1, 1), m)
            yield Call("pad", f"{mode} of {channels} channels", function, (images(layout, channels),))


def image_norms(layout: torch.memory_format) -> Iterator[Call]:
    x, w, b = images(layout), rows(64), rows(64)
    yield Call("norm", "batch_norm", lambda x, w, b: F.batch_norm(x, None, None, w, b, True), (x, w, b))
    yield Call("norm", "batch_norm eval", lambda x, w, b: F.batch_norm(x, b, w.abs(), w, b), (x, w, b))
    yield Call("norm", "group_norm", lambda x, w, b: F.group_norm(x, 8, w, b), (x, w, b))
    yield Call("norm", "instance_norm", lambda x: F.instance_norm(x), (x,))
    yield Call("norm", "local_response_norm", lambda x: F.local_response_norm(x, 5), (x,))
    yield Call("norm", "add relu", lambda x, y: F.relu(x + y), (x, x.flip(0).contiguous(memory_format=layout)))
    yield Call("norm", "bias", lambda x, b: x + b[:, None, None], (x, b))


def windows(x: Tensor) -> Tensor:
    """Windows of 7 x 7 of images, as window attention takes them: [8, 56, 56, 96] -> [512, 49, 96]."""
    return x.view(8, 8, 7, 8, 7, 96).permute(0, 1, 3, 2, 4, 5).reshape(512, 49, 96)


def chosen(result: Any) -> Tensor:
    """The values, of an operator that gives indices with them."""
    return result if isinstance(result, Tensor) else result[0]


def measure(call: Call, gradients: bool, rounds: int) -> dict[str, Any] | None:
    """Median seconds of eager and mlirc; None where there is nothing to differentiate."""
    torch._dynamo.reset()
    steps = {}
    for backend in ("eager", "mlirc"):
        step = taken(call, backend, gradients)
        if step is None:
            return None
        steps[backend] = step
    medians = {name: spread(samples.wall)["median"] for name, samples in alternate(steps, rounds).items()}
    row = {"group": call.group, "call": call.name, "way": "training" if gradients else "inference"}
    return row | medians | {"ratio": medians["eager"] / medians["mlirc"]}


def taken(call: Call, backend: str, gradients: bool) -> Callable[[], Any] | None:
    """A step: the call, and with gradients its backward pass."""
    inputs = tuple(x.detach().requires_grad_(gradients and x.is_floating_point()) for x in call.inputs)
    function = call.function
    if backend != "eager":
        function = torch.compile(lambda *x: call.function(*x), backend=backend, dynamic=False)
    if not gradients:
        return lambda: function(*inputs)
    given = function(*inputs)
    if not given.requires_grad:
        return None
    gradient = torch.randn_like(given)

    def step() -> None:
        for x in inputs:
            x.grad = None
        function(*inputs).backward(gradient)

    return step


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="only calls whose group or name has one of these in it")
    parser.add_argument("--gradients", action="store_true", help="with the backward pass")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--below", type=float, default=0.95, help="print calls whose eager time over ours is below this"
    )
    parser.add_argument("--output", type=Path, help="a file of JSON lines for all of them")
    chosen = parser.parse_args(words)
    torch.manual_seed(0)
    found, failed = [], 0
    for call in calls():
        if chosen.words and not any(word in f"{call.group} {call.name}" for word in chosen.words):
            continue
        try:
            row = measure(call, chosen.gradients, chosen.rounds)
        except Exception as error:
            failed += 1
            print(f"{call.group} {call.name}: {type(error).__name__}: {error}"[:300], file=sys.stderr, flush=True)
            continue
        if row is None:
            continue
        found.append(row)
        if row["ratio"] < chosen.below:
            print(as_text(row), flush=True)
    if chosen.output:
        chosen.output.write_text("".join(json.dumps(row) + "\n" for row in found))
    slow = sum(row["ratio"] < chosen.below for row in found)
    print(f"{len(found)} calls, {slow} below {chosen.below}, {failed} failed")
    return 1 if failed else 0


def as_text(row: dict[str, Any]) -> str:
    eager, ours = row["eager"] * 1e3, row["mlirc"] * 1e3
    return f"{row['ratio']:5.2f}  {eager:8.3f} ms eager {ours:8.3f} ms mlirc  {row['group']} {row['call']}"


if __name__ == "__main__":
    sys.exit(main())
