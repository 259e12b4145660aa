"""Dropout: the gradient. The forward draws random numbers, in the order that eager draws them, and goes to ATen."""

import torch

from mlirc.dialects.dialect import imports
from mlirc.dialects.import_arguments import need_floats
from mlirc.dialects.tensor_types import info_of, opmath

aten = torch.ops.aten


@imports(aten.native_dropout_backward.default)
def native_dropout_backward(g, grad, mask, scale):
    need_floats(grad)
    wide = opmath(info_of(grad).dtype)
    return g.mul(g.mul(g.cast(grad, wide), g.cast(mask, wide)), scale)
