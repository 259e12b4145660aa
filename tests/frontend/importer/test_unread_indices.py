"""An index into nothing, or of a result without elements, raises exactly where eager raises."""

import pytest
import torch
import torch.nn.functional as F


def along(i, dim, other):
    """The index for gather and scatter: each of `i` along `dim`, for each of `other` rows."""
    return i[:, None].expand(i.numel(), other) if dim == 0 else i[None].expand(other, i.numel())


def like(x, dim, i):
    sizes = list(x.shape)
    sizes[dim] = i.numel()
    return x.new_ones(sizes)


READERS = {
    "x[i]": lambda x, i, d: x[i] if d == 0 else x[:, i],
    "x[i, i]": lambda x, i, d: x[i, i],
    "x[i][:0]": lambda x, i, d: x[i][:0],
    "x[i, :0] + 1": lambda x, i, d: x[i][:, :0] + 1,
    "index_select": lambda x, i, d: torch.index_select(x, d, i),
    "index_select by a number": lambda x, i, d: torch.index_select(x, d, i[0]),
    "index_select, computed": lambda x, i, d: torch.index_select(x.exp(), d, i + 0) * 2,
    "gather": lambda x, i, d: torch.gather(x, d, along(i, d, x.shape[1 - d])),
    "gather of nothing": lambda x, i, d: torch.gather(x, d, along(i, d, 0)),
    "take_along_dim": lambda x, i, d: torch.take_along_dim(x, i[:, None] if d == 0 else i[None], d),
    "take": lambda x, i, d: torch.take(x, i),
    "embedding": lambda x, i, d: F.embedding(i, x),
    "embedding of nothing": lambda x, i, d: F.embedding(i[:, None].expand(i.numel(), 0), x),
    "embedding_bag": lambda x, i, d: F.embedding_bag(i[None], x),
    "nll_loss": lambda x, i, d: F.nll_loss(x, i, reduction=("mean", "none")[d]),
    "nll_loss of nothing": lambda x, i, d: F.nll_loss(x[..., None].expand(*x.shape, 0), i[:, None].expand(-1, 0)),
    "cross_entropy": lambda x, i, d: F.cross_entropy(x, i, label_smoothing=d * 0.1, reduction="none"),
    "one_hot": lambda x, i, d: F.one_hot(i, 5),
    "one_hot of nothing": lambda x, i, d: F.one_hot(i[:, None].expand(-1, 0), 5),
    "repeat_interleave": lambda x, i, d: torch.repeat_interleave(x, i, d),
}
WRITERS = {
    "scatter": lambda x, i, d: torch.scatter(x, d, along(i, d, x.shape[1 - d]), 1.0),
    "scatter of nothing": lambda x, i, d: torch.scatter(x, d, along(i, d, 0), 1.0),
    "scatter_add": lambda x, i, d: torch.scatter_add(x, d, along(i, d, x.shape[1 - d]), torch.ones(9, 9)),
    "scatter_reduce": lambda x, i, d: torch.scatter_reduce(x, d, along(i, d, x.shape[1 - d]), torch.ones(9, 9), "amax"),
    "index_add": lambda x, i, d: torch.index_add(x, d, i, like(x, d, i)),
    "index_copy": lambda x, i, d: torch.index_copy(x, d, i, like(x, d, i)),
    "index_fill": lambda x, i, d: torch.index_fill(x, d, i, 2.0),
    "index_reduce": lambda x, i, d: torch.index_reduce(x, d, i, like(x, d, i), "amax"),
    "index_put": lambda x, i, d: torch.index_put(x, (i,), torch.tensor(2.0), accumulate=bool(d)),
    "index_put of columns": lambda x, i, d: torch.ops.aten.index_put(x, [None, i], torch.tensor(2.0)),
    "put": lambda x, i, d: torch.put(x, i, torch.ones(i.shape)),
}
SIZES = [(0, 5), (5, 0), (0, 0), (3, 4), (1, 0), (0, 1)]
INDICES = [[0], [7], [-7], [], [0, 7], [2, 1, -1], [0, 0, 0, 7, 0]]


def outcome(function, *args):
    try:
        with torch.no_grad():
            result = function(*args)
    except Exception as error:
        return type(error), str(error).splitlines()[0]
    return tuple(result.shape), str(result.tolist())


def differences(name, dtype, sizes, indices, dynamic):
    function, found = (READERS | WRITERS)[name], []
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="mlirc", dynamic=dynamic, options={"fallback": "error"})
    reference = torch.compile(function, backend="aot_eager", dynamic=dynamic)
    with torch._dynamo.config.patch(recompile_limit=1000, accumulated_recompile_limit=1000):
        for size in sizes:
            for index in indices:
                for dim in (0, 1):
                    args = torch.ones(size), torch.tensor(index, dtype=dtype), dim
                    wanted, got = outcome(function, *args), outcome(compiled, *args)
                    if got != wanted and got != outcome(reference, *args):
                        found.append(f"{size}[{index}], dimension {dim}: {got}, eager {wanted}")
    return found


@pytest.mark.thinned(7)
@pytest.mark.parametrize("name", READERS | WRITERS)
def test_an_index_that_no_result_needs_raises_as_in_eager(name):
    sizes = [(0, 5), (0, 0)]
    assert not differences(name, torch.int64, sizes, [[0], [7]], False)


@pytest.mark.full
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("name", READERS | WRITERS)
def test_indices_of_empty_tensors_in_full(name, dtype, dynamic):
    assert not differences(name, dtype, SIZES, INDICES, dynamic)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", ["x[i]", "index_select", "index_select, computed", "embedding"])
def test_a_size_that_may_become_0(name):
    """x[2:] of a size of 2 or more."""

    def program(x, i, d):
        return (READERS | WRITERS)[name](x[:, 2:], i, d)

    compiled = torch.compile(program, backend="mlirc", dynamic=True, options={"fallback": "error"})
    for columns in (7, 4, 2, 5):
        for index in ([0, 1], [7, 0]):
            args = torch.ones(3, columns), torch.tensor(index), 0
            assert outcome(compiled, *args) == outcome(program, *args)
