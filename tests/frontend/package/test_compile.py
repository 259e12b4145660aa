"""`mlirc.compile`: models as eager runs them, and arguments that are not those that a model was compiled for."""

import copy
import pickle
import threading
from collections import namedtuple

import pytest
import torch
from torch import nn
from torch.export import Dim

import mlirc
from mlirc.frontend.errors import OptionError, UnsupportedGraph
from mlirc.frontend.package.packaged_graph import PackageError
from mlirc.frontend.package.signature import ArgumentError

Pair = namedtuple("Pair", "left right")


class Network(nn.Module):
    """Everything that a signature knows: parameters, buffers, one that is written to, constants, trees, numbers."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm, self.table = nn.Linear(8, 16), nn.BatchNorm1d(16), torch.randn(16)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x, *, more=None, scale=2.0):
        self.calls.add_(1)
        h = self.norm(self.linear(x)).relu() * self.table * scale
        if more is not None:
            h = h + more["y"][0]
        return {"h": h, "rest": (h.sum(1), 3, x.shape[0], self.calls + 0)}


def equal(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    ours, theirs = (
        [(x.dtype, x.stride()) for x in torch.utils._pytree.tree_leaves(y) if isinstance(x, torch.Tensor)]
        for y in (found, expected)
    )
    assert ours == theirs


def test_a_model_with_a_size_that_changes():
    model = Network().eval()
    compiled = mlirc.compile(model, (torch.randn(4, 8),), dynamic_shapes={"x": {0: Dim.DYNAMIC}})
    assert model.calls == 0
    for count in (4, 2, 9, 33):
        x = torch.randn(count, 8)
        expected = model(x)
        model.calls.sub_(1)
        equal(compiled(x), expected)
        equal(compiled(x=x)["rest"][3], model.calls)
        model.calls.zero_()


def test_operators_made_of_others_are_compiled():
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.Dropout(), nn.Softmax(-1)).eval()
    converted = lambda x: model(x).to(torch.float64).to(torch.int32)
    for fn in (model, converted):
        graph = mlirc.compile(fn, (torch.randn(4, 8),))._program.compiled
        assert graph is not None and not graph.program.calls


def test_trees_and_numbers_of_a_call():
    model = Network().eval()
    more = {"y": [torch.randn(16)]}
    compiled = mlirc.compile(model, (torch.randn(4, 8),), {"more": more, "scale": 0.5})
    x = torch.randn(4, 8)
    equal(compiled(x, scale=0.5, more=more)["h"], model(x, more=more, scale=0.5)["h"])
    for kwargs in ({"more": more, "scale": 2.0}, {"more": more}, {"more": {"y": []}, "scale": 0.5}, {}):
        with pytest.raises(ArgumentError):
            compiled(x, **kwargs)


def test_weights_that_change_are_seen_and_can_be_replaced():
    model = Network().eval()
    compiled, x = mlirc.compile(model, (torch.randn(4, 8),)), torch.randn(4, 8)
    compiled(x)
    with torch.no_grad():
        model.linear.weight.mul_(2)
        model.norm.running_mean.data.add_(1)
    equal(compiled(x)["h"], model(x)["h"])
    replaced = torch.randn(16, 8)
    compiled.weights["linear.weight"] = replaced
    model.linear.weight = nn.Parameter(replaced)
    equal(compiled(x)["h"], model(x)["h"])
    with pytest.raises(KeyError):
        compiled.weights["other"] = replaced
    with pytest.raises(ValueError, match="shape"):
        compiled.weights["linear.weight"] = replaced[:3]
    with pytest.raises(TypeError):
        del compiled.weights["linear.weight"]


@pytest.fixture(scope="module")
def network():
    return mlirc.compile(Network().eval(), (torch.randn(4, 8),), dynamic_shapes={"x": {0: Dim.DYNAMIC}})


@pytest.mark.thinned(5)
@pytest.mark.parametrize(
    ("x", "said"),
    [
        (torch.randn(1, 8), "at least 2"),
        (torch.randn(4, 9), "size 9 in dimension 1"),
        (torch.randn(4, 8, dtype=torch.float64), "float64"),
        (torch.randn(8), "1 dimensions"),
        (torch.randn(4, 8).to_sparse(), "sparse"),
        (torch.nested.nested_tensor([torch.randn(4, 8)]), "nested"),
        (torch.randn(4, 8, device="meta"), "meta"),
        ([1.0], "compiled for"),
        (3, "int"),
        (None, "NoneType"),
    ],
)
def test_arguments_of_another_kind(network, x, said):
    with pytest.raises(ArgumentError, match=said):
        network(x)


def three_views(x):
    return x.view(-1) * 2, x.t() + 1, x.sum(0)


@pytest.fixture(scope="module")
def viewing():
    return mlirc.compile(three_views, (torch.randn(4, 8),))


@pytest.mark.parametrize(
    "lay",
    [
        lambda x: x.t().contiguous().t(),
        lambda x: x.repeat(2, 2)[:4, 8:],
        lambda x: x.flip(0).flip(0),
        lambda x: torch.complex(x, x).conj().real,
        lambda x: torch.complex(x, -x).conj().imag,  # a lazy negation
        lambda x: x[:1].expand(4, 8),
        lambda x: torch.cat([x.flatten(), x.flatten()])[3:35].view(4, 8),
        lambda x: x.requires_grad_(),
        lambda x: nn.Parameter(x),
    ],
)
def test_any_strides_and_any_memory(lay, viewing):
    x = lay(torch.randn(4, 8))
    with torch.no_grad():
        torch.testing.assert_close(viewing(x), three_views(x.contiguous()))


def test_what_a_model_writes_to():
    def function(x, y):
        x.mul_(2)
        y[:, 0] = x[:, 0]
        return x + y

    compiled = mlirc.compile(function, (torch.randn(4, 8), torch.randn(4, 8)))
    x, y = torch.randn(4, 8), torch.randn(4, 8)
    ours, theirs = (x.clone(), y.clone()), (x, y)
    equal(compiled(*ours), function(*theirs))
    equal(ours, theirs)
    with pytest.raises(ArgumentError, match="share memory"):
        compiled(x, x)
    with pytest.raises(ArgumentError, match="strides"):
        compiled(torch.randn(8, 4).t(), y)
    both = torch.randn(6, 8)
    with pytest.raises(ArgumentError, match="share memory"):
        compiled(both[:4], both[2:])
    equal(compiled(both[:3].repeat(2, 1)[:4], y), y + both[:3].repeat(2, 1)[:4] * 2)


def test_results_that_are_arguments_or_share_memory():
    def function(x):
        y = x + 1
        return x, x.t(), x[1:], y, y.view(-1), y

    compiled = mlirc.compile(function, (torch.randn(4, 8),))
    x = torch.randn(4, 8)
    found = compiled(x)
    equal(found, function(x))
    assert found[0] is x
    assert found[1].data_ptr() == x.data_ptr() and found[2]._base is not None
    found[3].zero_()
    assert not found[4].any() and found[5] is found[3]


def test_what_torch_export_found_out_of_sizes_is_checked():
    def function(x, n, y):
        return x[:n] * 2 if 2 * x.shape[0] > y.shape[0] else x[:n] * 3, x.unflatten(0, (2, -1))

    shapes = {"x": {0: Dim.DYNAMIC}, "n": Dim.DYNAMIC, "y": {0: Dim.DYNAMIC}}
    compiled = mlirc.compile(function, (torch.randn(6, 8), 3, torch.randn(5)), dynamic_shapes=shapes)
    for count, n, other in ((6, 3, 5), (10, 4, 7), (4, 4, 2)):
        x, y = torch.randn(count, 8), torch.randn(other)
        equal(compiled(x, n, y), function(x, n, y))
    for count, n, other in ((6, 7, 5), (6, 3, 12), (7, 3, 5), (6, -1, 5), (6, 1, 5)):
        with pytest.raises(ArgumentError, match="compiled for"):
            compiled(torch.randn(count, 8), n, torch.randn(other))
    with pytest.raises(ArgumentError, match="int"):
        compiled(torch.randn(6, 8), 3.0, torch.randn(5))


def test_a_size_that_is_a_multiple():
    half = Dim("half", min=2, max=50)
    compiled = mlirc.compile(lambda x: x.view(2, -1) + 1, (torch.randn(8),), dynamic_shapes=({0: 2 * half},))
    equal(compiled(torch.ones(22)), torch.full((2, 11), 2.0))
    for count in (7, 2, 102):
        with pytest.raises(ArgumentError):
            compiled(torch.ones(count))


def test_functions_programs_and_what_torch_jit_made():
    model, x = nn.Sequential(nn.Linear(8, 4), nn.GELU()).eval(), torch.randn(3, 8)
    exported = torch.export.export(model, (x,))
    for given in (model, model.forward, exported, torch.jit.trace(model, x), torch.jit.script(model)):
        equal(mlirc.compile(given, () if given is exported else (x,))(x), model(x).detach())
    rows = {0: Dim.DYNAMIC}
    equal(mlirc.compile(torch.add, (x, x), dynamic_shapes=(rows, rows))(x[:2], x[1:]), x[:2] + x[1:])
    with pytest.raises(UnsupportedGraph, match="does not export"):
        mlirc.compile(torch.jit.script(loop), (x, 3))
    for wrong in (3, None):
        with pytest.raises(TypeError, match="takes a module"):
            mlirc.compile(wrong, (x,))
    with pytest.raises(OptionError):
        mlirc.compile(model, (x,), options={"freez": True})


def test_example_arguments_that_are_one_tensor_are_two_arguments():
    x, model = torch.randn(3, 8), nn.Linear(8, 3, bias=False)
    given = [torch.randn(3, 8) for _ in range(3)]
    compiled = mlirc.compile(lambda a, b, *, c: (a["left"] - b, b * c), ({"left": x}, x), {"c": x})
    a, b, c = given
    equal(compiled({"left": a}, b, c=c), (a - b, b * c))
    compiled = mlirc.compile(model, (model.weight,))
    equal(compiled(a), model(a).detach())


def loop(x: torch.Tensor, n: int) -> torch.Tensor:
    for _ in range(n):
        x = x.sin()
    return x


def test_a_compiled_model_is_neither_pickled_nor_copied():
    compiled = mlirc.compile(torch.sin, (torch.ones(3),))
    for other in (copy.deepcopy, copy.copy, pickle.dumps):
        with pytest.raises(TypeError, match="save"):
            other(compiled)


def test_named_tuples_and_no_tensors():
    compiled = mlirc.compile(lambda p: Pair(p.left + 1, p), (Pair(torch.ones(3), torch.ones(2)),))
    found = compiled(Pair(torch.zeros(3), torch.zeros(2)))
    assert type(found) is Pair and type(found.right) is Pair
    equal(found.left, torch.ones(3))
    assert mlirc.compile(lambda: (1, torch.arange(3)), ())()[0] == 1


def test_sizes_that_depend_on_data_run_and_are_not_saved(tmp_path):
    compiled = mlirc.compile(lambda x: x[x > 0] * 2, (torch.randn(9),))
    x = torch.randn(9)
    equal(compiled(x), x[x > 0] * 2)
    with pytest.raises(PackageError, match="depend on data"):
        compiled.save(tmp_path / "m.mlirc")


def test_gradients_are_none_and_random_numbers_are_eager_s():
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).train()
    x = torch.randn(64, 4, requires_grad=True)
    compiled = mlirc.compile(model, (x,))
    torch.manual_seed(3)
    found = compiled(x)
    torch.manual_seed(3)
    equal(found, model(x).detach())
    assert not found.requires_grad


def test_threads():
    model = Network().eval()
    model.calls = None
    model = nn.Sequential(model.linear, model.norm, nn.ReLU())
    compiled = mlirc.compile(model, (torch.randn(4, 8),), dynamic_shapes=({0: Dim.DYNAMIC},))
    wrong = []

    def work(count):
        for _ in range(50):
            x = torch.randn(count, 8)
            if not torch.allclose(compiled(x), model(x), atol=1e-5):
                wrong.append(count)

    threads = [threading.Thread(target=work, args=(k,)) for k in (2, 3, 17)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
