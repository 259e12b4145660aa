"""Keeps a forked child from waiting for threads that only its parent has.

libgomp keeps a team of threads for each thread that ever ran a parallel region. A fork copies the record of the team
but not its threads: the next parallel region in the child would wait for ever, whoever starts it, a kernel of ours, MKL
inside a matmul, or eager PyTorch. So the forking thread's team is dissolved first; both processes make a new one when
they need it. Where that cannot be done, the child gets one thread, with which no region is started.
"""

import ctypes
import os
from functools import cache
from pathlib import Path

import torch

_PAUSE_HARD = 2  # omp_pause_hard: threads end, settings stay
_dissolved = True


def _before_fork() -> None:
    global _dissolved
    pause = _pause_function()
    _dissolved = pause is not None and pause(_PAUSE_HARD) == 0


def _in_child() -> None:
    if not _dissolved:
        torch.set_num_threads(1)


def _pause_function():
    """OpenMP 5's omp_pause_resource_all of the libgomp that torch uses; None in an older one."""
    for folder in (Path(torch.__file__).parent / "lib", Path(torch.__file__).parent.parent / "torch.libs"):
        for path in folder.glob("libgomp*"):
            return getattr(ctypes.CDLL(str(path)), "omp_pause_resource_all", None)
    return None


@cache
def install() -> None:
    """Registers the hooks of a fork with Python, once for the life of the process."""
    os.register_at_fork(before=_before_fork, after_in_child=_in_child)
