"""Computes chains of elementwise operators of complex tensors on their real and imaginary parts, which kernels fuse.

before:  %e = exp(%z);  %m = mul(%e, %w);  %f = fft_c2c(%m)
after:   %r = view_as_real(%z);  %a, %b = select(%r, -1, 0), select(%r, -1, 1);  ... real operators on %a, %b ...
         %f = fft_c2c(view_as_complex(stack([%re, %im], -1)))

A chain is rewritten where that costs less: its ends read and write parts that lie side by side, which is slower than whole vectors.
"""

import math
import operator
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch.fx import GraphModule, Node

from mlirc.frontend.capture.complex.chains import PART, VIEWS, ChainRewriter, rewrite_chains
from mlirc.frontend.torch_compat.fake_tensors import as_traced, detect_fake_mode

aten = torch.ops.aten
Parts = tuple[Any, Any]
BOUNDARY = 1.6  # what reading or writing a complex tensor by its parts costs, in products of complex tensors by ATen
EXPONENTIAL = 50
"""What ATen's exponential of complex numbers costs, which is computed one number after another, in the same."""
THROUGH_PYTHON = 8  # what a call costs that takes Scalars, for which PyTorch's C interface has no form
DIVISION = 8  # what ATen's division costs, likewise


def split_complex(gm: GraphModule) -> None:
    """Rewrites an ATen graph in place."""
    rewrite_chains(gm, is_elementwise, may_be, gains, PartsRewriter)


def compute_conjugates(gm: GraphModule) -> None:
    """Computes the conjugates that no chain does: as a flag of a tensor, which kernels do not know, they would be made from Python."""
    found = [
        node
        for node in gm.graph.nodes
        if node.target is aten._conj.default
        and is_on_cpu(node)
        and not is_returned(node)
        and not is_conjugated_again(node)
    ]
    mode = detect_fake_mode([node.meta["val"] for node in found])
    if mode is None:
        return
    for node in found:
        (x,) = node.all_input_nodes
        with as_traced(mode):
            made = aten._conj_physical.default(x.meta["val"])
        if x.meta["val"].is_conj() or made.is_conj() or made.stride() != node.meta["val"].stride():
            continue
        node.target = aten._conj_physical.default
        node.meta = {name: told for name, told in node.meta.items() if name != "original_aten"}
    gm.recompile()


def is_on_cpu(node: Node) -> bool:
    """Whether the node's operand is a tensor in the memory of a CPU as it is."""
    values: list[Any] = [x.meta.get("val") for x in node.all_input_nodes]
    return bool(values) and all(
        isinstance(x, torch.Tensor) and x.layout is torch.strided and x.device.type == "cpu" for x in values
    )


def is_conjugated_again(node: Node) -> bool:
    """Whether the conjugate of the result, or of a view of it, is what is in memory, as `view_as_real` takes it: the flag is of use then."""
    flagged = (user for user in node.users if isinstance(x := user.meta.get("val"), torch.Tensor) and x.is_conj())
    return any(user.target is aten._conj.default for user in node.users) or any(map(is_conjugated_again, flagged))


# ---- which chains


def is_elementwise(node: Node) -> bool:
    """Whether a rule computes the node on parts: it gives or takes complex numbers, all of one dtype."""
    if node.target not in RULES or not isinstance(node.meta.get("val"), torch.Tensor):
        return False
    inputs: list[Any] = [x.meta.get("val") for x in node.all_input_nodes]
    if not is_on_cpu(node):
        return False
    if node.target is aten.complex.default and inputs[0].shape != inputs[-1].shape:
        return False
    dtypes = {x.dtype for x in (node.meta["val"], *inputs) if x.is_complex()}
    if len(dtypes) != 1 or not dtypes <= PART.keys():
        return False
    if node.target is aten.constant_pad_nd.default and any(node.args[2:]):
        return False
    if node.target is aten.rsub.Scalar and len(node.args) > 2:
        return False
    if node.target in FUSED_TERMS and not isinstance(node.kwargs.get("value", 1), int | float):
        return False
    return node.target not in WITHOUT_KEYWORDS or not node.kwargs  # a sum may have a factor


def may_be(node: Node, chosen: set[Node]) -> bool:
    """Whether the complex operands that others make are what is in memory, and its result may end a chain where it does."""
    begins = not any(x.meta["val"].is_conj() for x in node.all_input_nodes if x not in chosen)
    return begins and may_end(node, chosen)


def may_end(node: Node, chosen: set[Node]) -> bool:
    """Whether others may read the node's result, which is then made row-major, in memory of its own."""
    value = node.meta["val"]
    if value.is_complex() and all(user in chosen for user in node.users):
        return True
    aliases = is_moved(node) or (node.target is aten.view_as_real.default and is_returned(node))
    return value.is_contiguous() and not aliases


def is_returned(node: Node) -> bool:
    """Whether the program gives away the node's result, or a view of it."""
    from mlirc.frontend.importer import views  # which loads the dialect: a warm start does not

    def shows(user: Node) -> bool:
        target = user.target
        parts = target is operator.getitem or (isinstance(target, torch._ops.OpOverload) and target.is_view)
        return user.op == "output" or ((parts or views.viewed(user) is node) and is_returned(user))

    return any(map(shows, node.users))


def is_moved(node: Node) -> bool:
    """Whether its result lies in its operand's memory, which a reader may rely on."""
    return node.target in VIEWS or node.target in (aten._conj.default, aten.view_as_complex.default)


def gains(chain: list[Node]) -> bool:
    inside = set(chain)
    before = sum(cost(node) for node in chain)
    read = {x for node in chain for x in node.all_input_nodes if x not in inside and x.meta["val"].is_complex()}
    written = [n for n in chain if n.meta["val"].is_complex() and any(user not in inside for user in n.users)]
    return before > BOUNDARY * (len(read) + len(written))


def cost(node: Node) -> float:
    return 0 if is_moved(node) or node.target is aten.view_as_real.default else COSTS.get(node.target, 1)


# ---- the rewrite


class PartsRewriter(ChainRewriter):
    def one(self, node: Node) -> None:
        made = RULES[node.target](self, node)
        if not node.meta["val"].is_complex():
            self.put(node, made)
            return
        self.known[node] = made
        if self.is_read_outside(node):
            self.give_away(node, self.stacked(*made))

    def stacked(self, re: Node, im: Node) -> Node:
        return self.call(aten.cat.default, [self.call(aten.unsqueeze.default, x, -1) for x in (re, im)], -1)

    def parts(self, x: Any) -> Parts:
        """The parts of an operand: a complex or real tensor, or a number."""
        if not isinstance(x, Node):
            return (x.real, x.imag) if isinstance(x, complex) else (x, 0.0)
        if x not in self.known:
            self.known[x] = self.parts_of_tensor(x)
        return self.known[x]

    def parts_of_tensor(self, x: Node) -> Parts:
        dtype = x.meta["val"].dtype
        if dtype not in PART:
            return x, 0.0
        pairs = self.call(aten.view_as_real.default, x)
        re, im = (self.call(aten.select.int, pairs, -1, k) for k in range(2))
        return re, im


def of_real(rewrite: PartsRewriter, node: Node, x: Any) -> Parts:
    """Parts of an operand in the dtype of the node's; those of a tensor have its shape."""
    re, im = rewrite.parts(x)
    dtype = PART[next(v.dtype for v in values_of(node) if v.is_complex())]
    if isinstance(re, Node) and re.meta["val"].dtype != dtype:
        re = rewrite.call(aten._to_copy.default, re, dtype=dtype)
    if isinstance(re, Node) and not isinstance(im, Node):
        im = rewrite.call(aten.full_like.default, re, im)
    return re, im


def values_of(node: Node) -> list[torch.Tensor]:
    return [node.meta["val"], *(x.meta["val"] for x in node.all_input_nodes)]


def multiplied(rewrite: PartsRewriter, node: Node) -> Parts:
    return product(rewrite, *(of_real(rewrite, node, x) for x in node.args))


def product(rewrite: PartsRewriter, one: Parts, other: Parts) -> Parts:
    (a, b), (c, d) = one, other
    times, plus, minus = (partial(combined, rewrite, op) for op in ("mul", "add", "sub"))
    return minus(times(a, c), times(b, d)), plus(times(a, d), times(b, c))


def total(rewrite: PartsRewriter, node: Node) -> Parts:
    """aten.add and aten.sub, of two operands."""
    one, other = (of_real(rewrite, node, x) for x in node.args)
    return added(rewrite, one, other, 1.0 if node.target is aten.add.Tensor else -1.0)


def difference_from(rewrite: PartsRewriter, node: Node) -> Parts:
    """aten.rsub.Scalar: a number less a tensor."""
    return added(rewrite, rewrite.parts(node.args[1]), of_real(rewrite, node, node.args[0]), -1.0)


def added(rewrite: PartsRewriter, one: Parts, other: Parts, factor: float) -> Parts:
    """The sum with a real multiple, which is ATen's product with a complex number: of an infinite part the other becomes NaN."""
    (a, b), (c, d) = one, other
    times, plus, minus = (partial(combined, rewrite, op) for op in ("mul", "add", "sub"))
    re, im = minus(times(c, factor), times(d, 0.0)), plus(times(c, 0.0), times(d, factor))
    return plus(a, re), plus(b, im)


def fused_terms(rewrite: PartsRewriter, node: Node) -> Parts:
    """aten.addcmul and aten.addcdiv: a sum with a multiple of a product or quotient, in ATen's order."""
    (a, b), one, other = (of_real(rewrite, node, x) for x in node.args)
    number: Any = node.kwargs.get("value", 1)
    scaled = product(rewrite, (float(number), 0.0), one)
    combine = quotient if node.target is aten.addcdiv.default else product
    c, d = combine(rewrite, scaled, other)
    return rewrite.call(aten.add.Tensor, a, c), rewrite.call(aten.add.Tensor, b, d)


def divided(rewrite: PartsRewriter, node: Node) -> Parts:
    return quotient(rewrite, *(of_real(rewrite, node, x) for x in node.args))


def inverse(rewrite: PartsRewriter, node: Node) -> Parts:
    return quotient(rewrite, (1.0, 0.0), rewrite.parts(node.args[0]))


def quotient(rewrite: PartsRewriter, over: Parts, under: Parts) -> Parts:
    """Smith's division, as ATen's: by the larger part of the divisor and the ratio of both. A zero divides each part."""
    call = rewrite.call
    like = next(x for x in (*over, *under) if isinstance(x, Node))
    a, b, c, d = (x if isinstance(x, Node) else call(aten.full_like.default, like, x) for x in (*over, *under))
    sizes = call(aten.abs.default, c), call(aten.abs.default, d)
    first = call(aten.ge.Tensor, *sizes)
    (more, less), (x, y) = (
        (call(aten.where.self, first, p, q), call(aten.where.self, first, q, p)) for p, q in ((c, d), (a, b))
    )
    ratio = call(aten.div.Tensor, less, more)
    scale = call(aten.reciprocal.default, call(aten.add.Tensor, more, call(aten.mul.Tensor, less, ratio)))
    by_ratio = call(aten.mul.Tensor, x, ratio)
    turned = call(aten.sub.Tensor, y, by_ratio), call(aten.sub.Tensor, by_ratio, y)
    re = call(aten.add.Tensor, x, call(aten.mul.Tensor, y, ratio))
    im = call(aten.where.self, first, *turned)
    by_zero = call(aten.bitwise_and.Tensor, *(call(aten.eq.Scalar, part, 0.0) for part in (c, d)))
    re, im = (
        call(aten.where.self, by_zero, call(aten.div.Tensor, p, sizes[0]), call(aten.mul.Tensor, q, scale))
        for p, q in ((a, re), (b, im))
    )
    return re, im


def direction(rewrite: PartsRewriter, node: Node) -> Parts:
    """aten.sgn: a number over its absolute value; 0 of 0."""
    parts, call = rewrite.parts(node.args[0]), rewrite.call
    size = call(aten.hypot.default, *parts)
    still = call(aten.eq.Scalar, size, 0.0)
    re, im = (call(aten.where.ScalarSelf, still, 0.0, call(aten.div.Tensor, x, size)) for x in parts)
    return re, im


def combined(rewrite: PartsRewriter, name: str, x: Any, y: Any) -> Any:
    """The sum, difference or product of two tensors or numbers."""
    if not isinstance(x, Node) and not isinstance(y, Node):
        return getattr(operator, name)(x, y)
    if not isinstance(x, Node):
        x = rewrite.call(aten.full_like.default, y, x)
    return rewrite.call(getattr(aten, name).Tensor, x, y)


def negative(rewrite: PartsRewriter, node: Node) -> Parts:
    re, im = rewrite.parts(node.args[0])
    return rewrite.call(aten.neg.default, re), rewrite.call(aten.neg.default, im)


def conjugate(rewrite: PartsRewriter, node: Node) -> Parts:
    re, im = rewrite.parts(node.args[0])
    return re, rewrite.call(aten.neg.default, im)


def exponential(rewrite: PartsRewriter, node: Node) -> Parts:
    """exp(re) * (cos(im), sin(im)), and C's results where a part is 0, infinite or NaN, or exp(re) alone is not finite."""
    (re, im), call = rewrite.parts(node.args[0]), rewrite.call
    high, less = (80.0, 40.0) if re.meta["val"].dtype == torch.float32 else (700.0, 350.0)
    far = call(aten.gt.Scalar, re, high)
    grown = call(aten.exp.default, call(aten.where.self, far, call(aten.sub.Tensor, re, less), re))

    def times(turned: Any) -> Any:
        made = call(aten.mul.Tensor, grown, call(turned, im))
        return call(aten.where.self, far, call(aten.mul.Tensor, made, math.exp(less)), made)

    turns = call(aten.lt.Scalar, call(aten.abs.default, im), math.inf)
    whole = call(aten.where.ScalarSelf, call(aten.eq.Scalar, re, math.inf), math.inf, times(aten.cos.default))
    still = call(aten.where.self, call(aten.eq.Scalar, im, 0.0), im, times(aten.sin.default))
    gone = call(aten.bitwise_and.Tensor, call(aten.eq.Scalar, re, -math.inf), call(aten.bitwise_not.default, turns))
    whole = call(aten.where.self, turns, times(aten.cos.default), whole)
    below = call(aten.bitwise_and.Tensor, gone, call(aten.lt.Scalar, im, 0.0))
    re, im = (call(aten.where.ScalarSelf, gone, 0.0, x) for x in (whole, still))
    return re, call(aten.where.ScalarSelf, below, -0.0, im)


def size_of(rewrite: PartsRewriter, node: Node) -> Node:
    return rewrite.call(aten.hypot.default, *rewrite.parts(node.args[0]))


def norm(rewrite: PartsRewriter, node: Node) -> Node:
    """A norm of complex numbers is that of their absolute values."""
    x, *rest = node.args
    return rewrite.call(node.target, rewrite.call(aten.hypot.default, *rewrite.parts(x)), *rest)


def distance(rewrite: PartsRewriter, node: Node) -> Node:
    """aten.dist: the norm of the difference of two tensors."""
    one, other, *order = node.args
    pairs: Iterable = zip(*(of_real(rewrite, node, x) for x in (one, other)), strict=True)
    size = rewrite.call(aten.hypot.default, *(rewrite.call(aten.sub.Tensor, p, q) for p, q in pairs))
    return rewrite.call(aten.linalg_vector_norm.default, size, *(order or [2]))


def variance(rewrite: PartsRewriter, node: Node) -> Node:
    """aten.var and aten.std: the sum of the variances of the parts, and its root."""
    x, *rest = node.args
    made = (rewrite.call(aten.var.correction, part, *rest, **node.kwargs) for part in rewrite.parts(x))
    total = rewrite.call(aten.add.Tensor, *made)
    return rewrite.call(aten.sqrt.default, total) if node.target is aten.std.correction else total


def as_real(rewrite: PartsRewriter, node: Node) -> Node:
    return rewrite.stacked(*rewrite.parts(node.args[0]))


def as_complex(rewrite: PartsRewriter, node: Node) -> Parts:
    re, im = (rewrite.call(aten.select.int, node.args[0], -1, k) for k in range(2))
    return re, im


def both(rewrite: PartsRewriter, node: Node) -> Parts:
    """aten.complex, of operands of one shape."""
    re, im = node.args
    return re, im


def moved(rewrite: PartsRewriter, node: Node) -> Parts:
    """A view, copy, sum or gradient of a view: the same of each part."""
    first, *rest = node.args
    parts = rewrite.parts(first)
    if node.target is aten.view.default:
        parts = tuple(map(rewrite.row_major, parts))
    re, im = (rewrite.call(node.target, x, *rest, **node.kwargs) for x in parts)
    return re, im


def spread(rewrite: PartsRewriter, node: Node) -> Parts | Node:
    """aten.slice_scatter: each part of the source is written to the part of the tensor; to that of a real tensor, the real part."""
    x, source, *rest = node.args
    if not node.meta["val"].is_complex():
        return rewrite.call(node.target, x, rewrite.parts(source)[0], *rest, **node.kwargs)
    pairs: Iterable = zip(*(of_real(rewrite, node, one) for one in (x, source)), strict=True)
    re, im = (rewrite.call(node.target, p, q, *rest, **node.kwargs) for p, q in pairs)
    return re, im


MULTIPLICATIONS = {aten.mul.Tensor, aten.mul.Scalar}
DIVISIONS = {aten.div.Tensor, aten.div.Scalar}
SUMS = {aten.add.Tensor, aten.sub.Tensor}
REDUCTIONS = {aten.sum.default, aten.sum.dim_IntList}
NORMS = {aten.linalg_vector_norm.default, aten.norm.ScalarOpt_dim, aten.norm.Scalar}
FUSED_TERMS = {aten.addcmul.default, aten.addcdiv.default}
VARIANCES = {aten.var.correction, aten.std.correction}
WITHOUT_KEYWORDS = MULTIPLICATIONS | DIVISIONS | SUMS | REDUCTIONS | NORMS | {aten.dist.default}
GROWN = {aten.slice_backward.default, aten.select_backward.default, aten.constant_pad_nd.default}
COSTS: dict[Any, float] = {
    aten.exp.default: EXPONENTIAL,
    aten.abs.default: 2,
    aten.sgn.default: 2,
    aten.reciprocal.default: DIVISION,
    **dict.fromkeys(DIVISIONS, DIVISION),
    **dict.fromkeys([*NORMS, *VARIANCES, *FUSED_TERMS, aten.dist.default], THROUGH_PYTHON),
}
RULES: dict[Any, Callable[[PartsRewriter, Node], Any]] = {
    **dict.fromkeys(MULTIPLICATIONS, multiplied),
    **dict.fromkeys(DIVISIONS, divided),
    **dict.fromkeys(SUMS, total),
    **dict.fromkeys([*VIEWS, *GROWN, *REDUCTIONS, aten.clone.default], moved),
    **dict.fromkeys(NORMS, norm),
    **dict.fromkeys(VARIANCES, variance),
    **dict.fromkeys(FUSED_TERMS, fused_terms),
    aten.dist.default: distance,
    aten.slice_scatter.default: spread,
    aten.reciprocal.default: inverse,
    aten.rsub.Scalar: difference_from,
    aten.sgn.default: direction,
    aten.neg.default: negative,
    aten._conj.default: conjugate,
    aten.exp.default: exponential,
    aten.abs.default: size_of,
    aten.view_as_real.default: as_real,
    aten.view_as_complex.default: as_complex,
    aten.complex.default: both,
}
