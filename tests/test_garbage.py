"""The collector that is paused while a graph is compiled (frontend/garbage.py)."""

import gc
import weakref

import torch

from mlirc.frontend.garbage import collector_paused


class Node:
    """With itself in a cycle."""

    def __init__(self):
        self.me = self


def test_what_was_made_is_not_gone_through_when_the_pause_ends():
    gc.collect()
    with collector_paused():
        made = [Node() for _ in range(20_000)]
    more = [[] for _ in range(2000)]  # a pass over the young ones
    young = {id(x) for generation in (0, 1) for x in gc.get_objects(generation=generation)}
    assert not young & set(map(id, made)) and len(more) == 2000 and gc.isenabled()


def test_what_is_garbage_then_is_found():
    with collector_paused():
        node = weakref.ref(Node())
        assert node() is not None
    assert node() is None


def test_a_first_calls_result_is_nobodys_afterwards():
    """Exceptions that Dynamo meets hold the frames of whoever called, and with them what these had at their end."""

    class Settings:
        def __getattribute__(self, name):
            return super().__getattribute__(name)

    class Module(torch.nn.Module):
        settings = Settings()

        def forward(self, x):
            return x + getattr(self.settings, "shift", 1)

    function = torch.compile(Module(), backend="mlirc")
    result = weakref.ref(function(torch.ones(3, requires_grad=True)))
    assert result() is None


def test_what_was_frozen_stays_so():
    gc.freeze()
    try:
        with collector_paused():
            Node()
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


def test_it_is_paused_while_dynamo_traces_too():
    collected = []

    def note(phase: str, info: dict) -> None:
        collected.append(info["generation"])

    def traced(x):
        for _ in range(300):  # Dynamo makes many objects of these
            x = x + 1
        return x

    def nothing(gm, inputs):
        asked.append(gc.isenabled())
        return gm.forward

    asked: list[bool] = []
    for forgets in (False, True):
        torch._dynamo.reset()  # forgets who is told when it compiles
        torch.compile(lambda x: x + 1, backend="mlirc")(torch.ones(2))
        if forgets:
            torch._dynamo.reset()
        gc.callbacks.append(note)
        try:
            torch.compile(traced, backend=nothing)(torch.ones(2))
        finally:
            gc.callbacks.remove(note)
        assert asked.pop() is forgets and gc.isenabled()
        if not forgets:
            assert 2 not in collected
