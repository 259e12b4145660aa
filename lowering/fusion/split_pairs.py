"""Pairs of dependent reductions that a part of a row can compute at once: see `find_pair`."""

from collections.abc import Iterable

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.graph_builder import constant_text
from mlirc.dialects.core.tensor_types import TEXT_DTYPE
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.fusion.body import BodyNode, NodePool


@dataclass(frozen=True)
class Pair:
    """`second` folds a function of `value` and the outer `centre`; `first` folds `value` itself. Over a row of parts p:

    squares  sum((v - c)^2) = sum over p of (q_p + n_p (m_p - c)^2), m_p a part's mean, q_p its squares around that
    exponentials   sum(exp(v - c)) = sum over p of (e_p exp(m_p - c)), m_p a part's maximum, e_p its exponentials beneath that

    Both hold for any c. A part's maximum that is infinite counts as 0, as in logsumexp: exp(inf - inf) is for the end to say.
    """

    kind: str
    first: BodyNode
    second: BodyNode
    value: BodyNode
    centre: BodyNode


def find_pair(second: BodyNode, firsts: Iterable[BodyNode], inner: frozenset[int]) -> Pair | None:
    """The pair that the reduction `second` makes with one of `firsts`; `inner` are the inner dimensions."""
    (folded,) = second.operands
    if _kind(second) != "sum" or str(second.type) not in ("f32", "f64") or folded.name not in ("mul", "exp"):
        return None
    difference = folded.operands[0]
    if difference.name != "sub" or any(x is not difference for x in folded.operands):
        return None
    value, centre = difference.operands
    if not value.dims & inner or centre.dims & inner:
        return None
    kind, wanted = ("squares", ("sum", "mean")) if folded.name == "mul" else ("exponentials", ("max",))
    for first in firsts:
        if first.operands[0] is value and _kind(first) in wanted:
            return Pair(kind, first, second, value, centre)
    return None


def _kind(reduction: BodyNode) -> str:
    return ir.StringAttr(dict(reduction.attributes)["kind"]).value


@dataclass(frozen=True)
class Scalars:
    """Makes nodes of one type."""

    pool: NodePool
    type: ir.Type
    location: ir.Location

    def __call__(self, name: str, *operands: BodyNode, type_: ir.Type | None = None) -> BodyNode:
        return self.pool.make(name, operands, type_ or self.type, self.location)

    def number(self, value: float) -> BodyNode:
        text = constant_text(value, TEXT_DTYPE[str(self.type)])
        return self.pool.make("constant", (), self.type, self.location, (("value", ir.StringAttr.get(text)),))


def of_part(pair: Pair, b: Scalars, value: BodyNode, folded: BodyNode, elements: int) -> BodyNode:
    """What a part sums up for the second reduction: `value` is an element, `folded` the first reduction of the part."""
    if pair.kind == "squares":
        rest = b("sub", value, mean_of_part(pair, b, folded, elements))
        return b("mul", rest, rest)
    infinite = b("isinf", folded, type_=ir.IntegerType.get_signless(1))
    return b("exp", b("sub", value, b("select", infinite, b.number(0.0), folded)))


def of_parts(pair: Pair, b: Scalars, first: BodyNode, second: BodyNode, centre: BodyNode, elements: int) -> BodyNode:
    """What is summed over the parts: `first` and `second` are the two partial results of a part of `elements` elements."""
    if pair.kind == "exponentials":
        return b("mul", second, b("exp", b("sub", first, centre)))
    rest = b("sub", mean_of_part(pair, b, first, elements), centre)
    return b("add", second, b("mul", b.number(elements), b("mul", rest, rest)))


def mean_of_part(pair: Pair, b: Scalars, first: BodyNode, elements: int) -> BodyNode:
    """The first reduction of a part, its sum or mean, as a mean."""
    return first if _kind(pair.first) == "mean" else b("div", first, b.number(elements))
