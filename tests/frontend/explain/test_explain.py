"""mlirc.explain(fn)(*args): what it tells, and that it leaves no trace but Dynamo's forgetting."""

import json
import random
import re

import numpy
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import mlirc
from mlirc.frontend.report import report

STAGES = ("import", "simplify", "fuse", "plan", "lower", "emit", "wait")


def explain(fn, *args, **options):
    return mlirc.explain(fn, options={"fallback": "error"}, **options)(*args)


def line_of(fn, number):
    return f"{__file__}:{fn.__code__.co_firstlineno + number}"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 16)
        self.norm, self.drop = nn.BatchNorm1d(16), nn.Dropout(0.5)
        self.calls = []

    def forward(self, x):
        self.calls.append(None)
        return self.drop(self.norm(self.second(self.first(x).relu()))).sum()

    def head(self, x):
        return self.first(x).tanh()


def snapshot(module):
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return {name: (x, x.detach().clone(), x.grad) for name, x in tensors.items()}


def unchanged(module, before):
    now = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    for name, (x, value, grad) in before.items():
        assert now[name] is x and torch.equal(x, value) and x.grad is grad, name
    return now.keys() == before.keys()


# ---- what it tells


def test_kernels_with_their_ops_and_lines():
    def fn(x, y):
        a = (x + y).exp()
        b = a.softmax(-1)
        c = b @ y.t()
        return (c + 1).exp() * 2

    (graph,) = explain(fn, torch.randn(6, 8), torch.randn(6, 8)).data["graphs"]
    assert graph["kind"] == "inference" and not graph["fallback"] and not graph["aten"]
    assert graph["library"] == {"matmul": 1}
    first, second = graph["kernels"]
    assert first["ops"][:2] == ["add", "exp"] and first["ops"].count("reduce") == 2 and first["ops"][-1] == "div"
    assert first["lines"] == [line_of(fn, 1), line_of(fn, 2)] and "softmax" in first["name"]
    assert second["ops"] == ["add", "exp", "mul"] and second["lines"] == [line_of(fn, 4)]
    assert [kernel["launches"] for kernel in graph["kernels"]] == [1, 1]
    assert graph["fusions"] >= 4 and all(entry["pass_name"] for entry in graph["ledger"])


def test_equal_kernels_count_once_with_their_launches():
    def fn(x, w):
        for _ in range(3):
            x = (x @ w).relu() + 1
        return x

    (graph,) = explain(fn, torch.randn(4, 4), torch.randn(4, 4)).data["graphs"]
    (kernel,) = graph["kernels"]
    assert kernel["launches"] == 3 and graph["library"] == {"matmul": 3}


def test_equal_launches_are_gone_through_once_and_each_counts(monkeypatch):
    counted = []
    monkeypatch.setattr(report, "kernel_ops", lambda launch: counted.append(launch) or ["some"])

    def layers(x, y, w):
        for _ in range(4):
            x = torch.tanh(x @ w) + y
        return torch.tanh(x @ w) + x, x

    with torch.no_grad():
        (graph,) = explain(layers, torch.rand(8, 8), torch.rand(8, 8), torch.rand(8, 8)).data["graphs"]
    same, other = graph["kernels"]
    assert len(counted) == 1 and (same["launches"], other["launches"]) == (4, 1)
    assert (same["read"], same["flops"]) == (str(4 * 2 * 256), str(4 * 2 * 64))
    assert (other["read"], other["flops"]) == (str(2 * 256), str(2 * 64))


def test_aten_calls_and_why():
    def fn(x):
        a = torch.linalg.inv(x + 3 * torch.eye(4))
        return torch.special.bessel_j0(a) + torch.rand(4)

    (graph,) = explain(fn, torch.eye(4)).data["graphs"]
    assert graph["aten"]["aten.linalg_inv_ex.default"] == (1, "no op of ours")
    assert graph["aten"]["aten.special_bessel_j0.default"][0] == 1
    assert all(why for _, why in graph["aten"].values())
    assert all(count <= graph["aten"][name][0] and why for name, (count, why) in graph["through_python"].items())


def test_an_aten_call_that_nobody_needs_is_not_left():
    def fn(x):
        torch.linalg.inv_ex(x)
        return x + 1

    (graph,) = explain(fn, torch.eye(4)).data["graphs"]
    assert not graph["aten"]


def test_the_arena_against_the_buffers():
    def fn(x):
        for _ in range(4):
            x = (x @ x) + 1
        return x.sum()

    (graph,) = explain(fn, torch.randn(64, 64)).data["graphs"]
    arena, buffers = int(graph["arena"]), int(graph["buffers"])
    assert arena <= 2 * 4 * 64 * 64 and buffers >= 4 * 4 * 64 * 64  # the sums are done by the products
    (graph,) = explain(fn, torch.randn(64, 64), dynamic=True).data["graphs"]
    assert re.search(r"s\d+\*s\d+|s\d+", graph["arena"]) and re.search(r"s\d+", graph["buffers"])


def test_the_arena_is_that_of_the_graph_not_of_what_packs_parameters():
    with torch.no_grad():
        (graph,) = explain(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)), torch.randn(32, 64)).data[
            "graphs"
        ]
    assert graph["arena"] == graph["buffers"] == str(4 * 32 * 64)


def test_seconds_in_each_stage():
    data = explain(lambda x: x.exp() + 1, torch.randn(8)).data
    (graph,) = data["graphs"]
    assert tuple(graph["seconds"]) == STAGES and all(value > 0 for value in graph["seconds"].values())
    seconds = data["seconds"]
    assert tuple(seconds) == ("dynamo", "aot_autograd", *STAGES, "first_call")
    assert all(value > 0 for value in seconds.values())
    assert sum(seconds.values()) - seconds["first_call"] < seconds["first_call"]


def test_graph_breaks_with_reasons():
    def fn(x):
        y = x + 1
        print(end="")
        if y.sum() > 0:
            return y * 2
        return y

    data = explain(fn, torch.ones(3)).data
    assert len(data["graphs"]) == 3 and not data["skipped"]
    first, second = data["graph_breaks"]
    assert "builtin" in first["reason"] and "print" in first["explanation"]
    assert first["user_stack"][-1].startswith(line_of(fn, 2))
    assert "TensorVariable" in second["reason"] and second["user_stack"][-1].startswith(line_of(fn, 3))


def test_a_break_before_anything_is_captured():
    def fn(x):
        print(end="")
        return x

    data = explain(fn, torch.ones(3)).data
    assert not data["graphs"] and len(data["graph_breaks"]) == 1


def test_functions_that_dynamo_skips():
    def fn(x):
        for _ in range(2):
            x = x + 1
            print(end="")
        return x

    told = explain(fn, torch.ones(3))
    assert not told.data["graphs"] and len(told.data["skipped"]) == 1
    assert "a function stays in eager: Failed to trace" in " ".join(str(told).split())


def test_a_skipped_function_and_the_setting_that_captures_it():
    def experts(x):
        for k in range(2):
            x = x.index_add(0, torch.where(x[:, 0] > k)[0][:1], x[:1])
        return x

    (told,) = explain(experts, torch.ones(3, 2)).data["skipped"]
    assert "experts (" in told and "torch._dynamo.config.capture_dynamic_output_shape_ops = True" in told


def test_modules_that_dynamo_leaves_to_eager():
    class Recurrent(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = torch.nn.LSTM(3, 4)

        def forward(self, x):
            return self.lstm(x)[0] + 1

    told = explain(Recurrent(), torch.ones(2, 1, 3))
    assert not told.data["graphs"] and "torch._dynamo.config.allow_rnn=True" in " ".join(told.data["skipped"])


def test_text_and_json():
    told = explain(Net(), torch.randn(4, 8))
    text = " ".join(str(told).split())
    for part in ("2 graphs, 0 graph breaks", "graph 0 (forward)", "graph 1 (backward)", "dynamo", "emit", "arena"):
        assert part in text, part
    assert "test_explain.py:" in text and "library calls addmm" in text and "aten.native_dropout.default" in text
    assert str(told) == repr(told)
    data = json.loads(json.dumps(told.data))
    assert data["graphs"][0]["kernels"] == told.data["graphs"][0]["kernels"]


# ---- what it does not do


def test_the_function_runs_once():
    net = Net()
    explain(net, torch.randn(4, 8))
    # tracing appends to a list of its own making; running appends to the real one
    assert len(net.calls) == 1
    runs = []

    def fn(x):
        torch._dynamo.graph_break()
        runs.append(None)
        return x + 1

    explain(fn, torch.ones(3))
    assert len(runs) == 1


def test_a_module_in_training_stays_as_it_was():
    net, x = Net(), torch.randn(4, 8, requires_grad=True)
    before = snapshot(net)
    states = torch.get_rng_state(), random.getstate(), numpy.random.get_state()[1].tolist()
    kinds = [graph["kind"] for graph in explain(net, x).data["graphs"]]
    assert kinds == ["forward", "backward"]
    assert unchanged(net, before) and x.grad is None
    assert net.norm.num_batches_tracked == 0
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1] and numpy.random.get_state()[1].tolist() == states[2]


def test_gradients_that_are_there_stay():
    net, x = Net(), torch.randn(4, 8)
    net(x).backward()
    before = {name: (p.grad, p.grad.clone()) for name, p in net.named_parameters()}
    explain(net, x)
    for name, p in net.named_parameters():
        assert p.grad is before[name][0] and torch.equal(p.grad, before[name][1]), name


def test_a_training_step_is_undone():
    net = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    def step(x):
        optimizer.zero_grad()
        loss = net(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss

    x = torch.randn(3, 4)
    step(x)
    before, grads = snapshot(net), [p.grad.clone() for p in net.parameters()]
    momentum = [s["momentum_buffer"].clone() for s in optimizer.state_dict()["state"].values()]
    kinds = [graph["kind"] for graph in explain(step, x).data["graphs"]]
    assert kinds[:2] == ["forward", "backward"]
    assert unchanged(net, before)
    torch.testing.assert_close([p.grad for p in net.parameters()], grads, rtol=0, atol=0)
    after = [s["momentum_buffer"] for s in optimizer.state_dict()["state"].values()]
    torch.testing.assert_close(after, momentum, rtol=0, atol=0)


def test_a_method_of_what_holds_the_model_is_undone():
    class Trainer:
        def __init__(self):
            self.models = {"net": [nn.BatchNorm1d(4)]}
            self.optimizer = torch.optim.SGD(self.models["net"][0].parameters(), lr=0.1)

        def step(self, x):
            loss = self.models["net"][0](x).square().sum()
            loss.backward()
            self.optimizer.step()

    trainer = Trainer()
    before = snapshot(trainer.models["net"][0])
    explain(trainer.step, torch.randn(3, 4))
    assert unchanged(trainer.models["net"][0], before)


def test_arguments_that_are_written_to_are_put_back():
    def fn(x, state):
        state["seen"].add_(1)
        return x.mul_(2)

    x, seen = torch.ones(3), torch.zeros(2)
    explain(fn, x, {"seen": seen})
    assert torch.equal(x, torch.ones(3)) and torch.equal(seen, torch.zeros(2))


def test_buffers_that_are_replaced_are_put_back():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(2))

        def forward(self, x):
            self.count = self.count + 1
            return x + self.count

    module = Counter()
    before = snapshot(module)
    explain(module, torch.ones(2))
    assert unchanged(module, before)


def test_the_graph_behind_an_argument_stays_whole():
    w = torch.randn(5, requires_grad=True)
    x = w.exp()
    kinds = [graph["kind"] for graph in explain(lambda x: (x * x).sum(), x).data["graphs"]]
    assert kinds == ["forward", "backward"] and w.grad is None
    x.sum().backward()
    torch.testing.assert_close(w.grad, w.exp().detach())


def test_what_fails_is_put_back_too():
    net = Net()

    def fn(x):
        net.norm(x.relu())
        raise KeyError("from the user's function")

    before = snapshot(net)
    with pytest.raises(KeyError, match="from the user's function"):
        explain(fn, torch.randn(4, 16))
    assert unchanged(net, before)


# ---- what it takes


def test_methods():
    net, x = Net(), torch.randn(4, 8)
    kinds = [graph["kind"] for graph in explain(net.head, x).data["graphs"]]
    assert kinds == ["forward", "backward"]
    with torch.no_grad():
        (graph,) = explain(net.head, x).data["graphs"]
    assert graph["kind"] == "inference"


def test_inference_mode_and_keywords():
    with torch.inference_mode():
        (graph,) = mlirc.explain(F.softmax)(torch.randn(4, 5), dim=0).data["graphs"]
    assert graph["kind"] == "inference"


@pytest.mark.parametrize("wrap", [lambda fn: torch.compile(fn, backend="eager"), lambda fn: fn])
def test_what_is_compiled_already(wrap):
    net, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.randn(2, 4)
    model = wrap(net)
    model(x)
    assert [graph["kind"] for graph in explain(model, x).data["graphs"]] == ["forward", "backward"]
    fn = wrap(lambda x: x + 1)
    fn(x)
    assert len(explain(fn, x).data["graphs"]) == 1


def test_compiled_functions_still_work_after_it():
    fn = torch.compile(lambda x: x * 2, backend="mlirc")
    with torch.no_grad():
        torch.testing.assert_close(fn(torch.ones(2)), torch.full((2,), 2.0))
        explain(fn, torch.ones(2))
        torch.testing.assert_close(fn(torch.ones(2)), torch.full((2,), 2.0))


def test_complex_results_have_backward_graphs():
    def fn(x):
        return torch.view_as_complex(x * 2)

    x = torch.randn(3, 2, requires_grad=True)
    assert [graph["kind"] for graph in explain(fn, x).data["graphs"]] == ["forward", "backward"]


def test_sizes_are_symbols_when_dynamic():
    (graph,) = explain(lambda x: x.exp().sum(0) + 1, torch.randn(4, 6), dynamic=True).data["graphs"]
    assert not graph["fallback"] and len(graph["kernels"]) == 1
