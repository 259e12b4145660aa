"""What a program shows: values, layouts, aliasing and errors, recorded at the moment that it shows them."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(frozen=True)
class Leaf:
    """One value of an observation. A tensor's numbers are a copy; `facts` must be equal, numbers nearly so."""

    path: str
    facts: dict[str, Any]
    numbers: torch.Tensor | None = None


@dataclass
class Trace:
    """All observations of one run of a program, and the exception that ended it, if any."""

    observations: list[list[Leaf]] = field(default_factory=list)
    error: BaseException | None = None

    def see(self, *values: Any) -> None:
        self.observations.append(list(_leaves(values)))


def _leaves(values: tuple) -> Iterator[Leaf]:
    storages: dict[int, int] = {}
    objects: dict[int, int] = {}
    for path, value in _flatten("", values):
        if not isinstance(value, torch.Tensor):
            yield Leaf(path, {"value": _plain(value)})
            continue
        identity = objects.setdefault(id(value), len(objects))
        facts = {"dtype": value.dtype, "shape": tuple(value.shape), "device": value.device.type, "layout": value.layout}
        facts |= {"requires_grad": value.requires_grad, "object": identity, "parameter": type(value).__name__}
        plain = value.detach()
        if value.layout == torch.strided:
            storage = storages.setdefault(plain.untyped_storage()._cdata, len(storages))
            facts |= {"stride": _significant_strides(plain), "storage": storage}
            if storage != len(storages) - 1 and plain.numel():
                facts["offset"] = plain.storage_offset()
        yield Leaf(path, facts, _dense(plain).resolve_conj().resolve_neg().to("cpu", copy=True).contiguous())


def _dense(x: torch.Tensor) -> torch.Tensor:
    """All numbers of a tensor of any layout; which of a sparse one's zeros are stored is not asked."""
    if x.is_nested:
        return x.values() if x.layout == torch.jagged else torch.nested.to_padded_tensor(x, 0)
    return x if x.layout == torch.strided else x.to_dense()


def _flatten(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, dict):
        yield path, ("dict", tuple(value))
        for key, item in value.items():
            yield from _flatten(f"{path}[{key!r}]", item)
    elif isinstance(value, list | tuple):
        yield path, (type(value).__name__, len(value))
        for i, item in enumerate(value):
            yield from _flatten(f"{path}[{i}]", item)
    elif dataclasses.is_dataclass(value):
        yield path, type(value).__name__
        for item in dataclasses.fields(value):
            yield from _flatten(f"{path}.{item.name}", getattr(value, item.name))
    else:
        yield path, value


def _plain(value: Any) -> Any:
    """A value that is compared by ==: its type counts, NaN is equal to itself."""
    if isinstance(value, bool | int | str | type(None) | tuple):
        return type(value).__name__, value
    if isinstance(value, float | complex):
        return type(value).__name__, repr(value)
    return type(value).__name__


def _significant_strides(x: torch.Tensor) -> tuple:
    """Strides of the dimensions that are walked along."""
    if x.numel() == 0:
        return ()
    return tuple(stride if size > 1 else None for size, stride in zip(x.shape, x.stride(), strict=True))
