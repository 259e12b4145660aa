"""The text of a dozen kernels, as it was read and approved: tests/triton/golden/NAME.py.

GOLDEN=write pytest tests/triton/test_golden.py    writes them anew; read the difference before it is committed
"""

import os
from pathlib import Path

import pytest
import torch

from mlirc.dialects.core.symbols import symbol
from tests.kernel_runner import info
from tests.lowering.cpu.emitter.test_emitter import layer_norm, softmax
from tests.triton.runner import TritonKernel

FOLDER = Path(__file__).parent / "golden"
f32, bf16, i64 = torch.float32, torch.bfloat16, torch.int64


def gelu(k, x, bias):
    a = k.add(k.read(x, k.dims), k.read(bias, k.dims[1:]))
    half = k.mul(a, 0.5)
    return [(k.mul(half, k.add(k.erf(k.mul(a, 0.7071067811865476)), 1.0)), k.dims, info(bf16, "8192, 3072"))]


def embedding(k, table, index):
    row = k.check_index(k.read(index, k.dims[:1]), 50257, False, "index {index} of {size}")
    return [(k.read(table, (symbol("i0"), k.dims[1]), [row]), k.dims, info(f32, "4096, 768"))]


def reduction(kind, out, *shape):
    def build(k, x):
        (p,), (r,) = k.parallel_dims, k.inner_dims
        place = (p, r) if shape[0] == "rows" else (r, p)
        return [(k.reduce(kind, k.read(x, place)), (p,), out)]

    return build


def transposed(k, x):
    a, b, c = k.dims
    return [(k.mul(k.read(x, (a, c, b)), 2.0), k.dims, info(f32, "16, 512, 768"))]


def pad(k, x):
    a, b = k.dims
    inside = k.logical_and(k.ge(k.size(b - 1), 0), k.lt(k.size(b - 1), 1000))
    return [(k.read(x, (a, b - 1), mask=inside), k.dims, info(f32, "64, 1002"))]


def cumsum(k, x):
    return [(k.scan("sum", k.read(x, k.dims)), k.dims, info(f32, "s0, 20000"))]


def cross_entropy(k, x):
    a = k.read(x, k.dims)
    top = k.reduce("max", a)
    total = k.reduce("sum", k.exp(k.sub(a, top)))
    return [(k.add(k.log(total), top), k.parallel_dims, info(f32, "4096"))]


def variance(k, x):
    v, size = k.cast(k.read(x, k.dims), f32), float(k.inner[0])
    rest = k.sub(v, k.reduce("mean", v))
    scale = k.rsqrt(k.div(k.reduce("sum", k.mul(rest, rest)), size))
    return [(k.mul(rest, scale), k.dims, info(f32, f"4096, {k.inner[0]}"))]


KERNELS = {
    "bias_gelu": ([info(bf16, "8192, 3072"), info(bf16, "3072")], "8192, 3072", "", gelu),
    "softmax": ([info(f32, "4096, 512")], "4096", "512", softmax),
    "softmax_symbolic": ([info(f32, "s0, s1")], "s0", "s1", softmax),
    "layer_norm": ([info(f32, "8192, 768"), *[info(f32, "768")] * 2], "8192", "768", layer_norm),
    "short_rows": ([info(f32, "65536, 60")], "65536", "60", reduction("sum", info(f32, "65536"), "rows")),
    "column_sum": ([info(f32, "512, 4096")], "4096", "512", reduction("sum", info(f32, "4096"), "columns")),
    "argmax": ([info(f32, "4096, 1000")], "4096", "1000", reduction("argmax", info(i64, "4096"), "rows")),
    "argmax_long": ([info(bf16, "512, 50257")], "512", "50257", reduction("argmax", info(i64, "512"), "rows")),
    "cross_entropy": ([info(bf16, "4096, 50257")], "4096", "50257", cross_entropy),
    "transposed": ([info(f32, "16, 768, 512")], "16, 512, 768", "", transposed),
    "embedding": ([info(f32, "50257, 768"), info(i64, "4096")], "4096, 768", "", embedding),
    "variance": ([info(bf16, "4096, 768")], "4096", "768", variance),
    "variance_long": ([info(bf16, "4096, 32768")], "4096", "32768", variance),
    "pad": ([info(f32, "64, 1000")], "64, 1002", "", pad),
    "cumsum": ([info(f32, "s0, 20000")], "s0", "20000", cumsum),
}


@pytest.mark.parametrize("name", KERNELS)
def test_golden(name):
    made = TritonKernel(*KERNELS[name]).made
    grid = ", ".join(map(str, made.grid))
    quiet = "# ruff: noqa: SIM102\n# fmt: off\n" if "failure" in made.source else ""
    quiet += "# ruff: noqa: F841\n" if name == "variance" else ""  # the pair computes anew what lies between
    text = f"{quiet}# grid {grid}; {made.constants}; {made.num_warps} warps\n{made.source}"
    path = FOLDER / f"{name}.py"
    if os.environ.get("GOLDEN") == "write":
        path.write_text(text)
    assert text == path.read_text()
