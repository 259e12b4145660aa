"""Products by cuBLASLt from host programs, against float64: dtypes, layouts, alignments, sizes that change, addends, threads."""

import threading

import pytest
import torch

import mlirc
from mlirc.codegen.host.program import Program
from mlirc.codegen.libraries import cublas, cublas_choice, cublas_plans

OPTIONS = {"fallback": "error"}
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def random(*shape, dtype):
    return torch.randn(shape, device="cuda").to(dtype)


def check(fn, *inputs, call=None):
    given = (call or torch.compile(fn, backend="mlirc", options=OPTIONS))(*inputs)
    expected, exact = fn(*inputs), fn(*(x.double() for x in inputs))
    assert (given.dtype, given.shape, given.stride()) == (expected.dtype, expected.shape, expected.stride())
    error, own = (((x.double() - exact).norm() / exact.norm().clamp(min=1e-30)).item() for x in (given, expected))
    assert error <= 2 * own + 1e-7, f"{error} where eager has {own}"


@pytest.fixture
def plans(monkeypatch):
    """The Plans of the programs that the test makes."""
    made, init = [], Program.__init__

    def noted(self, *args, **kwargs):
        init(self, *args, **kwargs)
        if self.plans:
            made.append(self.plans)

    monkeypatch.setattr(Program, "__init__", noted)
    torch._dynamo.reset()
    return made


def forms(dtype):
    x, w, b = random(40, 64, dtype=dtype), random(64, 72, dtype=dtype), random(72, dtype=dtype)
    y, z = random(3, 40, 64, dtype=dtype), random(3, 64, 72, dtype=dtype)
    wide = random(40, 200, dtype=dtype)
    yield "mm", torch.mm, (x, w)
    yield "weight as linear has it", lambda x, w: torch.mm(x, w.t()), (x, w.t().contiguous())
    yield "both transposed", lambda x, w: torch.mm(x.t(), w.t()), (x.t().contiguous(), w.t().contiguous())
    yield "columns of a wider one", lambda x, w: torch.mm(x[:, 8:72], w), (wide, w)
    yield "misaligned columns", lambda x, w: torch.mm(x[:, 7:71], w), (wide, w)
    yield "bias", torch.addmm, (b, x, w)
    yield "misaligned bias", lambda b, x, w: torch.addmm(b[1:], x, w), (random(73, dtype=dtype), x, w)
    yield "addend", torch.addmm, (random(40, 72, dtype=dtype), x, w)
    yield "addend that lies otherwise", torch.addmm, (random(72, 40, dtype=dtype).t(), x, w)
    yield "bmm", torch.bmm, (y, z)
    yield "bmm of views", lambda y, z: torch.bmm(y.mT, z.mT), (y.mT.contiguous(), z.mT.contiguous())
    yield "baddbmm", torch.baddbmm, (random(3, 40, 72, dtype=dtype), y, z)
    yield "one row", torch.mm, (x[:1], w)
    yield "one column", torch.mm, (x, w[:, :1])
    yield "odd sizes", torch.mm, (random(13, 7, dtype=dtype), random(7, 5, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_form(dtype, plans):
    for name, fn, inputs in forms(dtype):
        torch._dynamo.reset()
        before = len(plans)
        check(fn, *inputs)
        assert len(plans) == before + 1 and any(plans[-1].slots), name
        assert not plans[-1].refused or name == "addend that lies otherwise", (name, plans[-1].refused)


def test_a_compiled_graph_meets_other_sizes_and_alignments(plans):
    def fn(x, w, b):
        return torch.addmm(b, torch.mm(x, w), w.t())

    call = torch.compile(fn, backend="mlirc", options=OPTIONS, dynamic=True)
    w, b = random(64, 96, dtype=torch.bfloat16), random(64, dtype=torch.bfloat16)
    memory = random(5000, 1, dtype=torch.bfloat16).flatten()
    for rows in (3, 17, 64, 3, 17):
        for offset in (0, 1, 8):
            x = memory[offset : offset + rows * 64].view(rows, 64)
            check(fn, x, w, b, call=call)
    (found,) = plans
    assert len(found._memory) >= 9 and not found.refused  # plans are kept: one for each size and alignment
    made = len(found._memory)
    check(fn, memory[: 17 * 64].view(17, 64), w, b, call=call)
    assert len(found._memory) == made


def test_a_product_that_cublaslt_refuses_is_atens(plans, monkeypatch):
    def refuse(*_):
        raise cublas.NoPlan("not today")

    monkeypatch.setattr(cublas_plans, "fill", refuse)
    inputs = random(8, 16, dtype=torch.float32), random(16, 8, dtype=torch.float32)
    check(lambda x, w: torch.mm(x, w) + 1, *inputs)
    assert plans[0].refused == ["not today"]
    assert "1 left to ATen   not today" in str(mlirc.explain(lambda x, w: torch.mm(x, w) + 2)(*inputs))


def test_threads_share_a_program(plans):
    call = torch.compile(torch.addmm, backend="mlirc", options=OPTIONS, dynamic=True)
    w = random(256, 256, dtype=torch.bfloat16)
    call(random(256, dtype=torch.bfloat16), random(10, 256, dtype=torch.bfloat16), w)
    failures = []

    def work(number):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for rows in range(10 + number, 60, 7):
                bias, x = (
                    torch.full((256,), float(number), device="cuda").bfloat16(),
                    random(rows, 256, dtype=torch.bfloat16),
                )
                have, want = call(bias, x, w), torch.addmm(bias, x, w)
                stream.synchronize()
                if not torch.allclose(have, want, atol=0.5, rtol=2e-2):
                    failures.append((number, rows))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_cuda_graph_of_products():
    def fn(b, x, w):
        return torch.addmm(b, torch.addmm(b, x, w), w).relu()

    call = torch.compile(fn, backend="mlirc", mode="reduce-overhead", options=None)
    for _ in range(4):
        check(fn, random(256, dtype=torch.bfloat16), random(32, 256, dtype=torch.bfloat16),
              random(256, 256, dtype=torch.bfloat16), call=call)  # fmt: skip


@pytest.mark.parametrize("sizes", [(40, 64, 72), (8192, 768, 3072)])
def test_gelu_by_tanh_is_part_of_a_product(plans, sizes):
    m, k, n = sizes
    inputs = random(n, dtype=torch.bfloat16), random(m, k, dtype=torch.bfloat16), random(k, n, dtype=torch.bfloat16) / 8
    check(lambda b, x, w: torch.nn.functional.gelu(torch.addmm(b, x, w), approximate="tanh"), *inputs)
    assert plans[-1].matmuls[0].gelu and not plans[-1].refused


def test_a_short_inner_size_takes_an_algorithm_in_turns(plans):
    x, w, b = (random(*shape, dtype=torch.bfloat16) for shape in ((8192, 768), (768, 2304), (2304,)))
    check(torch.addmm, b, x, w)
    plan = cublas.CublasPlan.from_address(plans[-1].slots[0])
    taken = cublas.Algorithm(plan.algorithm)
    assert torch.cuda.get_device_capability()[0] != 9 or cublas_choice.is_ping_pong(taken)
