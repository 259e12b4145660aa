"""Objects that Inductor stashes for threads of autograd have a reference for that, which torch 2.11 drops when their thread ends."""

import ctypes
import sys
import threading
from types import ModuleType

import pytest

from mlirc.frontend.torch_compat.dynamo import stashed_objects
from mlirc.frontend.torch_compat.dynamo.stashed_objects import STASHED, TREES, keep_stashed_objects, references
from tests.forked_programs import python

drop_reference = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_DecRef", ctypes.pythonapi))


@pytest.fixture
def trees(monkeypatch):
    """A module like Inductor's, which this thread has loaded, and whose stash has no references."""
    made = ModuleType(TREES)
    made.local = threading.local()  # type: ignore[attr-defined]
    for name in STASHED:
        setattr(made.local, name, {})
    monkeypatch.setitem(sys.modules, TREES, made)
    stashed_objects.thread_local_objects.forget()
    yield made
    stashed_objects.thread_local_objects.forget()


def counts(trees: ModuleType) -> list[int]:
    return [references(trees.local, name) for name in STASHED]


def test_a_stash_without_references_gets_one_for_each_object(trees):
    before = counts(trees)
    for _ in range(3):  # of many graphs
        keep_stashed_objects()
        assert counts(trees) == [n + 1 for n in before]
    for name in STASHED:  # the thread has ended
        drop_reference(getattr(trees.local, name))
    assert counts(trees) == before


def test_a_stash_with_references_gets_none(trees):
    stash = [getattr(trees.local, name) for name in STASHED]
    before = counts(trees)
    keep_stashed_objects()
    assert counts(trees) == before and stash == [{}, {}]


def test_another_thread_has_nothing_stashed(trees):
    before, raised = counts(trees), []

    def run() -> None:
        try:
            keep_stashed_objects()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert counts(trees) == before and not raised


def test_a_module_of_another_kind_is_left_alone(trees):
    trees.local = object()
    keep_stashed_objects()
    assert "no thread's own" in stashed_objects.thread_local_objects.why


OPTIMIZER_IN_A_THREAD = """
import sys, threading, torch
from mlirc.frontend.torch_compat.dynamo.stashed_objects import STASHED, TREES, references

torch._C._stash_obj_in_tls = lambda key, x: None  # as in 2.11, where the stash has no reference
p = torch.nn.Parameter(torch.ones(3))
p.grad = torch.ones(3)
optimizer = torch.optim.SGD([p], lr=0.1)
step = torch.compile(optimizer.step, backend="mlirc", options={"fallback": "error"})
found, alone = [], threading.local()
alone.x = {}

def run():
    step()
    found.extend(references(sys.modules[TREES].local, name) - references(alone, "x") for name in STASHED)

assert TREES not in sys.modules
alone_in_thread = threading.Thread(target=lambda: (setattr(alone, "x", {}), run()))
alone_in_thread.start()
alone_in_thread.join()
print(found)
"""


@pytest.mark.full
def test_an_optimizer_that_is_compiled_first_in_a_thread():
    """Dynamo loads Inductor's module while it traces the optimizer; mlirc is called after that, in the same thread."""
    done = python("-c", OPTIMIZER_IN_A_THREAD)
    assert done.stdout.split("\n")[-2] == "[1, 1]", done.stdout + done.stderr[-3000:]
