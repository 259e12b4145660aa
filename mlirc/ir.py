"""MLIR, as passes and ops see it: its bindings, the context, and the types of tensors. These names stay where they are.

ir                  MLIR's Python bindings: ir.Module, ir.InsertionPoint, ir.Block, ...
context()           the context of the process with the dialect loaded; a `with` block, under which all IR is read and made
TensorInfo          shape, strides and dtype of a tensor; sizes are numbers or expressions of symbols, "2*s0"
info_of(value)      the TensorInfo of a value or of its type
type_of(info)       the type of a TensorInfo
create(name, operands, results, attributes)   makes any op of the dialect where the insertion point is
attribute_value(attribute)   an op's attribute as a Python value: attribute_value(op.attributes["dim"])
source_line(location)   the user's line that an op came from, "model.py:12"
"""

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.dialects.core.dialect import attribute_value, create
from mlirc.dialects.core.tensor_types import TensorInfo, info_of, type_of
from mlirc.lowering.module.source_lines import source_line

__all__ = ["TensorInfo", "attribute_value", "context", "create", "info_of", "ir", "source_line", "type_of"]
