"""Mode "reduce-overhead" with stand-ins for a GPU: whoever holds what, in whatever order, every result is eager's.

A recording here is a function that writes the results' memory anew; what a recording computes on the way has no memory.
"""

import contextlib
import math
import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlirc.frontend.cache.frozen_parameters import FrozenParameters
from mlirc.frontend.cuda_graphs import recordings as cuda_graphs
from mlirc.frontend.cuda_graphs.facts import Facts
from mlirc.frontend.cuda_graphs.recordings import MOST_SIZES, Recorded
from mlirc.frontend.statistics import GraphReport


class Graph:
    def __init__(self):
        self.replay: Any = None


class Gpu:
    """graph: that is being recorded; stream: the current one; waited: pairs of streams; lent: streams that memory is used in."""

    def __init__(self):
        self.graph: Graph | None = None
        self.stream, self.waited, self.lent, self.states = 1, [], [], []
        self.reserved = 0

    @contextlib.contextmanager
    def capture(self, graph, pool):
        self.graph = graph
        try:
            yield
        finally:
            self.graph = None

    def current_stream(self):
        here = self.stream
        return SimpleNamespace(number=here, wait_stream=lambda other: self.waited.append((here, other.number)))


@contextlib.contextmanager
def stand_ins():
    gpu = Gpu()
    generator = SimpleNamespace(clone_state=lambda: "before", graphsafe_set_state=gpu.states.append)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "is_current_stream_capturing": lambda: False,
            "CUDAGraph": Graph,
            "default_generators": [generator],
            "device": lambda index: contextlib.nullcontext(),
            "memory_reserved": lambda: gpu.reserved,
            "synchronize": lambda: None,
            "current_stream": gpu.current_stream,
        }.items():
            patch.setattr(torch.cuda, name, value)
        patch.setattr(cuda_graphs, "current_stream_handle", lambda device: gpu.stream)
        patch.setattr(torch.Tensor, "record_stream", lambda x, stream: gpu.lent.append(stream.number))
        patch.setattr(cuda_graphs, "capture", gpu.capture)
        patch.setattr(cuda_graphs, "RecordingPool", lambda: SimpleNamespace(handle=None, stream=None, last=-1))
        patch.setattr(cuda_graphs, "_pools", {})
        yield gpu


@pytest.fixture
def gpu():
    with stand_ins() as made:
        yield made


class Program:
    """What stands for a compiled graph: function(*inputs, *frozen) -> results. `prepare` makes the tensors frozen of input 0."""

    def __init__(self, gpu, function, prepare=None):
        self.gpu, self.function, self.runs = gpu, function, 0
        self.prepared = FrozenParameters(prepare, [0]) if prepare else None

    def frozen_tensors(self, inputs):
        return self.prepared.of(inputs) if self.prepared else None

    def __call__(self, inputs):
        self.runs += 1
        known = [*inputs, *(self.frozen_tensors(inputs) or [])]
        results = list(self.function(*known))
        if self.gpu.graph is not None:
            places = [x.data_ptr() for x in results]

            def replay():
                for x, place, value in zip(results, places, self.function(*known), strict=True):
                    assert x.data_ptr() == place  # where the memory is that a graph writes to
                    x.copy_(value)

            self.gpu.graph.replay = replay
            for x in results:
                x.fill_(math.nan)  # nothing is computed while a graph is recorded
        return results


def recorded(program, kind="inference", **facts):
    facts = Facts(**{"tensors": (0, 1), "fixed": frozenset({0}), "returned": frozenset({0})} | facts)
    return Recorded(program, facts, kind, GraphReport(kind), torch.zeros(3, dtype=torch.int64))


def scaled(w, x, b, frozen):
    return (x * frozen + b,)


IN_PLACE = {"tensors": (0, 1, 2), "fixed": frozenset({0, 2})}


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["call", "call", "call", "again", "drop", "drop", "write", "view", "resize", "train", "move"]),
        st.integers(0, 5),
    ),
    min_size=10,
    max_size=40,
)


@settings(max_examples=80, deadline=None)
@given(ACTIONS)
def test_results_in_any_order(actions):
    """Held, dropped, written to, enlarged, given to the next call; the parameter is written to, or lies elsewhere."""
    with stand_ins() as gpu, torch.no_grad():
        program = Program(gpu, scaled, lambda used: [used[0] * 3])
        replayed, w, b, held, count = recorded(program, **IN_PLACE), torch.ones(4), torch.ones(4), [], 0.0
        for action, k in actions:
            at = k % max(len(held), 1)
            chosen = held[at] if held else None
            if action in ("call", "again"):
                count += 1
                x = chosen[0] if chosen and action == "again" else torch.full((4,), count)
                expected = x * (w * 3) + b
                held.append((replayed([w, x, b])[0], expected))
            elif action == "train":
                (w, b)[k % 2].add_(1)
            elif action == "move":
                w, b = (w + 1, b) if k % 2 else (w, b + 1)
            elif chosen and action == "drop":
                del held[at]
            elif chosen and action == "write":
                for x in chosen:
                    x.mul_(2)
            elif chosen and action == "view":
                held[at] = chosen[0].view(2, 2).view(4), chosen[1]
            elif chosen and action == "resize":
                chosen[0].untyped_storage().resize_(1 << 12)
            del chosen
            for have, expected in held:
                assert torch.equal(have, expected)


def test_a_caller_who_lets_go_pays_for_no_copies(gpu):
    program = Program(gpu, scaled, lambda used: [used[0] * 3])
    replayed, w = recorded(program, **IN_PLACE), torch.ones(4)
    places, result = set(), None
    for k in range(12):
        result = replayed([w, torch.full((4,), float(k)), w])[0]
        places |= {result.data_ptr()} if k > 4 else set()
        assert torch.equal(result, torch.full((4,), 3.0 * k + 1))
    assert len(places) == 2 and program.runs == cuda_graphs.WARM_UP + 2


def test_inputs_are_copied_whatever_their_size_and_strides(gpu):
    program = Program(gpu, lambda w, x, y, z: (x + w, y * w, z - w))
    replayed, w = recorded(program, tensors=(0, 1, 2, 3), returned=frozenset({0, 1, 2})), torch.ones(1)
    for _ in range(6):
        given = torch.randn(300, 400).t(), torch.randn(5, 1).expand(5, 3), torch.randn(2, 1 << 17)[:, 1:70001]
        for have, want in zip(replayed([w, *given]), program.function(w, *given), strict=True):
            assert torch.equal(have, want)
    assert program.runs == cuda_graphs.WARM_UP + 2


STEPS = st.lists(
    st.tuples(st.sampled_from(["forward", "forward", "backward", "backward", "drop"]), st.integers(0, 3)),
    min_size=12,
    max_size=50,
)


@settings(max_examples=80, deadline=None)
@given(STEPS)
def test_forward_and_backward_calls_in_any_order(steps):
    """What a forward graph saves stays until its backward call, however many forward calls come between."""
    with stand_ins() as gpu, torch.no_grad():
        forward = recorded(Program(gpu, lambda w, x: (x * w, x.sin())), "forward")
        backward = recorded(
            Program(gpu, lambda w, s, g: (g * w + s,)), "backward", tensors=(0, 1, 2), fixed=frozenset()
        )
        w, open_, count = torch.ones(4) * 2, [], 0.0
        for step, k in steps:
            if step == "forward":
                count += 1
                x = torch.full((4,), count)
                result, saved = forward([w, x])
                assert torch.equal(result, x * w)
                open_.append((saved, x))
            elif open_ and step == "backward":
                saved, x = open_.pop(k % len(open_))
                g = torch.full((4,), count + 0.5)
                assert torch.equal(backward([w, saved, g])[0], g * w + x.sin())
                del saved
            elif open_:
                del open_[k % len(open_)]
            for saved, x in open_:
                assert torch.equal(saved, x.sin())
                del saved


def test_what_is_raised_while_a_graph_is_recorded(gpu):
    """Of CUDA it is why there is no recording; any other error is the caller's. Random numbers are drawn as before after both."""
    errors: list[type[BaseException]] = [KeyboardInterrupt, IndexError, RuntimeError]

    def function(w, x):
        if gpu.graph is not None:
            raise errors.pop(0)("no")
        return (x + w,)

    replayed, w, x = recorded(Program(gpu, function)), torch.ones(2), torch.ones(2)
    for expected in [None] * cuda_graphs.WARM_UP + [KeyboardInterrupt, IndexError, None, None]:
        with pytest.raises(expected) if expected else contextlib.nullcontext():
            assert torch.equal(replayed([w, x])[0], x + w)
    assert gpu.states == ["before"] * 3 and not errors and replayed.report.cuda_graph == "not recorded: no"


def test_another_stream_waits_and_holds_what_is_copied_to(gpu):
    replayed, w = recorded(Program(gpu, lambda w, x: (x + w,))), torch.ones(2)
    for k, stream in enumerate([1, 1, 1, 2, 2, 1]):
        gpu.stream = stream
        assert torch.equal(replayed([w, torch.full((2,), float(k))])[0], torch.full((2,), k + 1.0))
    assert gpu.waited == [(2, 1), (1, 2)] and gpu.lent == [2, 2]


def test_a_thread_that_finds_another_one_at_it_runs_without(gpu):
    program = Program(gpu, lambda w, x: (x + w,))
    replayed, w, x, found = recorded(program), torch.ones(2), torch.ones(2), []
    for _ in range(5):
        replayed([w, x])
    runs = program.runs
    with cuda_graphs._lock:
        thread = threading.Thread(target=lambda: found.append(replayed([w, x])[0]))
        thread.start()
        thread.join()
    assert torch.equal(found[0], x + w) and program.runs == runs + 1
    replayed([w, x])
    assert program.runs == runs + 1


def test_sizes_have_recordings_of_their_own_up_to_a_number(gpu):
    program = Program(gpu, lambda w, x: (x + w,))
    replayed, w = recorded(program, symbolic=True), torch.ones(1)
    for _ in range(6):
        for n in range(1, MOST_SIZES + 3):
            x = torch.randn(n)
            assert torch.equal(replayed([w, x])[0], x + w)
    without = 2 * 6  # those beyond the number
    assert program.runs == without + MOST_SIZES * (cuda_graphs.WARM_UP + 1)
    assert "combinations of sizes" in replayed.report.cuda_graph


def test_memory_that_lending_would_take_is_not_taken(gpu):
    """Where a recording needs much on the way, no result is returned without a copy: each is a copy."""

    def function(w, x):
        gpu.reserved += 200 << 20
        return (x + w,)

    replayed, w, places = recorded(Program(gpu, function)), torch.ones(2), []
    for _ in range(6):
        places.append(replayed([w, torch.ones(2)])[0])
    (sizes,) = replayed.sizes.values()
    assert not sizes.uncopied and [x.shared for x in sizes.recordings] == [{}]
    assert len({x.data_ptr() for x in places}) == 6
