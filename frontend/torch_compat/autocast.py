"""Reads for which devices autocast is on, and with which dtype."""

import torch

from mlirc.codegen.abi.reach import reach

LISTED = ("cpu", "cuda", "mps", "xpu", "hpu", "mtia", "maia", "privateuseone")


def autocast_devices() -> list[tuple[str, torch.dtype]]:
    """The kinds of devices under autocast, and its dtypes."""
    ask = supported_devices()
    kinds = LISTED if ask is None else ask()
    return [(kind, torch.get_autocast_dtype(kind)) for kind in kinds if torch.is_autocast_enabled(kind)]


@reach("autocast-devices", instead="devices are asked that are known")
def supported_devices():
    """PyTorch's function that lists the kinds of devices that have autocast."""
    ask = torch._C._autocast_supported_devices
    assert "cpu" in ask()
    return ask
