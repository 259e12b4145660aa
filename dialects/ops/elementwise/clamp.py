"""clamp in its forms. NaN in the value or in a limit gives NaN. If the lower limit is above the upper one, the upper one is the result."""

import torch

from mlirc.dialects.core.dialect import Ternary, imports
from mlirc.dialects.core.graph_builder import NotOurs
from mlirc.dialects.ops.elementwise.comparison import Maximum, Minimum

aten = torch.ops.aten


class Clamp(Ternary, name="clamp"):
    """x, but at least y and at most z."""

    rounds_numbers = True
    reference = staticmethod(lambda x, y, z: torch.minimum(torch.maximum(x, y), z))
    scalar = staticmethod(lambda b, x, y, z: Minimum.scalar(b, Maximum.scalar(b, x, y), z))


@imports(aten.clamp.default, aten.clamp_min.default)
def clamp_by_numbers(g, x, min=None, max=None):
    """Clamps by numbers. A limit equal to x gives x, so that x keeps the sign of its zero."""
    if all(limit is None or isinstance(limit, int | float) for limit in (min, max)):
        return clamp(g, x, min, max)
    raised = x if min is None else g.elementwise(Maximum, min, x)
    return raised if max is None else g.elementwise(Minimum, max, raised)


@imports(aten.hardtanh.default)
def hardtanh(g, x, min_val=-1, max_val=1):
    return clamp_by_numbers(g, x, min_val, max_val)


@imports(aten.clamp.Tensor)
def clamp(g, x, min=None, max=None):
    if min is None and max is None:
        raise NotOurs("clamp without a limit")
    if max is None:
        return g.elementwise(Maximum, x, min)
    if min is None:
        return g.elementwise(Minimum, x, max)
    return g.elementwise(Clamp, x, min, max)


@imports(aten.clamp_min.Tensor)
def clamp_min(g, x, min):
    return g.elementwise(Maximum, x, min)


@imports(aten.clamp_max.default)
def clamp_max_by_number(g, x, max):
    return clamp_by_numbers(g, x, None, max)


@imports(aten.clamp_max.Tensor)
def clamp_max(g, x, max):
    return g.elementwise(Minimum, x, max)
