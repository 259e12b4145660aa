"""Runs modules that may be wrong, each with its buffers between pages that nobody may touch (tests/property/test_wrong_modules.py).

Reads from standard input lines of [text, values of symbols]. Writes a line for each: what became of it.

    ran                 by every layout of memory, and in the interpreter if that takes it
    otherwise           as "ran", but results differ by layout: a buffer is read that nothing wrote, or that a plan overwrote
    raised, late        when it ran; when it was made into a program, by an error that names the op
    refused             by the verifiers; verified: it is for a GPU
    odd                 what no user should see
"""

import ctypes
import faulthandler
import json
import resource
import sys
from typing import Any

import torch

from mlirc.codegen.emit.checked_program import CheckedProgram, InputError
from mlirc.codegen.emit.emit import compile_module
from mlirc.codegen.runtime import arena, native_runtime
from mlirc.dialects.core import symbols
from mlirc.dialects.core.context import context
from mlirc.dialects.core.graph_signature import bind_symbols
from mlirc.dialects.core.tensor_types import info_of
from mlirc.dialects.interpreter import interpreter
from mlirc.lowering.files.file import verify_file
from mlirc.lowering.files.text import TextError, parse_module
from mlirc.lowering.module.errors import EmitError
from mlirc.lowering.module.forms import stage_of
from mlirc.lowering.module.rules import StageError
from mlirc.lowering.pipeline.pass_manager import PassError, functions, run_pipeline
from tests.guard_pages import GuardedAllocator, Guards, slots_apart

REST = {
    "graph": "decompose,select-attention,to-kernels,plan-memory,lower-kernels",
    "kernel": "plan-memory,lower-kernels",
    "memory": "lower-kernels",
    "lowered": "",
}
EXPECTED = (InputError, IndexError, RuntimeError, TypeError, ValueError, NotImplementedError, MemoryError)
LAYOUTS = (("packed", True), ("apart", True), ("apart", False))
LARGE = 1 << 28  # elements
MEMORY = 60 << 30  # of addresses: 47 GiB are reserved for results

guards, allocator = Guards(), GuardedAllocator()
plain = native_runtime.functions


def main() -> None:
    native_runtime.functions = lambda: plain() | {"take_arena": ctypes.cast(guards.take, ctypes.c_void_p).value or 0}
    arena.free_idle = lambda: None  # the list of idle arenas leads to memory of ours
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    faulthandler.enable()
    torch.set_num_threads(1)
    if "--trust" in sys.argv:
        trust()
    for line in sys.stdin:
        text, values = json.loads(line)
        try:
            found = outcome(text, values)
        except (TextError, StageError, PassError) as error:
            found = f"refused {type(error).__name__}: {error}"
        except (EmitError, InputError) as error:
            found = f"late {type(error).__name__}: {error}"
        except Exception as error:
            found = f"odd {type(error).__name__}: {error}"
        print(" ".join(found.split())[:300], flush=True)


def trust() -> None:
    """Verifies nothing: for the test of these guards."""
    from mlirc.codegen.emit import checked_program

    global verify_file
    checked_program.verify_file = verify_file = lambda module, runs=False: {}


def outcome(text: str, values: dict[str, int]) -> str:
    with context():
        module = parse_module(text.encode("utf-8", "surrogateescape"))
        verify_file(module, runs=True)
        graph = next((f for f in functions(module) if f.name.value == "graph"), None)
        stage = graph is not None and stage_of(graph)
        if not stage:
            raise TextError("no graph")
        if "cuda" in str(module):
            return "verified"
        twin = parse_module(text.encode("utf-8", "surrogateescape"))
        if REST[stage]:
            run_pipeline(module, REST[stage], verify=False)
        program = CheckedProgram(module)
        if large(module):
            return "late: tensors of more bytes than these guards take"
    results: list[Any] = []
    for layout, at_end in LAYOUTS:
        results.append(run(program, values, layout, at_end))
    interpreted = interpret(twin, program, values)
    if interpreted:
        return interpreted
    for found in results:
        if isinstance(found, str):
            return found
    same = all(torch.equal(x, y) for found in results[1:] for x, y in zip(results[0], found, strict=True))
    return "ran" if same else "otherwise"


def large(module: Any) -> bool:
    """A failed allocation is no exception here."""
    for function in functions(module):
        block = function.regions[0].blocks[0]
        for value in (*block.arguments, *(x for op in block.operations for x in op.results)):
            extent = info_of(value).extent if "tensor" in str(value.type) else 0
            if symbols.evaluate(extent, dict.fromkeys(symbols.free_symbols(extent), 6)) > LARGE:
                return True
    return False


def inputs_of(program: CheckedProgram, values: dict[str, int]) -> list[Any]:
    inputs: list[Any] = []
    promises = program.promises
    for info, is_number in zip(promises.infos, promises.are_numbers, strict=True):
        if info is None:
            inputs.append(6)
            continue
        if is_number:
            inputs.append(0.5)
            continue
        shape, stride = (
            [symbols.evaluate(n, dict.fromkeys(symbols.free_symbols(n), 0) | values) for n in given]
            for given in (info.shape, info.stride)
        )
        inputs.append(guards.tensor(shape, stride, info.dtype))
    return inputs


def run(program: CheckedProgram, values: dict[str, int], layout: str, at_end: bool) -> Any:
    """The results, as bytes; or in a word what became of it."""
    guards.at_end = allocator.at_end = at_end
    guards.guards, guards.gaps = [], []
    packed = program.program
    found: Any = []
    try:
        inputs = inputs_of(program, values)
        if layout == "apart":
            with context():
                bound = bind_symbols(program.function, inputs)
                try:
                    with slots_apart(program.module, bound, at_end) as (guards.guards, guards.gaps):
                        program.program = compile_module(program.module)
                except (KeyError, ZeroDivisionError, EmitError):  # sizes that depend on data
                    guards.guards, guards.gaps = [], []
        torch.manual_seed(0)
        with allocator.installed():
            results = program(inputs)
            found = [bytes_of(x) for x in results]
            del results
    except EXPECTED as error:
        found = f"raised {type(error).__name__}: {error}"
    inputs, touched = [], guards.end()
    program.program = packed
    if touched | allocator.end():
        return "odd: wrote beside a buffer"
    return found


def bytes_of(x: Any) -> torch.Tensor:
    if not isinstance(x, torch.Tensor):
        return torch.tensor(x)
    x = torch.view_as_real(x) if x.is_complex() else x
    return torch.tensor(x.contiguous().flatten().view(torch.uint8).tolist()) if x.numel() else torch.empty(0)


def interpret(module: Any, program: CheckedProgram, values: dict[str, int]) -> str:
    """What is wrong with how the interpreter takes it, or ""."""
    try:
        with context():
            function = next(f for f in functions(module) if f.name.value == "graph")
            interpreter.run(function, inputs_of(program, values))
    except EXPECTED:
        pass
    except Exception as error:
        return f"odd in the interpreter {type(error).__name__}: {error}"
    return ""


if __name__ == "__main__":
    main()
