"""Convolutions, with ONNX's paddings."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from mlirc.frontend.onnx_import.registry import OnnxNode, op
from mlirc.frontend.onnx_import.values import OnnxValueError

CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def amounts(
    node: OnnxNode, sizes: Sequence[Any], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[list[Any], list[Any]]:
    """What is padded before and after each dimension of an image, as `pads` or `auto_pad` says."""
    rank, mode = len(kernel), node.get("auto_pad", "NOTSET")
    if mode == "VALID":
        return [0] * rank, [0] * rank
    if mode == "NOTSET":
        pads = node.get("pads") or [0] * (2 * rank)
        return list(pads[:rank]), list(pads[rank:])
    before, after = [], []
    for n, k, s, d in zip(sizes, kernel, strides, dilations, strict=True):
        need = torch.sym_max(((n + s - 1) // s - 1) * s + (k - 1) * d + 1 - n, 0)
        low = need // 2 if mode == "SAME_UPPER" else need - need // 2
        before.append(low)
        after.append(need - low)
    return before, after


def convolution(node: OnnxNode, x: torch.Tensor, w: torch.Tensor, b: Any = None) -> torch.Tensor:
    rank = x.dim() - 2
    if rank not in CONVOLUTIONS:
        raise OnnxValueError(f"images of {rank} dimensions; PyTorch's have one to three")
    strides, dilations = node.get("strides") or [1] * rank, node.get("dilations") or [1] * rank
    before, after = amounts(node, x.shape[2:], w.shape[2:], strides, dilations)
    if before != after:
        x = F.pad(x, [n for pair in reversed(list(zip(before, after, strict=True))) for n in pair])
        before = [0] * rank
    return CONVOLUTIONS[rank](x, w, b, strides, before, dilations, node.get("group", 1))


op("Conv")(convolution)


@op("ConvInteger")
def conv_integer(node: OnnxNode, x: torch.Tensor, w: torch.Tensor, zx: Any = None, zw: Any = None) -> torch.Tensor:
    """Products of 8-bit integers, exact in floats of 64 bits."""
    return integer_convolution(node, x, w, zx, zw).to(torch.int32)


def integer_convolution(node: OnnxNode, x: torch.Tensor, w: torch.Tensor, zx: Any, zw: Any) -> torch.Tensor:
    wide, kernel = x.to(torch.float64), w.to(torch.float64)
    if zx is not None:
        wide = wide - zx.to(torch.float64)
    if zw is not None:
        zero = zw.to(torch.float64)
        kernel = kernel - (zero.reshape(-1, *[1] * (w.dim() - 1)) if zero.dim() else zero)
    return convolution(node, wide, kernel)


@op("ConvTranspose")
def conv_transpose(node: OnnxNode, x: torch.Tensor, w: torch.Tensor, b: Any = None) -> torch.Tensor:
    """`pads` take elements away from the whole result; output_shape says how many, and auto_pad from which end."""
    rank = x.dim() - 2
    if rank not in TRANSPOSED:
        raise OnnxValueError(f"images of {rank} dimensions; PyTorch's have one to three")
    strides, dilations = node.get("strides") or [1] * rank, node.get("dilations") or [1] * rank
    more, mode = node.get("output_padding") or [0] * rank, node.get("auto_pad", "NOTSET")
    whole = [
        s * (n - 1) + o + (k - 1) * d + 1
        for n, k, s, d, o in zip(x.shape[2:], w.shape[2:], strides, dilations, more, strict=True)
    ]
    pads = node.get("pads") or [0] * (2 * rank)
    wanted = node.get("output_shape")
    if wanted is None and mode.startswith("SAME"):
        wanted = [n * s for n, s in zip(x.shape[2:], strides, strict=True)]
    if wanted is not None:
        total = [n - m for n, m in zip(whole, wanted[-rank:], strict=True)]
        before = [t // 2 if mode == "SAME_UPPER" else t - t // 2 for t in total]
        pads = before + [t - low for t, low in zip(total, before, strict=True)]
    before, after = pads[:rank], pads[rank:]
    group = node.get("group", 1)
    if (
        before == after
        and all(p >= 0 for p in before)
        and all(o < max(s, d) for o, s, d in zip(more, strides, dilations, strict=True))
    ):
        return TRANSPOSED[rank](x, w, b, strides, before, more, group, dilations)
    y = TRANSPOSED[rank](x, w, b, strides, 0, 0, group, dilations)
    grown = [
        n for p, o in reversed(list(zip(zip(before, after, strict=True), more, strict=True))) for n in (-p[0], o - p[1])
    ]
    if b is not None and any(n > 0 for n in grown):
        y = TRANSPOSED[rank](x, w, None, strides, 0, 0, group, dilations)
        return F.pad(y, grown) + b.reshape(-1, *[1] * rank)
    return F.pad(y, grown)


@op("DeformConv")
def deformed(
    node: OnnxNode,
    x: torch.Tensor,
    w: torch.Tensor,
    offset: torch.Tensor,
    bias: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """A convolution whose taps read the image beside their places, by offsets (y, x), each times a mask."""
    if x.dim() != 4:
        raise OnnxValueError("a deformed convolution of anything but images")
    parts, groups = node.get("offset_group", 1), node.get("group", 1)
    strides, dilations = node.get("strides", [1, 1]), node.get("dilations", [1, 1])
    pads, (n, channels, *lengths) = node.get("pads", [0] * 4), x.shape
    taps, out = w.shape[2:], offset.shape[2:]
    count = taps[0] * taps[1]
    moved = offset.reshape(n * parts, *taps, 2, *out)
    places = []
    for axis in range(2):
        tap = torch.arange(taps[axis]) * dilations[axis] - pads[axis]
        at = torch.arange(out[axis]) * strides[axis]
        fixed = tap.reshape([-1 if a == axis else 1 for a in range(4)]) + at.reshape(
            [-1 if a == axis + 2 else 1 for a in range(4)]
        )
        places.append((2 * (moved[:, :, :, axis] + fixed) + 1) / lengths[axis] - 1)
    grid = torch.stack((places[1], places[0]), -1).reshape(n * parts, count * out[0], out[1], 2)
    read = F.grid_sample(x.reshape(n * parts, channels // parts, *lengths), grid, "bilinear", "zeros", False)
    read = read.reshape(n, parts, channels // parts, count, *out)
    if mask is not None:
        read = read * mask.reshape(n, parts, 1, count, *out)
    columns = read.reshape(n, groups, channels // groups * count, out[0] * out[1])
    y = (w.reshape(groups, w.shape[0] // groups, -1) @ columns).reshape(n, w.shape[0], *out)
    return y if bias is None else y + bias[:, None, None]
