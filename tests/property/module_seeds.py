"""Modules of every stage for tests/property/test_wrong_modules.py: what mlirc dumps of small programs, and files of tests/filecheck.

Programs are compiled as users compile them, so that forward and backward graphs, updates in place, sizes that depend on data,
random numbers and symbols are among them.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.nn import functional as F

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context

FILECHECK = Path(__file__).parents[2] / "filecheck"
SYMBOL = re.compile(r"\bu?s\d+\b")
SIZE = 6  # of every symbol


@dataclass(frozen=True)
class Seed:
    name: str  # program or file, and stage
    text: str

    @property
    def values(self) -> dict[str, int]:
        return dict.fromkeys(SYMBOL.findall(self.text), SIZE)


def in_place(x):
    x[1:3].mul_(2)
    x.t()[2] += 1
    return x.sum(0)


def trained(x, w, b):
    return F.cross_entropy(F.layer_norm(F.gelu(x @ w), (10,), b), torch.arange(6) % 3)


def attended(q):
    return F.scaled_dot_product_attention(q, q, q, is_causal=True).pow(2).mean()


def batch(x, w):
    return F.batch_norm(F.conv2d(x, w, padding=1), torch.zeros(4), torch.ones(4), training=True).relu().sum()


def tensor(*shape: int, grad: bool = False) -> torch.Tensor:
    return torch.randn(shape).requires_grad_(grad)


def folded(x):
    return (
        x.amin(1),
        x.prod(0),
        (x > 0).any(1),
        (x > 0).all(0),
        x.argmin(1),
        x.argmax(0),
        x.cumprod(1),
        x.cummin(0).values,
    )


def joined(x, i):
    return torch.cat([x, x + 1, x * 2]), torch.cat([x, x.sin(), x + 1, x * 2], 1), x[i, i], x.view(6, 2, 5)[i, i % 2, i]


def normalized(x, w):
    return F.softmax(F.group_norm(x, 2), -1).sum(0).mul(F.rms_norm(F.max_pool2d(x, 2), (4,), w).sum()).sum()


INDEX = torch.tensor([0, 2, 1, 2])
Program = tuple[Callable[..., Any], Callable[[], tuple[Any, ...]], bool | None]
PROGRAMS: dict[str, Program] = {  # what, its inputs, whether sizes are symbols
    "elementwise": (lambda x, y: (x * y).sin() + 1, lambda: (tensor(6, 10), tensor(10)), True),
    "gather": (lambda t, i: F.embedding(i, t).relu(), lambda: (tensor(6, 10), INDEX), False),
    "cat": (lambda x: torch.cat([x, x.neg()[:, 2:]], 1), lambda: (tensor(6, 10),), True),
    "scan": (lambda x: x.cumsum(1).cummax(0).values, lambda: (tensor(6, 10),), False),
    "scatter": (lambda x, i: (x * 2).index_add(0, i, x[:4]), lambda: (tensor(6, 10), INDEX), False),
    "in place": (in_place, lambda: (tensor(6, 10),), False),
    "training": (trained, lambda: (tensor(6, 10), tensor(10, 10, grad=True), tensor(10, grad=True)), False),
    "training, symbols": (trained, lambda: (tensor(6, 10), tensor(10, 10, grad=True), tensor(10, grad=True)), True),
    "data": (lambda x: x[x > 0].exp().sum() * 2, lambda: (tensor(6, 10),), False),
    "random": (lambda x: F.dropout(x, 0.5) + torch.rand_like(x), lambda: (tensor(6, 10),), False),
    "numbers": (lambda x, n, f: x.relu() * n + f, lambda: (tensor(6, 10), 6, 0.5), True),
    "norm": (lambda x, w: F.layer_norm(x, (10,), w), lambda: (tensor(6, 10), tensor(10)), False),
    "softmax": (lambda x: F.softmax(x, -1).sum(0), lambda: (tensor(6, 10),), True),
    "index": (lambda x, i: x.t()[:, i] + 1, lambda: (tensor(6, 10), INDEX), False),
    "pad": (lambda x: F.pad(x, (1, 2), value=2.0).flip(1), lambda: (tensor(6, 10),), True),
    "product": (lambda x, w: F.gelu(x @ w + 1), lambda: (tensor(6, 10), tensor(10, 10)), False),
    "attention": (attended, lambda: (tensor(1, 2, 5, 8, grad=True),), False),
    "convolution": (
        lambda x, w: F.conv2d(x, w, padding=1).relu(),
        lambda: (tensor(1, 3, 8, 8), tensor(4, 3, 3, 3)),
        False,
    ),
    "convolution, trained": (batch, lambda: (tensor(2, 3, 8, 8), tensor(4, 3, 3, 3, grad=True)), False),
    "pool": (lambda x: F.max_pool2d(x, 2) + F.avg_pool2d(x, 2), lambda: (tensor(1, 3, 8, 8),), False),
    "halves": (lambda x: (x.bfloat16() * 2).float().amax(1), lambda: (tensor(6, 10),), False),
    "sorted": (lambda x: x.sort(1).values[:, :3] + x.topk(3).values, lambda: (tensor(6, 10),), False),
    "integers": (lambda i: (i // 2 + i % 3 << 1).clamp(max=5), lambda: (INDEX,), False),
    "folded": (folded, lambda: (tensor(6, 10),), False),
    "joined": (joined, lambda: (tensor(6, 10), INDEX), False),
    "normalized": (normalized, lambda: (tensor(2, 4, 8, 8, grad=True), tensor(4, grad=True)), False),
    "views": (
        lambda x: x.view(3, 20).t().reshape(10, 6).contiguous().unfold(0, 3, 2).sum(-1),
        lambda: (tensor(6, 10),),
        False,
    ),
}
QUICK = ("gather", "scatter", "in place")


@cache
def seeds(names: tuple[str, ...] = tuple(PROGRAMS)) -> tuple[Seed, ...]:
    return tuple(seed for name in names for seed in forms(name))


def forms(name: str) -> Iterator[Seed]:
    """A program's graphs in all of their stages, without locations."""
    fn, inputs, dynamic = PROGRAMS[name]
    with TemporaryDirectory() as folder:
        torch._dynamo.reset()
        compiled = torch.compile(
            lambda *x: fn(*x), backend="mlirc", dynamic=dynamic, options={"dump": folder, "fallback": "error"}
        )
        out = compiled(*inputs())
        if isinstance(out, torch.Tensor) and out.requires_grad:
            out.backward()
        torch._dynamo.reset()
        for path in sorted(Path(folder).glob("*.mlir")):
            _, kind, _, stage = path.stem.split("_")
            with context():
                yield Seed(f"{name}, {kind} {stage}", str(ir.Module.parse(path.read_text())))


@cache
def files() -> tuple[Seed, ...]:
    """Inputs of the passes' own tests, for GPUs too: a module of each function."""
    found = []
    for path in sorted(FILECHECK.rglob("*.mlir")):
        with context():
            try:
                module = ir.Module.parse(path.read_text())
            except ir.MLIRError:
                continue
            for op in module.body.operations:
                if op.operation.name == "func.func" and op.regions[0].blocks:
                    name, text = op.name.value, str(op)
                    found.append(Seed(f"{path.stem}, {name} file", text.replace(f"@{name}(", "@graph(")))
    return tuple(found)
