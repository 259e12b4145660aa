"""Tests whether compiled autograd is tracing a backward pass."""

from typing import Any

from mlirc.codegen.abi.reach import reach


def is_on() -> bool:
    """True, too, where that is not known."""
    module = compiled_autograd()
    return True if module is None else bool(module.compiled_autograd_enabled)


@reach("compiled-autograd", instead="each process traces each graph")
def compiled_autograd() -> Any:
    """Dynamo's module with the switch."""
    from torch._dynamo import compiled_autograd

    assert isinstance(compiled_autograd.compiled_autograd_enabled, bool)
    return compiled_autograd
