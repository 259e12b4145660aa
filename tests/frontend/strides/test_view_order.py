"""Gradients of an input, of which results are views, are added up in eager's order: their strides are those of the first."""

import random

import pytest
import torch

VIEWS = {
    "permute": lambda x: x.permute(2, 1, 3, 0),
    "two views": lambda x: x.permute(3, 1, 2, 0).narrow(0, 1, 3),
    "transpose": lambda x: x.transpose(0, 2),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "slice": lambda x: x[1:],
    "select": lambda x: x[..., 2],
}
# AOTAutograd lays a result's gradient out as the result is: these are row-major, as the gradients are
COMPUTED = {
    "clone": lambda x: x.clone(memory_format=torch.contiguous_format),
    "sum": torch.sum,
    "flat": lambda x: x.flatten().sin(),
}
INPUTS = {
    "leaf": lambda x: x,
    "computed": lambda x: x * 1,
    "size of 1": lambda x: x[:, :1],
    "turned": lambda x: x.permute(3, 1, 0, 2),
}


def program_of(rng, of_views=False, totals=False):
    """Some views, a computation and other views, and in which order they are returned. `of_views`: the computation may be of an earlier view.
    `totals`: sums of the input stand between them."""
    steps = [VIEWS[rng.choice([*VIEWS])] for _ in range(rng.randint(1, 3))]
    place = rng.randint(0, len(steps))
    steps.insert(place, COMPUTED[rng.choice([*COMPUTED])])
    returned = rng.sample(range(len(steps)), len(steps))
    source = rng.randint(0, place) if of_views else 0
    summed = [totals and rng.random() < 0.5 for _ in steps]

    def program(x):
        made = [x]
        sums = []
        for k, step in enumerate(steps):
            made.append(step(made[source] if k == place else x))
            if summed[k]:
                sums.append(x.sum() + k)
        return [made[k + 1] for k in returned] + sums

    return program


def gradients(f, given):
    leaf = torch.randn(7, 4, 6, 5, generator=torch.Generator().manual_seed(0), requires_grad=True)
    x = INPUTS[given](leaf)
    weighted = [(y * torch.linspace(1, 2 + k, y.numel()).view(y.shape)).sum() for k, y in enumerate(f(x))]
    return torch.autograd.grad(weighted, [leaf, x])


def check(program, given, dynamic=False):
    torch._dynamo.reset()
    found = gradients(torch.compile(program, backend="mlirc", dynamic=dynamic), given)
    for got, eager in zip(found, gradients(program, given), strict=True):
        assert strides(got) == strides(eager)
        torch.testing.assert_close(got, eager)


def strides(x):
    return [stride for stride, size in zip(x.stride(), x.shape, strict=True) if size > 1]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("given", INPUTS)
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.thinned(2)
def test_gradients_have_eagers_strides(seed, given, dynamic):
    check(program_of(random.Random(f"{seed} {given}")), given, dynamic)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("given", INPUTS)
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.thinned(3)
def test_what_is_computed_from_a_view(seed, given, dynamic):
    check(program_of(random.Random(f"{seed} {given} of views"), of_views=True), given, dynamic)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("given", INPUTS)
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.thinned(3)
def test_sums_beside_views(seed, given, dynamic):
    check(program_of(random.Random(f"{seed} {given} totals"), totals=True), given, dynamic)


def test_the_node_of_a_leaf_keeps_its_number():
    """AccumulateGrad runs before all that are ready with it: it has the largest number."""

    def program(x):
        return x.t(), 3 / x, x.flatten()

    leaf = torch.randn(4, 4, requires_grad=True)
    node = torch.autograd.graph.get_gradient_edge(leaf).node
    number = node._sequence_nr()
    torch.compile(program, backend="mlirc")(leaf)
    assert node._sequence_nr() == number


def test_a_view_that_is_returned_twice():
    def program(x):
        y = x.transpose(0, 3)
        return y, y, y[1:], x.clone()

    check(program, "leaf")


@pytest.mark.parametrize(
    "beside", [lambda x: x % 2, lambda x: x.detach() + 1, lambda x: x.view(torch.int32), lambda x: x.argmax()]
)
@pytest.mark.thinned(2)
def test_what_has_no_gradient_or_is_not_read(beside):
    """Of it no gradient comes."""

    def program(x):
        y = x.transpose(0, 3)
        beside(x)
        return y, y.clone(memory_format=torch.contiguous_format)

    check(program, "leaf")


@pytest.mark.thinned(2)
@pytest.mark.parametrize("several", [torch.max, torch.sort, torch.cummax, torch.topk])
def test_what_gives_several_tensors_computes(several):
    """Before the view: `max(dim)` is one node of two tensors."""
    check(lambda x: [several(x, 2, 1)[0] if several is torch.topk else several(x, 1)[0], x.permute(2, 1, 3, 0)], "leaf")
