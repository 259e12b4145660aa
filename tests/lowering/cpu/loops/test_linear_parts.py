"""Reads whose maps are linear in parts of an axis: every part is exactly the map, and the loops that are cut there read what eager reads."""

import random

import pytest
import torch
import torch.nn.functional as F

from mlirc.dialects.core import symbols
from mlirc.lowering.kernel.linear_parts import parts
from tests.kernel_runner import NativeKernel, info

D, N = symbols.symbol("d0"), symbols.symbol("s0")
NUMBERS = (0, 1, 2, 3, 7, 20)  # what the size s0 may be


def expression(draw: random.Random, depth: int, symbolic: bool) -> symbols.Int:
    if depth == 0:
        leaves = [D * draw.choice([1, 1, -1, 2, -3, 3]) + draw.randint(-9, 9), draw.randint(-9, 9)]
        return draw.choice([*leaves, leaves[0], *[N + draw.randint(-3, 3)] * symbolic])
    a, b = (expression(draw, depth - 1, symbolic) for _ in range(2))
    divisor = draw.choice([2, 3, 5, 8, 16, 40])
    return draw.choice(
        [
            symbols.maximum(a, b),
            symbols.minimum(a, b),
            symbols.mod(a, divisor),
            symbols.floordiv(a, divisor),
            a + b,
            a - b,
        ]
    )


def value(x: symbols.Int, **known: int) -> int:
    return x if isinstance(x, int) else symbols.evaluate(x, known)


@pytest.mark.parametrize("symbolic", [False, True])
def test_each_part_is_the_map(symbolic):
    draw, split = random.Random(3), 0
    for _ in range(1500):
        maps = [expression(draw, draw.randint(1, 3), symbolic) for _ in range(draw.choice([1, 1, 2]))]
        size = N * draw.choice([1, 2]) + draw.randint(0, 5) if symbolic else draw.randint(1, 60)
        found = parts(maps, "d0", size)
        split += len(found) > 1
        for n in NUMBERS if symbolic and found else [0] * bool(found):
            lo, stop = 0, value(size, s0=n)
            for k, part in enumerate(found):  # as loops run over them: ends in order, and inside of the axis
                hi = stop if k == len(found) - 1 else max(min(value(part.hi, s0=n), stop), lo)
                for d in range(lo, hi):
                    got = [value(x, s0=n, d0=d) for x in part.values]
                    assert got == [value(x, s0=n, d0=d) for x in maps], (maps, size, n, d, part)
                lo = hi
            assert lo == stop
    assert split > 100


MOVES = {
    "reflect": lambda x: F.pad(x, (3, 2, 1, 4), mode="reflect"),
    "replicate": lambda x: F.pad(x, (3, 2, 0, 4), mode="replicate"),
    "replicate less": lambda x: F.pad(x, (-1, 2, 2, -3), mode="replicate"),
    "replicate far": lambda x: F.pad(x, (40, 1, 1, 40), mode="replicate"),
    "roll": lambda x: torch.roll(x, 5, -1),
    "roll two": lambda x: torch.roll(x, (2, -3), (-1, -2)),
    "shifted": lambda x: x + torch.roll(x, 1, -1),
    "two pads": lambda x: F.pad(x, (2, 3, 0, 0), mode="replicate") * F.pad(x, (1, 4, 0, 0), mode="reflect"),
    "beside a comparison": lambda x: torch.where(torch.arange(x.shape[-1]) < 7, x, torch.roll(x, 5, -1)),
    "sum": lambda x: F.pad(x, (3, 2, 1, 4), mode="replicate").double().sum(-1),
    "sum of all": lambda x: torch.roll(x.double(), 3, -1).sum(),
    "running sum": lambda x: torch.roll(x, 3, -1).cumsum(-1),
    "softmax": lambda x: torch.roll(x.float(), 3, -1).softmax(-1),
    "largest": lambda x: F.pad(x, (3, 2, 1, 4), mode="reflect").max(-1),
}
SIZES = ((2, 3, 6, 5), (1, 2, 7, 37), (3, 1, 5, 64), (2, 1, 9, 130))


@pytest.mark.thinned
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", MOVES)
def test_as_in_eager(name, dynamic):
    f = MOVES[name]
    torch._dynamo.reset()
    compiled = torch.compile(f, backend="mlirc", dynamic=dynamic, options={"fallback": "error"})
    torch.manual_seed(0)
    for shape in SIZES:
        if name == "beside a comparison" and shape[-1] < 7:
            continue
        for dtype in (torch.float32, torch.bfloat16, torch.uint8) if not dynamic else (torch.float32,):
            x = (torch.randn(shape) * 3).to(dtype)
            if dtype == torch.uint8 and ("sum" in name or "pad" in name or name.startswith(("reflect", "replicate"))):
                continue  # eager has no such pad of bytes
            for given in (x, x.transpose(-1, -2).contiguous().transpose(-1, -2), x.flip(-1)[..., : x.shape[-1]]):
                want = f(given)
                torch.testing.assert_close(compiled(given), want, rtol=0 if dtype != torch.float32 else 1e-6, atol=1e-5)


def mirrored(d, n):
    d = symbols.maximum(d, d * -1)
    return n - 1 - symbols.maximum(n - 1 - d, d - (n - 1))


PLACES = {
    "reflect": mirrored,
    "replicate": lambda d, n: symbols.minimum(symbols.maximum(d, 0), n - 1),
    "wrap": lambda d, n: symbols.mod(d + n, n),
}


@pytest.mark.parametrize("threads", [[1], [3]])
@pytest.mark.parametrize("rows", [1, 40])
@pytest.mark.parametrize("name", ["reflect", "replicate"])
def test_rows_of_any_length(name, rows, threads):
    """Parts whose ends are sizes, and of which a thread has a part."""

    def build(k, x):
        row, column = k.dims
        return [(k.read(x, (row, PLACES[name](column - 5, N))), k.dims, info(torch.float32, f"{rows}, s0 + 9"))]

    kernel = NativeKernel([info(torch.float32, f"{rows}, s0")], f"{rows}, s0 + 9", "", build)
    assert "masked.gather" not in kernel.mlir or name == "reflect"
    for n in (6, 7, 33, 100, 4000):
        kernel.check(torch.randn(rows, n), s0=n, threads=threads)


@pytest.mark.parametrize("before", [1, 5, 16])
@pytest.mark.parametrize("name", PLACES)
def test_rows_are_read_in_runs(name, before):
    """No element is gathered: a row is loads of neighbouring elements, and a few at its ends."""

    def build(k, x):
        row, column = k.dims
        return [(k.read(x, (row, PLACES[name](column - before, 100))), k.dims, info(torch.float32, "40, 132"))]

    kernel = NativeKernel([info(torch.float32, "40, 100")], "40, 132", "", build)
    assert "masked.gather" not in kernel.mlir and "scatter" not in kernel.mlir
    kernel.check(torch.randn(40, 100))
