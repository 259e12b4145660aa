"""Limits: clamp in its forms. NaN in the value or in a limit gives NaN; of limits that cross, the upper one holds."""

import torch

from mlirc.dialects.dialect import Ternary, imports
from mlirc.dialects.graph_builder import NotOurs
from mlirc.dialects.ops.comparison import Maximum, Minimum

aten = torch.ops.aten


class Clamp(Ternary, name="clamp"):
    """x, but at least y and at most z."""

    rounds_numbers = True
    reference = staticmethod(lambda x, y, z: torch.minimum(torch.maximum(x, y), z))
    scalar = staticmethod(lambda b, x, y, z: Minimum.scalar(b, Maximum.scalar(b, x, y), z))


@imports(aten.clamp.default, aten.clamp.Tensor, aten.hardtanh.default)
def clamp(g, x, min=None, max=None, **limits):
    min, max = limits.get("min_val", min), limits.get("max_val", max)
    if min is None and max is None:
        raise NotOurs("clamp without a limit")
    if max is None:
        return g.elementwise(Maximum, x, min)
    if min is None:
        return g.elementwise(Minimum, x, max)
    return g.elementwise(Clamp, x, min, max)


@imports(aten.clamp_min.default, aten.clamp_min.Tensor)
def clamp_min(g, x, min):
    return g.elementwise(Maximum, x, min)


@imports(aten.clamp_max.default, aten.clamp_max.Tensor)
def clamp_max(g, x, max):
    return g.elementwise(Minimum, x, max)
