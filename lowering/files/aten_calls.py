"""Decides which operators a module from a file may call: those that a traced graph may hold and that check their operands.

Refused: what opens files or gives tensors other memory (`from_file`, `set_`, `resize_`, variants with `out`), what autograd takes apart
before us (operators without kernels of their own, which may return their operand though their schema does not say so), private
operators that neither our importer nor Inductor knows, whose kernels trust their callers, and other libraries' operators. Structured
operators look at their operands before any kernel does, as their results' sizes are computed of them.
"""

import json
from functools import cache
from typing import Any

import torch

from mlirc.dialects.core import aten_arguments
from mlirc.dialects.core.dialect import IMPORTS
from mlirc.lowering.files.packed_weights import CALLS
from mlirc.lowering.module.rules import StageError, expect, list_attribute, text_attribute

NAMESPACES = ("aten", "prims")
FORBIDDEN = frozenset(
    (
        "from_file",
        "save",
        "set_",
        "set",
        "resize",
        "resize_",
        "resize_as",
        "resize_as_",
        "set_data",
        "record_stream",
        "swap",
    )
)
STRUCTURED = frozenset(  # private operators of a traced graph that PyTorch's native_functions.yaml calls structured
    ("_linalg_det", "_linalg_slogdet", "_linalg_eigh", "_linalg_svd", "_linalg_solve_ex")
    + tuple(f"_upsample_{kind}2d_aa{way}" for kind in ("bilinear", "bicubic", "lanczos") for way in ("", "_backward"))
    + tuple(f"_upsample_nearest_exact{n}d{way}" for n in (1, 2, 3) for way in ("", "_backward"))
)


def verify_operator(op: Any) -> None:
    """Raises StageError for a call that a module from a file may not make."""
    name = text_attribute(op, "op")
    operator = resolved(op, name)
    expect(not refusal(name), op, f"{name} {refusal(name)}", "call another operator")
    try:
        arguments = json.loads(text_attribute(op, "args"))
    except (ValueError, RecursionError) as error:
        raise StageError(op, f"args: {error}", "write JSON") from error
    expect(isinstance(arguments, list), op, "args is no list", "write a list of arguments")
    verify_arguments(op, arguments)
    aliases = list_attribute(op, "aliases") if op.results else ()
    sharing = [k for k, r in enumerate(operator._schema.returns) if r.alias_info is not None]
    if len(aliases) == len(operator._schema.returns):
        for k in sharing:
            expect(aliases[k] != -1, op, f"result {k} of {name} may be its operand's memory", "say so in aliases")
    else:
        expect(not sharing, op, f"{name} gives lists of views", "take them by views")


def resolved(op: Any, name: str) -> Any:
    try:
        found = aten_arguments.resolve(name)
    except ValueError as error:
        raise StageError(op, str(error), "name an operator of PyTorch's") from error
    expect(isinstance(found, torch._ops.OpOverload), op, f"{name} takes functions", "call operators on tensors")
    return found


@cache
def refusal(name: str) -> str:
    """Why a module from a file may not call the operator, or ""."""
    operator = aten_arguments.resolve(name)
    if name in CALLS:  # packed_weights.py looks at what they are given
        return ""
    if operator.namespace not in NAMESPACES:
        return f"is of the library {operator.namespace}"
    short = operator._schema.name.rpartition("::")[2]
    if short in FORBIDDEN:
        return "gives tensors other memory, or opens files"
    if any(a.is_out for a in operator._schema.arguments):
        return "writes to a tensor that it may resize"
    if torch.Tag.inplace_view in operator.tags:
        return "changes what a tensor is of"
    try:
        if operator.namespace == "aten" and operator.has_kernel_for_dispatch_key("CompositeImplicitAutograd"):
            return "is taken apart before a graph is compiled"
    except (AttributeError, TypeError, RuntimeError):  # nobody promised that it can be asked
        return "may be taken apart before a graph is compiled: this PyTorch does not tell"
    if short.startswith("_") and name not in known_private() and short not in STRUCTURED and operator not in IMPORTS:
        return "is private to PyTorch"
    return ""


@cache
def known_private() -> frozenset[str]:
    """Operators that Inductor calls: their kernels look at what they are given."""
    try:
        from torchgen.aoti.fallback_ops import inductor_fallback_ops
    except ImportError:
        return frozenset()
    return frozenset(inductor_fallback_ops)


def verify_arguments(op: Any, x: Any) -> None:
    """Operands exist; operators among arguments, and objects, which a file does not have, do not."""
    if isinstance(x, list):
        for item in x:
            verify_arguments(op, item)
    elif isinstance(x, dict):
        for key, item in x.items():
            expect(key not in ("object", "op"), op, f"an argument that is an {key}", "a file has none")
            if key == "$":
                exists = type(item) is int and 0 <= item < len(op.operands)
                expect(exists, op, f"argument {item} among {len(op.operands)} operands", "count from 0")
            verify_arguments(op, item)
