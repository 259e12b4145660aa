"""Triton kernels of the user: interpreted on a CPU, and compiled for a GPU up to the host program."""

import warnings
from typing import Any

import llvmlite.binding as llvm
import pytest
import torch
import triton
import triton.language as tl
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.library import triton_op, wrap_triton
from triton.backends.compiler import GPUTarget

from mlirc.codegen.cuda.user_kernels import NotCompiled, Symbol, compile_kernel
from mlirc.codegen.host.host_program import host_program
from mlirc.dialects.core.context import context
from mlirc.dialects.interpreter.triton_kernels import code_text, known, name_of
from mlirc.frontend.importer.importer import import_graph
from mlirc.lowering.module.target_attribute import set_target
from mlirc.lowering.pipeline import pipelines
from mlirc.lowering.pipeline.pass_manager import run_pipeline
from mlirc.lowering.target import parse_target

warnings.filterwarnings("ignore")
STEP = tl.constexpr(3)


class Driver:
    """What PyTorch asks to find out what a kernel writes."""

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)


@pytest.fixture(autouse=True)
def gpu(monkeypatch):
    monkeypatch.setattr(type(triton.runtime.driver), "active", Driver())


@triton.jit
def plus(a, b):
    return a + b


@triton.jit
def add_kernel(x, y, o, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(o + at, plus(tl.load(x + at, mask=inside), tl.load(y + at, mask=inside)), mask=inside)


@triton.jit
def scale_kernel(x, n, by, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) * by + STEP, mask=at < n)


tuned_kernel = triton.autotune([triton.Config({"BLOCK": 64}, num_warps=2)], key=["n"])(add_kernel)
twice_tuned_kernel = triton.autotune([triton.Config({"BLOCK": n}) for n in (64, 128)], key=["n"])(add_kernel)


def grid(n):
    return lambda meta: (triton.cdiv(n, meta["BLOCK"]),)


def plain_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    wrap_triton(add_kernel)[grid(x.numel())](x, y, out, x.numel(), BLOCK=32)
    return out


add = triton_op("mlirc_test::add", plain_add, mutates_args={})
add.register_autograd(lambda ctx, g: (g * 1, g * 1))


@triton_op("mlirc_test::scale_", mutates_args={"x"})
def scale_(x: torch.Tensor, by: float) -> None:
    wrap_triton(scale_kernel)[grid(x.numel())](x, x.numel(), by, BLOCK=64)


def tuned(x, y, kernel: Any = tuned_kernel):
    out = torch.empty_like(x)
    wrap_triton(kernel)[grid(x.numel())](x, y, out, x.numel())
    return out


def twice_tuned(x, y):
    return tuned(x, y, twice_tuned_kernel)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_kernel_is_interpreted_on_a_cpu(dynamic):
    def fn(x, y):
        return add(x.sin(), y) * add(y, y)

    compiled = torch.compile(fn, backend="mlirc", fullgraph=True, dynamic=dynamic, options={"fallback": "error"})
    for n in (100, 70) if dynamic else (100,):
        x, y = torch.randn(n, requires_grad=True), torch.randn(n)
        out = compiled(x, y)
        torch.testing.assert_close(out, (x.sin() + y) * (y + y))
        out.sum().backward()
        torch.testing.assert_close(x.grad, x.cos() * 2 * y)


def test_a_kernel_that_writes_to_its_argument():
    def fn(x):
        y = x.clone()
        scale_(x, 2.5)
        return y + x

    x = torch.randn(100)
    before = x.clone()
    out = torch.compile(fn, backend="mlirc", fullgraph=True, options={"fallback": "error"})(x)
    torch.testing.assert_close(x, before * 2.5 + 3)
    torch.testing.assert_close(out, x + before)


def lowered(fn, *shapes, dynamic=False):
    """The host program of a graph on a GPU."""
    with FakeTensorMode(shape_env=ShapeEnv()):
        inputs = [torch.empty(shape, device="cuda") for shape in shapes]
        mode = "symbolic" if dynamic else "real"
        gm = make_fx(torch.func.functionalize(fn), tracing_mode=mode)(*inputs)
    with context():
        found = import_graph(gm, [])
        set_target(found.module, parse_target("cpu-avx512,gpu-h100"))
        run_pipeline(found.module, pipelines.pipeline("gpu"))
        return host_program(found.module.body.operations[0], found.objects)


@pytest.mark.parametrize(
    ("op", "shape", "dynamic"),
    [(plain_add, (1024,), False), (plain_add, (7, 9), False), (tuned, (1024,), False), (plain_add, (100,), True)],
)
def test_the_host_program_launches_it(op, shape, dynamic):
    host = lowered(lambda x, y: (op(x.sin(), y) * 2,), shape, shape, dynamic=dynamic)
    assert [call.why for call in host.calls if "triton" in call.op] == [""]
    ((compiled, device),) = host.ready.values()
    assert device == 0 and compiled.cubin[:4] == b"\x7fELF"
    llvm.parse_assembly(host.text).verify()


def test_what_is_called_from_python():
    host = lowered(lambda x, y: (twice_tuned(x, y),), (64,), (64,))
    assert [call.why for call in host.calls if "triton" in call.op] == [
        "Triton's autotuner chooses among 2 configurations"
    ]


def test_a_number_that_may_change_is_no_part_of_the_code():
    pointers = dict.fromkeys(("x", "y", "o"), torch.float32)
    fixed = compile_kernel(add_kernel, {**pointers, "n": 64, "BLOCK": 32}, 90)
    free = compile_kernel(add_kernel, {**pointers, "n": Symbol(int), "BLOCK": 32}, 90)
    assert [x[:2] for x in fixed.parameters][-1] == ("n", "i32")
    assert [x[:2] for x in free.parameters][-1] == ("n", "i64")
    with pytest.raises(NotCompiled, match="BLOCK"):
        compile_kernel(add_kernel, {**pointers, "n": 64}, 90)


def test_the_name_says_what_the_code_depends_on():
    assert name_of(add_kernel) != name_of(scale_kernel) and name_of(add_kernel) == name_of(add_kernel)
    assert name_of(tuned_kernel) != name_of(twice_tuned_kernel) and known[name_of(tuned_kernel)] is tuned_kernel
    hooked = triton.autotune([triton.Config({"BLOCK": 64}, pre_hook=lambda given: None)], key=["n"])(add_kernel)
    assert code_text(add_kernel) and not code_text(hooked)
