"""Limits of the integers and floats that compiled code handles as eager does, by their use in the graph.

Compiled code holds integers in 64 bits, and indices are sums of a few of them. Eager holds any, and refuses some where it
converts them to a tensor's dtype. A call with a number beyond its limit is eager's: it says what comes of it.

    x * n               of floats           64 bits
    x + n, x > n        of integers         what the dtype holds, with room for masks that are sums of a few
    full([4], n)        of half types       what the dtype holds, too
    x[n:], roll(x, n)   an index, a size    48 bits
"""

import math
from typing import Any

import torch
from torch.fx import Node

from mlirc.dialects.core.symbols import Expr, Int, free_symbols
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.frontend.torch_compat.dynamo.trees import tree_leaves

SMALL = 2**48
WHOLE_RANGE = (torch.bool, torch.complex64, torch.complex128)
aten = torch.ops.aten
COUNTED = (aten.arange.default, aten.arange.start, aten.arange.start_step, aten.linspace.default, aten.tril.default)


@dataclass(frozen=True)
class Limit:
    """The range of a number, `low` to `high`. Unless it is `finite`, a float may also be infinite or NaN."""

    low: float
    high: float
    kind: type = int
    finite: bool = False

    def holds(self, value: Any) -> bool:
        if not isinstance(value, self.kind):
            return False
        return self.low <= value <= self.high or (self.kind is float and not self.finite and not math.isfinite(value))

    def within(self, other: "Limit") -> "Limit":
        low, high = max(self.low, other.low), min(self.high, other.high)
        return Limit(low, high, self.kind, self.finite or other.finite)

    @staticmethod
    def of_type(kind: type) -> "Limit":
        return {torch.SymInt: INT64, torch.SymFloat: FLOAT, torch.SymBool: TRUTH}[kind]


INT64 = Limit(-(2**63), 2**63 - 1)
ROOM = Limit(-(2**62), 2**62)
INDEX = Limit(-SMALL, SMALL)
FLOAT = Limit(-math.inf, math.inf, float)
TRUTH = Limit(0, 1, bool)


def needs_check(value: Int, numbers: Any) -> bool:
    """Whether a number depends on one that is no size, or multiplies so many sizes that 64 bits may not hold it."""
    if not isinstance(value, Expr):
        return False
    return bool(free_symbols(value) & numbers) or any(len(monomial) > 2 for monomial in value.terms)


def limit_of_uses(node: Node, users: list[Node]) -> Limit:
    limit = Limit(-math.inf, math.inf)
    for user in users:
        if user.op == "output":
            continue
        for kind in _kinds(node, user):
            limit = limit.within(_limit(kind, user))
    return limit


def _kinds(node: Node, user: Node) -> list[str]:
    """The types of the parameters that `user` takes `node` as."""
    target: Any = user.target
    if not isinstance(target, torch._ops.OpOverload):
        return ["int"]
    found = []
    given = [*zip(target._schema.arguments, user.args, strict=False)]
    given += [(a, user.kwargs[a.name]) for a in target._schema.arguments if a.name in user.kwargs]
    for argument, value in given:
        if any(x is node for x in tree_leaves(value, is_leaf=lambda x: isinstance(x, Node))):
            found.append(str(argument.type))
    return found or ["int"]


def _limit(kind: str, user: Node) -> Limit:
    if user.target in COUNTED or not any(word in kind for word in ("number", "Tensor", "float")):
        return INDEX
    limit = Limit(-math.inf, math.inf)
    values = [n.meta.get("val") for n in (*user.all_input_nodes, user)]
    for dtype in {x.dtype for x in tree_leaves(values) if isinstance(x, torch.Tensor)} - {*WHOLE_RANGE}:
        if not (dtype.is_floating_point or dtype.is_complex):
            room = {torch.int64: SMALL, torch.int32: 2**30}.get(dtype)
            if room is not None:
                limit = limit.within(Limit(-room, room, finite=True))
            elif "number" in kind:  # else a number is a 0-d tensor first, and then wraps around
                most = torch.iinfo(dtype).max
                limit = limit.within(Limit(-most, most, finite=True))
        elif "number" in kind and dtype.itemsize < 8:
            limit = limit.within(Limit(torch.finfo(dtype).min, torch.finfo(dtype).max))
    return limit
