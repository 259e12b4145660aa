"""Rules of a form: `expect(condition, op, what is wrong, what to do)` raises StageError where the condition is false."""

from typing import Any

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.symbols import Int
from mlirc.lowering.module.source_lines import source_line


class StageError(ValueError):
    """An op that breaks a rule of its form. `op` is the op; the message says where it is, what is wrong and what to do."""

    def __init__(self, op: Any, wrong: str, advice: str):
        super().__init__(f"{op.operation.name} ({source_line(op.location)}): {wrong}; {advice}")
        self.op = op


class RulesOf:
    """See `rules_of`. A class, as a generator for each op of a graph takes several times as long."""

    __slots__ = ("op",)

    def __init__(self, op: Any):
        self.op = op

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Exception) and not isinstance(error, StageError):
            text = " ".join(str(error).split()) or type(error).__name__
            raise StageError(
                self.op, f"operands, attributes and results do not fit: {text}", "see its class"
            ) from error


def rules_of(op: Any) -> RulesOf:
    """Turns any error of a rule into StageError for `op`, because a rule may read attributes that a wrong op lacks."""
    return RulesOf(op)


def expect(condition: bool, op: Any, wrong: str, advice: str) -> None:
    if not condition:
        raise StageError(op, wrong, advice)


def text_attribute(op: Any, name: str) -> str:
    attribute = op.attributes.get(name, None)
    if not isinstance(attribute, ir.StringAttr):
        raise StageError(op, f"no text attribute {name}", f'write {name} = "..."')
    return attribute.value


def callee_of(op: Any) -> str:
    """The routine that a call is of, or the name of an op of the graph that becomes one."""
    if op.operation.name == "mlircx.call":
        return attribute_value(op.attributes["callee"])
    return op.operation.name.removeprefix("mlirc.")


def expression(op: Any, name: str) -> Int:
    """The size expression that a text attribute holds."""
    text = text_attribute(op, name)
    try:
        return symbols.parse(text)
    except ValueError as error:
        raise StageError(op, f"{name}: {error}", "write a size expression such as 2*s0 + 1") from error


def list_attribute(op: Any, name: str) -> tuple[Int, ...]:
    """The size expressions in a text attribute, "s0, 2*s1"."""
    text = text_attribute(op, name)
    try:
        return symbols.parse_list(text)
    except ValueError as error:
        raise StageError(op, f"{name}: {error}", "write expressions separated by commas") from error
