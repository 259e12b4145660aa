"""Tensors whose values are not in their memory, wherever compiled code meets one: conjugated and negated views, zeros without
memory; as an input, a gradient, and what an operator gives."""

import pytest
import torch

from mlirc.codegen.abi.lazy_tensors import in_memory, is_lazy

pytestmark = pytest.mark.thinned

SHAPE = (3, 4)


def values(dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(1, 13).view(SHAPE).to(dtype) * (1 + 2j if dtype.is_complex else 1)


LAZY = {
    "conjugated": lambda: values(torch.complex64).conj(),
    "negated": lambda: torch._neg_view(values(torch.float32)),
    "negated, complex": lambda: torch._neg_view(values(torch.complex64)),
    "both": lambda: torch._neg_view(values(torch.complex64).conj()),
    "conjugated, expanded": lambda: values(torch.complex64)[:, :1].expand(SHAPE).conj(),
    "negated, expanded": lambda: torch._neg_view(values(torch.float32)[:1]).expand(SHAPE),
    "imaginary part": lambda: values(torch.complex64).conj().imag,
    "without memory": lambda: torch._efficientzerotensor(SHAPE),
    "without memory, half": lambda: torch._efficientzerotensor(SHAPE, dtype=torch.bfloat16),
    "without memory, complex": lambda: torch._efficientzerotensor(SHAPE, dtype=torch.complex64),
    "without memory, expanded": lambda: torch._efficientzerotensor((4,)).expand(SHAPE),
}
BODIES = {
    "ours": lambda x: torch.cat([x.t(), x.t()]).contiguous(),
    "arithmetic": lambda x: (x * 3 + 1).sum(0),
    "views": lambda x: (x.real if x.is_complex() else x)[1:] * 2,
    "aten": lambda x: torch.linalg.vector_norm(x, dim=0) + x.flip(0).abs().sum(),
}


def plain(x: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(in_memory(x)) if x._is_zerotensor() else in_memory(x)


@pytest.mark.parametrize("name", LAZY)
def test_values_in_memory(name):
    x = LAZY[name]()
    assert is_lazy(x)
    found = in_memory(x)
    assert not is_lazy(found) and (found.shape, found.dtype) == (x.shape, x.dtype)
    torch.testing.assert_close(found, x + torch.zeros(SHAPE, dtype=x.dtype))


@pytest.mark.thinned(4)
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("name", [name for name in LAZY if "memory" not in name])
def test_an_input(name, body):
    x = LAZY[name]()
    compiled = torch.compile(BODIES[body], backend="mlirc")
    for given in (plain(x), x, plain(x), x):
        torch.testing.assert_close(compiled(given), BODIES[body](given))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", [name for name in LAZY if "memory" in name])
def test_an_input_without_memory(name):
    """AOTAutograd takes none of them, without us either."""
    x = LAZY[name]()
    compiled = torch.compile(BODIES["arithmetic"], backend="mlirc")
    torch.testing.assert_close(compiled(plain(x)), BODIES["arithmetic"](plain(x)))
    try:
        torch.testing.assert_close(compiled(x), BODIES["arithmetic"](plain(x)))
    except RuntimeError as error:
        assert "Cast error" in str(error)


class Given(torch.autograd.Function):
    """Whose gradient is a tensor that is given."""

    @staticmethod
    def forward(ctx, x, gradient):
        ctx.gradient = gradient
        return x.clone()

    @staticmethod
    def backward(ctx, _):
        return ctx.gradient, None


GRAPHS = {
    "ours": lambda x: torch.cat([x, x])[:3] * 3,
    "transposed": lambda x: x.t().contiguous().t() + x,
    "aten": lambda x: x.flip(0) @ x.t().flip(0) * 2,
    "dynamic": lambda x: x * 2 + x.sum(),
}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("graph", [*GRAPHS])
@pytest.mark.parametrize("name", LAZY)
def test_a_gradient(name, graph):
    """At the first call in every other case, behind one with a plain gradient in the rest."""
    gradient = LAZY[name]()
    calls_before = (list(LAZY).index(name) + list(GRAPHS).index(graph)) % 2
    made = {}
    for backend in ("eager", "mlirc"):
        torch._dynamo.reset()
        body = GRAPHS[graph]
        function = body if backend == "eager" else torch.compile(body, backend=backend, dynamic=graph == "dynamic")
        x = values(gradient.dtype).requires_grad_()
        y = function(x)
        shaped = gradient if y.shape == gradient.shape else gradient[:, :3]
        for _ in range(calls_before):
            torch.autograd.grad(function(x), x, plain(shaped))
        made[backend] = torch.autograd.grad(Given.apply(y, shaped), x, torch.ones_like(y))[0]
    torch.testing.assert_close(plain(made["mlirc"]), plain(made["eager"]))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", [torch.sgn, torch.floor, torch.trunc, torch.round, torch.ceil, torch.sign])
def test_functions_that_do_not_change(function, dynamic):
    """Their gradients are zeros, in a backward graph and behind one."""
    wanted, found = [], []
    for backend, into in (("eager", wanted), ("mlirc", found)):
        whole, part = (lambda x: function(x.sum(-1)).view(-1, 1) * 2 + x, lambda x: x * 2)
        if backend != "eager":
            whole, part = (torch.compile(f, backend=backend, dynamic=dynamic) for f in (whole, part))
        x = values(torch.float32).requires_grad_()
        into += [torch.autograd.grad(whole(x).sum(), x)[0], torch.autograd.grad(function(part(x)).sum(), x)[0]]
    torch.testing.assert_close(found, wanted)


LAYOUTS = {
    "rows": lambda x: x,
    "columns": lambda x: x.mT,
    "expanded": lambda x: x[:1].expand(3, 4),
    "part": lambda x: x[1:, ::2],
    "empty": lambda x: x[:, :0],
    "number": lambda x: x[0, 0],
}
CONSTANT = {
    "whole": lambda x: torch.sgn(x),
    "transposed": lambda x: torch.sgn(x.t() if x.ndim else x),
    "seen twice": lambda x: (torch.sgn(x), torch.sgn(x)[..., None] * 2),
    "converted": lambda x: torch.sgn(x).double(),
    "complex": lambda x: torch.sgn(torch.complex(x, x)).real,
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "body", [body if body == "transposed" else pytest.param(body, marks=pytest.mark.full) for body in CONSTANT]
)
def test_gradients_without_memory(body, dynamic):
    """A gradient is without memory where eager's is: what autograd makes of it next has eager's strides."""
    compiled = torch.compile(CONSTANT[body], backend="mlirc", dynamic=dynamic)
    wrong = {}
    for name, layout in LAYOUTS.items():
        leaf = values(torch.float32).requires_grad_()
        seen = []
        for function in (CONSTANT[body], compiled):
            given: list[torch.Tensor] = []
            x = layout(leaf)
            x.register_hook(given.append)
            results = function(x)
            results = results if isinstance(results, tuple) else (results,)
            whole = torch.autograd.grad([r.sum() for r in results], leaf)[0] * 2
            seen.append((given[0]._is_zerotensor(), given[0].stride(), (given[0] * 2).stride(), plain(whole)))
        wrong |= {} if seen[0][:3] == seen[1][:3] else {name: (seen[0][:3], seen[1][:3])}
        torch.testing.assert_close(seen[1][3], seen[0][3])
    assert not wrong


@pytest.mark.parametrize("dynamic", [False, True])
def test_conjugates_of_what_is_expanded(dynamic):
    def function(x):
        return x.conj(), x.expand(2, 3, 4).conj(), x.conj() * 2, x.conj().imag

    compiled = torch.compile(function, backend="mlirc", dynamic=dynamic, options={"fallback": "error"})
    for part in (slice(0, 1), slice(0, 3)):
        x = values(torch.complex64)[part].expand(SHAPE)
        for found, expected in zip(compiled(x), function(x), strict=True):
            torch.testing.assert_close(found, expected)
            assert found.stride() == expected.stride()


def test_what_operators_give():
    lu, pivots = torch.linalg.lu_factor(torch.randn(3, 3, dtype=torch.complex64))
    b = torch.randn(3, 3, dtype=torch.complex64)

    def function(lu, b):
        made = torch.linalg.lu_solve(lu, pivots, b, left=False, adjoint=True)
        return made.imag + 1, torch.cat([made, made]), torch._efficientzerotensor(4) + b.real[0, 0]

    assert torch.ops.aten.linalg_lu_solve(lu, pivots, b, left=False, adjoint=True).is_conj()
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(function, backend="mlirc")(lu, b), function(lu, b))


@pytest.mark.thinned(6)
@pytest.mark.parametrize("name", LAZY)
def test_what_an_operator_of_the_users_gives(name):
    with torch.library._scoped_library("mlirc_lazy", "FRAGMENT") as library:
        library.define("made(Tensor x) -> Tensor")
        library.impl("made", lambda x: LAZY[name]() + 0 if False else LAZY[name](), "CompositeExplicitAutograd")
        like = plain(LAZY[name]())
        torch.library.register_fake(
            "mlirc_lazy::made", lambda x: torch.empty_strided(like.shape, like.stride(), dtype=like.dtype), lib=library
        )

        def function(x):
            made = torch.ops.mlirc_lazy.made(x)
            return made * 2 if not made.is_complex() else torch.view_as_real(made) * 2

        found = torch.compile(function, backend="mlirc")(torch.ones(2))
        torch.testing.assert_close(
            found, function(torch.ones(2)) if not like.is_complex() else torch.view_as_real(like) * 2
        )


PARTS = {
    "all": lambda x: x,
    "half": lambda x: x.chunk(2, 1)[1],
    "rows behind": lambda x: x[x.shape[0] // 2 :],
    "transposed": lambda x: x.tensor_split(2)[1].t(),
}
VIEWS = {
    "conjugated": lambda x: x.conj(),
    "conjugated, then parts": lambda x: x.conj().unsqueeze(0)[:, 1:].expand(2, -1, -1),
    "both": lambda x: torch._neg_view(x.conj()),
    "imaginary part": lambda x: x.conj().imag,
    "negated": lambda x: torch._neg_view(x.real),
    "in their memory": lambda x: x.conj().conj(),
    "real part": lambda x: torch.view_as_real(x)[1:],
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("part", PARTS)
def test_views_of_inputs_under_symbolic_sizes(part, written):
    """Results are the user's memory, lazy where eager's are."""

    def program(x):
        if written:
            x.mul_(2)
        return [view(PARTS[part](x)) for view in VIEWS.values()]

    torch._dynamo.reset()
    compiled = torch.compile(program, backend="mlirc", dynamic=True)
    for size in (4, 6):
        seen = []
        for function in (program, compiled):
            x = torch.arange(size * size).view(size, size) * (1 + 2j)
            made = dict(zip(VIEWS, function(x), strict=True))
            facts = {n: (y.is_conj(), y.is_neg(), y.stride(), y.data_ptr() - x.data_ptr()) for n, y in made.items()}
            seen.append((facts, {n: y.clone() for n, y in made.items()}))
        assert seen[0][0] == seen[1][0]
        torch.testing.assert_close(seen[1][1], seen[0][1])


PAIRS = {
    "pairs": lambda x: torch.view_as_complex(x.unflatten(-1, (-1, 2))),
    "pairs of rows, turned": lambda x: torch.view_as_complex(x[1:].unflatten(1, (-1, 2))).mT,
    "pairs, then conjugated": lambda x: torch.view_as_complex(x.unflatten(-1, (-1, 2)))[:, 1:].conj(),
    "pairs, then real": lambda x: torch.view_as_complex(x.unflatten(-1, (-1, 2))).imag,
}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("requires_grad", [True, False])
@pytest.mark.parametrize("how", ["given", "written", "computed"])
def test_real_numbers_seen_as_complex_ones_under_symbolic_sizes(how, requires_grad):
    """Results lie where eager's do, and gradients go through them."""

    def program(x):
        if how == "written":
            x.mul_(2)
        y = x * 2 if how == "computed" else x
        return [view(y) for view in views] + [y] * (how == "computed")

    views = [view for name, view in PAIRS.items() if how != "written" or "conjugated" not in name]
    compiled = torch.compile(program, backend="mlirc", dynamic=True, options={"fallback": "error"})
    for size in (4, 6):
        seen = []
        for function in (program, compiled):
            leaf = torch.arange(3.0 * size).view(3, size).requires_grad_(requires_grad)
            x = leaf * 1
            made = function(x)
            start = (made[-1] if how == "computed" else x).data_ptr()
            facts = [(y.is_conj(), y.dtype, y.shape, y.stride(), y.data_ptr() - start) for y in made]
            if requires_grad:
                torch.stack([y.real.sum() for y in made]).sum().backward()
            seen.append((facts, [y.detach().clone() for y in made], leaf.grad))
        assert seen[0][0] == seen[1][0]
        torch.testing.assert_close(seen[1][1:], seen[0][1:])
