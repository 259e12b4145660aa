"""The target of a module that a command reads: what --target says, what the module says, or the host."""

from dataclasses import replace
from typing import Any

from mlirc.commands.failure import Failure

HELP = (
    "The machine to lower for: cpu-avx2, cpu{vector-bytes=32 cores=4}, gpu{arch=sm_90}, cpu-avx512,gpu-h100, host. "
    "Without cores a kernel takes the threads that the process has when it runs. A part that is left out is the host's."
)


def give_target(module: Any, file: str) -> None:
    """Writes the host into the module of a file as its target, where it has none. Raises Failure for a target that is wrong."""
    from mlirc.lowering.module.target_attribute import ATTRIBUTE, ensure_target
    from mlirc.lowering.target import TargetError

    try:
        ensure_target(module)
    except TargetError as error:
        raise Failure(f"{file}: {'' if ATTRIBUTE in str(error) else f'{ATTRIBUTE}: '}{error}") from error


def change_target(module: Any, text: str) -> None:
    """Gives a verified module the target of --target TEXT. Parts that the text leaves out are the host's.

    Raises Failure for a text that is wrong, and for a module whose kernels are written for another target already.
    """
    from mlirc.lowering.files.code import runs_code
    from mlirc.lowering.host import host_target
    from mlirc.lowering.module.target_attribute import is_on_gpu, set_target, target_of
    from mlirc.lowering.target import CpuTarget, TargetError, gpus_of, parse_parts

    target = host_target(is_on_gpu(module))
    if text.strip() != "host":
        try:
            parts = parse_parts(text)
        except TargetError as error:
            raise Failure(f"--target: {error}", 2) from error
        cpus = [part for part in parts if isinstance(part, CpuTarget)]
        target = replace(target, cpu=[*cpus, target.cpu][0], gpus=gpus_of(parts) or target.gpus)
    given = target_of(module)
    if target != given and runs_code(module):
        raise Failure(f"--target: the module's kernels are written for {given}; give the form before lower-kernels")
    set_target(module, target)
