"""What ops are defined with (docs/adding.md). These names stay where they are.

Unary, Binary, Ternary   base classes of elementwise ops: one element by `scalar(b, ...)`, b a ScalarBuilder
Reduction                base class of reductions along dimensions
Composite                base class of ops that `expand` into smaller ones
Operand, Result          annotations of a Composite's operands and results
composite(...)           makes an op of a Composite
imports(*overloads)      says that a function builds what these overloads of ATen mean, with a GraphBuilder
NotOurs("why")           raised by such a function: ATen is called instead, and mlirc.explain says why
"""

from typing import Any

from mlirc.dialects.core.bindings import ext
from mlirc.dialects.core.composites import composite
from mlirc.dialects.core.dialect import Binary, Composite, Reduction, Ternary, Unary, imports
from mlirc.dialects.core.graph_builder import GraphBuilder, NotOurs
from mlirc.dialects.core.scalar_builder import ScalarBuilder

Operand = ext.Operand[Any]
Result = ext.Result[Any]

__all__ = [
    "Binary",
    "Composite",
    "GraphBuilder",
    "NotOurs",
    "Operand",
    "Reduction",
    "Result",
    "ScalarBuilder",
    "Ternary",
    "Unary",
    "composite",
    "imports",
]
