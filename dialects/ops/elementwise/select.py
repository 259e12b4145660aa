"""Choice between two values: where, masked_fill."""

import torch

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import Ternary, imports
from mlirc.dialects.core.graph_builder import NotOurs, number_of
from mlirc.dialects.core.import_arguments import need_all_fit, need_fits

aten = torch.ops.aten
WHERE = (aten.where.self, aten.where.ScalarSelf, aten.where.ScalarOther, aten.where.Scalar)


def filled_with(x: ir.Value) -> float | int | bool | None:
    """The number that a tensor was filled with, through copies and views; None where it is not known."""
    while not isinstance(x.owner, ir.Block) and x.owner.operation.name in ("mlirc.copy", "mlirc.view"):
        x = x.owner.operands[0]
    return number_of(x)


class Select(Ternary, name="select", aten=WHERE):
    """y where the condition x holds, else z."""

    computes = ("bool", "result", "result")
    reference = staticmethod(torch.where)
    scalar = staticmethod(lambda b, x, y, z: b.select(x, y, z))


@imports(aten.masked_fill.Tensor)
def masked_fill_by_tensor(g, x, mask, value):
    """Eager takes the tensor's number, and raises where x's dtype does not hold it."""
    number = filled_with(value)
    if number is None:
        need_all_fit(g.info(value).dtype, g.info(x).dtype)
    else:
        need_fits(number, g.info(x).dtype)
    return masked_fill(g, x, mask, value)


@imports(aten.masked_fill.Scalar)
def masked_fill(g, x, mask, value):
    """The result has x's dtype, whatever the value's."""
    if g.info(mask).dtype != torch.bool:
        raise NotOurs("masked_fill with a mask that is not boolean")
    dtype = g.info(x).dtype
    need_fits(value, dtype)
    return g.apply(Select, (mask, value, x), dtype, dtype)
