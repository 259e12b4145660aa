"""A bad index raises what it raises in eager, of the same type and with the same words, whichever operator reads it."""

import pytest
import torch
import torch.nn.functional as F

pytestmark = pytest.mark.thinned

READERS = {
    "x[i]": lambda x, i: x[i],
    "x[:, i]": lambda x, i: x[:, i],
    "x[i, i]": lambda x, i: (x + 1)[i, i],
    "gather": lambda x, i: torch.gather(x, 0, i[:, None].expand(2, 4)),
    "gather of rows": lambda x, i: torch.gather(x * 2, 1, i[None].expand(5, 2)).sin(),
    "gather of a vector": lambda x, i: torch.gather(x[0], 0, i),
    "take_along_dim": lambda x, i: torch.take_along_dim(x, i[:, None], 0),
    "index_select": lambda x, i: torch.index_select(x, 0, i),
    "take": lambda x, i: torch.take(x, i * 5),
    "embedding": lambda x, i: F.embedding(i, x),
    "embedding_bag": lambda x, i: F.embedding_bag(i[None], x),
    "nll_loss": lambda x, i: F.nll_loss(x[:2], i),
    "cross_entropy": lambda x, i: F.cross_entropy(x[:2], i, reduction="none"),
    "label smoothing": lambda x, i: F.cross_entropy(x[:2], i, label_smoothing=0.1),
}
WRITERS = {
    "scatter": lambda x, i: torch.scatter(x, 0, i[:, None].expand(2, 4), 1.0),
    "scatter_add": lambda x, i: torch.scatter_add(x, 0, i[:, None].expand(2, 4), x * 2),
    "scatter_reduce": lambda x, i: torch.scatter_reduce(x, 0, i[:, None].expand(2, 4), x * 2, "amax"),
    "index_add": lambda x, i: torch.index_add(x, 0, i, x[:2] * 2),
    "index_copy": lambda x, i: torch.index_copy(x, 0, i, x[:2] * 2),
    "index_fill": lambda x, i: torch.index_fill(x, 1, i, 2.0),
    "index_put": lambda x, i: torch.index_put(x, (i,), x[0], accumulate=True),
    "index_reduce": lambda x, i: torch.index_reduce(x, 0, i, x[:2] * 2, "amax"),
    "put": lambda x, i: torch.put(x, i * 5, x[0, :2]),
}
X = torch.arange(20.0).reshape(5, 4)


def outcome(function, *args):
    try:
        with torch.no_grad():
            function(*args)
    except Exception as error:
        return type(error), str(error).splitlines()[0]
    return None


@pytest.mark.thinned(5)
@pytest.mark.parametrize("name", READERS | WRITERS)
@pytest.mark.parametrize("index", [[1, 9], [-7, 1]])
def test_a_bad_index_raises_as_in_eager(name, index):
    function, i = (READERS | WRITERS)[name], torch.tensor(index)
    wanted = outcome(function, X, i)
    assert wanted is not None or name == "take_along_dim"
    assert outcome(torch.compile(function, backend="mlirc", options={"fallback": "error"}), X, i) == wanted


ROW = torch.arange(1.0, 5.0)
FLAT = {  # sources that are the same along dimensions that an index walks: their addresses need not depend on it
    "expanded rows": (ROW, lambda x: x.expand(5, 4)),
    "expanded columns": (torch.arange(5.0)[:, None], lambda x: x.expand(5, 4)),
    "expanded, computed": (ROW, lambda x: x.exp().expand(5, 4)),
    "expanded, then computed": (ROW, lambda x: x.expand(5, 4).exp() * 2),
    "one number": (torch.tensor(2.0), lambda x: x.expand(5, 4)),
    "a constant": (torch.tensor(2.0), lambda x: torch.ones(5, 4)),
    "a constant, computed with": (torch.tensor(2.0), lambda x: torch.full((5, 4), 2.0) * x),
    "a row of one": (torch.arange(1.0, 4.0), lambda x: x[:1].expand(5, 4)),
}
QUICK = ("expanded columns", "a constant")


@pytest.mark.thinned(5)
@pytest.mark.parametrize("name", READERS | WRITERS)
@pytest.mark.parametrize("source", [s if s in QUICK else pytest.param(s, marks=pytest.mark.full) for s in FLAT])
def test_a_bad_index_raises_where_the_source_is_expanded(name, source):
    function, (x, expand) = (READERS | WRITERS)[name], FLAT[source]

    def program(x, i):
        return function(expand(x), i)

    i = torch.tensor([1, 9])
    compiled = torch.compile(program, backend="mlirc", dynamic=False, options={"fallback": "error"})
    assert outcome(compiled, x, i) == outcome(program, x, i)
    if source == "expanded columns":
        i, made = torch.tensor([-7, 1]), expand(x)
        compiled = torch.compile(function, backend="mlirc", options={"fallback": "error"})
        assert outcome(compiled, made, i) == outcome(function, made, i)


@pytest.mark.parametrize("sizes", [(1, 4), (5, 1), (1, 1)])
@pytest.mark.parametrize("name", ["x[i]", "x[:, i]", "x[i, i]", "index_select", "take", "embedding"])
def test_a_bad_index_raises_along_a_dimension_of_one_element(name, sizes):
    function, x, i = READERS[name], torch.ones(sizes), torch.tensor([0, 9])
    wanted = outcome(function, x, i)
    assert wanted is not None
    assert outcome(torch.compile(function, backend="mlirc", options={"fallback": "error"}), x, i) == wanted


@pytest.mark.parametrize("rows", [8, 67])
@pytest.mark.parametrize("picked", [lambda y: y[:3], lambda y: y[:, :1], lambda y: y.sum(0), lambda y: (y * 0).relu()])
def test_a_bad_index_raises_where_little_of_what_is_read_is_asked_for(rows, picked):
    def program(x, i):
        return picked(torch.gather(x, 1, i))

    i = torch.zeros(rows, 3, dtype=torch.int64)
    i[-1, -1] = 9
    for x in (torch.ones(rows, 3), torch.ones(rows, 1).expand(rows, 3)):
        wanted = outcome(program, x, i)
        assert wanted is not None
        assert outcome(torch.compile(program, backend="mlirc", options={"fallback": "error"}), x, i) == wanted
