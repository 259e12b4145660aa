"""Kernels of float64, as Triton's own IR: no number and no step of them is a float32, which Triton's interpreter would not show."""

import math
import re
import struct
from typing import Any

import pytest
import torch
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend

from mlirc.codegen.cuda.triton_worker import load_function
from mlirc.dialects.core.dialect import OPS
from tests.dialects.test_scalar_ops import SCALAR_OPS, arity, dtypes_of, reference
from tests.kernel_runner import info
from tests.triton.runner import TritonKernel, small

f64, f32 = torch.float64, torch.float32
TARGET = GPUTarget("cuda", 90, 32)
ROWS = 5
GROUPS = [SCALAR_OPS[k::ROWS] for k in range(ROWS)]
# each of them a float64, none of them a float32
NUMBERS = (1 / 3, -0.1, 1e-300, 1e300, 2.0**53 + 2, 1 / 6, -0.0, 16777217.0)


def triton_ir(kernel: TritonKernel) -> str:
    """The kernel's TTIR, before any pass."""
    made = kernel.made
    function = load_function(made.source, "kernel_0")
    constants = dict(made.constants)
    signature = dict(zip(function.arg_names, [*made.signature, *("constexpr" for _ in constants)], strict=True))
    backend: Any = make_backend(TARGET)
    options = backend.parse_options({"num_warps": made.num_warps})
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    source = ASTSource(function, signature, constants, {})
    return str(
        source.make_ir(TARGET, options, backend.get_codegen_implementation(options), backend.get_module_map(), context)
    )


def number(text: str) -> float:
    """A constant as MLIR writes it: a decimal number, or its bits."""
    if not text.startswith("0x"):
        return float(text)
    data = bytes.fromhex(text[2:])
    return struct.unpack(">d" if len(data) == 8 else ">f", data)[0]


def is_plain(value: float) -> bool:
    return not math.isfinite(value) or value * 1024 % 1 == 0


def in_float32(text: str) -> list[str]:
    """Steps in float32, and float32 constants of which that is seen. Triton makes one of each number beside an operator, and drops it."""
    lines = [line for line in text.splitlines() if re.search(r"\bf32\b|xf32", line)]
    exact = set()
    for line in lines:
        constant = re.match(r"\s*(%\S+) = arith\.constant (\S+) : f32", line)
        if constant is not None:
            name, written = constant.groups()
            used = len(re.findall(rf"{re.escape(name)}\b", text)) > 1
            if not used or is_plain(number(written)):
                exact.add(name)
    is_fine = lambda line: any(re.search(rf"{re.escape(name)}(?![\w])", line) for name in exact)
    return [line.strip() for line in lines if not (re.search(r"arith\.(constant|extf)", line) and is_fine(line))]


@pytest.mark.parametrize("names", GROUPS, ids=lambda names: names[0])
def test_scalar_ops(names):
    one = info(f64, "64")
    names = [name for name in names if f64 in dtypes_of(OPS[name]) and takes_floats(OPS[name])]
    assert len(names) > 10

    def build(k, *inputs):
        x, y, z = (k.read(i, k.dims) for i in inputs)
        return [(k.cast(k.apply(OPS[name], *operands(k, name, (x, y, z))), f64), k.dims, one) for name in names]

    assert not in_float32(triton_ir(TritonKernel([one] * 3, "64", "", build)))


def takes_floats(cls) -> bool:
    """Whether eager's operator does: bits and shifts take integers alone."""
    return reference(cls, [torch.ones(1, dtype=f64)] * arity(cls)) is not None or "bool" in cls.computes


def operands(k, name, values):
    cls = OPS[name]
    count = arity(cls)
    kinds = cls.computes if isinstance(cls.computes, tuple) else (cls.computes,) * count
    return [k.cast(v, torch.bool) if kind == "bool" else v for kind, v in zip(kinds, values[:count], strict=True)]


@pytest.mark.parametrize("name", ["add", "mul", "div", "maximum", "pow", "atan2", "copysign", "fmod", "lt", "select"])
def test_numbers(name):
    """A number on either side of an operator is its float64."""
    one = info(f64, "64")

    def build(k, x):
        x = k.read(x, k.dims)
        made = []
        for value in NUMBERS:
            c = k.constant(value, f64)
            pairs = (
                [(x, c), (c, x)] if name != "select" else [(k.cast(x, torch.bool), x, c), (k.cast(x, torch.bool), c, x)]
            )
            made += [k.cast(k.apply(OPS[name], *pair), f64) for pair in pairs]
        return [(v, k.dims, one) for v in made]

    text = triton_ir(TritonKernel([one], "64", "", build))
    assert not in_float32(text)
    found = re.findall(r"arith\.constant (?:dense<)?([-\w.+]+)>? : (?:tensor<\S*)?f64", text)
    assert {n for n in NUMBERS if n} <= {number(n) for n in found}


def softmax(k, x):
    x = k.read(x, k.dims)
    e = k.exp(k.sub(x, k.reduce("max", x)))
    return [(k.div(e, k.reduce("sum", e)), k.dims, info(f64, "6, 300"))]


def layer_norm(k, x):
    x = k.read(x, k.dims)
    centred = k.sub(x, k.mul(k.reduce("sum", x), k.constant(1 / 300, f64)))
    variance = k.mul(k.reduce("sum", k.mul(centred, centred)), k.constant(1 / 300, f64))
    scale = k.div(k.constant(1.0, f64), k.sqrt(k.add(variance, k.constant(1e-5, f64))))
    return [(k.mul(centred, scale), k.dims, info(f64, "6, 300"))]


def reductions(k, x):
    value, row = k.read(x, k.dims), k.dims[:1]
    out, whole = info(f64, "6"), info(f64, "6, 300")
    return [
        *((k.reduce(kind, value), row, out) for kind in ("sum", "prod", "max", "min")),
        *((k.scan(kind, value), k.dims, whole) for kind in ("sum", "prod", "max")),
    ]


@pytest.mark.parametrize("shrink", [None, small(64)], ids=["whole", "looped"])
@pytest.mark.parametrize("build", [reductions, softmax, layer_norm], ids=lambda f: f.__name__)
def test_rows(build, shrink):
    text = triton_ir(TritonKernel([info(f64, "6, 300")], "6", "300", build, shrink=shrink))
    assert not in_float32(text)


def test_a_float32_is_found():
    one = info(f64, "64")
    build = lambda k, x: [(k.cast(k.cast(k.read(x, k.dims), f32), f64), k.dims, one)]
    assert in_float32(triton_ir(TritonKernel([one], "64", "", build)))
