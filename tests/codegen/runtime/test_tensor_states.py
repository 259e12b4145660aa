"""What graphs know of their parameters between calls: each way to change one is seen, by native code and where PyTorch is asked."""

import ctypes
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from mlirc.codegen.abi import tensor_layout
from mlirc.codegen.abi.reach import Reach
from mlirc.codegen.runtime import tensor_states
from mlirc.codegen.runtime.tensor_states import States
from mlirc.frontend.cache.frozen_parameters import FrozenParameters
from mlirc.frontend.performance import compiler_pages


@pytest.fixture(params=["native", "asked"])
def way(request, monkeypatch):
    if request.param == "asked":
        monkeypatch.setattr(tensor_states, "_made", [None])
    else:
        assert tensor_states._functions() is not None


def tensors() -> list:
    memory = torch.zeros(100)
    return [
        3,
        nn.Parameter(torch.zeros(4, 5)),
        memory[7:20].t(),
        nn.Parameter(memory[30:], requires_grad=False),
        torch.empty(0),
    ]


def write(x):
    x.add_(1)


def write_a_view(x):
    x[1:].zero_()


def write_detached(x):
    x.detach().mul_(2)


def give_other_memory(x):
    x.data = x.data.clone()


def give_another_part(x):
    x.data = x.data.flatten()[1:]


def give_other_storage(x):
    x.set_(torch.zeros(64))


def enlarge(x):
    x.untyped_storage().resize_(1 << 16)


@pytest.mark.parametrize("position", [1, 2, 3])
@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize(
    "change",
    [write, write_a_view, write_detached, give_other_memory, give_another_part, give_other_storage, enlarge],
)
@pytest.mark.thinned
def test_a_change_is_seen(way, change, counted, position):
    given = tensors()
    states = States([1, 2, 3, 4], counted)
    state = states.of(given)
    assert states.same(given, state) and states.same([3, *(x.detach() for x in given[1:])], state)
    with torch.no_grad():
        change(given[position])
    moved = change.__name__.startswith(("give", "enlarge"))
    assert states.same(given, state) == (not moved and not counted)
    assert states.same(given, states.of(given))


def test_another_tensor_in_the_same_place(way):
    """What a backward graph gets is a new object each time; its versions are those of its memory."""
    x, others = torch.zeros(10), [torch.zeros(10), torch.zeros(3)]
    states = States([1], counted=True)
    state = states.of([others[0], x])
    assert states.same([others[1], x.detach()], state) and not states.same([others[1], x[1:]], state)
    assert not states.same([x, others[0]], state)


def test_an_inference_tensor_has_no_version(way):
    with torch.inference_mode():
        x = torch.zeros(3)
    assert States([0], counted=True).of([x]) is None
    assert States([], counted=True).of([x]) is not None
    places = States([0], counted=False)
    assert places.same([x], places.of([x]))


def test_tensors_that_lie_in_another_way(monkeypatch):
    """A word that cannot be told from another: PyTorch is asked."""
    monkeypatch.setattr(tensor_states, "_made", [])
    monkeypatch.setattr(tensor_layout, "where", lambda objects, values: [2, 3])
    again = Reach("tensor-layout", "none", tensor_layout.places._find, apart=True)
    monkeypatch.setattr(tensor_states, "places", again)
    given = tensors()
    states = States([1, 3], counted=True)
    state = states.of(given)
    assert (
        "in another way" in again.why
        and tensor_states._made == [None]
        and not isinstance(state, ctypes.Array)
        and states.same(given, state)
    )


def test_what_is_kept_on_a_gpu_is_there(monkeypatch):
    """Another stream may ask for it next; what a caller's CUDA graph computes is there when that is replayed."""
    capturing, waited = [True], []
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing[0])
    stream = SimpleNamespace(synchronize=lambda: waited.append(1))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
    prepared = FrozenParameters(lambda used: [SimpleNamespace(is_cuda=True, device="cuda:0")] * 2, [0])
    x = [torch.zeros(3)]
    assert prepared.of(x) is not prepared.of(x) and not waited
    capturing[0] = False
    assert prepared.of(x) is prepared.of(x) and len(waited) == 1


def test_code_is_made_before_the_compilers_pages_are_given_back(monkeypatch):
    """Else they stay in memory: 46 MB, with a model whose parameters are asked."""
    monkeypatch.setattr(tensor_states, "_made", [])
    made = []
    monkeypatch.setattr(compiler_pages, "give_back", lambda: made.append(len(tensor_states._made)))
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8)).eval()
    run = torch.compile(module, backend="mlirc", options={"cache": False, "fallback": "error"})
    with torch.no_grad():
        run(torch.randn(1, 3, 8, 8))
    assert made == [1]
