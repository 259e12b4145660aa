"""Why a graph of Dynamo's is not compiled at all: eager refuses it, or what AOTAutograd makes of it has other values."""

from collections.abc import Callable

from torch.fx import GraphModule

from mlirc.frontend.capture.taken_functions.filled_diagonals import fills_gaps
from mlirc.frontend.fallback.dual_tensors import eager, level_entered
from mlirc.frontend.fallback.read_storages import reads_around
from mlirc.frontend.fallback.refused_updates import refused_update, with_pythons_extremes


def left_to_eager(gm: GraphModule) -> str | None:
    """The reason; None where the graph is compiled."""
    return level_entered() or refused_update(gm) or fills_gaps(gm) or reads_around(gm)


def eager_instead(gm: GraphModule, tell: Callable[[Exception], None]) -> Callable | None:
    """The graph in eager, where it is not compiled. `tell` hears of its first call."""
    why = left_to_eager(gm)
    return None if why is None else eager(with_pythons_extremes(gm), tell, why)
