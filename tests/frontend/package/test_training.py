"""mlirc.compile for training: forward, backward and the optimizer's step in one graph, which is saved and runs in C."""

import copy
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.nn.functional import cross_entropy

import mlirc
from mlirc.frontend.errors import UnsupportedGraph
from mlirc.frontend.package.signature import ArgumentError
from tests.frontend.package.c_program import COMPILER, CProgram

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler is here, which mlirc itself never needs")
ANY = ({0: Dim.DYNAMIC}, {0: Dim.DYNAMIC})


class Network(nn.Module):
    """An MLP with its loss."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 16), nn.Linear(16, 3)

    def forward(self, x, y):
        return cross_entropy(self.second(self.first(x).relu()), y)


class Normed(nn.Module):
    """Buffers that are written to, a parameter that is not used, one that is frozen, one that is used twice, a tree of results."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(6, 6), nn.BatchNorm1d(6)
        self.unused, self.frozen = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(6), requires_grad=False)

    def forward(self, x, y):
        h = self.norm(self.first(self.first(x).tanh())) * self.frozen
        return {"loss": (h - y[:, None]).square().mean(), "h": h}


def batches(count, sizes=(5, 2, 9, 33)):
    torch.manual_seed(1)
    for k in range(count):
        n = sizes[k % len(sizes)]
        x = torch.randn(n, 6)
        yield x, (x.sum(1) > 0).long() + (x[:, 0] > 1)


def eager_steps(model, optimizer, count, dtype=torch.float32):
    model.to(dtype)
    losses = []
    for x, y in batches(count):
        optimizer.zero_grad()
        loss = model(x.to(dtype), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def within_twice_eagers_error(found, model, make, steps):
    """Weights after the steps are as near to float64's as twice eager's own."""
    eager, exact = copy.deepcopy(model), copy.deepcopy(model)
    losses = eager_steps(eager, make(eager.parameters()), steps)
    exact.double()
    eager_steps(exact, make(exact.parameters()), steps, torch.float64)
    for name, x in exact.named_parameters():
        own = (dict(eager.named_parameters())[name].double() - x).abs().max()
        assert (found(name).double() - x).abs().max() <= 2 * own + 1e-7, name
    return losses


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05, initial_accumulator_value=0.1),
}


def test_gradients():
    torch.manual_seed(0)
    model = Normed()
    eager = copy.deepcopy(model)
    compiled = mlirc.compile(model, next(batches(1)), training=True, dynamic_shapes=ANY)
    for x, y in batches(3):
        results, gradients = compiled(x, y)
        eager.zero_grad()
        expected = eager(x, y)
        expected["loss"].backward()
        torch.testing.assert_close(results, {name: value.detach() for name, value in expected.items()})
        for name, p in eager.named_parameters():
            if p.requires_grad:
                torch.testing.assert_close(gradients[name], p.grad)
        torch.testing.assert_close(dict(model.named_buffers()), dict(eager.named_buffers()))
    assert "frozen" not in gradients and gradients["unused"] is None


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_of_optimizers(name):
    torch.manual_seed(0)
    model, make = Network(), OPTIMIZERS[name]
    before = copy.deepcopy(model)
    optimizer = make(model.parameters())
    step = mlirc.compile(model, next(batches(1)), optimizer=optimizer, dynamic_shapes=ANY)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), before.parameters(), strict=True))
    losses = [step(x, y).item() for x, y in batches(12)]
    expected = within_twice_eagers_error(dict(model.named_parameters()).get, before, make, 12)
    torch.testing.assert_close(losses, expected, rtol=1e-4, atol=1e-5)
    # the optimizer is the user's: eager goes on from there
    eager_steps(model, optimizer, 1)
    with pytest.raises(ArgumentError, match=r"lr is 0\.5; the model was compiled for"):
        optimizer.param_groups[0]["lr"] = 0.5
        step(*next(batches(1)))


def test_a_program_that_was_decomposed():
    torch.manual_seed(0)
    model = Normed()
    program = torch.export.export(model, next(batches(1)), dynamic_shapes=ANY).run_decompositions()
    step = mlirc.compile(program, optimizer=torch.optim.SGD(program.parameters(), lr=0.1))
    losses = [step(x, y)["loss"].item() for x, y in batches(8, (9,))]
    assert losses[-1] < losses[0]
    assert step.weights["norm.num_batches_tracked"] == 8


class Recurrent(torch.nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.layers = getattr(torch.nn, kind)(3, 4, **options)

    def forward(self, x):
        out, ends = self.layers(x)
        return out.square().sum() + sum(e.sum() for e in (ends if isinstance(ends, tuple) else (ends,)))


RECURRENT = [
    ("LSTM", {"bidirectional": True}, True),
    ("LSTM", {"num_layers": 2, "batch_first": True}, False),
    ("LSTM", {"proj_size": 2, "bias": False}, False),
    ("GRU", {}, True),
]


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("kind", "options", "decomposed"), RECURRENT)
def test_recurrent_layers(kind, options, decomposed):
    """PyTorch exports an LSTM of a CPU as oneDNN's for inference, which keeps nothing for gradients."""
    torch.manual_seed(0)
    model, x = Recurrent(kind, **options), torch.randn(2, 3, 3)
    program = torch.export.export(model, (x,))
    loss, gradients = mlirc.compile(program.run_decompositions() if decomposed else program, training=True)(x)
    expected = model(x)
    expected.backward()
    torch.testing.assert_close(loss, expected.detach())
    for name, p in model.named_parameters():
        torch.testing.assert_close(gradients[name], p.grad)


LOAD = """
import sys, torch, mlirc
step = mlirc.load(sys.argv[1])
given, losses, weights = torch.load(sys.argv[2])
torch.testing.assert_close([step(*x).item() for x in given], losses, rtol=0, atol=0)
for name, x in weights.items():
    torch.testing.assert_close(step.weights[name], x, rtol=0, atol=0)
assert not {"torch_mlir", "torch._dynamo"} & set(sys.modules)
"""


def test_a_package_trains_in_another_process(tmp_path):
    torch.manual_seed(0)
    model = Network()
    step = mlirc.compile(model, next(batches(1)), optimizer=torch.optim.Adam(model.parameters()), dynamic_shapes=ANY)
    step.save(tmp_path / "step.mlirc")
    given = list(batches(5))
    losses = [step(*x).item() for x in given]
    torch.save((given, losses, {name: x.detach() for name, x in step.weights.items()}), tmp_path / "given.pt")
    command = [sys.executable, "-c", LOAD, tmp_path / "step.mlirc", tmp_path / "given.pt"]
    subprocess.run(command, check=True, timeout=300)


@pytest.mark.parametrize(
    ("fn", "said"),
    [
        (lambda x, y: x * 2, "needs a loss"),
        (lambda x, y: y.sum(), "needs a loss"),
        (lambda x, y: (x.sum(1), x.sum()), "needs a loss"),
        (lambda x, y: 3, "needs a loss"),
    ],
)
def test_what_is_no_loss(fn, said):
    with pytest.raises(UnsupportedGraph, match=said):
        mlirc.compile(fn, next(batches(1)), training=True)


class Clipped(torch.optim.Optimizer):
    """SGD whose step is shorter where a gradient is long: Python compares a number of the data."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure=None):
        for p in (p for group in self.param_groups for p in group["params"]):
            if p.grad is not None and p.grad.norm().item() > 1:
                p.sub_(p.grad)


def after_a_step(optimizer):
    for p in (p for group in optimizer.param_groups for p in group["params"]):
        p.grad = torch.ones_like(p)
    optimizer.step()
    return optimizer


def test_optimizers_that_are_refused():
    model, given = Network(), next(batches(1))
    for optimizer, said in (
        (torch.optim.LBFGS(model.parameters()), "calls the model itself"),
        (torch.optim.SGD(Network().parameters()), "parameters that the model has not"),
        (torch.optim.SGD(model.parameters(), momentum=0.9, dampening=0.5), "take one before"),
        (torch.optim.NAdam(model.parameters()), "take one before"),
        (torch.optim.Adam(model.parameters(), lr=torch.tensor(0.1), foreach=False), "is a tensor"),
        (torch.optim.Adam(model.parameters(), differentiable=True), "eager refuses its step"),
        (Clipped(model.parameters()), "Clipped decides by numbers of its tensors"),
        (after_a_step(torch.optim.Adafactor(model.parameters())), "Adafactor decides by numbers of its tensors"),
    ):
        with pytest.raises(UnsupportedGraph, match=said):
            mlirc.compile(model, given, optimizer=optimizer)


# ---- in C


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("c")
    torch.manual_seed(0)
    model = Network()
    before = copy.deepcopy(model)
    step = mlirc.compile(model, next(batches(1)), optimizer=OPTIMIZERS["adam"](model.parameters()), dynamic_shapes=ANY)
    step.export_c(folder, "mlp", targets=["avx2"])
    return folder, before


@needs_compiler
def test_c_trains(exported):
    folder, before = exported
    program = CProgram(folder, "mlp")
    losses = [program(x, y)[0].item() for x, y in batches(60)]
    expected = within_twice_eagers_error(program.weight, before, OPTIMIZERS["adam"], 60)
    torch.testing.assert_close(losses, expected, rtol=1e-3, atol=1e-4)
    assert sum(losses[-8:]) < 0.75 * sum(losses[:8])
    assert program.weight("optimizer.step.first.weight") == 60
    names = subprocess.run(["nm", "-u", folder / "mlp.o"], capture_output=True, text=True, check=True).stdout.split()
    assert not [x for x in names if x.startswith(("Py", "_Py", "aoti_", "Sleef", "mkl", "cblas", "_Z"))]


@needs_compiler
def test_c_trains_several_models_at_a_time(exported):
    """Each thread with weights of its own, in the place of those in the object file."""
    folder, before = exported
    first = CProgram(folder, "mlp")
    names = [*dict(before.named_parameters())]
    names += [f"optimizer.{key}.{name}" for name in names for key in ("step", "exp_avg", "exp_avg_sq")]
    start = {name: dict(before.named_parameters()).get(name, torch.zeros_like(first.weight(name))) for name in names}
    models = []
    for _ in range(3):
        program = CProgram.__new__(CProgram)
        program.library = first.library
        program.model = type(first.model)()
        program.call("open_model", program.model)
        own = {name: x.detach().clone() for name, x in start.items()}
        for name, x in own.items():
            program.set_weight(name, x)
        models.append((program, own))
    given = list(batches(25))
    threads = [threading.Thread(target=lambda p=p: [p(x, y) for x, y in given]) for p, _ in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for _, own in models[1:]:
        assert all(torch.equal(own[name], x) for name, x in models[0][1].items())
    assert models[0][1]["optimizer.step.first.weight"] == 25


@needs_compiler
def test_the_training_program_of_the_documentation(tmp_path):
    text = (Path(__file__).parents[3] / "docs/features.md").read_text()
    source = re.findall(r"```c\n(.*?)```", text, re.DOTALL)[1]
    code = re.search(r"```python\n([^`]*export_c\(folder, \"step\"[^`]*)```", text)
    assert code is not None and COMPILER is not None
    torch.manual_seed(0)
    exec(code[1], {"torch": torch, "mlirc": mlirc, "folder": str(tmp_path), "__name__": "docs"})
    (tmp_path / "train.c").write_text(source)
    subprocess.run([COMPILER, "train.c", "step.o", "-lm", "-o", "train"], check=True, cwd=tmp_path)
    done = subprocess.run([tmp_path / "train"], capture_output=True, check=True, text=True)
    losses = [float(line) for line in done.stdout.split()]
    assert losses[-1] < losses[0] / 10
