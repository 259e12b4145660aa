"""Forward-mode AD: whether a graph is compiled within `torch.autograd.forward_ad.dual_level`, and Dynamo's guard on that.

A dual tensor looks like any other to Dynamo, which guards the level only of functions that enter one themselves.
"""

from collections.abc import Callable

from torch.autograd import forward_ad

from mlirc.codegen.abi.reach import Missing, reach
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.frontend.torch_compat.dynamo.tracing_context import TracingContext


@dataclass(frozen=True)
class DualLevel:
    """Asks and guards whether a call is within `torch.autograd.forward_ad.dual_level`.

    entered   whether this thread is within one
    guard     has Dynamo compile the function that is compiled now anew where that changes
    """

    entered: Callable[[], bool]
    guard: Callable[[], None]


@reach("dual-level", instead="each call looks for tangents at its inputs")
def dual_level() -> DualLevel:
    """Dynamo's guard DUAL_LEVEL."""
    from torch._dynamo.guards import GuardBuilder
    from torch._dynamo.source import GlobalStateSource

    builder = GuardBuilder.DUAL_LEVEL

    def entered() -> bool:
        return forward_ad._current_level >= 0  # pyright: ignore[reportPrivateUsage]

    def guard() -> None:
        tracing = TracingContext.try_get()
        if tracing is not None:
            tracing.guards_context.dynamo_guards.add(GlobalStateSource().make_guard(builder))

    if type(forward_ad._current_level) is not int:  # pyright: ignore[reportPrivateUsage]
        raise Missing("the level is no number")
    return DualLevel(entered, guard)
