"""What happens between two calls, for the texts of random programs: a weight written in one of many ways, a switch flipped."""

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterator
from typing import Any

import torch

from mlirc.frontend.torch_compat.global_switches import switches

Index = Any


def _counted(x: torch.Tensor, new: torch.Tensor, at: Index) -> None:
    with torch.no_grad():
        x[at] = new[at]


def _copied(x: torch.Tensor, new: torch.Tensor, at: Index) -> None:
    with torch.no_grad():
        x.copy_(new)


def _detached(x: torch.Tensor, new: torch.Tensor, at: Index) -> None:
    x.detach()[at] = new[at]


def _data(x: torch.Tensor, new: torch.Tensor, at: Index) -> None:
    x.data[at] = new[at]


def _data_copied(x: torch.Tensor, new: torch.Tensor, at: Index) -> None:
    x.data.copy_(new)


def _set_elsewhere(x: torch.Tensor, new: torch.Tensor, at: Index) -> None:
    with torch.no_grad():
        x.set_(new)


def _other_data(x: torch.Tensor, new: torch.Tensor, at: Index) -> None:
    """Of a tensor of inference mode, data of that mode: with others it is no tensor of that mode, and has no count of writes, for which
    eager refuses its views."""
    with torch.inference_mode(x.is_inference()):
        x.data = new.clone(memory_format=torch.preserve_format) if x.is_inference() else new


def _numpy(x: torch.Tensor, new: torch.Tensor, at: Index) -> None:
    if x.dtype is torch.bfloat16:
        x, new = x.detach().view(torch.int16), new.view(torch.int16)
    x.detach().numpy()[at] = new.numpy()[at]


def _storage(x: torch.Tensor, new: torch.Tensor, at: Index) -> None:
    x.untyped_storage().copy_(new.untyped_storage())


def _dlpack(x: torch.Tensor, new: torch.Tensor, at: Index) -> None:
    torch.from_dlpack(x.detach())[at] = new[at]


def _c(x: torch.Tensor, new: torch.Tensor, at: Index) -> None:
    ctypes.memmove(x.data_ptr(), new.data_ptr(), x.numel() * x.element_size())


def _process(x: torch.Tensor, new: torch.Tensor, at: Index) -> None:
    """Another process writes to memory that both share."""
    x.data.share_memory_()
    place, source, size = x.data_ptr(), new.data_ptr(), x.numel() * x.element_size()
    child = os.fork()
    if not child:
        try:
            ctypes.memmove(place, source, size)
        finally:
            os._exit(0)
    os.waitpid(child, 0)


WAYS: dict[str, Callable[[torch.Tensor, torch.Tensor, Index], None]] = {
    f.__name__.removeprefix("_"): f
    for f in (_counted, _copied, _detached, _data, _data_copied, _set_elsewhere)
    + (_other_data, _numpy, _storage, _dlpack, _c, _process)
}


def change(x: torch.Tensor, way: str, at: Index = ...) -> None:
    """Other numbers at an index of x, in a way of WAYS; some write all of x, but change those only. A GPU's memory is not the host's."""
    way = "storage" if x.is_cuda and way in ("numpy", "c", "process") else way
    new = x.detach().clone(memory_format=torch.preserve_format)
    new[at] = ~new[at] if x.dtype is torch.bool else new[at] * 2 + 1
    WAYS[way](x, new, at)


# On a CPU with bfloat16 products eager's own get less exact by this one, ours do not.
FLIPPED = sorted(switch.name for switch in switches.or_missing() if switch.name != "float32 matmul precision")


@contextlib.contextmanager
def flipped(name: str) -> Iterator[None]:
    """Within, a process-wide switch of PyTorch is the other one."""
    switch = next(switch for switch in switches.or_missing() if switch.name == name)
    was = switch.get()
    value = other(was)
    try:
        with contextlib.suppress(RuntimeError):  # this PyTorch cannot
            if value is not None:
                switch.set(value)
        yield
    finally:
        with contextlib.suppress(RuntimeError):
            switch.set(was)


def other(now: Any) -> Any:
    if isinstance(now, bool):
        return not now
    if isinstance(now, list | tuple) and all(isinstance(x, bool) for x in now):
        return type(now)(not x for x in now)
    return torch.float64 if now is torch.float32 else None
