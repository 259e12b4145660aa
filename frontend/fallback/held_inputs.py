"""What a graph is given, held until its first run is known to be good.

A backward graph on a GPU frees what it takes as it goes: held as it is, it would add to the most memory that a step uses. Where
the GPU has no room for that, copies are held, in the memory of the host.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch


def hold(args: Sequence[Any], frees: bool) -> Callable[[], list]:
    """Gives the same inputs again. `frees`: the graph frees them as it goes."""
    large = [x for x in args if on_gpu(x)] if frees else []
    devices = {x.device for x in large}
    if all(size(large, device) <= room(device) for device in devices):
        same = list(args)
        return lambda: same
    held = [(x.device, copied(x, torch.device("cpu"))) if on_gpu(x) else (None, x) for x in args]
    return lambda: [x if device is None else copied(x, device) for device, x in held]


def on_gpu(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.is_cuda


def size(tensors: Sequence[torch.Tensor], device: torch.device) -> int:
    """Bytes of the memory of those on the device."""
    storages = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in tensors if x.device == device}
    return sum(storages.values())


def room(device: torch.device) -> int:
    """Bytes that PyTorch can still give there."""
    idle = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + idle


def copied(x: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A copy on `device` with the same strides."""
    with torch.no_grad():
        return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=device).copy_(x)
