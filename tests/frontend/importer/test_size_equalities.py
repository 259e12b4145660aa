"""Graphs that run only for sizes which a guard says are equal: `16 * (h // 2) * (w // 2) == 1024` in front of a linear layer."""

import pytest
import sympy
import torch
import torch.nn.functional as F
from torch import nn
from torch.fx.experimental.symbolic_shapes import ShapeEnv, ShapeGuard, SLoc
from torch.utils._sympy.functions import FloorDiv, Mod
from torch.utils._sympy.value_ranges import ValueRanges

from mlirc.frontend.importer import sizes
from mlirc.frontend.importer.size_equalities import (
    _eliminated,
    _leading,
    _quotient,
    _reduced_by_each_other,
    _remainder,
    _solved,
    simplest,
)
from mlirc.frontend.importer.sizes import named

pytestmark = pytest.mark.thinned


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("shape", [(16, 16), (8, 32)])
def test_images_that_fill_a_linear_layer(shape, training):
    torch._dynamo.reset()
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(1024, 4)
    model = nn.Sequential(*layers).train(training)
    compiled = torch.compile(model, backend="mlirc", dynamic=True, options={"fallback": "error"})
    for n in (4, 6):
        x = torch.randn(n, 3, *shape)
        with torch.set_grad_enabled(training):
            made, expected = compiled(x), model(x)
        torch.testing.assert_close(made, expected)
        if training:
            given, right = (torch.autograd.grad(y.square().sum(), model[0].weight)[0] for y in (made, expected))
            torch.testing.assert_close(given, right, rtol=1e-4, atol=1e-4)


def test_a_length_that_needs_no_padding():
    """What pads it to whole chunks is 0 by `not padding > 0`, which says nothing of equality by itself."""

    def program(x, gate):
        batch, length, width = x.shape
        padding = (4 - length % 4) % 4
        padded = torch.nn.functional.pad(x, (0, 0, 0, padding))
        chunks = padded.relu().reshape(batch, -1, 4, width) + 1
        made = chunks.reshape(batch, -1, width) + padded
        if padding > 0:
            made = made[:, :length]
        return made.reshape(batch, length, -1) * gate.sigmoid()

    torch._dynamo.reset()
    compiled = torch.compile(program, backend="mlirc", dynamic=True, options={"fallback": "error"})
    for length in (8, 12, 10):
        x, gate = torch.randn(2, 3, length, 5).unbind(0)
        torch.testing.assert_close(compiled(x, gate), program(x, gate))


def test_windows_whose_length_is_a_quotient():
    """Local attention: n == 8*(n//8) and b*n == b*(n//8) * (n//(n//8)) say that windows of n//(n//8) rows have 8."""
    environment = ShapeEnv()
    b, n = (sympy.Symbol(name, integer=True, positive=True) for name in ("s1", "s0"))
    environment.var_to_range |= {b: ValueRanges(2, 1000), n: ValueRanges(2, 1000)}
    count = FloorDiv(n, 8)
    length = FloorDiv(n, count)
    relations = _reduced_by_each_other([n - 8 * count, b * n - b * count * length], environment)
    assert _remainder(2 * length, relations) == 16
    environment.var_to_range |= {n: ValueRanges(0, 1000)}
    assert 2 * length - 16 not in _reduced_by_each_other([n - 8 * count, b * n - b * count * length], environment)


def test_a_remainder_of_0_says_what_a_quotient_is():
    """The same windows of a batch of one: n % (n//8) == 0 is all that a guard says of n//(n//8)."""
    environment = ShapeEnv()
    n = sympy.Symbol("s0", integer=True, positive=True)
    environment.var_to_range |= {n: ValueRanges(2, 1000)}
    count = FloorDiv(n, 8)
    stated = [sympy.Eq(Mod(n, 8), 0), sympy.Eq(n, 8 * count), sympy.Eq(Mod(n, count), 0)]
    environment.guards += [ShapeGuard(guard, SLoc("", ""), False) for guard in stated]
    assert simplest(2 * FloorDiv(n, count), environment) == 16


@pytest.mark.parametrize("rows", [2, 3])
def test_columns_that_are_whole_rows_of_pairs(rows):
    """A reshape splits columns; that 2*(n//2) is n the gradient's matmul says, whose other operand is an input with n rows."""

    def program(x, w):
        return (x @ w.T).reshape(-1, rows)

    torch._dynamo.reset()
    compiled = torch.compile(program, backend="mlirc", dynamic=True, options={"fallback": "error"})
    for m, n in ((4, 6), (5, 12), (3, 18)):
        x, w = torch.randn(m, n, requires_grad=True), torch.randn(n, n, requires_grad=True)
        made, own = (torch.autograd.grad(call(x, w).square().sum(), (x, w)) for call in (compiled, program))
        torch.testing.assert_close(made, own, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("stated", [lambda n: sympy.Eq(n, 2 * FloorDiv(n, 2)), lambda n: sympy.Eq(Mod(n, 2), 0)])
def test_a_bound_and_an_equation_leave_one_value(stated):
    """s0//2 < 2 says that s0 is 2 or 3, and s0 is even: it is 2, as 2*(s0//2) is."""
    environment = ShapeEnv()
    n = sympy.Symbol("s0", integer=True, positive=True)
    environment.var_to_range |= {n: ValueRanges(2, 3)}
    environment.guards += [ShapeGuard(stated(n), SLoc("", ""), False)]
    assert simplest(2 * FloorDiv(n, 2), environment) == simplest(n, environment) == 2


def test_pairs_as_complex_numbers():
    """Of the gradient's two operands, one has 2*(n//2) rows, which is 2 by a bound, and the other n."""

    def program(a, b):
        return torch.view_as_complex((a.exp() @ b).rsqrt().unflatten(-1, (-1, 2))).real

    torch._dynamo.reset()
    compiled = torch.compile(program, backend="mlirc", options={"fallback": "error"})
    for n, m in ((16, 15), (2, 3)):
        a, b = torch.randn(1, n, m), torch.rand(m, requires_grad=True)
        made, own = (torch.autograd.grad(call(a, b).sum(), b)[0] for call in (compiled, program))
        torch.testing.assert_close(made, own, rtol=1e-4, atol=1e-4)


@pytest.mark.thinned(1)
@pytest.mark.parametrize("training", [False, True])
def test_what_an_op_halves_and_a_layer_knows(training):
    """The pool computes n//2 of its input's n; that this is 4 only the guard says, which the linear layer makes."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = nn.Sequential(nn.AvgPool1d(2), nn.ReLU(), nn.PixelUnshuffle(2), nn.Linear(2, 3)).train(training)
    compiled = torch.compile(model, backend="mlirc", dynamic=True, options={"fallback": "error"})
    for batch, length in ((4, 8), (6, 9), (8, 8)):
        x = torch.randn(3, batch, length)
        with torch.set_grad_enabled(training):
            made, expected = compiled(x), model(x)
        torch.testing.assert_close(made, expected)
        assert made.stride() == expected.stride()
        if training:
            given, right = (torch.autograd.grad(y.square().sum(), model[3].weight)[0] for y in (made, expected))
            torch.testing.assert_close(given, right, rtol=1e-4, atol=1e-4)


def test_a_relation_is_divided_out():
    a, b, n = sympy.symbols("a b n", integer=True, positive=True)
    half = FloorDiv(a, sympy.Integer(2))
    relation = sympy.expand(16 * half * b + 16 * b - 1024)
    assert _remainder(16 * half * b + 16 * b, [relation]) == 1024
    assert _remainder(sympy.expand(n * (16 * half * b + 16 * b)), [relation]) == 1024 * n
    assert _remainder(32 * half**2 * b, [relation]) == sympy.expand(2048 * half - 2048 + 32 * b)
    for other in (
        8 * half * b,
        16 * half,
        16 * b,
        n + 3,
        sympy.Integer(7),
    ):  # no whole multiple of the relation is in these
        assert _remainder(other, [relation]) == other


def test_division_ends():
    """With x*y as what is highest of x*y == x**2 + y**2, x**2*y would come again and again."""
    x, y = sympy.symbols("x y", integer=True, positive=True)
    assert _remainder(x**2 * y, [x * y - x**2 - y**2]) == x * y**2 - y**3


def test_a_length_that_guards_make_a_number():
    """They say n//2 == 2 and n == 2*(n//2) + 1, as of a scan that halves its length: n is 5, n//4 is 1."""

    def program(x):
        n = x.shape[1]
        if n // 2 != 2 or n != 2 * (n // 2) + 1:
            return x
        return x[:, : n // 4].exp() @ x[: n // 4, : n // 4]

    torch._dynamo.reset()
    x = torch.randn(3, 5)
    compiled = torch.compile(program, backend="mlirc", dynamic=True, options={"fallback": "error"})
    torch.testing.assert_close(compiled(x), program(x))


def test_quotients_of_powers_of_one_size():
    """A batch and its heads have one symbol where the first call has as many of both; that s**2//s is 2 a mask's expansion says."""

    def program(x, y):
        rows = x.flatten(0, 1)
        scores = (rows @ rows.mT).reshape(x.shape[0], -1, x.shape[2], x.shape[2]) + y.expand(-1, 2, -1, -1)
        return scores.flatten(0, 1).mT @ rows * x.sum()

    torch._dynamo.reset()
    compiled = torch.compile(program, backend="mlirc", dynamic=True, options={"fallback": "error"})
    for n in (3, 5):
        x, y = torch.randn(2, 2, n, 2, requires_grad=True), torch.randn(2, 1, n, n, requires_grad=True)
        made, expected = (torch.autograd.grad(f(x, y).sum(), (x, y)) for f in (compiled, program))
        torch.testing.assert_close(made, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("dividend", "divisor", "quotient"),
    [
        ("a**2", "a", "a"),
        ("6*a**3*b", "2*a**2", "3*a*b"),
        ("a**2 + a*b", "a", "a + b"),
        ("a**2 + 1", "a", None),
        ("a", "a**2", None),
        ("3*a**2", "2*a", None),
    ],
)
def test_products_are_divided(dividend, divisor, quotient):
    names = {name: sympy.Symbol(name, integer=True, positive=True) for name in "ab"}
    given, by = (sympy.sympify(text, locals=names) for text in (dividend, divisor))
    assert _quotient(given, by) == (quotient and sympy.sympify(quotient, locals=names))


@pytest.mark.parametrize(("left", "right"), [("a", "11"), ("22", "2*a"), ("a", "b")])
def test_a_symbol_is_a_number_or_another_symbol(left, right):
    names = {name: sympy.Symbol(name, integer=True, positive=True) for name in "ab"}
    solved = _solved(sympy.expand(sympy.sympify(left, locals=names) - sympy.sympify(right, locals=names)))
    assert solved in ((names["a"], 11), (names["b"], names["a"]))
    assert _solved(names["a"] * 2 - 11) is None


def test_places_in_a_row_that_become_an_image():
    """Segformer: of x: [2, n, 8] seen as [2, 8, h, w] a guard says 16*n == 16*h*w, of which n == h*w follows."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    reduce = nn.Conv2d(8, 8, 2, 2)

    def program(x, height, width):
        image = x.transpose(1, 2).view(2, 8, height, width)
        keys = reduce(image).flatten(2)
        return (x @ keys).softmax(-1) @ keys.mT

    compiled = torch.compile(program, backend="mlirc", options={"fallback": "error"})
    for height, width in ((16, 16), (8, 8), (4, 10)):
        x = torch.randn(2, height * width, 8, requires_grad=True)
        made, expected = (torch.autograd.grad(f(x, height, width).sum(), x)[0] for f in (compiled, program))
        torch.testing.assert_close(made, expected, rtol=1e-4, atol=1e-5)


LEFT_ONE = {  # sizes of which one element is left, so that what follows broadcasts it
    "avg_pool1d": lambda x: F.avg_pool1d(x, 2),
    "lp_pool1d": lambda x: F.lp_pool1d(x, 1, 2),
    "max_pool1d": lambda x: F.max_pool1d(x, 2),
    "every second": lambda x: x[:, ::2],
    "half": lambda x: x[:, : x.shape[1] // 2],
    "chunk": lambda x: x.chunk(2, 1)[0],
    "unfold": lambda x: x.unfold(1, 2, 2)[..., 0],
    "remainder": lambda x: x[:, x.shape[1] % 2 :],
    "least": lambda x: x[:, : min(x.shape[1], 2) - 1],
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", LEFT_ONE)
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_one_element_left_by_a_bound(name, size):
    """`s0//2 < 2` says that s0//2 is 1: PyTorch promises the number, as no other size passes the guard."""

    def program(x, y):
        made = LEFT_ONE[name](x)
        return made * 2 + y, made.sign() * made.abs().relu() - 1

    for columns in (1, 3):
        torch._dynamo.reset()
        compiled = torch.compile(program, backend="mlirc", dynamic=True, options={"fallback": "error"})
        x, y = torch.randn(2, size), torch.randn(2, columns)
        try:
            expected = program(x, y)
        except RuntimeError:  # sizes that do not broadcast, or none left
            continue
        torch.testing.assert_close(compiled(x, y), expected)
        x, y = torch.randn(4, size), torch.randn(4, columns)
        torch.testing.assert_close(compiled(x, y), program(x, y))


PARTS = {  # two parts of 4 by 4 that are as large as each other, which two different expressions of x's size say
    "chunks": lambda x: x.chunk(3, 1)[:2],
    "halves": lambda x: (x[:, : x.shape[1] // 2], x[:, (x.shape[1] + 1) // 2 :]),
    "steps": lambda x: (x[:, ::2], x[:, 1::2]),
    "windows": lambda x: (x.unfold(1, 2, 2)[..., 0], x[:, : (x.shape[1] + 1) // 2]),
    "rest": lambda x: (x[:, : x.shape[0] - 2], x[:, x.shape[1] // 2 :]),
}
TOGETHER = {
    "elementwise": lambda a, b: (a * 2 + b, a < b, torch.where(a > 0, a, b)),
    "product": lambda a, b: (a @ b.t(), torch.einsum("ij,kj->ik", a, b)),
    "products": lambda a, b: torch.bmm(a[None], b.t()[None]),
    "addmm": lambda a, b: torch.addmm(a[:, :1], a, b.t()),
    "attention": lambda a, b: F.scaled_dot_product_attention(a[None, None], b[None, None], b[None, None]),
    "rows": lambda a, b: (torch.stack([a, b]), torch.cat([a, b]), F.layer_norm(a, b.shape[1:]), F.mse_loss(a, b)),
    "normalised": lambda a, b: F.layer_norm(a, a.shape[1:], b[0], b[1]) + F.rms_norm(b, a.shape[1:], a[0]),
    "written": lambda a, b: a.clone().copy_(b).add_(b),
    "scattered": lambda a, b: (torch.zeros(a.shape).scatter_add(1, (b > 0).long(), b), a.gather(1, (b > 0).long())),
    "convolved": lambda a, b: F.conv1d(a[None], b[:, :, None].transpose(0, 1)[:, :, :1].expand(-1, a.shape[0], 1)),
    "unshuffled": lambda a, b: F.pixel_unshuffle(a[None, :2], 2) + F.pixel_unshuffle(b[None, 2:], 2),
    "softmax": lambda a, b: (
        F.cross_entropy(a, b.softmax(1)) + F.kl_div(a.log_softmax(1), b.softmax(1), reduction="sum")
    ),
    "linear": lambda a, b: F.linear(a, b, b[:, 0]),
    "bilinear": lambda a, b: F.bilinear(a, b, torch.ones(3, a.shape[1], b.shape[1])),
    "masked": lambda a, b: a.masked_fill(b > 0, 1) + a.cumsum(1) * b.amax(1, keepdim=True),
}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("parts", [p if p == "chunks" else pytest.param(p, marks=pytest.mark.full) for p in PARTS])
@pytest.mark.parametrize("together", TOGETHER)
def test_parts_whose_sizes_are_equal_by_a_guard(parts, together):
    def program(x):
        return TOGETHER[together](*PARTS[parts](x))

    torch._dynamo.reset()
    torch.manual_seed(0)
    compiled = torch.compile(program, backend="mlirc", dynamic=True, options={"fallback": "error"})
    for x in (torch.randn(4, 4), torch.randn(8, 8)):
        try:
            expected = program(x)
        except RuntimeError:
            continue
        torch.testing.assert_close(compiled(x), expected)


LENGTHS = {  # of which two are as long at some sizes: a guard says so
    "half": lambda x: x[: x.shape[0] // 2],
    "other half": lambda x: x[x.shape[0] // 2 :],
    "even": lambda x: x[::2],
    "odd": lambda x: x[1::2],
    "first of three": lambda x: x.chunk(3)[0],
    "second of three": lambda x: x.chunk(3)[1],
    "last of three": lambda x: x[2 * (x.shape[0] // 3) :],
    "without two": lambda x: x[2:],
    "pooled": lambda x: F.max_pool1d(x[None], 3, 2, 1)[0],
}


SOME = ("half", "second of three", "pooled")


@pytest.mark.thinned(1)
@pytest.mark.parametrize("name", [x if x in SOME else pytest.param(x, marks=pytest.mark.full) for x in LENGTHS])
def test_parts_that_are_as_long(name):
    """Of 4, the chunks ((s + 2)//3) and s - (s + 2)//3 are 2 both: each is to be written as the other."""
    for other in LENGTHS:

        def program(x, other=other):
            return LENGTHS[name](x) * 2 + LENGTHS[other](x).sin(), LENGTHS[other](x)[:1].exp()

        torch._dynamo.reset()
        compiled = torch.compile(program, backend="mlirc", dynamic=True, options={"fallback": "error"})
        for size in (4, 6):
            x = torch.randn(size)
            if LENGTHS[name](x).shape == LENGTHS[other](x).shape:
                torch.testing.assert_close(compiled(x), program(x))


@pytest.mark.full  # 40 s of PyTorch's own reasoning about sizes
def test_a_relation_inside_of_a_maximum():
    """The strides of a convolution's result are maxima, in which a size stands that the attention after it replaces."""

    def program(q, k, v, weight, other):
        image = F.conv2d(F.scaled_dot_product_attention(q, k, v), weight, padding=1)
        return F.scaled_dot_product_attention(image, image, other)

    torch._dynamo.reset()
    compiled = torch.compile(program, backend="mlirc", dynamic=True, options={"fallback": "error"})
    for heads, width in ((3, 6), (5, 8)):
        q, k = torch.randn(2, heads, width, width), torch.randn(2, heads, 7, width)
        v, weight = torch.randn(2, heads, 7, width - 1), torch.randn(heads, heads, 3, 2)
        made, expected = (f(q, k, v, weight, q.flip(0)) for f in (compiled, program))
        torch.testing.assert_close(made, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.full  # sympy takes ten seconds for these
def test_a_size_whose_parts_the_guards_write_in_another_way():
    """The quotients in the reversed shape are computed by Python, under the names that the import gives them."""

    def program(x, n, w):
        y = torch.nn.functional.conv2d(x, w, dilation=2)
        return y.reshape(y.shape[::-1]), (y != y) & n

    compiled = torch.compile(program, backend="mlirc", dynamic=True, options={"fallback": "error"})
    x = torch.randn(5, 5, 5, 17, dtype=torch.float16).transpose(0, 1)
    w = torch.randn(4, 5, 2, 2, dtype=torch.float16)
    torch.testing.assert_close(compiled(x, 4, w), program(x, 4, w))


def test_a_size_is_converted_once(monkeypatch):
    """Large expressions are in the sizes and strides of hundreds of nodes; what one becomes takes milliseconds."""
    converted = []

    def counted(expr, environment):
        converted.append(str(expr))
        return named(expr, environment)

    def program(x):
        for _ in range(4):
            x = (x.sin() + 1).relu()
        return x.reshape(-1, 1) * F.pad(x, (0, int(x.shape[1] * 0.7)))[:1, :1]

    monkeypatch.setattr(sizes, "named", counted)
    torch._dynamo.reset()
    compiled = torch.compile(program, backend="mlirc", dynamic=True, options={"fallback": "error", "cache": False})
    x = torch.randn(3, 11)
    torch.testing.assert_close(compiled(x), program(x))
    assert converted and len(set(converted)) == len(converted)


def test_a_relation_is_ordered_once():
    """Many sizes are divided by the same relations, and ordering the terms of one prints each of them."""
    n, half = sympy.symbols("s0", integer=True), FloorDiv(sympy.Symbol("s97", integer=True), 2)
    relations = [sympy.expand(k * half * n + k * n - 64 * half) for k in (3, 5, 7)]
    _leading.cache_clear()
    for k in range(20):
        _remainder(k * half + n, relations)
    assert _leading.cache_info().misses == len(relations)


def test_what_is_kept_of_sizes_goes_when_more_is_known():
    environment = ShapeEnv()
    count = environment.create_unbacked_symint()
    assert str(sizes.size(count + 1)) == "u0 + 1"
    torch._check(count >= 0)  # no guard, but a range
    assert str(sizes.size(count + 1)) == "su0 + 1"
    torch._check(count == 3)
    assert sizes.size(count + 1) == 4


CONDITIONS = [  # of a: [5, n] and t: [p, q], of which only sizes are read
    lambda n, p, q: n // 3 == p - q + 3,
    lambda n, p, q: 2 * (n // 3) == p + q,
    lambda n, p, q: n // 3 == p * q,
    lambda n, p, q: n // 3 == p * q - p and n // 2 - 2 == p * q - p,
    lambda n, p, q: n // 3 == p // q + 1,
    lambda n, p, q: (n // 3) * p == q,
    lambda n, p, q: n // 3 == p and p == q + 1,
    lambda n, p, q: n % 4 == p - q and n // 3 == max(p, q),
    lambda n, p, q: n // 3 == p - q and n // 2 == p - q + 1,
    lambda n, p, q: n - n // 3 == p + q,
]


@pytest.mark.thinned
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("number", range(len(CONDITIONS)))
def test_a_guard_with_sizes_of_what_the_graph_does_not_take(number, training):
    """No size is written with symbols that no input gives: n//3 stays as it is where p and q are sizes of an unused tensor."""
    condition = CONDITIONS[number]

    def program(a, t):
        n, (p, q) = a.shape[1], t.shape
        if condition(n, p, q):
            return F.avg_pool1d(a, 3, stride=3).sin()[:, :, None] + a[:, : n // 3, None], a[:, : n // 2].exp()
        return a.cos(), a * 2

    rows = [(n, p, q) for n in (12, 13, 9, 18) for p in range(1, 10) for q in range(1, 10)]
    met = [sizes for sizes in rows if condition(*sizes)][:4]
    assert len(met) == 4
    torch._dynamo.reset()
    compiled = torch.compile(program, backend="mlirc", dynamic=True, options={"fallback": "error"})
    for n, p, q in met:
        a, t = torch.randn(5, n, requires_grad=training), torch.zeros(p, q)
        made, expected = (f(a, t) for f in (compiled, program))
        if training:
            made, expected = (torch.autograd.grad(r[0].sum() + r[1].sum(), a) for r in (made, expected))
        torch.testing.assert_close(made, expected)


def test_a_backward_graph_has_other_sizes_than_its_forward_graph():
    """conv_transpose1d says that s97//3 == s48 - s58 + 3, and the backward graph takes s97 alone."""

    def program(a, kernel, weight):
        pooled = F.avg_pool1d(a, 3, stride=3)
        wide = pooled.expand(3, -1, -1)
        integers = F.linear(F.conv_transpose1d(wide, kernel, padding=1), weight).view(torch.int16)
        return wide[:, None, -2:5].permute(0, 3, 2, 1), integers, pooled.exp()

    torch._dynamo.reset()
    compiled = torch.compile(program, backend="mlirc", dynamic=True, options={"fallback": "error"})
    for n, width in ((8, 3), (9, 2), (12, 4)):
        a, kernel = torch.randn(n, n, requires_grad=True), torch.randn(n, n // 3 + width - 3, width)
        weight = torch.randn(6, n // 3 + width - 3)
        made, expected = (f(a, kernel, weight) for f in (compiled, program))
        torch.testing.assert_close(made[2], expected[2])
        made, expected = (torch.autograd.grad(r[0].sum() + r[2].sum(), a) for r in (made, expected))
        torch.testing.assert_close(made, expected)


def test_sizes_that_are_equal_by_one_that_is_absent():
    a, b, p, q = (sympy.Symbol(f"s{k}", integer=True, positive=True) for k in range(4))
    left, right = FloorDiv(a, 3), FloorDiv(b, 2)
    said = [sympy.Eq(left, p - q + 3, evaluate=False), sympy.Eq(2 * right, 2 * p - 2 * q, evaluate=False)]
    (equation,) = _eliminated(said, frozenset({p, q}))
    assert _solved(equation.args[0] - equation.args[1]) in ((left, right + 3), (right, left - 3))
    assert _eliminated(said[:1], frozenset({p})) == []
    assert _eliminated(said, frozenset({sympy.Symbol("s9")})) == said
