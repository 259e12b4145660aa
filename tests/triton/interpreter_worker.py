"""One process of Triton's interpreter for all tests of a process.

    run(source, name, constants, grid, memory, arguments)

memory is a list of byte arrays; an argument is a number, or (which memory, first byte, torch dtype's name).
"""

from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from typing import Any

import numpy

from mlirc.execution.triton_interpreter import run_kernel, start


@cache
def worker() -> ProcessPoolExecutor:
    """One process, for all tests of this one."""
    return ProcessPoolExecutor(1, get_context("spawn"), start)


def run(*arguments: Any) -> list[numpy.ndarray]:
    """The memory after the run."""
    return worker().submit(run_kernel, *arguments).result(timeout=300)
