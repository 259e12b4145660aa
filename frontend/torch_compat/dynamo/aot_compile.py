"""`torch.compile(fn, fullgraph=True).aot_compile(...)`: whether it calls the backend, and what class of callables it can save."""

import torch

from mlirc.codegen.abi.reach import Missing, reach


@reach("aot-compile", instead="torch.compile(...).aot_compile refuses what mlirc gives")
def serializable() -> type:
    """The class of callables that can be saved; `register` makes another class one."""
    from torch._dynamo.aot_compile_types import SerializableCallable

    if not callable(getattr(SerializableCallable, "register", None)):
        raise Missing("it registers nothing")
    return SerializableCallable


def is_saving() -> bool:
    """Whether the backend is called by `aot_compile`, which saves the callable that it gets."""
    config = getattr(getattr(torch, "_functorch", None), "config", None)
    return bool(getattr(config, "force_autograd_cache", False))
