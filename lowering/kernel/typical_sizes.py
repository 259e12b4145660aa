"""Sizes as numbers: of one that nobody knows, what it is taken for where a choice depends on it."""

from functools import lru_cache
from typing import cast

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Int

TYPICAL = 96


@lru_cache(maxsize=65536)
def typical(value: Int) -> int:
    """A plausible number for a size or stride."""
    return symbols.evaluate(value, dict.fromkeys(symbols.free_symbols(value), TYPICAL))


def static(sizes: tuple) -> tuple[int, ...]:
    """Sizes or strides that are numbers, as such."""
    return cast(tuple[int, ...], sizes)
