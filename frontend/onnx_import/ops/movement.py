"""Operators that move elements: shapes, joins, slices, padding."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from mlirc.frontend.onnx_import.package import onnx
from mlirc.frontend.onnx_import.protos import constant_of
from mlirc.frontend.onnx_import.registry import OnnxNode, op
from mlirc.frontend.onnx_import.values import (
    Known,
    OnnxValueError,
    Value,
    axes_or_all,
    dtype_of,
    number,
    numbers,
    positive,
    tensor,
)


@op("Reshape", raw=True)
def reshape(node: OnnxNode, data: Value, shape: Value) -> torch.Tensor:
    x = tensor(data)
    sizes = numbers(shape, "shape")
    if not node.get("allowzero", 0):
        sizes = [x.shape[k] if isinstance(n, int) and n == 0 else n for k, n in enumerate(sizes)]
    return x.reshape(sizes)


@op("Flatten")
def flatten(node: OnnxNode, x: torch.Tensor) -> torch.Tensor:
    axis = node.get("axis", 1)
    axis = axis + x.dim() if axis < 0 else axis
    rows = 1
    for n in x.shape[:axis]:
        rows = rows * n
    columns = 1
    for n in x.shape[axis:]:
        columns = columns * n
    return x.reshape(rows, columns)


@op("Squeeze", raw=True)
def squeeze(node: OnnxNode, data: Value, axes: Value = None) -> torch.Tensor:
    x = tensor(data)
    if axes is None and "axes" not in node.attributes:
        return x.squeeze()
    chosen = [positive(a, x.dim()) for a in (numbers(axes, "axes") if axes is not None else node.get("axes"))]
    for a in chosen:
        if x.shape[a] != 1:
            raise OnnxValueError(f"dimension {a} has {x.shape[a]} elements, and would have to have one")
    return x.squeeze(tuple(chosen))


@op("Unsqueeze", raw=True)
def unsqueeze(node: OnnxNode, data: Value, axes: Value = None) -> torch.Tensor:
    x = tensor(data)
    chosen = numbers(axes, "axes") if axes is not None else node.need("axes")
    rank = x.dim() + len(chosen)
    for a in sorted(positive(a, rank) for a in chosen):
        x = x.unsqueeze(a)
    return x


@op("Transpose")
def transpose(node: OnnxNode, x: torch.Tensor) -> torch.Tensor:
    return x.permute(node.get("perm") or list(range(x.dim()))[::-1])


@op("Concat")
def concat(node: OnnxNode, *xs: torch.Tensor) -> torch.Tensor:
    axis = positive(node.need("axis"), xs[0].dim())
    return torch.cat(xs, axis)


@op("Split", raw=True)
def split(node: OnnxNode, data: Value, sizes: Value = None) -> tuple[torch.Tensor, ...]:
    x, axis = tensor(data), node.get("axis", 0)
    if sizes is not None:
        return torch.split(x, numbers(sizes, "split"), axis)
    if "split" in node.attributes:
        return torch.split(x, list(node.get("split")), axis)
    parts = node.get("num_outputs", len(node.results))
    size = (x.shape[axis] + parts - 1) // parts
    last = x.shape[axis] - size * (parts - 1)
    return torch.split(x, [size] * (parts - 1) + [last], axis)


def slice_of(x: torch.Tensor, axis: int, start: Any, end: Any, step: int) -> torch.Tensor:
    length = x.shape[axis]
    if step > 0:
        low, high = _from_front(start, length, 0, length), _from_front(end, length, 0, length)
        return x.narrow(axis, low, 0) if high <= low else x[(slice(None),) * axis + (slice(low, high, step),)]
    first, last = _from_front(start, length, -1, length - 1), _from_front(end, length, -1, length - 1)
    if first <= last:
        return x.narrow(axis, 0, 0)
    piece = x.narrow(axis, last + 1, first - last).flip(axis)
    return piece[(slice(None),) * axis + (slice(None, None, -step),)]


def _from_front(n: Any, length: Any, low: Any, high: Any) -> Any:
    if n < 0:
        n = n + length
    if n < low:
        return low
    return high if n > high else n


@op("Slice", raw=True)
def slices(node: OnnxNode, data: Value, starts: Value, ends: Value, axes: Value = None, steps: Value = None) -> Any:
    x = tensor(data)
    first, last = numbers(starts, "starts"), numbers(ends, "ends")
    along = numbers(axes, "axes") if axes is not None else list(range(len(first)))
    by = numbers(steps, "steps") if steps is not None else [1] * len(first)
    for axis, start, end, step in zip(along, first, last, by, strict=True):
        x = slice_of(x, positive(axis, x.dim()), start, end, step)
    return x


@op("Expand", raw=True)
def expand(node: OnnxNode, data: Value, shape: Value) -> torch.Tensor:
    x = tensor(data)
    sizes = numbers(shape, "shape")
    if len(sizes) < x.dim():
        sizes = [1] * (x.dim() - len(sizes)) + sizes
    lead = len(sizes) - x.dim()
    found = [n if k < lead or n != 1 else x.shape[k - lead] for k, n in enumerate(sizes)]
    return x.expand(found)


@op("Tile", raw=True)
def tile(node: OnnxNode, data: Value, repeats: Value) -> torch.Tensor:
    return tensor(data).repeat(numbers(repeats, "repeats"))


@op("ConstantOfShape", raw=True)
def constant_of_shape(node: OnnxNode, shape: Value) -> torch.Tensor:
    value = node.get("value")
    if value is None:
        return torch.zeros(numbers(shape, "input"))
    fill = onnx().numpy_helper.to_array(value).reshape(-1)[0]
    return torch.full(numbers(shape, "input"), fill.item(), dtype=dtype_of(value.data_type))


@op("Constant", raw=True)
def constant(node: OnnxNode) -> Any:
    for name, dtype in (("value_int", torch.int64), ("value_float", torch.float32)):
        if name in node.attributes:
            return Known(node.need(name), dtype)
    for name, kind, dtype in (("value_ints", np.int64, torch.int64), ("value_floats", np.float32, torch.float32)):
        if name in node.attributes:
            return Known(np.array(node.need(name), kind), dtype)
    if "value" in node.attributes:
        return constant_of(node.need("value"))
    raise OnnxValueError(f"it gives {', '.join(node.attributes)}, which is no dense tensor of numbers")


PAD_MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}


@op("Pad", raw=True)
def pad(node: OnnxNode, data: Value, pads: Value = None, value: Value = None, axes: Value = None) -> torch.Tensor:
    """Negative numbers take elements away."""
    x, mode = tensor(data), node.get("mode", "constant")
    amounts = numbers(pads, "pads") if pads is not None else node.need("pads")
    along = axes_or_all(numbers(axes, "axes") if axes is not None else None, x.dim())
    before, after = amounts[: len(along)], amounts[len(along) :]
    fill = 0 if value is None else tensor(value)
    for axis, low, high in zip(along, before, after, strict=True):
        x = _padded(x, axis, low, high, mode, fill)
    return x


def _padded(x: torch.Tensor, axis: int, low: Any, high: Any, mode: str, fill: Any) -> torch.Tensor:
    if isinstance(low, int) and isinstance(high, int) and low == 0 and high == 0:
        return x
    n = x.shape[axis]
    if mode == "constant":
        shape = list(x.shape)
        parts = [x]
        if low > 0:
            parts.insert(0, _filled(x, [*shape[:axis], low, *shape[axis + 1 :]], fill))
        if high > 0:
            parts.append(_filled(x, [*shape[:axis], high, *shape[axis + 1 :]], fill))
        x = torch.cat(parts, axis) if len(parts) > 1 else x
        start = -low if low < 0 else 0
        length = x.shape[axis] - start - (-high if high < 0 else 0)
        return x.narrow(axis, start, length)
    places = torch.arange(0, n + low + high) - low
    if mode == "edge":
        places = places.clamp(0, n - 1)
    elif mode == "wrap":
        places = torch.remainder(places, n)
    elif mode == "reflect":
        period = 2 * (n - 1) if n > 1 else 1
        places = torch.remainder(places, period)
        places = torch.where(places >= n, period - places, places) if n > 1 else places
    else:
        raise OnnxValueError(f"it has no mode '{mode}'")
    return x.index_select(axis, places)


def _filled(x: torch.Tensor, shape: list[Any], fill: Any) -> torch.Tensor:
    if isinstance(fill, torch.Tensor):
        return fill.to(x.dtype).reshape(()).expand(shape)
    return torch.zeros(shape, dtype=x.dtype)


@op("DepthToSpace")
def depth_to_space(node: OnnxNode, x: torch.Tensor) -> torch.Tensor:
    b, (n, c, h, w) = node.need("blocksize"), x.shape
    if node.get("mode", "DCR") == "DCR":
        y = x.reshape(n, b, b, c // (b * b), h, w).permute(0, 3, 4, 1, 5, 2)
    else:
        y = x.reshape(n, c // (b * b), b, b, h, w).permute(0, 1, 4, 2, 5, 3)
    return y.reshape(n, c // (b * b), h * b, w * b)


@op("SpaceToDepth")
def space_to_depth(node: OnnxNode, x: torch.Tensor) -> torch.Tensor:
    b, (n, c, h, w) = node.need("blocksize"), x.shape
    y = x.reshape(n, c, h // b, b, w // b, b)
    y = y.permute(0, 1, 3, 5, 2, 4) if node.get("mode", "DCR") == "CRD" else y.permute(0, 3, 5, 1, 2, 4)
    return y.reshape(n, c * b * b, h // b, w // b)


@op("Trilu", raw=True)
def trilu(node: OnnxNode, data: Value, k: Value = None) -> torch.Tensor:
    diagonal = 0 if k is None else number(k, "k")
    return torch.triu(tensor(data), diagonal) if node.get("upper", 1) else torch.tril(tensor(data), diagonal)


@op("EyeLike")
def eye_like(node: OnnxNode, x: torch.Tensor) -> torch.Tensor:
    dtype = node.dtype(0) if "dtype" in node.attributes else x.dtype
    rows, columns = torch.arange(x.shape[0]).unsqueeze(1), torch.arange(x.shape[1])
    return (columns - rows == node.get("k", 0)).to(dtype)


@op("Range", raw=True)
def numbers_between(node: OnnxNode, start: Value, end: Value, step: Value) -> torch.Tensor:
    first, last, by = number(start, "start"), number(end, "limit"), number(step, "delta")
    assert start is not None
    return torch.arange(first, last, by, dtype=start.dtype)


@op("Shape", "Size", raw=True)
def shape(node: OnnxNode, x: Value) -> Any:
    return NotImplemented  # known_numbers.py has it


@op("CenterCropPad", raw=True)
def center_crop_pad(node: OnnxNode, data: Value, shape: Value) -> torch.Tensor:
    x = tensor(data)
    along = axes_or_all(node.get("axes"), x.dim())
    for axis, n in zip(along, numbers(shape, "shape"), strict=True):
        have = x.shape[axis]
        if n < have:
            x = x.narrow(axis, (have - n) // 2, n)
        elif n > have:
            low = (n - have) // 2
            x = _padded(x, axis, low, n - have - low, "constant", 0)
    return x


@op("ReverseSequence")
def reverse_sequence(node: OnnxNode, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    time, batch = node.get("time_axis", 0), node.get("batch_axis", 1)
    steps = torch.arange(x.shape[time]).unsqueeze(1)
    places = torch.where(steps < lengths, lengths - 1 - steps, steps)  # time, batch
    y = x.movedim((time, batch), (0, 1))
    index = places.reshape(*places.shape, *[1] * (y.dim() - 2)).expand(y.shape)
    return torch.gather(y, 0, index).movedim((0, 1), (time, batch))


@op("Col2Im", raw=True)
def column_images(node: OnnxNode, data: Value, image: Value, block: Value) -> torch.Tensor:
    size = numbers(image, "image_shape")
    kernel: Any = numbers(block, "block_shape")
    if len(size) != 2:
        raise OnnxValueError(f"images of {len(size)} dimensions; PyTorch's fold has two")
    pads = node.get("pads", [0] * 4)
    whole: Any = [size[k] + pads[k] + pads[k + 2] for k in (0, 1)]
    dilations, strides = node.get("dilations", [1, 1]), node.get("strides", [1, 1])
    found = F.fold(tensor(data), whole, kernel, dilation=dilations, stride=strides)
    return found[:, :, pads[0] : pads[0] + size[0], pads[1] : pads[1] + size[1]]
