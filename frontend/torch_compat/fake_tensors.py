"""Fake tensors, with which graphs are traced, and the identity of their storages."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from mlirc.codegen.abi.reach import Missing, needed, reach

with needed("fake-tensors"):
    from torch._guards import detect_fake_mode as detect_fake_mode
    from torch._subclasses.fake_tensor import FakeTensor as FakeTensor
    from torch._subclasses.fake_tensor import FakeTensorMode as FakeTensorMode
    from torch._subclasses.fake_tensor import unset_fake_temporarily as unset_fake_temporarily
    from torch._subclasses.functional_tensor import FunctionalTensor as FunctionalTensor

with needed("storage-identity"):
    _x, _y = torch.zeros(3), torch.zeros(3)
    if len({x.untyped_storage()._cdata for x in (_x, _x[1:], _y)}) != 2:
        raise Missing("views do not share it")


def storage_id(x: torch.Tensor) -> int:
    """A number that two tensors share where they share memory, fake tensors and those of torch.func's transforms too.

    Raises NotImplementedError for a tensor without a storage, as a sparse one is."""
    unwrap = transform_unwrapper()
    return (x if unwrap is None else unwrap(x)).untyped_storage()._cdata


@reach(
    "transformed-tensors",
    instead="a graph with torch.func's transforms and a masked attention, or a write, runs in eager",
    apart=True,
)
def transform_unwrapper() -> Callable[[torch.Tensor], torch.Tensor]:
    """A function from a tensor of torch.func.grad or torch.vmap to the tensor within: Dynamo's graph has the first, which have no storage."""
    wraps: Any = torch._C._functorch  # type: ignore[attr-defined]
    kept: list[torch.Tensor] = []
    x = torch.zeros(2)
    torch.vmap(kept.append, out_dims=None)(x)

    def unwrap(x: torch.Tensor) -> torch.Tensor:
        while wraps.is_functorch_wrapped_tensor(x):
            x = wraps.get_unwrapped(x)
        return x

    if unwrap(kept[0]) is not x:
        raise Missing("the tensor within is another")
    return unwrap


def is_view(x: Any) -> bool:
    """Whether autograd takes a tensor for a view of another one."""
    return x._is_view()


def base_of(x: torch.Tensor) -> torch.Tensor | None:
    """The tensor that autograd takes `x` for a view of; None where it is none, or PyTorch does not say."""
    return getattr(x, "_base", None)


@contextmanager
def as_traced(mode: FakeTensorMode) -> Iterator[None]:
    """Within, operators on fake tensors of the mode are as AOTAutograd traces them, those of symbolic arguments too: without PyTorch's
    decompositions in Python, `constant_pad_nd` takes numbers alone."""
    dispatcher = python_dispatcher()
    with mode, torch.no_grad():
        if dispatcher is None:
            yield
            return
        with dispatcher():
            yield


@reach("python-dispatcher", instead="a graph that pads complex numbers by symbolic sizes runs in eager")
def python_dispatcher() -> Callable:
    """A context within which operators are decomposed in Python, where PyTorch has such decompositions."""
    from torch._dispatch.python import enable_python_dispatcher

    with enable_python_dispatcher():
        if not isinstance(torch.zeros(1).neg(), torch.Tensor):
            raise Missing("operators give no tensors")
    return enable_python_dispatcher
