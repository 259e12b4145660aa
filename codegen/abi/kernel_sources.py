"""Asks the dispatcher where each kernel of an operator was registered, and how many kernels there are."""

import re
from collections.abc import Callable, Sequence

import torch

from mlirc.codegen.abi.reach import Missing, reach
from mlirc.dialects.lazy_dataclass import dataclass

_LINE = re.compile(r"^(\w+)(?:\[alias\])?: registered at (.*?):\d+ ::", re.MULTILINE)
_BUILT = re.compile(r"^debug: registered at (.*)build/aten/src/ATen/RegisterSchema", re.MULTILINE)

# keys of which every operator is asked whether it has a kernel; those of composite operators are found by them
_LISTED = (
    "CPU",
    "AutogradCPU",
    "AutogradCUDA",
    "Autograd",
    "CompositeImplicitAutograd",
    "CompositeExplicitAutograd",
    "Functionalize",
    "Python",
    "PreDispatch",
)


@dataclass(frozen=True)
class KernelSources:
    """`built_in` is the folder of PyTorch's source when it was built, or ""."""

    built_in: str

    def of(self, name: str) -> list[tuple[str, str]]:
        """The dispatch key and the source file of each kernel in use of an operator ("aten::silu"); none where only Python has it."""
        try:
            return _LINE.findall(torch._C._dispatch_dump(name))
        except RuntimeError:
            return []

    def registrations(self, keys: Sequence[str] = _LISTED) -> list[int]:
        """For some dispatch keys the number of ATen operators with a kernel. It changes when a C++ library adds a kernel."""
        of_key: Callable[[str], list[str]] = torch._C._dispatch_get_registrations_for_dispatch_key
        return [sum(name.startswith("aten::") for name in of_key(key)) for key in keys]

    def python_overrides(self) -> frozenset[str]:
        """What Python code has registered: "aten/silu/CPU", and so on."""
        return frozenset(torch.library._impls)


@reach("kernel-sources", instead="every graph runs in eager")
def kernel_sources() -> KernelSources:
    """What the dispatcher says."""
    found = _BUILT.search(torch._C._dispatch_dump("aten::add.Tensor"))
    sources = KernelSources(found[1] if found else "")
    if not any(key == "CPU" and file for key, file in sources.of("aten::add.Tensor")):
        raise Missing("the dispatcher says in another way where a kernel is from")
    if not sources.registrations(["CPU"])[0] or not all(isinstance(x, str) for x in sources.python_overrides()):
        raise Missing("the dispatcher counts kernels in another way")
    return sources
