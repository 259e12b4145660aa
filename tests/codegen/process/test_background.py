"""Code is made by threads while Python goes on: what a fork, the GIL and a failure in such a thread do."""

import os
import re
import time
from dataclasses import replace

import pytest
import torch
from click.testing import CliRunner

from mlirc.cli import opt
from mlirc.codegen.process import background
from mlirc.codegen.runtime import shared_kernels
from mlirc.frontend import statistics
from mlirc.lowering.cpu.loops import function


def test_a_fork_waits_for_what_is_being_made():
    made = [background.start(time.sleep, 0.2), background.compute(time.sleep, 0.2)]
    child = os.fork()
    if child == 0:  # has no threads but this one: what is unfinished here would never be done, and old workers neither
        ok = all(future.done() for future in made) and background.compute(sum, [2, 3]).result(timeout=20) == 5
        os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_work_that_fails_is_over():
    with pytest.raises(ZeroDivisionError):
        background.start(divmod, 1, 0).result()
    background.wait_for_all()


@pytest.fixture(autouse=True)
def no_fallbacks_yet():
    statistics.reset()


def broken(*args, **options):
    raise ValueError("LLVM does not accept this")


def test_what_llvm_refuses_runs_in_eager_from_the_first_call(monkeypatch):
    monkeypatch.setattr(shared_kernels, "compile_to_object", broken)
    fn, x = lambda x: x.exp() * 41.5, torch.randn(5)  # no other test has this kernel
    call = torch.compile(fn, backend="mlirc", options={"cache": False})
    with pytest.warns(UserWarning, match="runs in eager.*emit failed.*does not accept") as caught, torch.no_grad():
        torch.testing.assert_close([call(x), call(x)], [fn(x), fn(x)])
    assert len(caught) == 1 and sum(statistics.fallbacks.values()) == 1
    assert "does not accept" in statistics.graphs[-1].fallback


def test_what_llvm_refuses_is_an_error_where_nothing_may_run_in_eager(monkeypatch):
    """Its file has the kernels in it, of which the module that was compiled had declarations alone."""
    monkeypatch.setattr(shared_kernels, "compile_to_object", broken)
    fn = lambda x, y: (x.exp() * 42.5).sum(0) + (y.exp() * 42.5).sum(1).max()
    call = torch.compile(fn, backend="mlirc", options={"cache": False, "fallback": "error"})
    for _ in range(2):
        with (
            pytest.raises(Exception, match=r"emit failed.*to reproduce: mlirc opt \S+ --emit asm") as raised,
            torch.no_grad(),
        ):
            call(torch.randn(300, 500), torch.randn(200, 900))
    assert not statistics.fallbacks
    path = re.search(r"mlirc opt (\S+) --emit asm", str(raised.value))[1]
    again = CliRunner().invoke(opt, [path, "--emit", "asm"])
    assert again.exit_code == 1 and "does not accept" in again.stderr
    monkeypatch.undo()
    assert CliRunner().invoke(opt, [path, "--emit", "asm"]).exit_code == 0


def test_a_kernel_that_mlir_refuses_leaves_a_file(monkeypatch):
    right = function.kernel_text

    def wrong(*args):
        made = right(*args)
        return replace(made, functions=made.functions.replace("return", "no_such.return"))

    monkeypatch.setattr(function, "kernel_text", wrong)
    call = torch.compile(lambda x: x.exp() * 43.5, backend="mlirc", options={"cache": False, "fallback": "error"})
    with (
        pytest.raises(Exception, match=r"emit failed.*no_such.*to reproduce: mlirc opt \S+ --emit asm") as raised,
        torch.no_grad(),
    ):
        call(torch.randn(5))
    path = re.search(r"mlirc opt (\S+) --emit asm", str(raised.value))[1]
    assert "no_such.return" in CliRunner().invoke(opt, [path, "--emit", "asm"]).stderr
