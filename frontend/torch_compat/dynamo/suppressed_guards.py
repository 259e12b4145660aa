"""A thread whose guards an interrupt has switched off: PyTorch notes no guard there any more, and a graph would be used for inputs it is not for.

Each fake tensor that comes out of PyTorch's cache switches guards off and on again for the thread, which nobody undoes where Ctrl-C falls between.
"""

from typing import Any

from mlirc.codegen.abi.reach import Missing, reach
from mlirc.frontend.torch_compat.dynamo.restart import TensorifyScalarRestartAnalysis

SWITCH = "suppress_guards"


@reach(
    "guard-switch",
    instead="after Ctrl-C in PyTorch's own work a thread may compile graphs that lack guards, as with every backend",
)
def guard_switch() -> Any:
    """What holds the thread's switch, `suppress_guards`."""
    from torch.fx.experimental import symbolic_shapes

    held = symbolic_shapes.TLS
    before = getattr(held, SWITCH, False)
    with symbolic_shapes.ShapeEnv().suppress_guards():
        if getattr(held, SWITCH, False) is not True:
            raise Missing("it does not say that guards are off")
    if getattr(held, SWITCH, None) is not before:
        raise Missing("it is not put back")
    return held


def trace_again_with_guards() -> None:
    """Where guards are off while Dynamo calls a backend, switches them on, and has Dynamo trace the function again."""
    held = guard_switch()
    if held is not None and getattr(held, SWITCH, False):
        setattr(held, SWITCH, False)
        raise TensorifyScalarRestartAnalysis
