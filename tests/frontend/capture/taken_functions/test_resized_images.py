"""Resizing with gradients: eager's backward operators are in the graph, and its values, strides and further gradients come out."""

import pytest
import torch
from torch.nn import functional as F

import mlirc

MODES = {
    3: ("nearest", "nearest-exact", "linear", "area"),
    4: ("nearest", "nearest-exact", "bilinear", "bicubic", "area"),
    5: ("nearest", "nearest-exact", "trilinear", "area"),
}
KINDS = [(rank, mode) for rank, modes in MODES.items() for mode in modes]
SHAPE = (2, 3, 5, 6, 4)


def resized(mode: str, scale: float, **how):
    return lambda x: F.interpolate(x * 2, scale_factor=scale, mode=mode, **how).relu()


def compiled(function, **how):
    return torch.compile(function, backend="mlirc", options={"fallback": "error"}, **how)


def gradient(function, x):
    """The result, and its gradient where that of the result is not the same everywhere."""
    x = x.detach().requires_grad_()
    out = function(x)
    (found,) = torch.autograd.grad(out, x, torch.linspace(-1, 1, out.numel(), dtype=x.dtype).view_as(out))
    return out.detach(), found


@pytest.mark.thinned
@pytest.mark.parametrize(("scale", "dynamic"), [(2, False), (1.5, False), (0.5, False), (1.5, True)])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_as_eager(kind, scale, dynamic):
    rank, mode = kind
    function = resized(mode, scale)
    call = compiled(function, dynamic=dynamic)
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(rank, torch.contiguous_format)
    for shape in (SHAPE[:rank], tuple(n + 1 for n in SHAPE[:rank])):
        for layout in (torch.contiguous_format, last):
            x = torch.linspace(-3, 3, torch.Size(shape).numel()).view(shape).contiguous(memory_format=layout)
            results, expected = gradient(call, x), gradient(function, x)
            torch.testing.assert_close(results, expected)
            if not dynamic:  # PyTorch's decompositions, which symbols are traced with, give gradients without gaps
                assert [y.stride() for y in results] == [y.stride() for y in expected]


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_the_backward_graph_has_eagers_operator(mode):
    explained = mlirc.explain(resized(mode, 1.5))(torch.randn(2, 3, 8, 8, requires_grad=True))
    calls = {name for graph in explained.data["graphs"] for name in graph["aten"]}
    assert any(name.startswith(f"aten.upsample_{mode}2d_backward") for name in calls), calls


def test_sizes_that_are_symbols_stay_so():
    counted = torch._dynamo.utils.counters["stats"]
    call = compiled(lambda x: F.interpolate(x * 2, scale_factor=2, mode="bilinear"), dynamic=True)
    before = counted["unique_graphs"]
    for n in (4, 5, 6):
        gradient(call, torch.ones(2, 3, n, n + 1))
    assert counted["unique_graphs"] == before + 1


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_dtypes(dtype):
    function = resized("bilinear", 2)
    x = torch.linspace(-3, 3, 96).view(2, 3, 4, 4).to(dtype)
    torch.testing.assert_close(gradient(compiled(function), x), gradient(function, x))


def test_gradients_of_gradients():
    def second(function, x):
        x = x.detach().requires_grad_()
        (first,) = torch.autograd.grad(function(x).square().sum(), x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), x)[0]

    function = resized("bicubic", 2, align_corners=True)
    x = torch.linspace(-3, 3, 96).view(2, 3, 4, 4)
    call = torch.compile(function, backend="mlirc")  # a gradient of a gradient is counted as a fallback
    torch.testing.assert_close(second(call, x), second(function, x), rtol=1e-5, atol=1e-4)


def test_within_transforms():
    function = resized("bilinear", 2)

    def over_images(x):
        return torch.func.vmap(torch.func.grad(lambda y: function(y).square().sum()))(x)

    x = torch.linspace(-3, 3, 192).view(2, 2, 3, 4, 4)
    torch.testing.assert_close(compiled(over_images)(x), over_images(x))
    torch.testing.assert_close(gradient(compiled(over_images), x), gradient(over_images, x))


def test_sizes_and_corners():
    def function(x):
        return F.interpolate(x, (9, 3), mode="bilinear", align_corners=True) + F.interpolate(input=x, size=[9, 3])

    x = torch.linspace(-3, 3, 96).view(2, 3, 4, 4)
    torch.testing.assert_close(gradient(compiled(function), x), gradient(function, x))


def lying(x):
    """The same image in several layouts, some of which differ in dimensions of size 1 alone."""
    strides = [7 if n == 1 else s for n, s in zip(x.shape, x.stride(), strict=True)]
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.dim(), torch.contiguous_format)
    return (
        x,
        x.mT.contiguous().mT,
        x.as_strided(x.shape, strides),
        x.contiguous(memory_format=last),
        x.flip(0).movedim(0, -1).contiguous().movedim(-1, 0),
    )


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "mode", [m if m == "nearest" else pytest.param(m, marks=pytest.mark.full) for m in MODES[4][:-1]]
)
def test_strides_of_one_channel_and_one_pixel(mode, dynamic):
    """Of dimensions of size 1 too: they say which layout what follows has."""
    shapes = (2, 1, 3, 2), (1, 4, 1, 1), (2, 4, 2, 2), (1, 1, 3, 1)
    images = [y for shape in shapes for y in lying(torch.rand(shape))]

    def function(images):
        return [F.interpolate(x, size=size, mode=mode) for x in images for size in ((1, 1), (4, 6), (3, 1))]

    torch._dynamo.reset()
    found, expected = compiled(function, dynamic=dynamic)(images), function(images)
    torch.testing.assert_close(found, expected)
    assert [y.stride() for y in found] == [y.stride() for y in expected]


def test_channels_last_within_vmap():
    """torch.vmap has no copies to channels-last memory."""
    function = torch.func.vmap(resized("nearest", 2))
    for x in (torch.rand(3, 4, 2, 1, 1).mT.transpose(1, 2), torch.rand(3, 2, 1, 1, 4).movedim(-1, 2)):
        torch._dynamo.reset()
        torch.testing.assert_close(compiled(function)(x), function(x))
