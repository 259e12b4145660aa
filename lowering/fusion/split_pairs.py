"""Pairs of dependent reductions that a part of a row can compute at once: see `find_pair`."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.graph_builder import constant_text
from mlirc.dialects.core.tensor_types import TEXT_DTYPE

Create = Callable[[str, list, ir.Type, dict[str, ir.Attribute]], ir.Value]


@dataclass(frozen=True)
class Pair:
    """`second` folds a function of `value` and the outer `centre`; `first` folds `value` itself. Over a row of parts p:

    squares  sum((v - c)^2) = sum over p of (q_p + n_p (m_p - c)^2), m_p a part's mean, q_p its squares around that
    exponentials   sum(exp(v - c)) = sum over p of (e_p exp(m_p - c)), m_p a part's maximum, e_p its exponentials beneath that

    Both hold for any c. A part's maximum that is infinite counts as 0, as in logsumexp: exp(inf - inf) is for the end to say.
    """

    kind: str
    first: Any
    second: Any
    value: ir.Value
    centre: ir.Value


def find_pair(second: Any, firsts: Iterable[Any], is_inner: dict[ir.Value, bool]) -> Pair | None:
    """The pair that the reduction `second` makes with one of `firsts`."""
    if attribute_value(second.attributes["kind"]) != "sum" or not _is_float(second.result):
        return None
    folded = _op(second.operands[0])
    if folded is None or folded.name not in ("mlirc.mul", "mlirc.exp"):
        return None
    below = list(folded.operands)
    difference = _op(below[0])
    if difference is None or difference.name != "mlirc.sub" or any(x != below[0] for x in below):
        return None
    value, centre = difference.operands
    if not is_inner.get(value) or is_inner.get(centre, True):
        return None
    kind, wanted = ("squares", "sum") if folded.name == "mlirc.mul" else ("exponentials", "max")
    for first in firsts:
        if first.operands[0] == value and attribute_value(first.attributes["kind"]) == wanted:
            return Pair(kind, first, second, value, centre)
    return None


def of_part(pair: Pair, create: Create, value: ir.Value, folded: ir.Value, elements: int) -> ir.Value:
    """What a part sums up for the second reduction: `value` is an element, `folded` the first reduction of the part."""
    b = _Scalars(create, value.type)
    if pair.kind == "squares":
        rest = b("sub", value, b("div", folded, b.number(elements)))
        return b("mul", rest, rest)
    infinite = create("mlirc.isinf", [folded], ir.IntegerType.get_signless(1), {})
    return b("exp", b("sub", value, b("select", infinite, b.number(0.0), folded)))


def of_parts(
    pair: Pair, create: Create, first: ir.Value, second: ir.Value, centre: ir.Value, elements: int
) -> ir.Value:
    """What is summed over the parts: `first` and `second` are what a part of so many elements left."""
    b = _Scalars(create, second.type)
    if pair.kind == "exponentials":
        return b("mul", second, b("exp", b("sub", first, centre)))
    rest = b("sub", b("div", first, b.number(elements)), centre)
    return b("add", second, b("mul", b.number(elements), b("mul", rest, rest)))


class _Scalars:
    def __init__(self, create: Create, type_: ir.Type):
        self.create, self.type = create, type_

    def __call__(self, name: str, *operands: ir.Value) -> ir.Value:
        return self.create(f"mlirc.{name}", list(operands), self.type, {})

    def number(self, value: float) -> ir.Value:
        text = constant_text(value, TEXT_DTYPE[str(self.type)])
        return self.create("mlirc.constant", [], self.type, {"value": ir.StringAttr.get(text)})


def _is_float(value: ir.Value) -> bool:
    return str(value.type) in ("f32", "f64")


def _op(value: ir.Value) -> Any:
    return None if isinstance(value.owner, ir.Block) else value.owner
