"""Which operators a module from a file may call."""

import pytest
import torch

from mlirc.lowering.files import aten_calls


@pytest.fixture(autouse=True)
def forget():
    aten_calls.refusal.cache_clear()
    yield
    aten_calls.refusal.cache_clear()


def test_what_autograd_takes_apart_is_refused():
    assert not aten_calls.refusal("aten.sort.default")
    assert "taken apart" in aten_calls.refusal("aten.reshape.default")


@pytest.mark.parametrize("error", [AttributeError, TypeError, RuntimeError])
def test_where_the_dispatcher_does_not_tell_all_are_refused(error, monkeypatch):
    def ask(self, key):
        raise error("not as it was")

    monkeypatch.setattr(torch._ops.OpOverload, "has_kernel_for_dispatch_key", ask)
    assert "does not tell" in aten_calls.refusal("aten.sort.default")
