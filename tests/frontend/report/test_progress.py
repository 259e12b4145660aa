"""The line on a terminal while a compilation takes long, and nothing anywhere else."""

import io
import os
import pty
import time
from types import SimpleNamespace

import pytest
import torch

from mlirc.frontend.options import Options
from mlirc.frontend.report import progress


@pytest.fixture
def screen(monkeypatch):
    """Standard error as a terminal; what was written to it so far."""
    leader, follower = pty.openpty()
    os.set_blocking(leader, False)
    with os.fdopen(follower, "w") as terminal:
        monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=terminal))  # pytest has the other one
        monkeypatch.setattr(progress, "AFTER", 0.02)
        monkeypatch.setattr(progress, "BETWEEN", 0.01)

        def read() -> str:
            try:
                return os.read(leader, 100_000).decode()
            except BlockingIOError:
                return ""

        yield read
    os.close(leader)


def waited(read, words: str) -> str:
    """What was written until these words came."""
    text, end = "", time.monotonic() + 10
    while words not in text and time.monotonic() < end:
        time.sleep(0.005)
        text += read()
    return text


def test_a_long_compilation_is_told_and_wiped_away(screen):
    with progress.compiling("forward: lower", Options()):
        assert "mlirc: compiling, 0 s (forward: lower)" in waited(screen, "lower)")
    assert screen().endswith(progress.WIPE)
    assert not progress._spans and not progress._written


def test_ctrl_c_wipes_it_away(screen):
    with pytest.raises(KeyboardInterrupt), progress.compiling("tracing", Options()):
        waited(screen, "tracing")
        raise KeyboardInterrupt
    assert screen().endswith(progress.WIPE)


def test_a_short_one_is_not(screen, monkeypatch):
    monkeypatch.setattr(progress, "AFTER", 3.0)
    with progress.compiling("import", Options()):
        pass
    assert screen() == ""


@pytest.mark.parametrize("how", ["option", "environment", "file", "closed"])
def test_nobody_is_told(how, screen, monkeypatch):
    if how == "environment":
        monkeypatch.setenv("MLIRC_PROGRESS", "off")
    elif how == "file":
        monkeypatch.setattr(progress.sys, "stderr", io.StringIO())
    elif how == "closed":
        monkeypatch.setattr(progress.sys, "stderr", None)
    assert progress.terminal(Options(progress=how != "option")) is None
    threads = list(progress._writer)
    with progress.compiling("import", Options(progress=how != "option")):
        assert not progress._spans and progress._writer == threads
    assert screen() == ""


def test_each_step_of_a_graph_is_told(screen, monkeypatch):
    told, shown = [], progress._shown
    monkeypatch.setattr(progress, "_shown", lambda what, to: told.append(what) or shown(what, to))
    x = torch.randn(4, requires_grad=True)
    torch.compile(lambda x: (x.sin() * 2).sum(), backend="mlirc")(x).backward()
    stages = ("import", "simplify", "fuse", "plan", "lower", "emit", "link", "machine code")
    assert set(told) == {"tracing", *(f"{kind}: {stage}" for kind in ("forward", "backward") for stage in stages)}
    assert not progress._spans
