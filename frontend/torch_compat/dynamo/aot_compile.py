"""Knows a backend's caller that will save what it gets: `torch.compile(fn, fullgraph=True).aot_compile(...)`."""

import torch
from torch.compiler import disable as disable

from mlirc.codegen.abi.reach import Missing, reach


@reach("aot-compile", instead="torch.compile(...).aot_compile refuses what mlirc gives")
def serializable() -> type:
    """The class of callables that can be saved; `register` makes another class one."""
    from torch._dynamo.aot_compile_types import SerializableCallable

    if not callable(getattr(SerializableCallable, "register", None)):
        raise Missing("it registers nothing")
    return SerializableCallable


def is_on() -> bool:
    """Whether what the backend gives is to be saved."""
    config = getattr(getattr(torch, "_functorch", None), "config", None)
    return bool(getattr(config, "force_autograd_cache", False))
