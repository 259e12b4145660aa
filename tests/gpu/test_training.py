"""Training on a GPU as programs do it: autocast, a gradient scaler, channels last, streams; long rows, and few of them."""

import copy

import pytest
import torch
from torch import nn

from tests.gpu.test_graphs import check, compiled, cuda, distance

F = nn.functional
INF, NAN = float("inf"), float("nan")


def gradients(fn, *inputs, grad=None):
    copies = [x.detach().clone(memory_format=torch.preserve_format).requires_grad_() for x in inputs]
    out = fn(*copies)
    out.backward(torch.ones_like(out) if grad is None else grad.to(out.dtype))
    return [out.detach(), *(x.grad for x in copies)]


def check_gradients(fn, *inputs, grad=None):
    """Result and gradients, each within twice eager's error, with eager's strides."""
    exact = gradients(fn, *(x.double() for x in inputs), grad=grad)
    made, eager = (gradients(f, *inputs, grad=grad) for f in (compiled(fn), fn))
    for have, own, best in zip(made, eager, exact, strict=True):
        assert have.stride() == own.stride() and have.dtype == own.dtype
        assert distance(have, best) <= 2 * distance(own, best) + 1e-7


def net():
    torch.manual_seed(0)
    conv = nn.Conv2d(4, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1), nn.Flatten()
    return nn.Sequential(*conv, nn.Linear(16 * 64, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 10)).cuda()


def train(call, model, dtype, scale, memory_format, steps=4):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cuda", enabled=scale, init_scale=256.0)
    torch.manual_seed(1)
    losses = []
    for _ in range(steps):
        x = cuda(8, 4, 16, 16).to(memory_format=memory_format)
        labels = torch.randint(10, (8,), device="cuda")
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype, enabled=dtype is not None):
            loss = F.cross_entropy(call(x), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.detach())
    return torch.stack(losses), [p.detach() for p in model.parameters()], scaler.get_scale()


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=["contiguous", "last"])
@pytest.mark.parametrize(("dtype", "scale"), [(torch.bfloat16, False), (torch.float16, True), (None, False)])
def test_automatic_mixed_precision(dtype, scale, memory_format):
    """Losses and parameters after a few steps, against those of float64."""
    mine, eager = net(), net()
    exact = copy.deepcopy(mine).double()
    made = train(compiled(mine), mine, dtype, scale, memory_format)
    own = train(eager, eager, dtype, scale, memory_format)
    best = train(lambda x: exact(x.double()), exact, None, False, memory_format)
    assert made[2] == own[2]
    flat = [torch.cat([losses, *(p.flatten() for p in ps)]) for losses, ps, _ in (made, own, best)]
    assert distance(flat[0], flat[2]) <= 2 * distance(flat[1], flat[2]) + 1e-6


def test_a_step_in_another_stream():
    mine, eager = net(), net()
    call = compiled(mine)
    train(call, mine, None, False, torch.contiguous_format, steps=1)
    train(eager, eager, None, False, torch.contiguous_format, steps=1)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        made = train(call, mine, None, False, torch.contiguous_format)
    stream.synchronize()
    own = train(eager, eager, None, False, torch.contiguous_format)
    torch.testing.assert_close(made[0], own[0], rtol=1e-3, atol=1e-3)


def test_item_in_a_training_step():
    def fn(x):
        total = x.square().sum()
        return x * 2 if total.item() > 0 else x * 3  # a graph break

    x = cuda(10).requires_grad_()
    torch.compile(fn, backend="mlirc")(x).sum().backward()
    assert torch.equal(x.grad, torch.full_like(x, 2))


def poisoned(rows: int, length: int, dtype) -> torch.Tensor:
    x = cuda(rows, length) * 20
    x[0, 7], x[1, : length // 2], x[2], x[3, length - 1], x[3, 5] = INF, -INF, -INF, NAN, INF
    return x.to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("length", [300, 20000, 50257, 50304, 1 << 17])
def test_softmax_of_infinities_and_nan(length, dtype):
    """Rows held in registers, rows gone through once, and rows that several programs share."""

    def fn(x):
        return torch.softmax(x, -1), torch.log_softmax(x, -1), torch.logsumexp(x, -1), torch.softmax(x.t(), 0).t()

    x = poisoned(8, length, dtype)
    for have, own, best in zip(compiled(fn)(x), fn(x), fn(x.double()), strict=True):
        assert torch.equal(have.isnan(), own.isnan()) and torch.equal(have.isinf(), own.isinf())
        finite = best.isfinite() & own.isfinite()
        error, limit = ((v.double() - best)[finite].norm() for v in (have, own))
        assert error <= 2 * limit + 1e-6 * best[finite].norm()


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cross_entropy(dtype, reduction):
    labels = torch.randint(50257, (64,), device="cuda")
    labels[3] = -100

    def fn(x):
        return F.cross_entropy(x, labels, reduction=reduction)

    x = cuda(64, 50257, dtype=dtype)
    with torch.no_grad():
        check(fn, x)
    check_gradients(fn, x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("shape", [(5, 70), (3, 40000), (40000, 3)])
def test_nan_wins(shape, dtype):
    x = cuda(*shape, dtype=dtype)
    x[1, 2], x[2] = NAN, -INF

    def fn(x):
        extremes = [f(x, d) for d in (0, 1) for f in (torch.amax, torch.amin, torch.argmax, torch.argmin)]
        return (*extremes, x.max(), x.min(), torch.maximum(x, x.roll(1, 1)), x.clamp(min=0.0))

    for have, own in zip(compiled(fn)(x), fn(x), strict=True):
        assert torch.equal(have.nan_to_num(7.0), own.nan_to_num(7.0)) and torch.equal(have.isnan(), own.isnan())


@pytest.mark.parametrize("eps", [None, 1e-5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rms_norm(dtype, eps):
    def fn(x, w):
        return F.rms_norm(x, (4096,), w, eps)

    x, w = cuda(32, 4096) * 1e-3, cuda(4096)
    with torch.no_grad():
        check(fn, x.to(dtype), w.to(dtype))
    check_gradients(fn, x.to(dtype), w.to(dtype), grad=cuda(32, 4096))


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=["contiguous", "last"])
@pytest.mark.parametrize("shift", [0, 100])
def test_batch_norm_of_large_images(memory_format, shift):
    """Statistics of parts of images: a mean far from 0 takes nothing off the variance."""
    bn = [nn.BatchNorm2d(64).cuda() for _ in range(3)]
    bn[2].double()
    x = (cuda(16, 64, 56, 56) + shift).to(memory_format=memory_format)
    grad = cuda(16, 64, 56, 56).to(memory_format=memory_format)
    made, own, best = (
        [*gradients(lambda x, f=f: F.silu(f(x)), given, grad=grad), m.weight.grad, m.bias.grad, m.running_var]
        for f, m, given in ((compiled(bn[0]), bn[0], x), (bn[1], bn[1], x), (bn[2], bn[2], x.double()))
    )
    for a, b, c in zip(made, own, best, strict=True):
        assert distance(a, c) <= 2 * distance(b, c) + 1e-6


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=["contiguous", "last"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_max_pool(dtype, memory_format):
    x = torch.randperm(4 * 8 * 30 * 31, device="cuda").reshape(4, 8, 30, 31).to(memory_format=memory_format)
    check_gradients(lambda x: F.max_pool2d(x, 3, 2, 1) * 2, (x / 1000).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_blocks_of_a_transformer_on_patches(dtype):
    """Gradients of filters, biases and norms: sums over many rows, in parts; what is saved is released as gradients go."""

    def block(x, norm, shift, up, down, bias):
        h = F.gelu(F.linear(F.layer_norm(x, (256,), norm, shift), up, bias))
        return x + F.linear(h, down, shift)

    image = cuda(48, 3, 96, 80).to(dtype)

    def fn(filters, shift, norm, up, bias, down):
        x = F.conv2d(image.to(filters.dtype), filters, shift, stride=8).flatten(2).transpose(1, 2)
        for _ in range(3):
            x = block(x, norm, shift, up, down, bias)
        return F.max_pool1d(F.relu(x).transpose(1, 2), 4).mean(-1)

    filters, up, down = cuda(256, 3, 8, 8) / 14, cuda(1024, 256) / 16, cuda(256, 1024) / 32
    inputs = filters, cuda(256), cuda(256), up, cuda(1024), down
    check_gradients(fn, *(x.to(dtype) for x in inputs), grad=cuda(48, 256))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_gradients_at_bounds_that_a_half_type_rounds(dtype):
    """At each bound and its neighbours, and at NaN, the gradient is that of eager's kernel."""

    def function(x):
        return F.hardtanh(x, -0.1, 0.3), F.hardshrink(x, 0.1), F.threshold(x, 0.1, 20.0), F.elu(x), F.hardswish(x)

    x = torch.tensor([0.1, -0.1, 0.3, -0.3, 0.0, torch.nan], dtype=dtype)
    step = torch.finfo(dtype).eps
    x = torch.cat([x, x * (1 + step), x * (1 - step)]).cuda().requires_grad_()
    compiled = torch.compile(function, backend="mlirc", options={"fallback": "error"})
    for eager, found in zip(function(x), compiled(x), strict=True):
        expected, given = (torch.autograd.grad(y, x, torch.ones_like(y), retain_graph=True)[0] for y in (eager, found))
        torch.testing.assert_close(given, expected, equal_nan=True)
