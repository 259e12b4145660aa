"""What backward graphs on a GPU compute anew: here the rewritten graphs run on the CPU."""

import pytest
import torch
from torch import nn
from torch._functorch.aot_autograd import aot_function

from mlirc.frontend.partition import recomputation, undefined_tangents

F = nn.functional


@pytest.fixture
def saved(monkeypatch):
    """Elements of the float tensors that each forward graph saves."""
    monkeypatch.setattr(recomputation, "is_on_gpu", lambda x: True)
    found = []
    plain = recomputation.partition

    def noted(joint, inputs, *, num_fwd_outputs, **options):
        graphs = plain(joint, inputs, num_fwd_outputs=num_fwd_outputs, **options)
        kept = [n.meta["val"] for n in graphs[0].graph.output_node().args[0][num_fwd_outputs:]]
        found.append(sorted(v.numel() for v in kept if isinstance(v, torch.Tensor) and v.is_floating_point()))
        return graphs

    monkeypatch.setattr(recomputation, "partition", noted)
    return found


def step(fn, *inputs):
    copies = [x.detach().clone().requires_grad_(x.is_floating_point()) for x in inputs]
    out = fn(*copies)
    out.backward()
    return [out.detach(), *(x.grad for x in copies if x.requires_grad)]


def check(fn, *inputs):
    """By the mlirc backend, with the graphs that a GPU would get: within twice eager's distance from float64."""
    exact = step(fn, *(x.double() for x in inputs))
    for have, own, best in zip(
        step(torch.compile(fn, backend="mlirc"), *inputs), step(fn, *inputs), exact, strict=True
    ):
        assert have.dtype == own.dtype and torch.equal(have.isnan(), own.isnan())
        errors = [(x.double() - best).nan_to_num().norm() for x in (have, own)]
        assert errors[0] <= 2 * errors[1] + 1e-6, errors


LOSSES = {
    "plain": {},
    "ignored": {"ignore_index": 3},
    "weights": {"weight": torch.tensor([0.5, 2, 1, 3, 0, 1, 1])},
    "sum": {"reduction": "sum"},
    "smoothed": {"label_smoothing": 0.1},
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cross_entropy_saves_two_numbers_a_row(name, dtype, saved):
    torch.manual_seed(0)
    x, y = torch.randn(9, 7).to(dtype), torch.randint(7, (9,))

    def loss(x):
        options = {k: v.to(x.dtype) if k == "weight" else v for k, v in LOSSES[name].items()}
        return F.cross_entropy(x * 2, y, **options)

    check(loss, x)
    assert [n for n in saved[0] if n > 9] == [63]  # x, or the logits


def test_a_loss_of_each_row(saved):
    y = torch.tensor([0, 3, -100, 6])
    check(lambda x: (F.cross_entropy(x, y, reduction="none") * torch.arange(4)).sum(), torch.randn(4, 7))


def test_rows_with_infinities_and_nan(saved):
    x = torch.randn(4, 7)
    x[0, 2], x[1, 3], x[2] = float("-inf"), float("nan"), float("-inf")
    check(lambda x: F.cross_entropy(x, torch.tensor([0, 1, 2, 3])), x)


@pytest.mark.parametrize("f", [torch.tanh, F.silu, torch.sigmoid], ids=lambda f: f.__name__)
def test_activations_are_not_saved(f, saved):
    torch.manual_seed(0)
    x, w, v = torch.randn(8, 6), torch.randn(6, 5), torch.randn(8, 5)
    check(lambda x, w, v: (f(x @ w) * v).sum(), x, w, v)
    assert saved[0] == [30, 40, 40, 48]  # w, x @ w, v, x


def test_two_activations_of_one_value_stay_two(saved):
    check(lambda x: (F.silu(x * 3) + torch.sigmoid(x * 3)).sum(), torch.randn(5, 4))


def test_operators_stay_whole_on_a_cpu():
    graphs = []

    def keep(gm, inputs):
        graphs.append(gm)
        return gm

    f = aot_function(
        lambda x, y: F.cross_entropy(x, y),
        keep,
        keep,
        partition_fn=undefined_tangents.partition,
        decompositions=recomputation.decompositions(),
    )
    f(torch.randn(4, 3, requires_grad=True), torch.tensor([0, 1, 2, 0])).backward()
    assert graphs[0].graph.find_nodes(op="call_function", target=torch.ops.aten._log_softmax.default)
    assert graphs[1].graph.find_nodes(op="call_function", target=torch.ops.aten.nll_loss_backward.default)


SUMS = [
    lambda x: x.sum(1),
    lambda x: x.mean(1).tanh(),
    lambda x: x.var(1),
    lambda x: torch.var_mean(x, 1)[1] * 3,
    lambda x: x.norm(dim=1) + 1,
    lambda x: x.logsumexp(1),
    lambda x: x.cumsum(1)[:, -1],
    lambda x: x.softmax(1)[:, 3].exp(),
]
LARGEST = [
    lambda s, at: torch.full((5,), float("-inf")).scatter_reduce(0, at, s, "amax")[at],
    lambda s, at: torch.full((5,), float("inf")).scatter_reduce(0, at, s, "amin")[at],
    lambda s, at: s.amax(),
    lambda s, at: s[at].view(4, 3).amin(1),
    lambda s, at: torch.linalg.vector_norm(s, float("inf")),
]


def test_what_is_compared_with_a_forward_graphs_number_is_not_summed_again():
    """The gradient of a largest sum goes where the sum equals it: summed in another order, none does, and it is 0 / 0."""

    def program(x, at):
        rows = x[at.flip(0)] * x[at]
        found = [LARGEST[k % len(LARGEST)](s(rows), at) for k, s in enumerate(SUMS)]
        return sum(f.square().sum() for f in found)

    torch._dynamo.reset()
    compiled = torch.compile(program, backend="mlirc", options={"fallback": "error", "cache": False})
    for seed in range(3):
        torch.manual_seed(seed)
        x, at = torch.randn(5, 4, requires_grad=True), torch.randint(0, 5, (12,))
        (found,), (expected,) = (torch.autograd.grad(f(x, at), x) for f in (compiled, program))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


HALF_CHAINS = [
    lambda x: 5 / F.silu(x),
    lambda x: x.exp() * 0.3,
    lambda x: x.tanh() * 1.7 + x,
    lambda x: 3 / x.exp() + x.sigmoid(),
    lambda x: x.sigmoid().reciprocal() * 0.7,
    lambda x: (x.sin() * x.cos()).exp() * 0.7,
    lambda x: (x.square() + 1).rsqrt() / 3,
    lambda x: 7 / (x.softmax(1) + 1),
]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_what_is_compared_has_the_rounding_that_the_forward_graph_compared_with(dtype):
    """A chain of half numbers computed from one that the forward graph saves has that one's rounding; the forward graph's largest has not."""

    def program(x):
        chains = [chain(x) for chain in HALF_CHAINS]
        return [largest(y) for y in chains for largest in (lambda y: y.amin(0), lambda y: y.amax(0))]

    torch._dynamo.reset()
    compiled = torch.compile(program, backend="mlirc", options={"fallback": "error", "cache": False})
    torch.manual_seed(0)
    x = torch.randn(31, 9).abs().add(0.1).to(dtype).requires_grad_()
    for y in compiled(x):
        (found,) = torch.autograd.grad(y.float().sum(), x, retain_graph=True)
        assert found.isfinite().all()  # shared by none, it is 0 / 0
