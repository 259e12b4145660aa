"""How a graph's kernels become machine code: in parts, outside AOTAutograd's modes, from copies of their functions."""

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor

from mlirc.codegen.emit import emit
from mlirc.codegen.host import host_program as host_program_module
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.frontend.driver import driver
from mlirc.lowering.module.errors import EmitError
from mlirc.lowering.pipeline.pass_manager import run_pipeline
from mlirc.lowering.pipeline.pipelines import pipeline
from tests.compare_stages import prepare


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def test_kernels_are_split_evenly_over_the_threads(threads):
    sizes = {f"key{k}": size for k, size in enumerate([50_000, 1_000, 20_000, 30_000, 5_000])}
    names = {key: f"kernel_{k}" for k, key in enumerate(sizes)}
    for count in (1, 2, 3, 64):
        threads(count)
        parts = emit.split(names, sizes.__getitem__)
        assert len(parts) == min(count, 5) and all(parts)
        assert {key: name for part in parts for key, name in part.items()} == names
        if count == 2:
            assert [sum(map(sizes.__getitem__, part)) for part in parts] == [55_000, 51_000]
    assert len(emit.split({"small": "kernel_0"}, lambda key: 1)) == 1, "no thread for what takes no time"


def program_of(fn, *inputs):
    with context():
        _, imported = prepare(fn, *inputs)
        run_pipeline(imported.module, pipeline("cpu"))
        text = str(imported.module)
        program = emit.compile_module(imported.module)
        assert str(imported.module) == text, "the module stays as it was"
    return program


def test_a_kernel_without_its_name():
    text = "func.func @kernel_1() { llvm.call @kernel_1_body() llvm.call @kernel_10() llvm.call @kernel_1() }"
    assert emit.nameless(text, "kernel_1") == text.replace("@kernel_1_", "@KERNEL_").replace("@kernel_1(", "@KERNEL(")
    assert emit.nameless(text, "kernel_2") == text


def test_kernels_of_several_parts_run(threads, monkeypatch):
    monkeypatch.setattr(emit, "WORTH_A_THREAD", 1)
    threads(3)

    def fn(x):
        return [x.softmax(-1), (x.t() @ x).tanh(), x.cumsum(0), (x * 3.25).sum(0)]

    x = torch.randn(37, 41)
    program = program_of(fn, x)
    assert len({id(kernel.loaded) for kernel in program.kernels.values()}) == 3
    for got, want in zip(program([x]), fn(x), strict=True):
        torch.testing.assert_close(got, want)


def test_what_llvm_refuses_is_raised_from_its_thread(monkeypatch):
    def refuse(text, level):
        raise ValueError("LLVM does not accept this IR")

    monkeypatch.setattr(emit, "compile_ir", refuse)
    with pytest.raises(ValueError, match="does not accept"):
        program_of(lambda x: x.exp() * 7.125, torch.randn(3))


def test_graphs_are_compiled_with_real_tensors(monkeypatch):
    seen = []
    compile_aten = driver.compile_aten
    monkeypatch.setattr(driver, "compile_aten", lambda *a: (seen.append(torch.zeros(1)), compile_aten(*a))[1])
    x = torch.randn(4, requires_grad=True)
    torch.compile(lambda x: x.exp().sum(), backend="mlirc", options={"fallback": "error"})(x).backward()
    assert len(seen) == 2 and not any(isinstance(made, FakeTensor) for made in seen)


def test_what_cannot_be_emitted_is_an_error_of_one_line(monkeypatch):
    """Whatever is raised where code is made, it says which op it was, and where that came from."""
    for error in (KeyError("x"), IndexError(), AssertionError("a\nb"), ZeroDivisionError("by zero"), ValueError("v")):

        def broken(frame: Any, op: Any, error: Exception = error):
            raise error

        monkeypatch.setitem(host_program_module.WRITERS, "assign", broken)
        with context(), pytest.raises(EmitError) as raised:
            text = """func.func @graph(%x: tensor<4xf32>) attributes {mlirc.arena = "0"} {
              "mlirc.assign"(%x, %x) : (tensor<4xf32>, tensor<4xf32>) -> () loc("model.py":12:1)
              return }"""
            emit.compile_module(ir.Module.parse(text))
        message = str(raised.value)
        assert "\n" not in message and message.startswith("mlirc.assign (model.py:12:1): ")
        assert type(error).__name__ in message or str(error) in message
