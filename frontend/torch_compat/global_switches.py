"""PyTorch's process-wide switches that decide what AOTAutograd traces: how each is read, and, in tests, set.

Each is part of the trace cache's key. Nothing here is ever set by mlirc. Without one of them no trace is kept.
tests/frontend/cache/test_global_switches.py goes through all switches that PyTorch has, and says of each other one why it is not here.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from mlirc.codegen.abi.reach import Missing, reach
from mlirc.dialects.lazy_dataclass import dataclass

_C = torch._C


@dataclass(frozen=True)
class Switch:
    """`covers` are PyTorch's own names of what sets it."""

    name: str
    get: Callable[[], Any]
    set: Callable[[Any], Any]
    covers: tuple[str, ...]


def _plain(*names: str) -> Iterator[Switch]:
    """Switches of torch._C, by the end of their setters' names; those that this PyTorch has."""
    for name in names:
        get, set_ = getattr(_C, f"_get_{name}", None), getattr(_C, f"_set_{name}", None)
        if get is not None and set_ is not None:
            yield Switch(name, get, partial(_put, set_), (f"_set_{name}",))


def _put(set_: Callable, was: Any) -> None:
    """Some are two: reduced precision, and whether sums are split."""
    set_(*was) if isinstance(was, tuple) else set_(was)


def _sdp(name: str) -> Switch:
    return Switch(
        f"sdp {name}",
        getattr(_C, f"_get_{name}_sdp_enabled"),
        getattr(_C, f"_set_sdp_use_{name}"),
        (f"_set_sdp_use_{name}",),
    )


def _einsum(name: str) -> Switch:
    module = torch.backends.opt_einsum
    return Switch(f"opt_einsum {name}", partial(getattr, module, name), partial(setattr, module, name), ())


@reach("global-switches", instead="each process traces each graph")
def switches() -> tuple[Switch, ...]:
    """All of them. Raises where PyTorch lacks one, or it cannot be read."""
    found = (
        Switch(
            "deterministic algorithms",
            lambda: [_C._get_deterministic_algorithms(), _C._get_deterministic_algorithms_warn_only()],
            lambda was: _C._set_deterministic_algorithms(was[0], warn_only=was[1]),
            ("_set_deterministic_algorithms",),
        ),
        Switch(
            "default dtype",
            torch.get_default_dtype,
            torch.set_default_dtype,
            ("_set_default_dtype", "_set_default_tensor_type"),
        ),
        *_plain(
            "deterministic_fill_uninitialized_memory",
            "cudnn_enabled",
            "cudnn_benchmark",
            "cudnn_deterministic",
            "mkldnn_enabled",
            "mkldnn_deterministic",
            "nnpack_enabled",
            "linalg_preferred_backend",
            "blas_preferred_backend",
            "math_sdp_allow_fp16_bf16_reduction",
            "cublas_allow_fp16_reduced_precision_reduction",
            "cublas_allow_bf16_reduced_precision_reduction",
            "cublas_allow_fp16_accumulation",
            "cpu_allow_fp16_reduced_precision_reduction",
        ),
        Switch("sdp priority", _C._get_sdp_priority_order, _C._set_sdp_priority_order, ("_set_sdp_priority_order",)),
        *map(_sdp, ("flash", "mem_efficient", "math", "cudnn", "overrideable")),
        _einsum("enabled"),
        _einsum("strategy"),
        Switch(
            "view replay",
            _C._is_view_replay_enabled,
            _C._set_view_replay_enabled,
            ("_set_view_replay_enabled",),
        ),
        Switch(
            "float32 matmul precision",
            torch.get_float32_matmul_precision,
            torch.set_float32_matmul_precision,
            (
                "_set_float32_matmul_precision",
                "_set_cublas_allow_tf32",
                "_set_cudnn_allow_tf32",
                "_set_onednn_allow_tf32",
            ),
        ),
    )
    for switch in found:
        _read(switch)
    for name in {"cudnn_enabled", "mkldnn_enabled", "blas_preferred_backend"} - {switch.name for switch in found}:
        raise Missing(f"it has no switch {name}")
    if not functorch_settings():
        raise Missing("AOTAutograd has no settings")
    return found


def read() -> dict[str, Any]:
    """What they are now; None where PyTorch does not say. Raises Missing without them."""
    return {switch.name: _read(switch) for switch in switches.or_missing()}


def _read(switch: Switch) -> Any:
    try:
        return switch.get()
    except RuntimeError:  # both of PyTorch's interfaces for a precision were used
        return None


def functorch_settings() -> dict[str, Any]:
    """AOTAutograd's own settings."""
    from torch._functorch import config as functorch_config

    return functorch_config.save_config_portable(ignore_private_configs=False)
