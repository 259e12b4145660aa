"""Machine code of a captured graph, made again for its target: LLVM IR and assembly of each kernel and host program, PTX of kernels on a GPU.

Nothing is loaded or run, and a GPU need not be here. The time for it is limited. It is made of what the file has, which anybody may have written, in
a process of its own: LLVM may crash on it. To make it again from the bodies, and compare, takes longer than all the rest.
"""

from collections.abc import Iterator
from typing import Any

from mlirc.execution.isolated import Ended, isolated
from mlirc.report.stage_modules import StageModules

Part = tuple[str, str, str]
"""Name, language, text."""
MOST_SECONDS = 60.0  # by the clock: one kernel may take for ever
ORDER = ("llvm", "assembly", "ptx")


def native_code(stages: StageModules, left: Any) -> tuple[list[Part], list[str]]:
    """All of it, or what the time was enough for; and notes. Needs an entered context."""
    left.begin()
    try:
        module = stages.module("lower")
    except Exception as error:  # of a file that anybody may have written
        return [], [f"code: {_line(error)}"]
    finally:
        left.end()
    if module is None:
        return [], []

    def work(_: Any) -> tuple[list[Part], list[str], float]:
        before = left.left
        found, notes = _made(module, left)
        return found, notes, before - left.left

    made = isolated(work, MOST_SECONDS)
    if isinstance(made, Ended):
        if not made.is_crash:  # nor is there time for another
            left.left = 0.0
        return [], [f"code: {made.how}"]
    left.left -= made[2]
    return made[:2]


def _made(module: Any, left: Any) -> tuple[list[Part], list[str]]:
    from mlirc.codegen.emit.readable import triton_ops

    found: list[Part] = []
    notes: list[str] = []
    left.begin()
    try:
        makers = [_of_gpu(module)] if triton_ops(module) else []
        for made in (*makers, _of_processor(module)):
            if (why := _taken(made, found, left)) is not None:
                notes.append(f"code: {why}")
    except Exception as error:
        notes.append(f"code: {_line(error)}")
    finally:
        left.end()
    return sorted(found, key=lambda part: ORDER.index(part[1])), notes


def _taken(made: Iterator[Part], found: list[Part], left: Any) -> str | None:
    """Appends parts to `found`; says why some are not there."""
    try:
        while not left.spent:
            part = next(made, None)
            if part is None:
                return None
            found.append(part)
    except ImportError as error:
        return f"{error}, pip install 'mlirc[gpu]'"
    except Exception as error:  # of LLVM's or Triton's
        return _line(error)
    return "the time for making the rest again was over; --seconds gives more"


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:400]


def _of_gpu(module: Any) -> Iterator[Part]:
    from mlirc.codegen.emit.readable import ptx_texts

    for name, text in ptx_texts(module):
        yield name, "ptx", text


def _of_processor(module: Any) -> Iterator[Part]:
    from mlirc.codegen.emit.readable import llvm_texts
    from mlirc.codegen.llvm.machine_code import assembly
    from mlirc.lowering.module.target_attribute import target_of

    target = target_of(module).cpu
    for name, text, level in llvm_texts(module):
        yield name, "llvm", text
        yield name, "assembly", assembly(text, level, target)
