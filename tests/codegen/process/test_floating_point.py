"""What is compiled while a thread flushes subnormal numbers, or rounds otherwise, is what is compiled in any other mode."""

import ctypes
import threading
from contextlib import contextmanager

import pytest
import torch

from mlirc.codegen.process import background, floating_point
from tests.forked_programs import python

TINY = 1e-40  # a subnormal number of float32

FOLDED = {
    "mul": lambda x: torch.full_like(x, TINY) * 0.5,
    "div": lambda x: torch.full_like(x, TINY) / 2,
    "made subnormal": lambda x: torch.full_like(x, 1e-30) * 1e-9,
    "made normal": lambda x: torch.full_like(x, TINY) * 1e30,
    "add": lambda x: torch.full_like(x, TINY) + TINY,
    "compare": lambda x: torch.where(torch.full_like(x, TINY) > 0, 2.0, 3.0),
    "bfloat16": lambda x: torch.full_like(x, TINY, dtype=torch.bfloat16).float() * 2,
    "float64": lambda x: torch.full_like(x, 1e-310, dtype=torch.float64) * 1e300,
    "cast": lambda x: torch.full_like(x, TINY, dtype=torch.float64).float() * 1,
    "third": lambda x: torch.full_like(x, 1.0) / 3,
    "sine": lambda x: torch.full_like(x, 2.5).sin(),
}


@contextmanager
def flushing():
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


@contextmanager
def rounding(mode):
    library = ctypes.CDLL(None)
    assert library.fesetround(mode) == 0
    try:
        yield
    finally:
        library.fesetround(0)


MODES = {
    "flush": flushing,
    "down": lambda: rounding(0x400),
    "up": lambda: rounding(0x800),
    "zero": lambda: rounding(0xC00),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", FOLDED)
@pytest.mark.thinned(6)
def test_code_does_not_depend_on_the_mode_it_was_compiled_in(name, mode):
    fn, x = FOLDED[name], torch.zeros(9)
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: fn(x) + x, backend="mlirc", options={"cache": False})
    with MODES[mode]():
        here = floating_point.mode()
        compiled(x)
        assert floating_point.mode() == here  # the user's
    torch.testing.assert_close(compiled(x), fn(x) + x, rtol=1e-6, atol=0)


@pytest.mark.parametrize("mode", MODES)
def test_threads_of_ours_have_the_default_mode(monkeypatch, mode):
    background.wait_for_all()
    for name in ("STARTED", "COMPUTED", "ATTENDED"):
        monkeypatch.setattr(background, name, background.WorkQueue(lambda: 1))
    default = floating_point.mode()
    with MODES[mode]():
        assert floating_point.mode() != default
        found = [
            begin(floating_point.mode).result() for begin in (background.start, background.compute, background.attend)
        ]
        detached = background.detach(floating_point.mode)
        assert detached is not None and [*found, detached.result()] == [default] * 4


def test_the_users_mode_and_flags_are_put_back_after_an_error():
    with flushing():
        here = floating_point.mode()
        with pytest.raises(ZeroDivisionError), floating_point.default_mode():
            assert floating_point.mode() != here
            raise ZeroDivisionError
        assert floating_point.mode() == here


def test_another_thread_keeps_its_mode():
    seen, go, done = [], threading.Event(), threading.Event()

    def watches():
        torch.set_flush_denormal(True)
        seen.append(floating_point.mode())
        go.set()
        done.wait()
        seen.append(floating_point.mode())

    thread = threading.Thread(target=watches)
    thread.start()
    go.wait()
    with floating_point.default_mode():
        done.set()
        thread.join()
    assert seen[0] == seen[1] != floating_point.mode()


PROGRAM = """
import sys, torch
from torch import nn
torch.set_flush_denormal(sys.argv[1] == "flush")
def model(x, w):
    return (torch.full_like(x, 1e-40) * 0.5 + x) * w + torch.tensor(1e-40) * 2, torch.full_like(x, 1e-38) * 1e-2
x, w = torch.zeros(9), torch.ones(9, requires_grad=True)
run = torch.compile(model, backend="mlirc", options={"fallback": "error"})
a, b = run(x, w)
(a.sum() + b.sum()).backward()
if sys.argv[1] != "flush":
    for made, expected in zip((a, b), model(x, w)):
        torch.testing.assert_close(made, expected, rtol=1e-6, atol=0)
    torch.testing.assert_close(w.grad, torch.full((9,), 1e-40) * 0.5, rtol=1e-6, atol=0)
"""


def test_what_is_on_disk_does_not_depend_on_the_mode(tmp_path, monkeypatch):
    monkeypatch.setenv("MLIRC_CACHE_DIR", str(tmp_path))
    for mode in ("flush", "keep"):
        done = python("-c", PROGRAM, mode)
        assert done.returncode == 0, done.stderr[-2000:]
