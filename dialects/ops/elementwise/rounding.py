"""Rounding to whole numbers. Integers are whole already."""

import torch

from mlirc.dialects.core.dialect import Unary, imports
from mlirc.dialects.core.graph_builder import NotOurs
from mlirc.dialects.core.scalar_builder import is_float

aten = torch.ops.aten


class Floor(Unary, name="floor", aten=(aten.floor.default,)):
    jumps = True
    reference = staticmethod(torch.floor)
    scalar = staticmethod(lambda b, x: b.floor(x) if is_float(b) else x)


class Ceil(Unary, name="ceil", aten=(aten.ceil.default,)):
    jumps = True
    reference = staticmethod(torch.ceil)
    scalar = staticmethod(lambda b, x: b.ceil(x) if is_float(b) else x)


class Trunc(Unary, name="trunc", aten=(aten.trunc.default, aten.fix.default)):
    jumps = True
    reference = staticmethod(torch.trunc)
    scalar = staticmethod(lambda b, x: b.trunc(x) if is_float(b) else x)


class Round(Unary, name="round", aten=(aten.round.default,)):
    """Halves go to the even neighbour."""

    jumps = True
    reference = staticmethod(torch.round)
    scalar = staticmethod(lambda b, x: b.round(x) if is_float(b) else x)


class Frac(Unary, name="frac", aten=(aten.frac.default,)):
    """What is left of x after `trunc`, with x's sign."""

    jumps = True
    reference = staticmethod(torch.frac)
    scalar = staticmethod(lambda b, x: b.sub(x, b.trunc(x)))


@imports(aten.round.decimals)
def round_decimals(g, x, *, decimals):
    if not g.info(x).dtype.is_floating_point:
        raise NotOurs("integers rounded to decimals")
    (x,) = g.widen(x)
    if decimals == 0:
        return g.round(x)
    scale = 10.0 ** abs(decimals)
    if decimals < 0:
        return g.mul(g.round(g.div(x, scale)), scale)
    return g.div(g.round(g.mul(x, scale)), scale)
