"""A tensor that is an argument and the base of another one: guards on its sizes, of AOTAutograd's and ours."""

import itertools

import pytest
import torch

from tests.sampling import some

pytestmark = pytest.mark.thinned

VIEWS = {
    "part": lambda a: a[1:],
    "same": lambda a: a.view_as(a),
    "transposed": lambda a: a.t(),
    "of a view": lambda a: a[:, 1:][1:],
}
GUARDED = {  # each makes guards of sizes: for strides, an empty result, a broadcast
    "roll": lambda x: x.roll(-3, 0),
    "roll both": lambda x: x.roll((1, -3), (0, 1)),
    "half": lambda x: x[: x.shape[0] // 2] + 1,
    "chunks": lambda x: x.chunk(2, 0)[0].exp() * 2,
    "product": lambda x: x @ x.t(),
    "sorted": lambda x: x.sort(stable=True)[0].cumsum(1),
}


ORDERS = list(itertools.product(("base first", "view first"), (None, True)))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", GUARDED)
def test_guards_on_the_base_of_an_input(name, view):
    for order, dynamic in some(ORDERS, 3):
        torch._dynamo.reset()

        def program(a, b, c, order=order):
            if order == "base first":
                return GUARDED[name](c), b * 2, a
            return b * 2, GUARDED[name](c), GUARDED[name](b), a

        compiled = torch.compile(program, backend="mlirc", dynamic=dynamic, options={"fallback": "error"})
        for shape in ((7, 4), (5, 40), (6, 8)):
            a = torch.randn(shape)
            for made, expected in zip(compiled(a, VIEWS[view](a), a), program(a, VIEWS[view](a), a), strict=True):
                torch.testing.assert_close(made, expected)
                assert made.stride() == expected.stride()


def test_a_size_of_overlapping_inputs_that_dynamo_found_to_be_a_number():
    """`diff` of two elements asks whether one is left: their number is 2 before AOTAutograd looks at which inputs overlap."""

    def program(a, v):
        a[0] = 7
        v.sub_(1)
        return torch.diff(a, dim=-1)

    compiled = torch.compile(program, backend="mlirc")
    for n in (16, 2, 3, 2, 5):
        a = torch.randn(n)
        other = a.clone()
        torch.testing.assert_close(compiled(a, a[1:]), program(other, other[1:]))
        torch.testing.assert_close(a, other)


KNOWN = {  # what makes a number of a size while Dynamo traces
    "pool": lambda b, v: torch.nn.functional.adaptive_max_pool1d(b, b.size(0)),
    "view": lambda b, v: b.view(2, -1) + v.size(0),
    "length": lambda b, v: b * len(range(b.size(0))),
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("view", ["row", "rows"])
def test_a_size_of_a_base_that_dynamo_found_to_be_a_number(name, view):
    """The base is the second of the inputs: its symbols stand in what is known of the first, its view."""

    def program(v, b):
        v.mul_(2)
        return v.exp(), KNOWN[name](b, v)

    compiled = torch.compile(program, backend="mlirc", dynamic=True)
    for n in (2, 3, 2):
        results = []
        for run in (program, compiled):
            b = torch.arange(2.0 * n).view(2, n) if n > 2 else torch.arange(4.0).view(2, 2)
            results.append([b, *run(b[1] if view == "row" else b[1:], b)])
        torch.testing.assert_close(results[1], results[0])


CHECKED = {
    "cholesky": lambda y: torch.linalg.cholesky(y.mT @ y + torch.eye(4)),
    "inv": lambda y: torch.linalg.inv(y + torch.eye(4) * 9),
    "solve": lambda y: torch.linalg.solve(y + torch.eye(4) * 9, y),
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", CHECKED)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_a_checked_factorization_beside_a_write_to_shared_memory(name, mode):
    """A check is an effect: for inputs in the same memory AOTAutograd forgot the token that orders it."""

    def program(x, y, w):
        x.add_(1)
        return CHECKED[name](y) @ w, x * 2, y

    found = []
    for function in (program, torch.compile(program, backend="mlirc", options={"fallback": "error"})):
        torch.manual_seed(0)
        torch._dynamo.reset()
        w = torch.randn(4, 4, requires_grad=mode is torch.enable_grad)
        with mode():
            x = torch.randn(4, 4)
            results = function(x, x.t(), w)
        if w.requires_grad:
            results[0].square().sum().backward()
        found.append([x, *results, w.grad])
    for a, b in zip(*found, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_traces_that_overlap_leave_pytorchs_function_as_it_was():
    """As those of two threads: the first to end does not take from the other what it needs, nor the last leave it behind."""
    from torch._functorch._aot_autograd import runtime_wrappers  # after torch._dynamo

    from mlirc.frontend.torch_compat.aot_autograd.kept_tokens import keeping_tokens

    plain = runtime_wrappers.create_synthetic_base_metadata
    first, second = keeping_tokens(), keeping_tokens()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert runtime_wrappers.create_synthetic_base_metadata is not plain
    second.__exit__(None, None, None)
    assert runtime_wrappers.create_synthetic_base_metadata is plain
