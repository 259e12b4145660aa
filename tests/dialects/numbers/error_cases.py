"""Operators that add up or approximate, with inputs at which rounding errors grow, and the measure of their errors."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F

Make = Callable[[torch.Generator], list[torch.Tensor]]


@dataclass(frozen=True)
class Case:
    """An operator and its operands: floats are float64 here, and are rounded to the dtype that is measured. `hard` is the number of
    operands that take values of a kind of KINDS; the others stay normal. `allowed` is how far over the limit a largest error may be.
    `terms` is the size of float32 numbers that may cancel in the result: their rounding has no limit."""

    function: Callable[..., torch.Tensor | tuple[torch.Tensor, ...]]
    make: Make
    hard: int = 1
    gradients: bool = True
    allowed: float = 1.0
    terms: Callable[[list[torch.Tensor]], float] = lambda tensors: 0.0


def ordinary(x: torch.Tensor, g: torch.Generator) -> torch.Tensor:
    return x


def large_mean(x: torch.Tensor, g: torch.Generator) -> torch.Tensor:
    return x + 100


def large_spread(x: torch.Tensor, g: torch.Generator) -> torch.Tensor:
    return x * 10 ** (torch.rand(x.shape, generator=g, dtype=x.dtype) * 6 - 3)


def behind_relu(x: torch.Tensor, g: torch.Generator) -> torch.Tensor:
    return x.relu()


def few_values(x: torch.Tensor, g: torch.Generator) -> torch.Tensor:
    """A number and seldom another one: roundings of equal numbers do not average out."""
    return torch.rand((), generator=g, dtype=x.dtype) + 3.0 * (x > 2)


KINDS = {f.__name__: f for f in (ordinary, large_mean, large_spread, behind_relu, few_values)}


def normal(*shapes: Sequence[int]) -> Make:
    return lambda g: [torch.randn(tuple(s), generator=g, dtype=torch.float64) for s in shapes]


def indexed(limit: int, count: Sequence[int], *shapes: Sequence[int]) -> Make:
    """Tensors as of `normal`, then int64 indices below `limit`."""
    return lambda g: [*normal(*shapes)(g), torch.randint(limit, tuple(count), generator=g)]


def in_unit_interval(*shapes: Sequence[int]) -> Make:
    """Tensors as of `normal`, the last of them a probability."""

    def make(g):
        tensors = normal(*shapes)(g)
        return [*tensors[:-1], tensors[-1].sigmoid()]

    return make


ROWS = {"short": (64, 7), "odd": (33, 1021), "long": (1, 1 << 20)}
REDUCTIONS: dict[str, Callable] = {
    "sum": lambda x: x.sum(-1),
    "mean": lambda x: x.mean(-1),
    "var": lambda x: x.var(-1),
    "std": lambda x: x.std(-1),
    "var_mean": lambda x: torch.var_mean(x, -1),
    "norm": lambda x: x.norm(dim=-1),
    "norm_1": lambda x: x.norm(p=1, dim=-1),
    "norm_3": lambda x: torch.linalg.vector_norm(x, 3, dim=-1),
    "logsumexp": lambda x: x.logsumexp(-1),
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "rms_norm": lambda x: F.rms_norm(x, x.shape[-1:]),
    "normalize": lambda x: F.normalize(x, dim=-1),
    "cumsum": lambda x: x.cumsum(-1),
    "prod": lambda x: (1 + x / 4096).prod(-1),
    "cumprod": lambda x: (1 + x / 4096).cumprod(-1),
    "logcumsumexp": lambda x: x.logcumsumexp(-1),
    "sum_of_all": lambda x: x.sum(),
    "cosine": lambda x: F.cosine_similarity(x, x.flip(-1), dim=-1),
}
COLUMNS: dict[str, Callable] = {
    "sum_0": lambda x: x.sum(0),
    "mean_0": lambda x: x.mean(0),
    "var_0": lambda x: x.var(0),
    "norm_0": lambda x: x.norm(dim=0),
    "softmax_0": lambda x: x.softmax(0),
    "logsumexp_0": lambda x: x.logsumexp(0),
    "cumsum_0": lambda x: x.cumsum(0),
}


def attention(q, k, v, causal=False):
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


def slopes(tensors: list[torch.Tensor]) -> float:
    """The size of what cancels in attention's gradients where one key has all of the weight: slopes of scores, times a query or key."""
    q, k, v = (x.abs().max().item() for x in tensors)
    return v * max(q, k)


def cases() -> dict[str, Case]:
    """All of them, by name and size."""
    made: dict[str, Case] = {}
    for name, function in REDUCTIONS.items():
        for size, shape in ROWS.items():
            # one number a seed: eager's error may be small by chance
            made[f"{name} {size}"] = Case(function, normal(shape), allowed=2.0 if name == "sum_of_all" else 1.0)
    for name, function in COLUMNS.items():
        for size, shape in (("short", (7, 64)), ("long", (1 << 14, 20))):
            # in softmax's gradient g - sum(g * y) cancels where one y is 1
            terms = 1.0 if name == "softmax_0" else 0.0
            made[f"{name} {size}"] = Case(function, normal(shape), terms=lambda tensors, terms=terms: terms)

    for n, shape in (("short", (30, 37)), ("long", (100, 4096))):
        c = shape[-1]
        made[f"layer_norm_affine {n}"] = Case(
            lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b), normal(shape, (c,), (c,))
        )
        made[f"rms_norm_affine {n}"] = Case(lambda x, w: F.rms_norm(x, x.shape[-1:], w), normal(shape, (c,)))
    for n, shape in (("short", (2, 12, 5, 7)), ("long", (2, 8, 112, 112))):
        c = (shape[1],)
        made[f"group_norm {n}"] = Case(lambda x, w, b: F.group_norm(x, 4, w, b), normal(shape, c, c))
        made[f"instance_norm {n}"] = Case(lambda x, w, b: F.instance_norm(x, weight=w, bias=b), normal(shape, c, c))
        made[f"batch_norm {n}"] = Case(
            lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), normal(shape, c, c)
        )
        made[f"batch_norm_eval {n}"] = Case(
            lambda x, w, b, m, v: F.batch_norm(x, m.detach(), v.detach().abs() + 0.1, w, b), normal(shape, c, c, c, c)
        )
        made[f"batch_norm_last {n}"] = Case(
            lambda x, w, b: F.batch_norm(
                x.contiguous(memory_format=torch.channels_last), None, None, w, b, training=True
            ),
            normal(shape, c, c),
        )

    for n, (a, b, c) in {"short": (5, 7, 9), "odd": (65, 333, 71), "long": (16, 20000, 24)}.items():
        made[f"mm {n}"] = Case(torch.mm, normal((a, b), (b, c)), hard=2)
        made[f"linear {n}"] = Case(F.linear, normal((a, b), (c, b), (c,)), hard=2)
        made[f"addmm {n}"] = Case(torch.addmm, normal((c,), (a, b), (b, c)), hard=3)
        made[f"bmm {n}"] = Case(torch.bmm, normal((3, a, b), (3, b, c)), hard=2)
        made[f"mv {n}"] = Case(torch.mv, normal((a, b), (b,)), hard=2)

    for n, (i, c) in {"few": (9, 8), "many": (28, 64)}.items():
        x = (2, c, i, i)
        made[f"conv_3x3 {n}"] = Case(lambda x, w: F.conv2d(x, w, padding=1), normal(x, (c, c, 3, 3)))
        made[f"conv_3x3_stride {n}"] = Case(lambda x, w: F.conv2d(x, w, stride=2, padding=1), normal(x, (c, c, 3, 3)))
        # the weight's gradient: a chain of up to 256 products, where oneDNN's are shorter
        made[f"conv_1x1 {n}"] = Case(F.conv2d, normal(x, (2 * c, c, 1, 1)), allowed=1.5)
        made[f"conv_depthwise {n}"] = Case(
            lambda x, w: F.conv2d(x, w, padding=1, groups=len(w)), normal(x, (c, 1, 3, 3))
        )
        made[f"conv_groups {n}"] = Case(lambda x, w: F.conv2d(x, w, padding=1, groups=4), normal(x, (c, c // 4, 3, 3)))
        made[f"conv_transposed {n}"] = Case(
            lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1), normal(x, (c, c, 3, 3))
        )
        made[f"conv_last {n}"] = Case(
            lambda x, w: F.conv2d(x.contiguous(memory_format=torch.channels_last), w, padding=1),
            normal(x, (c, c, 3, 3)),
        )
        made[f"conv_1d {n}"] = Case(
            lambda x, w, b: F.conv1d(x, w, b, padding=2), normal((2, c, i * i), (c, c, 5), (c,))
        )
        made[f"conv_3d {n}"] = Case(lambda x, w: F.conv3d(x, w, padding=1), normal((1, c, 5, i, i), (c, c, 3, 3, 3)))

    for n, (q, k) in {"short": (7, 9), "long": (64, 2048), "one": (1, 4096)}.items():
        shapes = (1, 2, q, 64), (1, 2, k, 64), (1, 2, k, 64)
        # the scores of a single query are summed in another order than its gradient sums them
        allowed = 3.0 if n == "one" else 1.0
        causal = partial(attention, causal=True)
        made[f"attention {n}"] = Case(attention, normal(*shapes), allowed=allowed, terms=slopes)
        made[f"attention_causal {n}"] = Case(causal, normal(*shapes), allowed=allowed, terms=slopes)

    for n, (r, c) in {"short": (9, 11), "long": (60, 5000), "tall": (20000, 3)}.items():
        made[f"cross_entropy {n}"] = Case(F.cross_entropy, indexed(c, (r,), (r, c)))
        made[f"nll {n}"] = Case(lambda x, t: F.nll_loss(x, t), indexed(c, (r,), (r, c)))
        made[f"mse {n}"] = Case(F.mse_loss, normal((r, c), (r, c)))
        made[f"l1 {n}"] = Case(F.l1_loss, normal((r, c), (r, c)))
        made[f"huber {n}"] = Case(F.huber_loss, normal((r, c), (r, c)))
        made[f"smooth_l1 {n}"] = Case(F.smooth_l1_loss, normal((r, c), (r, c)))
        made[f"kl_div {n}"] = Case(
            lambda x, t: F.kl_div(x.log_softmax(-1), t, reduction="batchmean"), in_unit_interval((r, c), (r, c))
        )
        made[f"bce {n}"] = Case(F.binary_cross_entropy_with_logits, in_unit_interval((r, c), (r, c)))
        made[f"embedding {n}"] = Case(lambda w, i: F.embedding(i, w), indexed(5, (r * 10,), (5, c)), hard=0)
        made[f"index_add {n}"] = Case(lambda x, y, i: x.index_add(0, i, y), indexed(5, (r,), (5, c), (r, c)), hard=2)
        made[f"scatter_add {n}"] = Case(
            lambda x, y, i: x.scatter_add(0, i, y), indexed(5, (r, c), (5, c), (r, c)), hard=2
        )
        made[f"index_put {n}"] = Case(
            lambda x, y, i: x.index_put((i,), y, accumulate=True), indexed(5, (r,), (5, c), (r, c)), hard=2
        )
        made[f"gather {n}"] = Case(lambda x, i: x.gather(0, i), indexed(r // 4, (r, c), (r, c)))
        made[f"expand {n}"] = Case(lambda x, y: x.expand_as(y) * y, normal((c,), (r, c)), hard=2)

    for n, shape in (("short", (2, 3, 9, 10)), ("long", (2, 8, 224, 224))):
        made[f"avg_pool {n}"] = Case(lambda x: F.avg_pool2d(x, 3, 2, 1), normal(shape))
        made[f"adaptive_pool {n}"] = Case(lambda x: F.adaptive_avg_pool2d(x, 1), normal(shape))
        made[f"adaptive_pool_7 {n}"] = Case(lambda x: F.adaptive_avg_pool2d(x, 7), normal(shape))
        made[f"bilinear {n}"] = Case(lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear"), normal(shape))
        made[f"bicubic {n}"] = Case(lambda x: F.interpolate(x, (21, 13), mode="bicubic"), normal(shape))
        made[f"bilinear_down {n}"] = Case(
            lambda x: F.interpolate(x, (5, 4), mode="bilinear", align_corners=True), normal(shape)
        )
    return made


CASES = cases()


def results(function: Callable, tensors: list[torch.Tensor], gradients: bool) -> list[torch.Tensor]:
    """What a call gives, and the gradients of its float operands for normal gradients of its results."""
    leaves = [x.detach().clone().requires_grad_(gradients and x.is_floating_point()) for x in tensors]
    made = function(*leaves)
    made = list(made) if isinstance(made, tuple) else [made]
    if not gradients:
        return made
    g = torch.Generator().manual_seed(7)
    given = [torch.randn(y.shape, generator=g, dtype=torch.float64).bfloat16().to(y.dtype) for y in made]
    wanted = [x for x in leaves if x.requires_grad]
    return [*(y.detach() for y in made), *torch.autograd.grad(made, wanted, given, materialize_grads=True)]


def operands(case: Case, kind: str, dtype: torch.dtype, seed: int) -> list[torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    tensors = case.make(g)
    tensors = [KINDS[kind](x, g) if i < case.hard and x.is_floating_point() else x for i, x in enumerate(tensors)]
    return [x.to(dtype) if x.is_floating_point() else x for x in tensors]


@dataclass(frozen=True)
class Excess:
    """How far our errors are over the limit: 1 is at it. `result` counts results, then gradients."""

    result: int
    measure: str
    ratio: float
    ours: float
    eager: float
    floor: float


def excesses(case: Case, compiled: Callable, kind: str, dtype: torch.dtype, seeds: int = 2) -> list[Excess]:
    """For each result and gradient, the root mean square and the largest of the errors of all seeds, over twice eager's and a
    unit in the last place of the result's largest number."""
    ours: dict[int, list[torch.Tensor]] = {}
    eagers: dict[int, list[torch.Tensor]] = {}
    scale: dict[int, float] = {}
    terms = 0.0
    for seed in range(seeds):
        tensors = operands(case, kind, dtype, seed)
        terms = max(terms, case.terms(tensors))
        exact = results(case.function, [x.double() if x.is_floating_point() else x for x in tensors], case.gradients)
        eager = results(case.function, tensors, case.gradients)
        got = results(compiled, tensors, case.gradients)
        for i, (x, e, y) in enumerate(zip(exact, eager, got, strict=True)):
            assert e.dtype == y.dtype and e.shape == y.shape
            valid = e.isfinite() & (x.abs() <= torch.finfo(dtype).max)
            error = (y.double() - x)[valid].abs().nan_to_num(math.inf)
            ours.setdefault(i, []).append(error)
            eagers.setdefault(i, []).append((e.double() - x)[valid].abs())
            scale[i] = max(scale.get(i, 0.0), x[valid].abs().max().item() if valid.any() else 0.0)
    found = []
    for i in ours:
        a, b = torch.cat(ours[i]), torch.cat(eagers[i])
        if not a.numel():
            continue
        info = torch.finfo(dtype)
        floor = max(scale[i] * info.eps, info.smallest_normal * info.eps, terms * torch.finfo(torch.float32).eps)
        measures = {"rms": lambda v: v.square().mean().sqrt().item(), "max": lambda v: v.max().item()}
        for measure, f in measures.items():
            limit = 2 * f(b) + floor
            found.append(Excess(i, measure, f(a) / limit, f(a), f(b), floor))
    return found
