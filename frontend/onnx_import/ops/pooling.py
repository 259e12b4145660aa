"""Pooling, with ONNX's paddings and ceil_mode."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from mlirc.frontend.onnx_import.ops.convolution import amounts
from mlirc.frontend.onnx_import.registry import OnnxNode, op
from mlirc.frontend.onnx_import.values import OnnxValueError

MAX = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVERAGE = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


def _window(node: OnnxNode, x: torch.Tensor) -> tuple[list[int], list[int], list[int], list[Any], list[Any]]:
    """Kernel, strides, dilations, and padding so much that each window lies within, also that of a ceiled size."""
    rank = x.dim() - 2
    if rank not in MAX:
        raise OnnxValueError(f"images of {rank} dimensions; PyTorch's have one to three")
    kernel = list(node.need("kernel_shape"))
    strides, dilations = list(node.get("strides") or [1] * rank), list(node.get("dilations") or [1] * rank)
    before, after = amounts(node, x.shape[2:], kernel, strides, dilations)
    return kernel, strides, dilations, before, after


def _more(node: OnnxNode, x: torch.Tensor, window: Any) -> list[Any]:
    """What ceil_mode adds behind each dimension. A window that starts in the padding behind is left out."""
    kernel, strides, dilations, before, after = window
    if not node.get("ceil_mode", 0) or node.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return [0] * len(kernel)
    found = []
    for n, k, s, d, low, high in zip(x.shape[2:], kernel, strides, dilations, before, after, strict=True):
        room = n + low + high - ((k - 1) * d + 1)
        steps = (room + s - 1) // s
        if steps * s >= n + low:
            steps = steps - 1
        found.append(torch.sym_max(steps * s - room, 0))
    return found


def _pairs(before: Sequence[Any], after: Sequence[Any]) -> list[Any]:
    return [n for pair in reversed(list(zip(before, after, strict=True))) for n in pair]


def _least(dtype: torch.dtype) -> Any:
    return float("-inf") if dtype.is_floating_point else torch.iinfo(dtype).min


@op("MaxPool")
def max_pool(node: OnnxNode, x: torch.Tensor) -> Any:
    """Values, and where wanted their places in the flattened image batch."""
    window = _window(node, x)
    kernel, strides, dilations, before, after = window
    rank, more = len(kernel), _more(node, x, window)
    wide = x if x.dtype.is_floating_point else x.to(torch.float32)
    padded = F.pad(wide, _pairs(before, [a + m for a, m in zip(after, more, strict=True)]), value=float("-inf"))
    if node.wanted < 2:
        return MAX[rank](padded, kernel, strides, 0, dilations).to(x.dtype)
    values, places = MAX[rank](padded, kernel, strides, 0, dilations, False, True)
    return values.to(x.dtype), _in_batch(places, padded.shape[2:], x, before, node.get("storage_order", 0))


def _in_batch(places: torch.Tensor, padded: Sequence[Any], x: torch.Tensor, before: Sequence[Any], columns: int) -> Any:
    """Places in a padded image as places in the whole tensor, in row-major or column-major order of the image."""
    coordinates = []
    for n, low in reversed(list(zip(padded, before, strict=True))):
        coordinates.append(places % n - low)
        places = places // n
    order = list(zip(coordinates, reversed(x.shape[2:]), strict=True))  # the fastest first
    order = order[::-1] if columns else order
    found, step = torch.zeros_like(coordinates[0]), 1
    for at, n in order:
        found, step = found + at * step, step * n
    images = torch.arange(x.shape[0] * x.shape[1]).reshape(x.shape[0], x.shape[1], *[1] * len(padded))
    return images * step + found


def _sums(node: OnnxNode, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums of windows, and how many elements each has."""
    window = _window(node, x)
    kernel, strides, dilations, before, after = window
    more = _more(node, x, window)
    behind = [a + m for a, m in zip(after, more, strict=True)]
    count = 1
    for k in kernel:
        count *= k
    ones = torch.ones([1, 1, *x.shape[2:]], dtype=x.dtype)
    if node.get("count_include_pad", 0):
        ones = F.pad(ones, _pairs(before, after), value=1.0)
        ones = F.pad(ones, _pairs([0] * len(kernel), more))
    else:
        ones = F.pad(ones, _pairs(before, behind))
    padded = F.pad(x, _pairs(before, behind))
    return _window_sum(padded, kernel, strides, dilations, count), _window_sum(ones, kernel, strides, dilations, count)


def _window_sum(x: torch.Tensor, kernel: list[int], strides: list[int], dilations: list[int], count: int) -> Any:
    if all(d == 1 for d in dilations):
        return AVERAGE[len(kernel)](x, kernel, strides) * count
    for k, (n, s, d) in enumerate(zip(kernel, strides, dilations, strict=True)):
        x = x.unfold(k + 2, (n - 1) * d + 1, s)[..., ::d].sum(-1)
    return x


@op("AveragePool")
def average_pool(node: OnnxNode, x: torch.Tensor) -> torch.Tensor:
    window = _window(node, x)
    kernel, strides, dilations, before, after = window
    plain = all(d == 1 for d in dilations) and not any(isinstance(m, torch.SymInt) or m for m in _more(node, x, window))
    if (
        plain
        and before == after
        and all(isinstance(p, int) and 2 * p <= k for p, k in zip(before, kernel, strict=True))
    ):
        counted = bool(node.get("count_include_pad", 0))
        return AVERAGE[len(kernel)](x, kernel, strides, before, False, counted)
    sums, counts = _sums(node, x)
    return sums / counts


@op("LpPool")
def lp_pool(node: OnnxNode, x: torch.Tensor) -> torch.Tensor:
    p = node.get("p", 2)
    sums, _ = _sums(node, x.abs() ** p)
    return sums ** (1 / p)


def _of_images(x: torch.Tensor) -> list[int]:
    return list(range(2, x.dim()))


@op("GlobalAveragePool")
def global_average_pool(node: OnnxNode, x: torch.Tensor) -> torch.Tensor:
    return x.mean(_of_images(x), True)


@op("GlobalMaxPool")
def global_max_pool(node: OnnxNode, x: torch.Tensor) -> torch.Tensor:
    return x.amax(_of_images(x), True)


@op("GlobalLpPool")
def global_lp_pool(node: OnnxNode, x: torch.Tensor) -> torch.Tensor:
    p = node.get("p", 2)
    return (x.abs() ** p).sum(_of_images(x), True) ** (1 / p)


@op("MaxUnpool", raw=True)
def max_unpool(node: OnnxNode, data: Any, places: Any, shape: Any = None) -> torch.Tensor:
    from mlirc.frontend.onnx_import.values import numbers, tensor

    x, at = tensor(data), tensor(places)
    rank = x.dim() - 2
    kernel, strides = node.need("kernel_shape"), node.get("strides") or [1] * rank
    pads = node.get("pads") or [0] * (2 * rank)
    sizes = [
        (n - 1) * s + k - pads[i] - pads[rank + i]
        for i, (n, s, k) in enumerate(zip(x.shape[2:], strides, kernel, strict=True))
    ]
    inferred = [*x.shape[:2], *sizes]
    whole = inferred if shape is None else numbers(shape, "output_shape")
    count = 1
    for n in inferred:
        count = count * n
    flat = torch.zeros(count, dtype=x.dtype).scatter(0, at.reshape(-1), x.reshape(-1)).reshape(inferred)
    return F.pad(flat, [n for a, b in reversed(list(zip(whole, inferred, strict=True))) for n in (0, a - b)])


@op("RoiAlign")
def roi_align(node: OnnxNode, x: torch.Tensor, rois: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
    """Parts of images, (x1, y1, x2, y2) each, at a number of points a bin. The mode "max" is ONNX's: the largest weighted neighbour."""
    points = node.get("sampling_ratio", 0)
    if points <= 0:
        raise OnnxValueError("sampling_ratio is 0: how many points there are depends on data")
    counts = node.get("output_height", 1), node.get("output_width", 1)
    half_pixel = node.opset >= 16 and node.get("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    corners = rois * node.get("spatial_scale", 1.0) - (0.5 if half_pixel else 0.0)
    along = []
    for axis, count in enumerate(counts):
        start, end = corners[:, 1 - axis], corners[:, 3 - axis]
        length = end - start if half_pixel else (end - start).clamp(min=1)
        at = (torch.arange(count * points, dtype=x.dtype) + 0.5) / (count * points)
        along.append(_neighbours(start[:, None] + at * length[:, None], x.shape[2 + axis]))
    image = images.to(torch.int64)[:, None, None]
    weighted = [
        x[image, :, row[:, :, None], column[:, None, :]] * (of_row[:, :, None] * of_column[:, None, :])[..., None]
        for row, of_row in along[0]
        for column, of_column in along[1]
    ]
    largest = node.get("mode", "avg") == "max"
    samples = torch.stack(weighted).amax(0) if largest else sum(weighted[1:], weighted[0])
    bins = samples.reshape(rois.shape[0], counts[0], points, counts[1], points, x.shape[1])
    return (bins.amax((2, 4)) if largest else bins.mean((2, 4))).permute(0, 3, 1, 2)


def _neighbours(at: torch.Tensor, length: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The two elements around each point, with their weights. A point more than 1 outside has no weight."""
    inside = (at >= -1) & (at <= length)
    at = at.clamp(0, length - 1)
    low = at.floor().clamp(max=length - 1)
    near = (low, inside * (1 - (at - low))), ((low + 1).clamp(max=length - 1), inside * (at - low))
    return [(index.to(torch.int64), weight) for index, weight in near]
