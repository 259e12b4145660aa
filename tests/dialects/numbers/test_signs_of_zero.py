"""Zeros of both signs through what adds up, normalises, pools and differentiates: eager's sign comes out.

A sum that begins at 0.0 makes 0.0 of -0.0; one that begins at its first element does not. Where eager's own signs depend on
strides, both will do.
"""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import mlirc

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
FUNCTIONS: dict[str, Callable] = {
    "sum": lambda x: x.sum(-1),
    "sum of columns": lambda x: x.sum(0),
    "sum of all": lambda x: x.sum(),
    "sum of nothing": lambda x: x.sum((2, 3)).view(-1)[:1].sum(),
    "mean": lambda x: x.mean(-1),
    "nansum": lambda x: x.nansum(1),
    "nanmean": lambda x: x.nanmean(1),
    "prod": lambda x: x.prod(-1),
    "cumsum": lambda x: x.cumsum(-1),
    "cumsum of columns": lambda x: x.cumsum(1),
    "cumprod": lambda x: x.cumprod(-1),
    "norm": lambda x: x.norm(dim=-1),
    "var_mean": lambda x: torch.var_mean(x, -1)[1],
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1) * 0.0,
    "group_norm": lambda x: F.group_norm(x, 2),
    "group_norm 1": lambda x: F.group_norm(x, 1),
    "group_norm of each": lambda x: F.group_norm(x, 4),
    "group_norm of one": lambda x: F.group_norm(x[:, :, 0, 0], 4),
    "group_norm weight": lambda x: F.group_norm(x, 2, torch.tensor([1.0, -1.0, 0.0, -0.0], dtype=x.dtype)),
    "group_norm bias": lambda x: F.group_norm(x, 2, None, torch.tensor([0.0, -0.0, 0.0, -0.0], dtype=x.dtype)),
    "group_norm both": lambda x: F.group_norm(
        x, 2, torch.tensor([1.0, 2.0, 0.5, -1.0], dtype=x.dtype), torch.tensor([0.0, -0.0, -0.0, 0.0], dtype=x.dtype)
    ),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "layer_norm of one": lambda x: F.layer_norm(x[..., :1], (1,)),
    "layer_norm weight": lambda x: F.layer_norm(x, x.shape[-1:], x[0, 0, 0] + 1),
    "layer_norm bias": lambda x: F.layer_norm(x, x.shape[-1:], None, x[0, 0, 0]),
    "rms_norm": lambda x: F.rms_norm(x, x.shape[-1:]),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "batch_norm evaluated": lambda x: F.batch_norm(x, torch.zeros(4, dtype=x.dtype), torch.ones(4, dtype=x.dtype)),
    "instance_norm": lambda x: F.instance_norm(x),
    "max_pool 1": lambda x: F.max_pool2d(x, 1),
    "max_pool": lambda x: F.max_pool2d(x, 2),
    "max_pool overlapping": lambda x: F.max_pool2d(x, 3, 1, 1),
    "max_pool 1d": lambda x: F.max_pool1d(x[0], 2),
    "avg_pool 1": lambda x: F.avg_pool2d(x, 1),
    "avg_pool": lambda x: F.avg_pool2d(x, 2),
    "avg_pool padded": lambda x: F.avg_pool2d(x, 3, 1, 1),
    "avg_pool 1d": lambda x: F.avg_pool1d(x[0], 2),
    "adaptive": lambda x: F.adaptive_avg_pool2d(x, 2),
    "adaptive 1": lambda x: F.adaptive_avg_pool2d(x, 1),
    "interpolate": lambda x: F.interpolate(x, scale_factor=2),
    "gather": lambda x: x.gather(-1, torch.zeros(2, 4, 4, 1, dtype=torch.int64)),
    "index": lambda x: x[:, [0, 0, 3]],
    "embedding": lambda x: F.embedding(torch.tensor([0, 1, 1]), x[0, 0]),
    "expanded": lambda x: x[:, :1].expand(2, 3, 4, 4) * 1,
    "repeated": lambda x: x.repeat(1, 2, 1, 1),
    "slice": lambda x: x[:, 1:],
    "stride": lambda x: x[..., ::2],
    "flip": lambda x: x.flip(1),
    "pad": lambda x: F.pad(x, (1, 1)),
    "concatenated": lambda x: torch.cat([x, x]),
    "where": lambda x: torch.where(x.isnan(), 1.0, x),
    "twice": lambda x: x + x,
    "difference": lambda x: x - x.flip(0),
    "times": lambda x: x * x.flip(-1),
    "amax": lambda x: x.amax((2, 3)),
    "max": lambda x: x.max(-1).values,
    "logsumexp": lambda x: x.logsumexp(-1) * 0.0,
    "mse": lambda x: F.mse_loss(x, x.flip(0)),
    "l1": lambda x: F.l1_loss(x, x.flip(0)),
    "logit": lambda x: x.logit(),
    "lerp": lambda x: torch.lerp(x, x.flip(0), 0.0),
    "addcmul": lambda x: torch.addcmul(x, x, x),
    "addcdiv": lambda x: torch.addcdiv(x, x, x + 1),
    "alpha": lambda x: torch.sub(x, x.flip(1), alpha=2),
}
# Of -0.0 and 0.0 neither is the larger; eager takes the one or the other by the place in a vector.
EITHER = {"amax", "max_pool overlapping", "max_pool", "max_pool 1d"}

# Gradients whose every incoming element is -0.0: eager's softmax gives 0.0 along the last or the first dimension and -0.0 along
# others (below); its group norm's, multiplied out around x, have the sign of x's products.
SIGNLESS_GRADIENTS = {"softmax", "log_softmax", *(n for n in FUNCTIONS if n.startswith("group_norm"))}


def zeros(kind: str, dtype: torch.dtype) -> torch.Tensor:
    x = torch.full((2, 4, 4, 4), -0.0, dtype=dtype)
    if kind == "mixed":
        x = torch.where(torch.arange(128).view(x.shape) % 3 == 0, 0.0, x).to(dtype)
    return x


def results(f: Callable, x: torch.Tensor) -> list[torch.Tensor]:
    x = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    out = f(x)
    grad = torch.full_like(out, -0.0)
    return [out.detach(), torch.autograd.grad(out, x, grad, allow_unused=True)[0]]


def signs(x: torch.Tensor) -> torch.Tensor:
    return torch.where((x == 0) & x.signbit(), -1, torch.where(x == 0, 1, 0))


QUICK = [("negative", torch.float16, 0), ("mixed", torch.float32, 1)]


@pytest.mark.parametrize(("kind", "dtype", "first"), QUICK)
def test_eagers_zeros(kind, dtype, first):
    """Half of the functions with zeros of one kind, the others with those of the other."""
    check(kind, dtype, [False], [*FUNCTIONS][first::2])


@pytest.mark.full
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ["negative", "mixed"])
def test_more_of_eagers_zeros(kind, dtype):
    check(kind, dtype, [False, True], [*FUNCTIONS])


def check(kind: str, dtype: torch.dtype, layouts: list[bool], functions: list[str]) -> None:
    """Forward, and the gradient of a gradient that is -0.0; row-major, and channels-last where `layouts` says so."""
    wrong = []
    for last in layouts:
        x = zeros(kind, dtype)
        x = x.contiguous(memory_format=torch.channels_last) if last else x
        names = [n for n in functions if kind == "negative" or n not in EITHER]
        wanted = {n: results(FUNCTIONS[n], x) for n in names}
        other = {n: results(FUNCTIONS[n], zeros(kind, dtype)) for n in names}
        xs = {n: x.detach().clone(memory_format=torch.preserve_format).requires_grad_() for n in names}
        torch.compiler.reset()
        made = torch.compile(lambda xs: {n: FUNCTIONS[n](x) for n, x in xs.items()}, backend="mlirc", fullgraph=True)(
            xs
        )
        torch.autograd.backward(list(made.values()), [torch.full_like(m, -0.0) for m in made.values()])
        for n in names:
            mine = made[n].detach(), xs[n].grad
            for part, got, eager, plain in zip(("result", "gradient"), mine, wanted[n], other[n], strict=True):
                same = (signs(got) == signs(eager)) | (part == "gradient" and n in SIGNLESS_GRADIENTS)
                if last:
                    same |= signs(got) == signs(plain)
                if not same.all():
                    wrong.append((n, part, last, signs(got)[~same][:4].tolist(), signs(eager)[~same][:4].tolist()))
    assert not wrong, wrong


@pytest.mark.parametrize("f", [torch.softmax, torch.log_softmax])
def test_eagers_softmax_has_no_sign_of_zero_of_its_own(f):
    x = torch.full((3, 4, 5), -0.0)
    last, middle = (results(lambda x, d=d: f(x, d), x)[1] for d in (2, 1))
    assert not last.signbit().any() and middle.signbit().all()


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_folds_of_one_zero(dtype):
    """Of tensors without dimensions, too, with each way to name the dimension."""
    folds = [torch.sum, torch.mean, torch.nansum, torch.nanmean, torch.prod, torch.amax, torch.cumsum, torch.cumprod]
    ways: list[dict] = [{}, {"dim": 0}, {"dim": -1}, {"dim": 0, "keepdim": True}]
    calls = [(f, way) for f in folds for way in ways if f not in (torch.cumsum, torch.cumprod) or [*way] == ["dim"]]
    program = lambda xs: [f(x, **way) for x in xs for f, way in calls]
    zeros = [torch.full(shape, zero, dtype=dtype) for shape in ((), (1,)) for zero in (-0.0, 0.0)]
    zeros += [zeros[0].clone().prod()]
    torch.compiler.reset()
    got = torch.compile(program, backend="mlirc", fullgraph=True)(zeros)
    assert [x.signbit().tolist() for x in got] == [x.signbit().tolist() for x in program(zeros)]


PLACES = [((3, 40, 6), 1), ((9, 200), 1), ((300, 3), 0), ((5, 7), 1)]
MORE_PLACES = [*PLACES, ((5, 7), 0), ((2, 1), 1), ((3, 40, 6), 0), ((300, 3), 1), ((2, 3000), 1)]
ROWS = ([-torch.inf], [-0.0, 0.0, -1.0, -0.0], [0.0, -0.0, 1.0], [0.0, -0.0, torch.nan, 2.0, -2.0, 0.0, -0.0])


def extremes(xs: list[torch.Tensor], dims: list[int]) -> list[torch.Tensor]:
    """Extremes with their positions and alone, of rows and columns, of what is read and of what is computed."""
    found: list[torch.Tensor] = []
    for x, dim in zip(xs, dims, strict=True):
        found += [*x.max(dim), *x.min(dim, keepdim=True), x.neg().max(dim).values, x.mul(2).min(dim).values]
    return found


@pytest.mark.parametrize(
    ("dtype", "dynamic"),
    [(torch.float32, False), *(pytest.param(t, True, marks=pytest.mark.full) for t in DTYPES)],
    ids=str,
)
def test_an_extreme_is_the_element_at_its_index(dtype, dynamic):
    """Of -0.0 and 0.0 the first, of NaN beside them the NaN, in a row of -inf or of one element, too."""
    xs, dims = [], []
    for shape, dim in MORE_PLACES if dynamic else PLACES:
        made = [torch.tensor(row, dtype=dtype)[torch.randint(0, len(row), shape)] for row in ROWS]
        made += [made[1].mT.contiguous().mT, made[2].repeat_interleave(2, -1)[..., ::2]]
        xs += made
        dims += [dim] * len(made)
    torch.compiler.reset()
    got = torch.compile(extremes, backend="mlirc", fullgraph=True, dynamic=dynamic)(xs, dims)
    for mine, eager in zip(got, extremes(xs, dims), strict=True):
        torch.testing.assert_close(mine, eager, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(signs(mine), signs(eager))


def test_a_softmax_of_the_program_does_not_look_for_the_first_extreme():
    """Its exponentials are the same for both zeros, and a maximum without its position costs half."""

    def softmax(x):
        e = (x - x.max(-1, keepdim=True).values).exp()
        return e / e.sum(-1, keepdim=True)

    def shown(x):
        return x - x.max(-1, keepdim=True).values

    reports = {f: str(mlirc.explain(f)(torch.randn(4, 40))) for f in (softmax, shown)}
    assert "first_max" in reports[shown] and "first_max" not in reports[softmax]
