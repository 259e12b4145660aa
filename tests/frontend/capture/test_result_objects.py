"""Which results are one tensor object, which views of one another, and what in-place work on one does to the others."""

import contextlib

import pytest
import torch

pytestmark = pytest.mark.thinned


def one_twice(x):
    y = x + 1
    return y, y


def viewed(x):
    y = x + 1
    return y, y.view_as(y)


def viewed_in_many_ways(x):
    y = x + 1
    return y, y.detach(), y[:], y.view(-1), y.t(), y.t().t(), y, y[1], y.expand(2, 3, 4)


def base_is_not_returned(x):
    y = x + 1
    return y[0], y[1], y[0], y.t()


def base_is_transposed(x):
    y = x.t() + 1
    return y[0], y[1]


def parts_without_the_whole(x):
    y = torch.complex(x, x)
    return y.real, y.imag


def written_and_not_returned(x):
    y = x * 2
    z = y[...]
    w = z[0]
    z.add_(1)
    return y, w, z


def base_comes_last(x):
    y = x * 2
    return y.t(), y.view(-1), y


def other_dtypes(x):
    y = x * 2
    return y, y.view(torch.int32), y.view(torch.float32), y.view(torch.int16)


def complex_parts(x):
    y = torch.complex(x, x)
    return y, torch.view_as_real(y), y.real, y.imag


def of_a_product(x):
    y = torch.nn.functional.linear(x[None, None], torch.ones(5, 4))
    return y, y.detach(), y[0]


def parts_that_are_no_views(x):
    parts = torch.unsafe_chunk(x * 2, 3)
    return parts[0], parts[1], parts[0].t(), parts[2][:]


def two_memories(x):
    y, z = x + 1, x + 2
    return y, z, y.t(), z.t(), y.view_as(y)


def of_integers(x):
    y = x.argmax(1)
    return y, y.view_as(y), x * 2


def the_input(x):
    return x, x.view_as(x), x[:], x.detach(), x


def the_input_and_more(x):
    y = x + 1
    return x, y, x.t(), y.t(), y.view_as(y)


def the_only_part_of_the_input(x):
    (part,) = x.as_strided((3,), (1,), 0).split([3])
    return part[:], part


def parts_of_the_input(x):
    parts = x.chunk(3)
    return parts[0][:], parts[0], parts[1].t(), parts[0].view(-1), parts[0][:]


def parts_that_nothing_changes(x):
    part = x.chunk(3)[1]
    return part, part.contiguous(), part.to(part.dtype), torch.broadcast_tensors(part, x.new_ones(()))[0]


def written(x):
    x = x.clone() if x.requires_grad else x
    x.add_(1)
    return x, x.view_as(x), x * 2


def the_data(x):
    y = x.data
    return y, x


def empty(x):
    y = x[:0] + 1
    return y, y.view_as(y), y.t()


def no_dimensions(x):
    y = x.sum()
    return y, y.view_as(y), y.view(1)


PROGRAMS = [f for f in list(globals().values()) if getattr(f, "__module__", "") == __name__]
MODES = {
    "training": (True, contextlib.nullcontext),
    "no_grad": (False, torch.no_grad),
    "a leaf under no_grad": (True, torch.no_grad),
    "inference": (False, torch.inference_mode),
}


def described(x, results):
    tensors = [x, *results]
    told = []
    for a in results:
        told.append([a.requires_grad, a.is_leaf, a.shape, a.stride(), a.storage_offset(), a.dtype])
        told.append([a is b for b in tensors])
        told.append([a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() for b in tensors if b.numel()])
        if not a.is_inference():
            told.append([a._is_view(), [a._is_view() and a._base is b for b in tensors]])
            told.append(a._is_view() and [a._base.shape, a._base.stride(), a._base.dtype])
    return told


def changed(results):
    """What the others say once one was transposed in place and another written to."""
    before = [0 if x.is_inference() else x._version for x in results]
    with torch.no_grad():
        if results[0].dim() == 2 and not results[0].requires_grad:
            results[0].t_()
        if results[-1].is_floating_point() and results[-1].is_contiguous():
            results[-1].detach().add_(1)
    versions = [0 if x.is_inference() else x._version - known for x, known in zip(results, before, strict=True)]
    return [[tuple(x.shape), x.stride(), version] for x, version in zip(results, versions, strict=True)]


def run(program, mode, backend, dynamic=None, sizes=((3, 4), (3, 4))):
    torch._dynamo.reset()
    trains, context = MODES[mode]
    torch.manual_seed(0)
    with context():
        fn = torch.compile(program, backend=backend, dynamic=dynamic)
        told = []
        for shape in sizes:
            x = torch.randn(shape).requires_grad_(trains)
            results = fn(x)
            told += [described(x, results), changed(results), [y.detach().clone() for y in results]]
    return told


@pytest.mark.thinned(5)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("program", PROGRAMS)
def test_results_are_the_objects_that_aot_eager_gives(program, mode):
    found, expected = run(program, mode, "mlirc"), run(program, mode, "aot_eager")
    for mine, want in zip(found, expected, strict=True):
        if isinstance(want[0], torch.Tensor):
            torch.testing.assert_close(mine, want)
        else:
            assert mine == want


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_part_that_nothing_changes_is_one_object(dynamic):
    torch._dynamo.reset()
    x = torch.randn(3, 4, requires_grad=True)
    results = torch.compile(parts_that_nothing_changes, backend="mlirc", dynamic=dynamic)(x)
    assert all(y is results[0] for y in results)
    assert all(y is not results[0] for y in torch.compile(lambda x: x.chunk(3), backend="mlirc")(x)[1:])


@pytest.mark.parametrize("program", [base_is_not_returned, written_and_not_returned, parts_without_the_whole])
def test_a_base_that_is_not_returned_has_sizes_of_each_call(program):
    found, expected = (
        run(program, "no_grad", backend, dynamic=True, sizes=((3, 4), (5, 7))) for backend in ("mlirc", "aot_eager")
    )
    assert [x for x in found if not isinstance(x[0], torch.Tensor)] == [
        x for x in expected if not isinstance(x[0], torch.Tensor)
    ]


def test_the_next_graph_takes_views_of_a_base_that_was_not_returned():
    def program(x):
        y = x * 2
        z = y[...]
        w = z[0]
        z.add_(1)
        torch._dynamo.graph_break()
        w.mul_(2)
        return z, y[...], y + w

    x = torch.randn(3, 2)
    for y, other in zip(torch.compile(program, backend="mlirc")(x), program(x), strict=True):
        torch.testing.assert_close(y, other, rtol=0, atol=0)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("program", [viewed_in_many_ways, base_is_not_returned, other_dtypes, of_integers])
def test_the_same_from_the_disk_cache(program, folder):
    run(program, "no_grad", "mlirc")
    test_results_are_the_objects_that_aot_eager_gives(program, "no_grad")


@pytest.mark.parametrize("dynamic", [False, True])
def test_transposing_one_leaves_the_other(dynamic):
    def program(x):
        y = x + 1
        return y, y.view_as(y)

    with torch.no_grad():
        y, z = torch.compile(program, backend="mlirc", dynamic=dynamic)(torch.randn(3, 5))
        y.t_()
        assert y.shape == (5, 3) and z.shape == (3, 5)
        z.add_(1)
        torch.testing.assert_close(y, z.t())


def test_a_view_of_a_result_that_autograd_saved_is_noticed():
    w = torch.randn(3, requires_grad=True)
    with torch.no_grad():
        y, z = torch.compile(viewed, backend="mlirc")(torch.randn(2, 3))
    loss = (y * w).sum()
    z.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


CONJUGATED = {
    "conj": lambda y: (y.conj(), y),
    "H": lambda y: (y, y.H),
    "H of what is put together": lambda y: (lambda z: (z.H, z))(torch.hstack([y])),
    "imaginary part of a conjugate": lambda y: (y.conj().imag, y),
}


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("name", CONJUGATED)
def test_a_conjugated_view_of_a_result_shares_its_memory(name, gradients):
    """A compiled graph knows no such views: these results are eager's."""
    x = torch.randn(2, 2, dtype=torch.complex64, requires_grad=gradients)
    torch._dynamo.reset()
    found = torch.compile(lambda x: CONJUGATED[name](x + 1), backend="mlirc")(x)
    expected = CONJUGATED[name](x + 1)
    for y, other in zip(found, expected, strict=True):
        assert (y.is_conj(), y.is_neg(), y.stride()) == (other.is_conj(), other.is_neg(), other.stride())
    with torch.no_grad():
        for results in (found, expected):
            next(y for y in results if not (y.is_conj() or y.is_neg())).mul_(2)
    torch.testing.assert_close(found, expected)


OF_A_QUOTIENT = {  # which is computed as two real tensors
    "alone": lambda y: (y,),
    "twice": lambda y: (y, y),
    "and a view": lambda y: (y, y.view(-1)),
    "behind a view": lambda y: (y.mT, y),
    "views alone": lambda y: (y.view(-1), y[0], y.mT),
    "a view alone": lambda y: (y[1:],),
}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("mode", ["training", "no_grad"])
@pytest.mark.parametrize("name", OF_A_QUOTIENT)
def test_a_number_that_is_computed_by_parts_is_no_view_of_them(name, mode):
    """Of a base of another dtype AOTAutograd refuses to write to views: the next graph does so."""
    trains, context = MODES[mode]
    outcomes = []
    for backend in ("mlirc", "aot_eager"):

        def program(x):
            return OF_A_QUOTIENT[name](2 / torch.complex(x, x + 1))

        def writes(x):
            y = OF_A_QUOTIENT[name](2 / torch.complex(x, x + 1))
            torch._dynamo.graph_break()
            y[-1][0] = 3
            return [part + 1 for part in y]

        torch._dynamo.reset()
        x = torch.linspace(1, 2, 12).view(3, 4).requires_grad_(trains)
        with context():
            told = described(x, torch.compile(program, backend=backend)(x))
        with torch.no_grad():
            outcomes.append((told, torch.compile(writes, backend=backend)(x)))
    (told, found), (wanted, expected) = outcomes
    assert told == wanted
    torch.testing.assert_close(found, expected)


PARTS = {  # of other dtypes and detached ones AOTAutograd refuses to write to
    "select and view": lambda y: (y[0], y.view(-1)),
    "chunks": lambda y: y.chunk(3),
    "chunk and its slice": lambda y: (y.chunk(3)[1], y.chunk(3)[1][1:]),
    "unbind and view": lambda y: (*y.unbind(1)[:2], y.view(-1)),
    "split and all": lambda y: (*y.split([1, y.shape[0] - 1]), y),
    "transposed rows": lambda y: (y.t()[1], y[2:], y.view(2, -1, 4)),
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("written", [0, -1])
@pytest.mark.parametrize("name", PARTS)
def test_views_of_a_result_that_the_next_graph_writes_to(name, written, dynamic):
    """Their base is all of the memory, also where no result is: a graph is given it for its views."""

    def program(x):
        y = x * 2
        y.select(0, 1).mul_(3)
        parts = PARTS[name](y)
        torch._dynamo.graph_break()
        parts[written].mul_(2)
        parts[written][0] = 7
        return [part + 1 for part in parts], parts

    torch._dynamo.reset()
    compiled = torch.compile(program, backend="mlirc", dynamic=dynamic)
    with torch.no_grad():
        for rows in (6, 8, 12):
            x = torch.randn(rows, 4)
            found, expected = compiled(x), program(x)
            torch.testing.assert_close(found, expected)
            for part, other in zip(found[1], expected[1], strict=True):
                assert part.storage_offset() == other.storage_offset() and part.stride() == other.stride()
                assert part.untyped_storage().nbytes() == other.untyped_storage().nbytes()


KEPT = torch.randn(4, 6)
SHARED = {  # of a constant, of what is kept of a buffer, of an argument before it is written to, of a float that is an argument
    "number": lambda x, b, s: (lambda v: (v.view(torch.int64), v))(torch.tensor(0)),
    "constant": lambda x, b, s: (lambda v: (v.view(torch.uint8), v.t(), v))(KEPT * 1),
    "tensor of numbers": lambda x, b, s: (lambda v: (v.view(torch.int32), v[1:]))(torch.tensor([1, 2, 3])),
    "of a buffer": lambda x, b, s: (lambda v: (v.view(torch.int16), x + 1, v.view(torch.uint8)))(b * 2),
    "parts of a buffer's": lambda x, b, s: (lambda v: (*v.view(torch.int32).chunk(2), v.view(torch.uint8)[0]))(b + 1),
    "complex of a buffer": lambda x, b, s: (lambda v: (v.real, torch.view_as_real(v)))(torch.complex(b, b)),
    "before it is written": lambda x, b, s: (lambda v: (x.mul_(2), v.view(torch.int16), v.t())[1:])(x.clone()),
    "scaled": lambda x, b, s: (lambda v, w: (torch._dynamo.graph_break(), w, v.unfold(0, 2, 2))[1:])(
        *(lambda v: (v, v.view_as(v)))(torch.ones_like(x) * s)
    ),
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", SHARED)
def test_results_share_memory_where_eagers_do(name, dynamic):
    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("b", torch.linspace(-1, 1, 24).reshape(4, 6))

        def forward(self, x, s):
            return SHARED[name](x, self.b, s)

    def storages(results):
        known = [x.untyped_storage()._cdata for x in results]
        return [(known.index(k), x.storage_offset(), x.stride()) for k, x in zip(known, results, strict=True)]

    module = Module().eval()
    for context in (torch.no_grad, torch.inference_mode):
        torch._dynamo.reset()
        compiled = torch.compile(module, backend="mlirc", dynamic=dynamic)
        for s in (-1.5, 2.0):
            with context():
                x = torch.randn(3, 4)
                expected, found = module(x.clone(), s), compiled(x.clone(), s)
            assert storages(found) == storages(expected)
            torch.testing.assert_close(found, expected)


def test_a_part_of_an_input_that_autograd_saved_is_noticed():
    """Where the input is written to, as of eager's parts."""
    w = torch.randn(3, 4, requires_grad=True)
    leaf = torch.randn(9, 4, requires_grad=True)
    x = leaf * 1
    parts = torch.compile(lambda x: (*x.chunk(3), x * 2), backend="mlirc")(x)
    loss = (parts[1] * w).sum()
    with torch.no_grad():
        x.add_(1)
    with pytest.raises(RuntimeError, match="its base or another view of its base has been modified inplace"):
        loss.backward()


def through_the_same_object(x):
    same = x.contiguous()
    y, z = same[:, :], same[:, :][:, :]
    same.t_()
    return y, z, x, same[:, :]


def by_several_names(x):
    same, y = x.contiguous(), x[:, :]
    z = same.view_as(y)
    same.unsqueeze_(0)
    w = same[0]
    same.squeeze_(0)
    x.transpose_(0, 1)
    return y, z, w, same


def of_parts(x):
    (part,) = x.contiguous().split([3])
    y = part[:]
    x.t_()
    return part, y


@pytest.mark.parametrize("program", [through_the_same_object, by_several_names, of_parts])
def test_views_keep_their_sizes_where_their_input_is_transposed(program):
    """A result that is all of an input is a tensor object of its own: the input's object gets other sizes after the call."""
    told = []
    for fn in (program, torch.compile(program, backend="mlirc", options={"fallback": "error"})):
        torch._dynamo.reset()
        for size in (4, 3):
            x = torch.arange(3.0 * size).reshape(3, size)
            results = fn(x)
            results[0].add_(1)
            told.append([(y.shape, y.stride(), y.tolist(), y is x) for y in (*results, x)])
    assert told[:2] == told[2:]
