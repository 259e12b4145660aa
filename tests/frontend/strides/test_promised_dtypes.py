"""Results have eager's dtypes where fake tensors have others: a norm's statistics are float32 beside float32 parameters.

Statistics that are rounded to a half type make gradients of autocast's models several times less accurate.
"""

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from mlirc.frontend.strides.traced import with_eager_strides
from tests.frontend.strides.layouts import fakes

aten = torch.ops.aten
HALF = (torch.bfloat16, torch.float16)
CALLS = {
    "native_batch_norm": lambda x, w, r: (aten.native_batch_norm.default, x, w, w, r, r, True, 0.1, 1e-5),
    "legit": lambda x, w, r: (aten._native_batch_norm_legit_functional.default, x, w, w, r, r, True, 0.1, 1e-5),
    "with update": lambda x, w, r: (aten._batch_norm_with_update_functional.default, x, w, w, r, r, 0.1, 1e-5),
    "no update": lambda x, w, r: (aten._batch_norm_no_update.default, x, w, w, r, r, 0.1, 1e-5),
    "no statistics": lambda x, w, r: (aten._native_batch_norm_legit.no_stats, x, w, w, True, 0.1, 1e-5),
    "evaluation": lambda x, w, r: (aten._native_batch_norm_legit_no_training.default, x, w, w, r, r, 0.1, 1e-5),
    "group norm": lambda x, w, r: (aten.native_group_norm.default, x, w, w, 2, 4, 9, 2, 1e-5),
    "layer norm": lambda x, w, r: (aten.native_layer_norm.default, x.mT[..., :3, :], [3], w[:3], w[:3], 1e-5),
}


@pytest.mark.parametrize("name", CALLS)
def test_statistics(name):
    for dtype in (*HALF, torch.float32):
        for parameters in {torch.float32, dtype}:
            w, r = torch.ones(2, 4, dtype=parameters)
            call, *args = CALLS[name](torch.ones(2, 4, 3, 3, dtype=dtype), w, r)
            assert [y.dtype for y in fakes(call, tuple(args), {}, False)] == [y.dtype for y in call(*args)]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution, self.norm, self.head = nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.norm(self.convolution(x)).relu().mean((2, 3)))


def test_gradients_under_autocast():
    """A parameter's error is at most twice eager's, in the mean over some inputs: that of a bias before a norm is all rounding."""
    torch.manual_seed(0)
    models = [Net(), Net(), Net().double()]
    compiled = torch.compile(models[1], backend="mlirc")
    errors = torch.zeros(2, len(list(models[0].parameters())), dtype=torch.float64)
    for _ in range(12):
        x = torch.randn(2, 2, 6, 6)
        started = {name: 0.5 * torch.randn_like(value) for name, value in models[0].named_parameters()}
        for model, call in zip(models, (models[0], compiled, models[2]), strict=True):
            model.load_state_dict(started, strict=False)
            model.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16, enabled=model is not models[2]):
                made = call(x.to(model.head.weight.dtype))
            made.double().square().sum().backward()
        gradients = [[p.grad for p in model.parameters() if p.grad is not None] for model in models]
        for k, (eager, ours, exact) in enumerate(zip(*gradients, strict=True)):
            errors[:, k] += torch.stack([(g - exact).square().mean() for g in (eager, ours)])
    eager, ours = errors.sqrt()
    assert (ours <= 2 * eager).all(), (ours / eager).tolist()


@pytest.mark.parametrize("shape", [(0, 3, 4, 6), (2, 0, 4, 6), (2, 3, 0, 6), (0, 4, 6), (2, 3, 4, 6)])
def test_pixels_of_no_elements_have_the_sizes_of_eager(shape):
    """Of all operators in OpInfo it alone promises other sizes for an empty operand than its kernel gives."""

    def f(x):
        y = torch.nn.functional.pixel_unshuffle(x, 2)
        return y, y * 2

    torch._dynamo.reset()
    x = torch.rand(shape)
    for one, other in zip(f(x), torch.compile(f, backend="mlirc", options={"fallback": "error"})(x), strict=True):
        assert one.shape == other.shape and torch.equal(one, other)


@pytest.mark.parametrize("shared", [False, True])
def test_gradients_of_efficient_attention_are_row_major(shared):
    """On a GPU, whatever the strides of query, key and value."""
    mode = FakeTensorMode()
    with mode:
        q = torch.empty(2, 4, 5, 8, device="cuda").transpose(1, 2)
        rows, number = torch.empty(2, 4, 32, device="cuda"), torch.empty((), device="cuda", dtype=torch.int64)
    call = aten._efficient_attention_backward.default
    args = (q, q, q, q, None, q, None, None, 5, 5, rows, 0.0, number, number, 0, False)
    with with_eager_strides([q]), mode:
        made = call(*args, shared_storage_dqdkdv=shared)
    assert [x.is_contiguous() for x in made[:3]] == 3 * [not shared], [x.stride() for x in made[:3]]
