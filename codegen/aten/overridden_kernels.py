"""Detects operators of ATen whose kernel is not PyTorch's own: replaced by `Library("aten", "IMPL")`, py_impl, or C++.

The dispatcher tells where each kernel was registered, by file and line. PyTorch's are in files below the folder that it was built
in, or that it is installed in. What computes such an operator is not known here, nor whether it is the same in the next process.
Where the dispatcher does not tell, each operator counts as overridden.
"""

import os
from collections.abc import Iterable
from typing import Any

import torch

import mlirc
from mlirc.codegen.abi.kernel_sources import KernelSources, kernel_sources

_OURS = os.path.join(os.path.dirname(mlirc.__file__), "")
_INSTALLED = os.path.join(os.path.dirname(torch.__file__), "")
_FOR_OTHERS = tuple(_INSTALLED + name for name in ("library.py", "_library/"))  # register what they are given
_COMPUTING = ("CPU", "CUDA", "Composite", "BackendSelect")  # keys whose kernels compute, begin so
UNKNOWN = "kernels of which this PyTorch does not tell"


def overridden(target: Any) -> list[str]:
    """The dispatch keys for which an operator of PyTorch's own has a kernel that is not PyTorch's."""
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
        return []
    keys = _foreign_keys(target.name())
    keys += [str(key) for key, function in target.py_kernels.items() if not _is_torchs(function)]
    return sorted(set(keys))


def computes_otherwise(target: Any) -> list[str]:
    """The overridden keys whose kernels compute the operator's result. No code of ours may replace such a call."""
    return [key for key in overridden(target) if key.removeprefix("DispatchKey.").startswith((*_COMPUTING, UNKNOWN))]


def overridden_of(targets: Iterable[Any]) -> str:
    """The first of these operators that is overridden, and where, or ""."""
    for target in dict.fromkeys(targets):
        keys = overridden(target)
        if keys:
            return f"{target}, whose kernel for {', '.join(keys)} is not PyTorch's"
    return ""


def overridden_by_name(names: Iterable[str]) -> str:
    """The first of these operators ("aten::silu") that is overridden in the dispatcher, or ""."""
    return next((f"{name}, whose kernel is not PyTorch's" for name in names if _foreign_keys(name)), "")


def overridden_anywhere() -> str:
    """An operator of ATen that Python code has overridden in this process, or "". Tracing may call any of them."""
    sources = kernel_sources()
    if sources is None:
        return f"an operator: there are {UNKNOWN}"
    for entry in sources.python_overrides():
        namespace, _, rest = entry.partition("/")
        name, _, key = rest.rpartition("/")
        if namespace != "aten" or key == "Meta":
            continue
        if _foreign_keys(f"aten::{name}"):
            return f"aten.{name}, whose kernel for {key} is not PyTorch's"
    return ""


def registrations() -> list[int]:
    """For some dispatch keys the number of ATen operators with a kernel. It changes when a C++ library adds a kernel."""
    sources = kernel_sources()
    return [] if sources is None else sources.registrations()


def _foreign_keys(name: str) -> list[str]:
    """The dispatch keys for which the kernel in use was registered in no file of PyTorch's; of our own operators, in none of ours."""
    sources = kernel_sources()
    if sources is None:
        return [UNKNOWN]
    ours = name.startswith("mlirc::")
    found = sources.of(name)
    return [k for k, file in found if not (_is_file_of_torch(file, sources) or (ours and file.startswith(_OURS)))]


def _is_file_of_torch(file: str, sources: KernelSources | None) -> bool:
    built = sources.built_in if sources is not None else ""
    return file.startswith((built or _INSTALLED, _INSTALLED)) and not file.startswith(_FOR_OTHERS)


def _is_torchs(function: Any) -> bool:
    code = getattr(function, "__code__", None)
    return code is None or _is_file_of_torch(code.co_filename, kernel_sources())
