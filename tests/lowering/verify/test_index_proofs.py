"""Proofs that an index is in bounds: views that merge and split symbolic sizes are shown; nothing is shown that is wrong at a point."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlirc.dialects.core.symbols import evaluate, floordiv, mod, parse, substitute
from mlirc.lowering.verify import index_proofs
from mlirc.lowering.verify.index_proofs import Space, counterexample
from mlirc.lowering.verify.magnitude import LARGEST, magnitude

MERGED = [  # sizes of dimensions, an index, and the size of what it is an index of
    ({"d0": "s0*s1", "d1": "64"}, "(64*d0 + d1)//(64*s1)", "s0"),
    ({"d0": "s0*s1"}, "d0//s1", "s0"),
    ({"d0": "s0*s1"}, "d0 % s1", "s1"),
    ({"d0": "s0*s1*s2"}, "d0//(s1*s2)", "s0"),
    ({"d0": "4*s0*s1", "d1": "16"}, "(16*d0 + d1)//(64*s1)", "s0"),
    ({"d0": "64", "d1": "s0*s1"}, "(d0 + 64*d1)//(64*s1)", "s0"),
    ({"d0": "s0//s1"}, "d0", "s0//s1"),  # heads of queries for each one of keys
    ({"d0": "s1", "d1": "s0//s1"}, "d0*(s0//s1) + d1", "s1*(s0//s1)"),
    ({"d0": "(s0 + 3)//(s1 + s2)", "d1": "8"}, "8*d0 + d1", "8*((s0 + 3)//(s1 + s2))"),
]


@pytest.mark.parametrize(("sizes", "index", "size"), MERGED)
def test_a_view_that_merges_symbolic_sizes_is_in_bounds(sizes, index, size):
    space = Space({name: parse(n) for name, n in sizes.items()})
    assert space.nonnegative(parse(size) - 1 - parse(index))


def test_facts_that_say_nothing_of_a_goal_take_no_time(monkeypatch):
    """Each max in a fact has two cases: a dozen of them have thousands."""
    monkeypatch.setattr(index_proofs, "STEPS", 20)
    facts = [parse(f"max(s{k}, 1)*max(s{k} - 2, s1) - s2*max(1, s{k}//2)") for k in range(3, 9)]
    space = Space({"d0": parse("s0")}, tuple(facts))
    assert space.nonnegative(parse("d0")) and space.nonnegative(parse("s0 - 1 - d0"))
    assert not space.nonnegative(parse("s0 - 2 - d0"))


@pytest.mark.parametrize(
    ("size", "index"), [("s0//s1", "d0 + 1"), ("s0//s1 - 1", "d0"), ("s0//s2", "d0"), ("s0", "d0*s1 + 1")]
)
def test_what_a_size_that_is_a_quotient_does_not_bound(size, index):
    """s1 is 0 in none of these: it divides the size."""
    assert not Space({"d0": parse("s0//s1")}).nonnegative(parse(size) - 1 - parse(index))


def test_the_digits_of_an_index_add_up_to_it():
    """By the rules, for sizes that are symbols: what evaluates all points takes as long as there are points."""
    space = Space({"d0": parse("s0"), "d1": parse("s1")})
    left = parse("d0 + 456*d1 - 19*((d0//19) % 8) - d0 % 19 - 152*(d0//152) - 456*(d1 % 785) - 357960*(d1//785)")
    assert space.nonnegative(left) and space.nonnegative(left * -1)
    assert not space.nonnegative(left - parse("d0//152 - d0//153")) and not space.nonnegative(left - 1)
    assert space.nonnegative(parse("7 - (d0//19) % 8")) and not space.nonnegative(parse("6 - (d0//19) % 8"))


def test_a_divisor_that_is_no_factor_of_a_size_may_be_zero():
    assert not Space({"d0": parse("s0")}).nonnegative(parse("d0 - d0//s1"))
    assert not Space({"d0": parse("s0"), "d1": parse("s1")}).nonnegative(parse("s0 - 1 - d0//s1"))  # no d1 is in it


def test_what_is_left_is_found_among_facts_with_many_cases():
    padded = "s37*s93*(max(1, s86 + s93))"
    facts = [f"64*((max(0, {padded} + {k}*s86 - (max(1, s86 + s93)))) + 63)//64 - {padded}" for k in range(2)]
    sizes = {"d0": parse("s93"), "d1": parse("s86")}
    space = Space(sizes, tuple(map(parse, ("s93", "s37", "s86 + s93", *facts, "s37 + 2", "s93", "s86"))))
    assert space.left(parse("s93 - 1 - (d1 + 1)")) == [parse("s93 - s86 - 1")]


def test_an_index_is_at_most_the_number_of_points():
    """Four factors of 2**20 each would be too many; that a space has as many points is what bounds them."""
    sizes = {"d0": parse("s0"), "d1": parse("s1*s2"), "d2": parse("s3")}
    for index in ("d0*s1*s2*s3 + d1*s3 + d2", "(d0*s1*s2*s3 + d1*s3)//s2", "s0*s1*s2*s3"):
        assert magnitude(parse(index), sizes) < LARGEST
    for index in ("d0*s0*s1*s2", "d0*s1*s2*s3*s4", "d0*d1*s0*s3", "4611686018427387904*d0", "(s0*s1*s2*s0)//s3"):
        assert magnitude(parse(index), sizes) >= LARGEST


@pytest.mark.thinned(1)
@pytest.mark.parametrize("rank", [4, 5, pytest.param(6, marks=pytest.mark.full)])
def test_views_that_merge_many_symbolic_sizes(rank):
    def function(x):
        y = x.transpose(0, -1) * 2
        return y.reshape(y.shape[::-1]), y.flatten()[1:], y.flatten(1).sum(0), (x + 1).split(x.size(1), 1)[0].flatten()

    x = torch.arange(24.0 * 2 ** (rank - 3)).reshape(*[2] * (rank - 3), 2, 3, 4)
    run = torch.compile(function, backend="mlirc", dynamic=True, options={"fallback": "error"})
    for y in (x, x.flip(0).transpose(1, 2).contiguous()):
        torch.testing.assert_close(run(y), function(y))


@pytest.mark.parametrize(
    "size",
    [
        "s0*s1*s2*s3 + 3",
        "s0*s1*s2*s3 + 3 - (s0*s1*s2*s3 + 4)//2",
        "max(2*s0*s1*s2*s3 - 1, 1)",
        "(s0*s1*s2*s3 + 9)//4 - 2",
    ],
)
def test_an_index_is_at_most_a_multiple_of_the_number_of_points(size):
    """Where a size is a sum, as that of a part of tensors put together is, each of its products is known to be no more."""
    index = parse("d0 - s0*s1*s2*s3")
    assert magnitude(index, {"d0": parse(size)}) < LARGEST
    assert magnitude(index, {"d0": 7}, [[parse(size), 3]]) < LARGEST  # a tensor has as many elements
    assert magnitude(index, {"d0": parse("s5 - s0*s1*s2*s3")}) >= LARGEST
    assert magnitude(index * parse("s4"), {"d0": parse(size)}, [[parse("s4")]]) >= LARGEST


def test_an_index_is_bounded_by_a_size_whose_products_are_larger():
    """Of what a negative padding leaves, s1*s2*s3*(s0 - 2): where s0 is 2 the other product is larger than it by any amount."""
    size, other = parse("s0*s1*s2*s3 - 2*s1*s2*s3"), parse("s0*s1*s2*s3 - s1*s2*s3")
    third = parse("s0*s1*s2*s3 + s4*s1*s2*s3 - s0*s1*s2")
    for index in (parse("d0") - size, 3 * size - parse("d0"), parse("d0") - size - other):
        assert magnitude(index, {"d0": size + other}, [[size], [other]]) < LARGEST
        assert magnitude(index * parse("s4"), {"d0": size + other}, [[size], [other]]) >= LARGEST
    assert magnitude(parse("d0") - size - third, {"d0": size + other}, [[size], [other], [third]]) < LARGEST
    assert magnitude(parse("d0 - s0*s1*s2*s3"), {"d0": size + other}, [[size], [other]]) >= LARGEST


def test_a_minimum_with_a_number_is_at_most_that_number():
    """The first of s3*s4*s5 elements of each of up to 2 rows, where there are s0 rows."""
    index, shapes = parse("d0*s1*s2*s3 - s1*s2*s3*min(2, s0)"), [[parse(x) for x in ("s0", "s1", "s2", "s3")]]
    assert magnitude(index, {"d0": parse("s0")}, shapes) < LARGEST
    assert magnitude(index, {"d0": parse("s0")}, [shapes[0][1:]]) >= LARGEST  # s0 is no size: it may be below 0
    assert magnitude(index * 2**50, {"d0": parse("s0")}, shapes) >= LARGEST


@pytest.mark.parametrize("start", [1, 2, -3])
def test_gradients_of_flattened_parts(start):
    def function(x):
        v = x[start:]
        return v, v.flatten().sin()

    run = torch.compile(function, backend="mlirc", dynamic=True, options={"fallback": "error"})
    x = torch.randn(5, 3, 4, 2, requires_grad=True)
    found, wanted = (torch.autograd.grad([y.cos().sum() for y in f(x)], x) for f in (run, function))
    torch.testing.assert_close(found, wanted)


FLAT = {
    "flat": lambda x: x.reshape(-1),
    "transposed": lambda x: (x.transpose(0, -1) * 2).reshape(-1),
    "padded": lambda x: torch.nn.functional.pad(x, (1, 2)).flatten(),
    "sums": lambda x: (x.sum((1, 2, 3), True) + x.sum((0, 2, 3), True) + x.sum((0, 1, 3), True) + x[:1, :1, :1]).view(
        -1
    ),
    "part": lambda x: x[1:].flatten()[2:],
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dims", ["equal", "unequal"])
@pytest.mark.parametrize("flat", FLAT)
def test_parts_of_what_is_put_together_of_many_symbolic_sizes(flat, dims):
    def function(x, y):
        z = torch.cat([FLAT[flat](x), y]).mul(-1.5)
        parts = (
            z.chunk(2)[1],
            z.tensor_split(3)[1],
            z.narrow(0, x.numel() // 3, x.size(0)),
            z[x.size(0) : -2],
            z.flip(0)[1:],
        )
        return *parts, torch.cat([y, z])[x.size(1) :].roll(2), z.split(z.size(0) // 2)[-1].mean()

    run = torch.compile(function, backend="mlirc", dynamic=True, options={"fallback": "error"})
    for shape in ((3, 3, 3, 3), (2, 2, 2, 2)) if dims == "equal" else ((2, 3, 4, 5), (3, 2, 5, 4)):
        x, y = torch.randn(shape), torch.randn(3)
        torch.testing.assert_close(run(x, y), function(x, y))


@pytest.mark.parametrize(
    "pads", [((-1, -1), (-1, 0)), pytest.param(((-1, -1), (1, -1), (-1, 0)), marks=pytest.mark.full)]
)
def test_what_negative_padding_leaves_put_together(pads):
    def function(x):
        return torch.cat([torch.nn.functional.pad(x, pad).flatten() for pad in pads])

    run = torch.compile(function, backend="mlirc", dynamic=True, options={"fallback": "error"})
    for shape in ((2, 3, 7, 9), (3, 2, 5, 4)):
        x = torch.randn(shape)
        torch.testing.assert_close(run(x), function(x))


FACTORS = st.lists(st.sampled_from(["s0", "s1", "2", "3"]), min_size=1, max_size=3).map(lambda x: parse("*".join(x)))


@st.composite
def goals(draw):
    sizes = {f"d{k}": draw(FACTORS) for k in range(draw(st.integers(1, 2)))}
    index = draw(st.integers(0, 2))
    for name in sizes:
        index = index + parse(name) * draw(FACTORS)
    divide = draw(st.sampled_from([floordiv, mod]))
    return Space(sizes), draw(FACTORS) - draw(st.integers(0, 1)) - divide(index, draw(FACTORS))


@settings(max_examples=120, deadline=None)
@given(goals())
def test_what_is_shown_holds_at_each_point(case):
    space, goal = case
    if not space.nonnegative(goal):
        return
    for symbols in itertools.product((0, 1, 2, 3), repeat=2):
        values = dict(zip(("s0", "s1"), symbols, strict=True))
        ranges = [range(evaluate(n, values)) for n in space.sizes.values()]
        for point in itertools.islice(itertools.product(*ranges), 400):
            left = substitute(goal, {**values, **dict(zip(space.sizes, point, strict=True))})
            assert left >= 0, (space.sizes, str(goal), values, point)


def test_parts_of_a_view_whose_remainder_a_guard_fixes():
    """Sizes of parts are quotients of a product of symbols: where there is an index, the symbols are at least 1."""
    import torch

    def program(x):
        return torch.tensor_split((x * 2).view(-1), 3, 0)

    compiled = torch.compile(program, backend="mlirc", dynamic=True, options={"fallback": "error"})
    for shape in ((5, 2), (4, 4), (5, 5), (3, 3), (2, 4)):
        x = torch.randn(shape)
        for found, expected in zip(compiled(x), program(x), strict=True):
            torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_sizes_that_divide_by_zero_are_no_counterexample():
    """s1//13 is 0 for some of the sizes that are tried."""
    space = Space({"d0": parse("s0//(s1//13)")})
    assert counterexample(space, parse("s0//(s1//13) - 1 - d0")) is None
    assert counterexample(space, parse("s0//(s1//13) - 2 - d0")) is not None


def test_a_symbol_that_is_negative_by_its_name():
    """A slice that ends before the end: x[2:n:2] of s0*s1 elements reads none of the row s0."""
    goal = parse("s0 - 1 - (2*d0 + 2)//s1")
    assert counterexample(Space({"d0": parse("(s0*s1 + uns2 - 1)//2")}), goal) is None
    assert counterexample(Space({"d0": parse("(s0*s1 + us2 - 1)//2")}), goal) is not None


PIXELS = "(((s1 - 1)//4) + 1)*(((s2 - 1)//4) + 1)"


@pytest.mark.parametrize(
    "goal, size, proved",
    [
        (f"s0 - 1 - (d0//({PIXELS}))", f"s0*{PIXELS}", True),
        (f"s0*{PIXELS} - 1 - d0", f"s0*{PIXELS}", True),
        (f"s0 - 2 - (d0//({PIXELS}))", f"s0*{PIXELS}", False),
        (f"s0 - 1 - (d0//({PIXELS}))", f"s0*{PIXELS} + 1", False),
        (f"s0 - 1 - (d0//({PIXELS} - 1))", f"s0*{PIXELS}", False),
        ("s0 - 1 - (d0//(((s1 - 1)//4)*((s2 - 1)//4) - 1))", "s0*((s1 - 1)//4)*((s2 - 1)//4)", False),
    ],
)
def test_quotients_by_products_of_sums(goal, size, proved):
    """A size that has an index is a multiple of such a divisor, which is thus 1 or more: pixels of images that a stride has made smaller."""
    assert Space({"d0": parse(size)}).nonnegative(parse(goal)) == proved
