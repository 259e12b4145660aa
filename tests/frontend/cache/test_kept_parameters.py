"""Whatever changes a weight between two calls is noticed at the next one: each way, for each kind of what is kept of weights."""

import copy
import ctypes
import itertools
import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from mlirc.frontend.cache.frozen_parameters import FrozenParameters
from mlirc.lowering.host import host_cpu

Change = Callable[[torch.Tensor, tuple], None]  # writes other numbers to the elements at an index


def compiled(module: nn.Module, **options) -> Callable:
    torch._dynamo.reset()
    return torch.compile(module, backend="mlirc", options={"fallback": "error", **options})


# ---- ways to write to the elements x[at]


def counted(x, at):
    with torch.no_grad():
        x[at] += 3


def copied(x, at):
    new = x.detach().clone()
    new[at] += 3
    with torch.no_grad():
        x.copy_(new)


def detached(x, at):
    x.detach()[at] += 3


def through_data(x, at):
    x.data[at] += 3


def through_data_in_place(x, at):
    x.data[at].add_(3)


def set_elsewhere(x, at):
    new = x.detach().clone()
    new[at] += 3
    with torch.no_grad():
        x.set_(new)


def other_data(x, at):
    new = x.detach().clone()
    new[at] += 3
    x.data = new


def as_numpy(x, at):
    if x.dtype is torch.bfloat16:
        array = x.detach().view(torch.int16).numpy()
        array[at] = 0x4100  # 8.0
    else:
        x.detach().numpy()[at] += 3


def by_storage(x, at):
    new = x.detach().clone(memory_format=torch.preserve_format)
    new[at] += 3
    x.untyped_storage().copy_(new.untyped_storage())


def by_dlpack(x, at):
    torch.from_dlpack(x.detach())[at] += 3


def by_c(x, at):
    new = x.detach().clone(memory_format=torch.preserve_format)
    new[at] += 3
    ctypes.memmove(x.data_ptr(), new.data_ptr(), x.numel() * x.element_size())


def swapped(x, at):
    new = x.detach().clone()
    new[at] += 3
    torch.utils.swap_tensors(x, nn.Parameter(new, x.requires_grad) if isinstance(x, nn.Parameter) else new)


def by_byte(x, at):
    """One byte: the upper one of the first element."""
    byte = ctypes.c_uint8.from_address(x.data_ptr() + x.element_size() - 1)
    byte.value = 0x41 if byte.value < 0x41 else 0x40


WAYS = [
    counted,
    copied,
    detached,
    through_data,
    through_data_in_place,
    set_elsewhere,
    other_data,
    as_numpy,
    by_storage,
    by_dlpack,
    by_c,
    swapped,
    by_byte,
]

# ---- kinds of what is kept


class Merged(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(32, 32) for _ in range(3))

    def forward(self, x):
        return self.q(x) + self.k(x) * self.v(x)


class Conv1D(nn.Module):
    """GPT-2's: a weight that lies [K, N]."""

    def __init__(self, dtype):
        super().__init__()
        self.weight, self.bias = (
            nn.Parameter(torch.randn(64, 96, dtype=dtype)),
            nn.Parameter(torch.zeros(96, dtype=dtype)),
        )

    def forward(self, x):
        return torch.addmm(self.bias, x, self.weight)


class Computed(Conv1D):
    """By a weight that is computed of a parameter."""

    def forward(self, x):
        return torch.addmm(self.bias, x, self.weight.sin())


class Scaled(nn.Module):
    """A weight that is computed of parameters and a buffer."""

    def __init__(self):
        super().__init__()
        self.weight, self.gain = nn.Parameter(torch.randn(24, 32)), nn.Parameter(torch.rand(24, 1))
        self.register_buffer("mask", (torch.rand(24, 32) > 0.5).float())

    def forward(self, x):
        return x @ (self.weight * self.gain * self.mask).t()


class Looked(nn.Module):
    """Rows of a table, at places that are a buffer; sums of a table."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(16, 8)
        self.register_buffer("places", torch.arange(6) % 5)

    def forward(self, x):
        return x + self.table(self.places) + self.table.weight.sum(0)


class Held(nn.Module):
    """Plain tensors that are no parameters: attributes, and constants of the graph."""

    def __init__(self):
        super().__init__()
        self.plain = torch.randn(8)
        self.scalar = torch.tensor(2.0)

    def forward(self, x):
        return x * self.plain.exp() + self.scalar * torch.tensor([1.0, 2.0] * 4)


def norm(channels):
    module = nn.BatchNorm2d(channels)
    module.running_mean.normal_()
    module.running_var.uniform_(0.5, 2)
    with torch.no_grad():
        module.weight.uniform_(0.5, 2)
        module.bias.normal_()
    return module


def folded(dtype=torch.float32):
    return nn.Sequential(nn.Conv2d(8, 16, 3, bias=False), norm(16), nn.LeakyReLU()).to(dtype), torch.randn(
        2, 8, 9, 9, dtype=dtype
    )


KINDS = {
    "convolution": lambda: (nn.Conv2d(16, 32, 3, padding=1), torch.randn(2, 16, 8, 8)),
    "convolution of one pixel": lambda: (nn.Conv2d(16, 32, 1), torch.randn(2, 16, 8, 8)),
    "strided convolution": lambda: (nn.Conv2d(3, 16, 4, stride=4), torch.randn(2, 3, 16, 16)),
    "bfloat16 convolution": lambda: (nn.Conv2d(16, 32, 3).bfloat16(), torch.randn(2, 16, 8, 8).bfloat16()),
    "channels last": lambda: (
        nn.Conv2d(16, 32, 3).to(memory_format=torch.channels_last),
        torch.randn(2, 16, 8, 8).to(memory_format=torch.channels_last),
    ),
    "depthwise": lambda: (nn.Conv2d(16, 16, 3, groups=16), torch.randn(2, 16, 8, 8)),
    "transposed": lambda: (nn.ConvTranspose2d(8, 16, 2, stride=2), torch.randn(2, 8, 8, 8)),
    "rows": lambda: (nn.Conv1d(16, 32, 5), torch.randn(2, 16, 40)),
    "weight norm": lambda: (weight_norm(nn.Conv1d(16, 32, 5)), torch.randn(2, 16, 40)),
    "folded": folded,
    "folded in bfloat16": lambda: folded(torch.bfloat16),
    "merged": lambda: (Merged(), torch.randn(4, 32)),
    "linear of odd sizes": lambda: (nn.Linear(33, 57), torch.randn(3, 33)),
    "Conv1D": lambda: (Conv1D(torch.float32), torch.randn(2, 64)),
    "Conv1D of many rows": lambda: (Conv1D(torch.float32), torch.randn(70, 64)),
    "Conv1D in bfloat16": lambda: (Conv1D(torch.bfloat16), torch.randn(2, 64).bfloat16()),
    "Conv1D in bfloat16 of many rows": lambda: (Conv1D(torch.bfloat16), torch.randn(70, 64).bfloat16()),
    "computed": lambda: (Computed(torch.float32), torch.randn(2, 64)),
    "scaled": lambda: (Scaled(), torch.randn(5, 32)),
    "looked up": lambda: (Looked(), torch.randn(6, 8)),
    "held": lambda: (Held(), torch.randn(3, 8)),
}
# Of bfloat16 a library multiplies where the processor has tiles for it.
TILES = {"Conv1D in bfloat16", "Conv1D in bfloat16 of many rows"} if host_cpu().bf16_tiles else set()
NOTHING = TILES | {
    "convolution",
    "convolution of one pixel",
    "transposed",
    "rows",
    "merged",
    "linear of odd sizes",
    "Conv1D",
    "Conv1D of many rows",
}
"""Kinds that nothing is kept of today."""


def tensors(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from module.named_parameters()
    yield from module.named_buffers()
    yield from ((name, x) for name, x in vars(module).items() if isinstance(x, torch.Tensor))


def outcome(run: Callable, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return run(x).double()


def apart(found: torch.Tensor, expected: torch.Tensor) -> float:
    """How far, in units of the largest number."""
    assert found.isfinite().all() and expected.isfinite().all()
    return ((found - expected).abs().max() / expected.abs().max()).item()


@pytest.fixture
def kept(monkeypatch) -> list:
    """What was asked for, of all graphs."""
    found: list = []
    of = FrozenParameters.of
    monkeypatch.setattr(FrozenParameters, "of", lambda self, inputs: found.append(of(self, inputs)) or found[-1])
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_each_change_is_noticed(kind, kept):
    torch.manual_seed(0)
    module, x = KINDS[kind]()
    module.eval()
    run = compiled(module)
    limit = 2e-2 if x.dtype is torch.bfloat16 else 1e-5
    before = outcome(module, x)
    assert apart(outcome(run, x), before) < limit
    assert bool(kept) != (kind in NOTHING)
    outcome(run, x)
    assert all(a is b for a, b in itertools.pairwise(kept))
    for name, at, way in changes(module):
        tensor = dict(tensors(module))[name]
        original = tensor.detach().clone()
        way(tensor, at)
        expected, what = outcome(module, x), f"{name} {way.__name__} {at}"
        assert apart(expected, before) > 3 * limit or not tensor.is_floating_point(), what
        assert apart(outcome(run, x), expected) < limit, what
        dict(tensors(module))[name].data.copy_(original)
        assert apart(outcome(run, x), before) < limit, f"{what}, and back"


def changes(module: nn.Module) -> Iterator[tuple[str, tuple, Change]]:
    """Each tensor, one of its elements and all of them, each way."""
    for name, tensor in list(tensors(module)):
        for at in (tuple(n // 2 for n in tensor.shape), (Ellipsis,)):
            ways = WAYS if tensor.is_floating_point() else [through_data]
            yield from ((name, at, way) for way in ways if way is not by_byte or tensor.dtype is torch.float32)


# ---- who else writes, and who else reads


def write_in_child(x, code):
    x.data.flatten()[code] += 3


def test_another_process_writes_to_a_shared_tensor():
    module, x = KINDS["folded"]()
    module.eval().share_memory()
    run = compiled(module)
    outcome(run, x)
    for name in dict(tensors(module)):
        tensor = dict(tensors(module))[name]
        if tensor.is_floating_point():
            child = multiprocessing.get_context("fork").Process(target=write_in_child, args=(tensor, 5))
            child.start()
            child.join()
            assert child.exitcode == 0
            assert apart(outcome(run, x), outcome(module, x)) < 1e-5, name


def test_a_file_that_a_weight_is_mapped_from(tmp_path):
    size = 64 * 96
    path = tmp_path / "weights"
    np.random.default_rng(0).normal(size=size).astype(np.float32).tofile(path)
    module = Computed(torch.float32)
    module.weight.data = torch.from_file(str(path), shared=True, size=size).view(64, 96)
    x = torch.randn(2, 64)
    run = compiled(module)
    before = outcome(run, x)
    with open(path, "r+b") as file:
        file.seek(4 * 100)
        file.write(np.float32(50).tobytes())
    assert apart(outcome(module, x), before) > 1e-2
    assert apart(outcome(run, x), outcome(module, x)) < 1e-5


def test_weights_that_are_inference_tensors(kept):
    """They have no version counter."""
    with torch.inference_mode():
        module = Computed(torch.float32)
        x = torch.randn(2, 64)
        run = compiled(module)
        run(x)
        run(x)
        assert kept[0] is kept[1]
        for write in (lambda w: w.mul_(2), lambda w: w.data.add_(1), lambda w: w.numpy().fill(0.5)):
            write(module.weight)
            assert apart(run(x).double(), module(x).double()) < 1e-5


def test_state_across_training_and_evaluation():
    """What is kept in evaluation is made anew after statistics and weights have changed in training."""
    torch.manual_seed(0)
    module, x = KINDS["folded"]()
    twin = copy.deepcopy(module)
    run = compiled(module)
    for model, call in ((module, run), (twin, twin)):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            model.train()
            call(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            model.eval()
            outcome(call, x)
    assert apart(outcome(run, x), outcome(twin, x)) < 1e-4


def test_a_copy_and_a_shared_weight():
    torch.manual_seed(0)
    first, second, x = Computed(torch.float32), Computed(torch.float32), torch.randn(2, 64)
    second.weight = first.weight
    torch._dynamo.reset()
    runs = [torch.compile(m, backend="mlirc", options={"fallback": "error"}) for m in (first, second)]
    third = copy.deepcopy(first)
    runs.append(torch.compile(third, backend="mlirc", options={"fallback": "error"}))
    for change in (lambda: None, lambda: first.weight.data.mul_(2), lambda: third.weight.data.zero_()):
        change()
        for run, module in zip(runs, (first, second, third), strict=True):
            assert apart(outcome(run, x), outcome(module, x) + 0.0) < 1e-5 or not outcome(module, x).any()


def test_threads_see_the_changes_before_their_calls():
    module, x = Computed(torch.float32), torch.randn(2, 64)
    run = compiled(module)
    outcome(run, x)
    for k in range(20):
        module.weight.data.mul_(1.0 if k % 3 else 1.1)
        expected = outcome(module, x)
        with ThreadPoolExecutor(4) as pool:
            for found in [pool.submit(outcome, run, x) for _ in range(4)]:
                assert apart(found.result(), expected) < 1e-5


def test_freeze_is_a_promise(kept):
    """Counted writes are noticed, others are not: that is what the user promises."""
    module, x = Computed(torch.float32), torch.randn(2, 64)
    run = compiled(module, freeze=True)
    before = outcome(run, x)
    module.weight.data.mul_(2)
    assert torch.equal(outcome(run, x), before)
    with torch.no_grad():
        module.bias.add_(1)
        module.weight.mul_(2)
    assert apart(outcome(run, x), outcome(module, x)) < 1e-5


def test_freeze_with_a_warm_cache(kept, tmp_path, monkeypatch):
    """The promise of one program is not another's."""
    monkeypatch.setenv("MLIRC_CACHE_DIR", str(tmp_path))
    module, x = Computed(torch.float32), torch.randn(2, 64)
    for freeze in (True, False, True, False):
        run = compiled(module, freeze=freeze)
        before = outcome(run, x)
        module.weight.data.mul_(2)
        assert torch.equal(outcome(run, x), before) == freeze
