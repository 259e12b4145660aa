"""Which convolutions lie channels last, what goes with them, and transposed ones: gradients against float64, kernels, layouts."""

import copy

import pytest
import torch
from torch import nn

from mlirc.lowering.cpu.convolution.choice import Choice
from mlirc.lowering.host import host_cpu
from mlirc.lowering.layout.joined_images import Regions
from tests.lowering.cpu.convolution.test_convolutions import as_good_as_eager, compiled, report, with_statistics

pytestmark = pytest.mark.thinned

# channels in, out, keywords of nn.ConvTranspose2d, whether a kernel of ours takes it
TRANSPOSED = {
    "doubled": (24, 16, {"kernel_size": 2, "stride": 2}, True),
    "overlapping": (17, 20, {"kernel_size": 4, "stride": 2, "padding": 1, "bias": False}, True),
    "more": (8, 12, {"kernel_size": 3, "stride": 2, "padding": 1, "output_padding": 1}, True),
    "uneven": (5, 6, {"kernel_size": (3, 2), "stride": (3, 1), "dilation": (2, 1), "output_padding": (2, 0)}, True),
    "few taps": (4, 4, {"kernel_size": 1, "stride": 3, "output_padding": 1}, True),
    "unit steps": (48, 40, {"kernel_size": 3, "padding": 2}, True),
    "groups": (8, 12, {"kernel_size": 3, "stride": 2, "groups": 4}, False),
}


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


def gradients(module: nn.Module, call, *inputs: torch.Tensor) -> list[torch.Tensor]:
    inputs = tuple(x.detach().requires_grad_() for x in inputs)
    module.zero_grad()
    result = call(*inputs)
    result.square().sum().backward()
    return [result, *(x.grad for x in inputs), *(p.grad.clone() for p in module.parameters())]


def trains_as_eager(module: nn.Module, *inputs: torch.Tensor, call=None) -> None:
    """Results and gradients have at most twice eager's error against float64, and eager's strides."""
    exact, plain = copy.deepcopy(module).double(), copy.deepcopy(module)
    wanted = gradients(exact, exact, *(x.double() for x in inputs))
    eager = gradients(plain, plain, *inputs)
    made = gradients(module, compiled(module) if call is None else call, *inputs)
    for a, b, c in zip(wanted, eager, made, strict=True):
        assert b.stride() == c.stride() and b.shape == c.shape
        assert (c - a).norm() <= max(2 * (b - a).norm(), 3e-7 * a.norm())


class Between(nn.Module):
    """A transposed convolution between others."""

    def __init__(self, channels, filters, keywords):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, channels, 3), nn.GroupNorm(1, channels)
        self.middle, self.last = nn.ConvTranspose2d(channels, filters, **keywords), nn.Conv2d(filters, 8, 3, 2)

    def forward(self, x):
        return self.last(self.middle(self.norm(self.first(x)).relu()).sigmoid())


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", ["overlapping", "uneven", "groups"])
def test_a_transposed_convolution_in_training(name):
    channels, filters, keywords, _ = TRANSPOSED[name]
    trains_as_eager(Between(channels, filters, keywords), torch.randn(2, 3, 11, 9))


@pytest.mark.thinned(2)
@torch.no_grad()
@pytest.mark.parametrize("name", TRANSPOSED)
def test_a_transposed_convolution_takes_in_norm_and_relu(name):
    channels, filters, keywords, ours = TRANSPOSED[name]
    parts = nn.ConvTranspose2d(channels, filters, **keywords), nn.BatchNorm2d(filters), nn.ReLU()
    module, x = with_statistics(nn.Sequential(*parts)), torch.randn(3, channels, 7, 10)
    graph = report(module, x)
    assert bool(graph["aten"]) != ours
    assert (["transposed_convolution"] in [k["ops"] for k in graph["kernels"]]) == ours
    assert {op for k in graph["kernels"] for op in k["ops"]} <= {"transposed_convolution", "copy"} or not ours
    as_good_as_eager(compiled(module)(x), module, x)


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16, torch.complex64])
def test_other_dtypes_transposed(dtype):
    module, x = nn.ConvTranspose2d(6, 4, 3, 2, dtype=dtype), torch.randn(2, 6, 5, 7, dtype=dtype)
    torch.testing.assert_close(compiled(module)(x), module(x))


def test_sizes_of_transposed_images_that_change():
    module = nn.Sequential(nn.ConvTranspose2d(16, 16, 4, 2, 1), nn.ReLU())
    call = compiled(module, dynamic=True)
    for shape in ((2, 16, 6, 6), (3, 16, 5, 7)):
        trains_as_eager(module, torch.randn(shape), call=call)


def test_no_images():
    module = Between(16, 16, {"kernel_size": 4, "stride": 2, "padding": 1})
    assert compiled(module)(torch.randn(0, 3, 12, 12)).shape == (0, 8, 9, 9)


def test_regions_decide_for_themselves():
    regions = Regions()
    for x, y, gain in (("a", "b", 5.0), ("b", "c", -3.0), ("d", "e", -1.0), ("f", "g", 2.0)):
        regions.join((x, y))
        regions.add(y, gain)
    assert [regions.lies_last(x) for x in "abcdefg"] == [True, True, True, False, False, True, True]
    regions.join(("g", "d", "h"))
    regions.add("h", -1.5)
    assert not any(map(regions.lies_last, "defgh"))


def test_what_a_call_gains():
    """A depthwise weight's gradient most; groups of many channels nothing."""

    def gain(channels, taps, groups):
        images, w = (2, channels, 24, 24), (channels, channels // groups, taps, taps)
        return Choice(images, w, images, (1, 1), (1, 1), False, groups, host_cpu()).gain(False, [False, True])

    assert gain(64, 7, 64) > 1_000_000 > gain(64, 3, 1) > 0 > gain(128, 3, 4)


def test_rows_of_few_windows_by_large_weights():
    """oneDNN lays the weights and their gradients out again in each call, which costs more than tiles that are not full."""

    def choice(images, channels, size, stride=1):
        x, y = ((images, channels, n, n) for n in (size, -(-size // stride)))
        return Choice(x, (channels, channels, 3, 3), y, (stride, stride), (1, 1), False, 1, host_cpu())

    for chosen, ours in ((choice(16, 160, 1), True), (choice(16, 512, 3, 2), True), (choice(4, 512, 1), False)):
        assert chosen.generates_forward == chosen.generates_input_gradient == chosen.generates_weight_gradient == ours
        assert (chosen.gain(False, [True, True]) > 0) == ours
    layers = nn.Conv2d(160, 160, 3, padding=1), nn.BatchNorm2d(160), nn.ReLU(), nn.Conv2d(160, 176, 3, 2, 1)
    trains_as_eager(nn.Sequential(*layers), torch.randn(16, 160, 3, 2))


def test_strided_windows_by_large_weights():
    """oneDNN is faster where weights are packed once, and taken where channels are few enough for its sums, and where a stride divides the
    taps of short rows."""

    def choice(taps, size, transposed=False, channels=512):
        x, y = (8, channels, size, size), (8, channels, size // 2, size // 2)
        w = (channels, channels, taps, taps)
        return Choice(*(y, w, x) if transposed else (x, w, y), (2, 2), (1, 1), transposed, 1, host_cpu())

    assert [choice(taps, 16).generates_forward for taps in (2, 3, 4)] == [False, True, False]
    assert choice(3, 16).generates_prepared_forward and not choice(2, 16).generates_prepared_forward
    assert not choice(3, 32, channels=64).generates_prepared_forward
    assert choice(4, 64).generates_forward and choice(4, 64, True).generates_forward
    assert not choice(4, 16, True).generates_forward


@pytest.mark.parametrize("filters, taps, dims", [(256, 4, 1), (256, (1, 3), 2)])
def test_sums_over_many_channels_are_as_exact_as_eagers(filters, taps, dims):
    """Of channels-last images oneDNN's sums of 1,024 products have three times the error of those of contiguous images."""
    torch.manual_seed(0)
    conv = (nn.Conv1d if dims == 1 else nn.Conv2d)(filters, filters, taps)
    x = torch.randn(2, filters, *(131,) * (dims == 1), *(14, 14) * (dims == 2))
    with torch.no_grad():
        out, eager = torch.compile(conv, backend="mlirc", options={"fallback": "error"})(x), conv(x)
        exact = conv.double()(x.double())
    assert (out - exact).norm() <= 2 * (eager - exact).norm()


class Wave(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.gates = nn.Conv1d(1, 16, 1), nn.ModuleList(nn.Conv1d(16, 32, 2, dilation=d) for d in (1, 4))
        self.up, self.last = nn.ConvTranspose1d(16, 8, 4, 3, 1, output_padding=1), nn.Conv1d(8, 4, 3, bias=False)

    def forward(self, x):
        x = self.first(x)
        for gate in self.gates:
            a, b = gate(nn.functional.pad(x, (gate.dilation[0], 0))).chunk(2, 1)
            x = x + a.tanh() * b.sigmoid()
        return self.last(self.up(x))


def test_rows_are_images_of_one_row():
    trains_as_eager(Wave(), torch.randn(2, 1, 50))
    with torch.no_grad():
        graph = report(Wave(), torch.randn(2, 1, 50))
    assert not graph["aten"]


class Volume(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv3d(2, 8, 3, padding=1, bias=False), nn.BatchNorm3d(8)
        self.second, self.third = (
            nn.Conv3d(8, 6, 3, 2, (0, 1, 2)),
            nn.Conv3d(8, 6, (5, 1, 2), (2, 2, 2), (1, 0, 1), (1, 1, 2)),
        )
        self.pool, self.last = nn.MaxPool3d(2), nn.Conv3d(6, 4, (1, 3, 3), padding=(0, 1, 1))

    def forward(self, x):
        x = self.norm(self.first(x)).relu()
        return self.last(self.pool(self.second(x)) + self.third(x).mean((2, 3, 4), keepdim=True))


def test_volumes_are_slices():
    module = Volume()
    trains_as_eager(module, torch.randn(2, 2, 8, 9, 10))
    with torch.no_grad():
        assert not report(module, torch.randn(1, 2, 7, 9, 8))["aten"]


class Joined(nn.Module):
    """A skip connection, a channel-wise norm by views, and tokens of pixels."""

    def __init__(self):
        super().__init__()
        self.first, self.deep = nn.Conv2d(3, 16, 3, 1, 1), nn.Conv2d(16, 16, 5, 1, 2, groups=16)
        self.norm, self.last = nn.LayerNorm(16), nn.Conv2d(48, 16, 3, padding=1)
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        a = self.first(x)
        b = self.norm(self.deep(a).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        b = nn.functional.interpolate(nn.functional.max_pool2d(b, 2), scale_factor=2)
        y = self.last(torch.cat([a, b, x.mean(1, keepdim=True) * b], 1))
        return self.head(y.flatten(2).transpose(1, 2)).logsumexp(1)


def test_order_goes_through_views_and_joins():
    module, x = Joined(), torch.randn(2, 3, 12, 12)
    with torch.no_grad():
        graph = report(module.eval(), x)
        copies = sum(k["launches"] for k in graph["kernels"] if set(k["ops"]) <= {"copy"})
        assert copies == 0
    torch._dynamo.reset()
    trains_as_eager(module.train(), x)
