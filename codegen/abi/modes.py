"""The dispatch modes (fake tensors, functionalization) that are active around a call."""

from collections.abc import Callable
from contextlib import AbstractContextManager

from mlirc.codegen.abi.reach import needed

with needed("dispatch-modes"):
    from torch.utils._python_dispatch import _disable_current_modes, _get_current_dispatch_mode_stack

without_modes: Callable[[], AbstractContextManager] = _disable_current_modes


def modes() -> list[type]:
    """The classes of the active modes, the innermost last."""
    return [type(mode) for mode in _get_current_dispatch_mode_stack()]
