"""Convolutions in inference graphs: values against float64, changed parameters, layouts, and what was folded."""

import pytest
import torch
from torch import nn

import mlirc
from mlirc.lowering.passes.simplify import fold_convolutions

pytestmark = pytest.mark.thinned

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# name -> (channels in, channels out, keywords of nn.Conv2d)
CONVOLUTIONS = {
    "plain": (6, 8, {"kernel_size": 3}),
    "strided": (3, 16, {"kernel_size": 7, "stride": 2, "padding": 3}),
    "pointwise": (16, 8, {"kernel_size": 1}),
    "groups": (8, 8, {"kernel_size": 3, "groups": 4, "padding": 1}),
    "depthwise": (8, 8, {"kernel_size": 3, "groups": 8, "padding": 1}),
    "dilated": (4, 6, {"kernel_size": 3, "dilation": 2, "padding": 2}),
    "no-bias": (4, 6, {"kernel_size": 3, "bias": False}),
    "one-channel": (1, 1, {"kernel_size": 3}),
    "uneven": (4, 6, {"kernel_size": (1, 3), "padding": (0, 1), "stride": (2, 1)}),
    "same": (4, 6, {"kernel_size": 3, "padding": "same"}),
}


class Block(nn.Module):
    """A residual block, as ResNet's."""

    def __init__(self, channels: int, affine: bool = True):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels, affine=affine) for _ in range(2))

    def forward(self, x):
        y = self.norms[0](self.first(x)).relu()
        return (self.norms[1](self.second(y)) + x).relu()


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


def with_statistics(module: nn.Module) -> nn.Module:
    """In inference mode, with running statistics that are not those of a new module."""
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.normal_()
            part.running_var.uniform_(0.5, 2)
            if part.affine:
                nn.init.normal_(part.weight)
                nn.init.normal_(part.bias)
    return module.eval()


def compiled(module: nn.Module, **options):
    return torch.compile(module, backend="mlirc", fullgraph=True, options={"fallback": "error"}, **options)


def as_good_as_eager(result, module, *inputs):
    """At most twice eager's error against float64, or some roundings of the largest value; strides as in eager."""
    dtype = next(module.parameters()).dtype
    wanted = module.double()(*(x.double() for x in inputs))
    eager = module.to(dtype)(*inputs)
    assert result.shape == eager.shape and result.stride() == eager.stride() and result.dtype == eager.dtype
    floor = 8 * torch.finfo(dtype).eps * wanted.abs().max()
    assert (result - wanted).abs().max() <= max(2 * (eager - wanted).abs().max(), floor)


def report(module: nn.Module, *inputs) -> dict:
    (graph,) = mlirc.explain(module)(*inputs).data["graphs"]
    return graph


@pytest.mark.thinned(6)
@torch.no_grad()
@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("tail", ["alone", "norm", "relu", "norm-relu"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_values(name, tail, dtype):
    channels_in, channels_out, keywords = CONVOLUTIONS[name]
    parts = [nn.Conv2d(channels_in, channels_out, **keywords)]
    parts += [nn.BatchNorm2d(channels_out)] * ("norm" in tail) + [nn.ReLU()] * ("relu" in tail)
    module = with_statistics(nn.Sequential(*parts)).to(dtype)
    x = torch.randn(2, channels_in, 11, 13, dtype=dtype)
    as_good_as_eager(compiled(module)(x), module, x)


@pytest.mark.thinned(2)
@torch.no_grad()
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_residual_block_is_two_calls_of_onednn(affine, dtype):
    channels, size = (24, 80) if dtype == torch.float32 else (8, 9)  # small ones of float32 are ours
    module, x = with_statistics(Block(channels, affine)).to(dtype), torch.randn(2, channels, size, size, dtype=dtype)
    graph = report(module, x)
    assert {op: count for op, (count, _) in graph["aten"].items()} == {
        "mkldnn._convolution_pointwise.default": 1,
        "mkldnn._convolution_pointwise.binary": 1,
    }
    assert {op for kernel in graph["kernels"] for op in kernel["ops"]} <= {
        "copy",
        "relu",
        *["cast"] * (dtype != torch.float32),
    }
    as_good_as_eager(compiled(module)(x), module, x)


@torch.no_grad()
def test_only_the_ends_are_copied():
    module = with_statistics(nn.Sequential(Block(8), nn.MaxPool2d(2), Block(8), nn.GELU(), Block(8)))
    x = torch.randn(2, 8, 12, 12)
    kernels = report(module, x)["kernels"]
    launches = [(set(k["ops"]), k["launches"]) for k in kernels if "convolution" not in str(k["ops"])]
    assert sum(count for ops, count in launches if ops <= {"copy"}) == 2
    assert sum(count for _, count in launches) == 4  # and the pool and the gelu
    as_good_as_eager(compiled(module)(x), module, x)


@torch.no_grad()
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_results_keep_the_layout_of_eager(layout):
    module = with_statistics(nn.Sequential(Block(8), nn.Flatten())), with_statistics(Block(8))
    x = torch.randn(2, 8, 6, 6).to(memory_format=layout)
    for m in module:
        as_good_as_eager(compiled(m)(x), m, x)


@torch.no_grad()
def test_a_symbolic_batch_and_image():
    module = with_statistics(nn.Sequential(nn.Conv2d(3, 8, 3, 2), Block(8), nn.AdaptiveAvgPool2d(1), nn.Flatten()))
    function = compiled(module, dynamic=True)
    for shape in ((4, 3, 9, 9), (2, 3, 9, 9), (5, 3, 16, 20)):
        x = torch.randn(shape)
        as_good_as_eager(function(x), module, x)


@torch.no_grad()
def test_a_changed_parameter_changes_the_result():
    module, x = with_statistics(Block(4)), torch.randn(2, 4, 5, 5)
    function = compiled(module)
    before = function(x)
    for change in (
        lambda: module.first.weight.mul_(2),
        lambda: module.second.bias.add_(1),
        lambda: module.norms[0].running_mean.add_(1),
        lambda: module.norms[1].running_var.mul_(4),
        lambda: setattr(module.norms[1].weight, "data", torch.randn(4)),
    ):
        change()
        after = function(x)
        assert not torch.equal(before, after)
        as_good_as_eager(after, module, x)
        before = after


def test_a_result_of_parameters_alone_is_the_callers():
    module = nn.Linear(4, 4)
    module.forward = lambda x: (module.weight * 2, x @ (module.weight * 2))
    function, x = compiled(module), torch.randn(3, 4)
    with torch.no_grad():
        function(x)[0].zero_()
        doubled, product = function(x)
    assert torch.equal(doubled, module.weight * 2)
    torch.testing.assert_close(product, x @ (module.weight * 2))


class Rows(nn.Module):
    """A residual block of rows that lie transposed before and after."""

    def __init__(self, channels, taps, groups):
        super().__init__()
        self.first, self.norm = (
            nn.Conv1d(channels, channels, taps, padding=taps // 2, groups=groups),
            nn.BatchNorm1d(channels),
        )
        self.second = nn.Conv1d(channels, channels, taps, 2, padding=taps, dilation=2)

    def forward(self, x):
        x = x.transpose(1, 2)
        return self.second((self.norm(self.first(x)) + x).relu()).transpose(1, 2)


@pytest.mark.thinned(2)
@torch.no_grad()
@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_are_images_of_one_row(dtype, groups, monkeypatch):
    """In groups the library's convolution adds nothing up: PyTorch's has no bfloat16 there, with a relu behind it."""
    monkeypatch.setattr(fold_convolutions, "is_ours", lambda op: False)
    module, x = with_statistics(Rows(16, 5, groups)).to(dtype), torch.randn(3, 20, 16).to(dtype)
    adds = {fold_convolutions.CONVOLVE_BINARY} if groups == 1 else set()
    assert set(report(module, x)["aten"]) == {fold_convolutions.CONVOLVE, *adds}
    as_good_as_eager(compiled(module)(x), module, x)
    torch._dynamo.reset()
    as_good_as_eager(compiled(module, dynamic=True)(x[:2]), module, x[:2])


@torch.no_grad()
def test_weights_that_are_computed_of_parameters_are_packed_once():
    """Until one of these changes."""
    module = nn.utils.parametrizations.weight_norm(nn.Conv1d(32, 32, 64, padding=32, groups=4), dim=2).eval()
    x = torch.randn(1, 32, 300)
    graph = report(module, x)
    assert set(graph["aten"]) == {fold_convolutions.CONVOLVE}
    assert not any(kernel["ops"] for kernel in graph["kernels"] if "copy" not in kernel["ops"])
    call = compiled(module)
    as_good_as_eager(call(x), module, x)
    module.parametrizations.weight.original0.mul_(2)
    as_good_as_eager(call(x), module, x)


def test_training_and_other_convolutions_stay():
    module, x = with_statistics(Block(4)), torch.randn(2, 4, 5, 5)
    function = compiled(module.train())
    wanted = torch.autograd.grad(module(x).sum(), list(module.parameters()))
    found = torch.autograd.grad(function(x).sum(), list(module.parameters()))
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)
    with torch.no_grad():
        for other in (nn.ConvTranspose2d(4, 4, 3), nn.Conv1d(4, 4, 3), nn.Conv2d(4, 4, 3).double()):
            y = x[:, :, 0] if isinstance(other, nn.Conv1d) else x
            y = y.to(other.weight.dtype)
            assert not any("mkldnn" in op for op in report(other, y)["aten"])
            torch.testing.assert_close(compiled(other)(y), other(y))


@torch.no_grad()
def test_a_weight_that_is_no_parameter_stays():
    x, w = torch.randn(1, 4, 5, 5), torch.randn(4, 4, 3, 3)
    function = torch.compile(torch.conv2d, backend="mlirc")
    torch.testing.assert_close(function(x, w), torch.conv2d(x, w))
    torch.testing.assert_close(function(x, 2 * w), torch.conv2d(x, 2 * w))


@torch.no_grad()
def test_values_with_other_readers_are_not_folded_away():
    module = nn.Module()
    module.conv, module.norm = nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4)
    with_statistics(module)

    def forward(x):
        y = module.conv(x)
        z = module.norm(y)
        return y + z.relu() + z.sum((2, 3), keepdim=True)

    module.forward = forward
    x = torch.randn(2, 4, 6, 6)
    as_good_as_eager(compiled(module)(x), module, x)


def test_no_op_is_looked_at_once_a_fold_has_erased_others(monkeypatch):
    """MLIR's bindings do not know that an op is gone: reading it afterwards reads freed memory."""
    events = []
    find, fold = fold_convolutions.is_convolution, fold_convolutions.fold
    monkeypatch.setattr(fold_convolutions, "is_convolution", lambda op: events.append("look") or find(op))
    monkeypatch.setattr(fold_convolutions, "fold", lambda op, fixed: events.append("fold") or fold(op, fixed))
    layers = [torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Conv2d(4, 4, 3)]
    model = torch.nn.Sequential(*layers).eval()
    with torch.no_grad():
        torch.compile(model, backend="mlirc", options={"fallback": "error"})(torch.randn(1, 3, 8, 8))
    assert events.count("fold") == 2 and "look" not in events[events.index("fold") :]


@pytest.mark.thinned(2)
@torch.no_grad()
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("residual", [False, True])
def test_a_relu_of_nan_is_nan(name, residual, dynamic):
    channels_in, channels_out, keywords = CONVOLUTIONS[name]
    layer = with_statistics(
        nn.Sequential(nn.Conv2d(channels_in, channels_out, **keywords), nn.BatchNorm2d(channels_out))
    )

    def function(x):
        y = layer(x)
        return torch.relu(y + y.flip(0) if residual else y)

    x = torch.randn(2, channels_in, 11, 13)
    x[0, :, 4, 5] = float("nan")
    x[1, 0, 7] = float("inf")
    torch._dynamo.reset()
    found = torch.compile(function, backend="mlirc", dynamic=dynamic)(x)
    assert torch.equal(found.isnan(), function(x).isnan())
