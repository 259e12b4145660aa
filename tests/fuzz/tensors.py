"""Tensors by shape, dtype and seed, as the text of a random program makes them."""

import math

import torch

DEVICE = "cpu"


def use_device(name: str) -> None:
    """Make the tensors of all later programs on this device."""
    global DEVICE
    DEVICE = name


def tensor(
    shape: tuple[int, ...], dtype: torch.dtype = torch.float32, seed: int = 0, values: str = "normal"
) -> torch.Tensor:
    """A tensor whose numbers follow from `seed` and `values` alone.

    normal    around 0; integers from -9 to 9
    positive  from 0.5 to 2; integers from 1 to 9
    ties      few distinct small numbers, integers in every dtype
    special   the numbers that are easily wrong: NaN, infinities, -0.0, subnormal; largest and smallest integers
    extreme   these, and the largest floating-point numbers
    zeros, ones
    """
    generator = torch.Generator().manual_seed(seed)
    if values in ("zeros", "ones"):
        return torch.full(shape, values == "ones", dtype=dtype, device=DEVICE)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool().to(DEVICE)
    if dtype.is_complex:
        real, imaginary = (_reals(shape, generator, values, torch.float64) for _ in range(2))
        return torch.complex(real, imaginary).to(dtype).to(DEVICE)
    if dtype.is_floating_point:
        return _reals(shape, generator, values, dtype).to(dtype).to(DEVICE)
    return _integers(shape, generator, values, dtype).to(DEVICE)


def index(shape: tuple[int, ...], size: int, seed: int = 0) -> torch.Tensor:
    """Positions from 0 to size - 1."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, max(size, 1), shape, generator=generator).to(DEVICE)


def permutation(size: int, seed: int = 0) -> torch.Tensor:
    """Each position once."""
    return torch.randperm(size, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def _reals(shape, generator, values, dtype) -> torch.Tensor:
    if values == "positive":
        return torch.rand(shape, generator=generator, dtype=torch.float64) * 1.5 + 0.5
    if values == "ties":
        return torch.randint(-2, 3, shape, generator=generator).double()
    numbers = torch.randn(shape, generator=generator, dtype=torch.float64)
    if values not in ("special", "extreme"):
        return numbers
    limits = torch.finfo(dtype)
    special = [math.nan, math.inf, -math.inf, -0.0, 0.0, 1.0, -1.0, limits.tiny]
    special += [limits.smallest_normal / 4, -limits.smallest_normal / 2, limits.eps, 3e9, -3e9, 0.5, 2.5, -1.5]
    special += [limits.max, limits.min] if values == "extreme" else []
    chosen = torch.tensor(special, dtype=torch.float64)[torch.randint(0, len(special), shape, generator=generator)]
    return torch.where(torch.rand(shape, generator=generator) < 0.5, chosen, numbers)


def _integers(shape, generator, values, dtype) -> torch.Tensor:
    limits = torch.iinfo(dtype)
    if values in ("special", "extreme"):
        special = torch.tensor([limits.min, limits.max, 0, 1, limits.max - 1, limits.max // 2, 7], dtype=dtype)
        return special[torch.randint(0, len(special), shape, generator=generator)]
    low, high = {"positive": (1, 10), "ties": (0, 3)}.get(values, (-9, 10))
    return torch.randint(max(low, limits.min), high, shape, generator=generator).to(dtype)
