"""Formats an error inside the compiler: the op, the user's source line, the message, in one line."""

import re
import traceback
from typing import Any

from mlirc.dialects.core.bindings import ir
from mlirc.lowering.module.source_lines import source_line, typed


class UnsupportedByPass(Exception):
    """A pass's way to say that it cannot handle this op: `op` and why. The pass manager adds where it is."""

    def __init__(self, op: Any, why: str):
        super().__init__(why)
        self.op = op


class EmitError(ValueError):
    """No code can be made of a module: one line with the op, its source line and why. `op` is the op, None if nothing says which."""

    def __init__(self, message: str, op: Any):
        super().__init__(message)
        self.op = op


def emit_error(error: Exception) -> EmitError:
    """What went wrong as code was made, by the op that the code was looking at. Needs an entered context."""
    if isinstance(error, EmitError):
        return error
    text = " ".join(str(error).split()) or type(error).__name__
    if not isinstance(error, ValueError):
        text = f"{type(error).__name__}: {text}"
    op = op_at_work(error)
    return EmitError(text if op is None else f"{op.operation.name} ({source_line(op.location)}): {text}", op)


def describe(error: Any) -> str:
    """ " at mlirc.exp (model.py:12): KeyError: 'x'", as far as it is known where the error came from."""
    if isinstance(error, EmitError):
        if error.__cause__ in (None, error) and error.op is None:
            return f": {error}"
        error = error.__cause__ or error
    text = " ".join(str(error).split())
    if isinstance(error, ir.MLIRError) and error.error_diagnostics:
        diagnostic = error.error_diagnostics[0]
        return f" ({source_line(typed(diagnostic.location))}): {diagnostic_text(diagnostic)}"
    op = getattr(error, "op", None)
    if op is None:
        op = op_at_work(error)
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    if op is None:
        return f": {text}"
    where = f"{op.operation.name} ({source_line(op.location)})"
    return f": {text}" if text.startswith(where) else f" at {where}: {text}"


def op_at_work(error: BaseException) -> Any | None:
    """The op that the code which raised the error was looking at: the innermost local variable that holds one.

    One whose source line is known goes before one without, which is often an op just made.
    """
    found = None
    for frame, _ in reversed(list(traceback.walk_tb(error.__traceback__))):
        for value in reversed(list(frame.f_locals.values())):
            if not isinstance(value, ir.Operation | ir.OpView) or not _is_inside_function(value):
                continue
            if source_line(value.location) != "unknown line":
                return value
            found = found or value
    return found


def _is_inside_function(op: Any) -> bool:
    try:
        return op.operation.name not in ("builtin.module", "func.func")
    except RuntimeError:  # the op was erased
        return False


def diagnostic_text(diagnostic: ir.DiagnosticInfo) -> str:
    """MLIR's message in one line, with the name of the op where the message leaves it out."""
    text = " ".join(diagnostic.message.split())
    for note in diagnostic.notes:
        op = re.match(r'see current operation: (?:%[^=]* = )?"?([\w.]+)', note.message)
        if op and op[1] not in text:
            return f"{op[1]} {text}" if text.startswith("op ") else f"{op[1]}: {text}"
    return text
