"""Fourier transforms, of whole signals and of frames, and what sums their frequencies."""

import math
from typing import Any

import torch

from mlirc.frontend.onnx_import.registry import OnnxNode, op
from mlirc.frontend.onnx_import.values import HALVES, OnnxValueError, Value, number, positive, tensor


@op("DFT", raw=True)
def dft(node: OnnxNode, data: Value, length: Value = None, axis: Value = None) -> torch.Tensor:
    """A signal's last dimension is 1, or 2: real and imaginary parts."""
    x, dtype = _signal(tensor(data))
    where = number(axis, "axis") if axis is not None else node.get("axis", 1 if node.opset < 20 else -2)
    dim = positive(where, x.dim() + 1)
    if dim == x.dim():
        raise OnnxValueError("its axis is that of real and imaginary parts")
    n = None if length is None else number(length, "dft_length")
    inverse, onesided = node.get("inverse", 0), node.get("onesided", 0)
    if inverse and onesided:
        return torch.fft.irfft(x, n, dim).unsqueeze(-1).to(dtype)
    if inverse:
        return _parts(torch.fft.ifft(x, n, dim), dtype)
    return _parts(torch.fft.rfft(x, n, dim) if onesided else torch.fft.fft(x, n, dim), dtype)


@op("STFT", raw=True)
def stft(node: OnnxNode, data: Value, step: Value, window: Value = None, length: Value = None) -> torch.Tensor:
    x, dtype = _signal(tensor(data))
    shape = None if window is None else tensor(window)
    if length is None and shape is None:
        raise OnnxValueError("it has neither a window nor a frame_length")
    n = number(length, "frame_length") if length is not None else tensor(window).shape[0]
    frames = x.unfold(1, n, number(step, "frame_step"))
    if shape is not None:
        frames = frames * shape.to(frames.real.dtype)
    return _parts(torch.fft.rfft(frames) if node.get("onesided", 1) else torch.fft.fft(frames), dtype)


def _signal(x: torch.Tensor) -> tuple[torch.Tensor, torch.dtype]:
    """A tensor of parts as real or complex numbers, which the transforms have on a CPU from 32 bits on, and its dtype."""
    wide = x.float() if x.dtype in HALVES else x
    if x.shape[-1] == 1:
        return wide.squeeze(-1), x.dtype
    if x.shape[-1] != 2:
        raise OnnxValueError(f"its input has {x.shape[-1]} parts, and a number has one or two")
    return torch.complex(wide[..., 0], wide[..., 1]), x.dtype


def _parts(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.view_as_real(x).to(dtype)


@op("MelWeightMatrix", raw=True)
def mel_weights(node: OnnxNode, bins: Value, length: Value, rate: Value, low: Value, high: Value) -> torch.Tensor:
    """The triangles that sum frequencies to bands of equal steps in mel; numbers alone, so that it is a constant."""
    names = ("num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz", "upper_edge_hertz")
    count, n, hertz, least, most = (
        number(x, name) for x, name in zip((bins, length, rate, low, high), names, strict=True)
    )
    first, last = (2595 * math.log10(1 + edge / 700) for edge in (least, most))
    mels = [k * (last - first) / (count + 2) + first for k in range(count + 2)]
    edges = [int((n + 1) * 700 * (10 ** (mel / 2595) - 1) // hertz) for mel in mels]
    made = [[_triangle(j, *edges[k : k + 3]) for k in range(count)] for j in range(n // 2 + 1)]
    return torch.tensor(made, dtype=node.dtype(1, "output_datatype")).reshape(n // 2 + 1, count)


def _triangle(j: int, low: int, center: int, high: int) -> Any:
    """The weight of frequency j: from 0 at the low edge to 1 at the center, and back."""
    if center <= j < high:
        return (high - j) / (high - center)
    if j == center:
        return 1.0
    return (j - low) / (center - low) if low <= j < center else 0.0
