"""Circular padding: eager's values, strides and gradients, and one kernel for each direction."""

import pytest
import torch
from torch.nn import functional as F

import mlirc
from tests.frontend.capture.taken_functions.test_resized_images import compiled, gradient

PADS = [(1, 2), (3, 0), (0, 4), (2, 1, 1, 3), (0, 0, 2, 2), (1, 1, 2, 0, 0, 2), (0, 0), (5, 5), (-1, 2), (2, -3)]
LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
SHAPE = (2, 3, 5, 6, 5)


def padded(pad):
    return lambda x: F.pad(x, pad, "circular") * 2


def image(*shape, dtype=torch.float32):
    return torch.linspace(-9, 9, torch.Size(shape).numel()).view(shape).to(dtype)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("pad", PADS, ids=str)
def test_values_strides_and_gradients_are_eagers(pad, dynamic):
    rank = len(pad) // 2 + 2
    call, function = compiled(padded(pad), dynamic=dynamic), padded(pad)
    for shape in (SHAPE[:rank], tuple(n + 1 for n in SHAPE[:rank])):
        for layout in (torch.contiguous_format, LAST.get(rank, torch.contiguous_format)):
            x = image(*shape).contiguous(memory_format=layout)
            x[0, 0, 0], x[-1, -1, -1] = float("nan"), -0.0
            results, expected = gradient(call, x), gradient(function, x)
            torch.testing.assert_close(results, expected, equal_nan=True)
            assert results[0].stride() == expected[0].stride()
            assert torch.equal(results[0].signbit(), expected[0].signbit())


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.uint8, torch.int64, torch.bfloat16, torch.float64, torch.complex64]
)
def test_dtypes(dtype):
    x = image(2, 3, 7, dtype=dtype).transpose(0, 1)
    function = lambda x: F.pad(x, (2, 3), "circular")
    assert torch.equal(compiled(function)(x), function(x))


def test_it_is_one_kernel_without_symbols_and_with():
    for dynamic in (False, True):
        for function in (lambda x: F.pad(x, (1, 1, 2, 2), "circular"), lambda x: torch.cat((x[:, 3:], x[:, :3]), 1)):
            found = mlirc.explain(torch.compile(function, dynamic=dynamic))(image(2, 4, 9, 9))
            graph = found.data["graphs"][0]
            assert not graph["aten"], graph["aten"]
            assert len(graph["kernels"]) == 1, graph["kernels"]


def test_a_pad_larger_than_the_image_is_refused_as_in_eager():
    call = compiled(lambda x: F.pad(x, (4, 4), "circular"))
    with pytest.raises(Exception, match="wrapping around more than once"):
        call(image(2, 3, 3))


def test_a_convolution_with_circular_padding():
    model = torch.nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular")
    x = image(2, 3, 8, 8)
    torch.testing.assert_close(compiled(model)(x), model(x))
    exported = mlirc.compile(model, (x,))
    torch.testing.assert_close(exported(x), model(x))


PARTS = {
    "turned": lambda x: torch.cat((x[:, 3:], x[:, :3]), 1),
    "twice": lambda x: torch.cat((x, x), 1),
    "five parts": lambda x: torch.cat((x[:, 4:], x, x, x, x[:, :2]), 1),
    "not in turn": lambda x: torch.cat((x[:, 3:], x[:, 1:3]), 1),
    "another dimension": lambda x: torch.cat((x[:, :, 3:6], x[:, :, :3]), 1),
    "steps": lambda x: torch.cat((x[:, 1::2], x[:, ::2]), 1),
    "transposed": lambda x: torch.cat((x.transpose(1, 2)[:, 3:6], x.transpose(1, 2)[:, :3]), 1),
    "of a part": lambda x: (lambda y: torch.cat((y[:, -1:], y, y[:, :1]), 1))(x[:, 2:]),
    "computed": lambda x: (lambda y: torch.cat((y[:, 2:], y[:, :2]), 1))(x.exp()),
    "by rows": lambda x: torch.cat((x.expand(2, -1, -1)[1:], x.expand(2, -1, -1)[:1]), 0),
}


@pytest.mark.thinned
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", PARTS)
def test_concatenations_of_parts_of_one_tensor(name, dynamic):
    function, x = PARTS[name], image(1, 8, 6)
    call = compiled(lambda x: function(x), dynamic=dynamic)
    results, expected = gradient(call, x), gradient(function, x)
    torch.testing.assert_close(results, expected)
    assert results[0].stride() == expected[0].stride()
    if dynamic:
        torch.testing.assert_close(call(image(1, 9, 7)), function(image(1, 9, 7)))
