"""The dispatch modes (fake tensors, functionalization) that are active around a call."""

from collections.abc import Callable
from contextlib import AbstractContextManager

from mlirc.codegen.abi.reach import needed

with needed("dispatch-modes"):
    from torch._C import _len_torch_dispatch_stack
    from torch.utils._python_dispatch import _disable_current_modes, _get_current_dispatch_mode_stack

without_modes: Callable[[], AbstractContextManager] = _disable_current_modes
depth: Callable[[], int] = _len_torch_dispatch_stack
"""How many modes are active."""

AOT_AUTOGRAD = "torch._functorch."


def modes() -> list[type]:
    """The classes of the active modes, the innermost last."""
    return [type(mode) for mode in _get_current_dispatch_mode_stack()]


def hears_operators() -> bool:
    """Whether a mode is active that is to see each operator, and may change it: not those of AOTAutograd's own, around compiled code."""
    return any(
        not (type(mode).__module__.startswith(AOT_AUTOGRAD) or getattr(mode, "ignore_compile_internals", bool)())
        for mode in _get_current_dispatch_mode_stack()
    )
