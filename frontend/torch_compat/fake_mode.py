"""Whether this thread is within a `FakeTensorMode`, which makes tensors without memory of all that operators compute."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from mlirc.codegen.abi.reach import Missing, reach
from mlirc.frontend.torch_compat.fake_tensors import FakeTensorMode


@reach("fake-mode", instead="a compiled graph without fake inputs gives real results within a FakeTensorMode")
def fake_mode_question() -> Callable[[], Any]:
    """Gives the mode, or None."""
    ask = partial(torch._C._get_dispatch_mode, torch._C._TorchDispatchModeKey.FAKE)  # pyright: ignore[reportAttributeAccessIssue]
    with FakeTensorMode() as mode:
        if ask() is not mode:
            raise Missing("it does not give the mode")
    return ask
