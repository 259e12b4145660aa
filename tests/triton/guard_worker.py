"""Runs Triton kernels of modules that may be wrong, in Triton's interpreter, each operand between pages that nobody may touch.

Reads and writes lines as tests/guard_worker.py does (tests/triton/test_wrong_modules.py):

    ran        every kernel of the module, or those that are small
    refused    by the verifiers, or by a pass, which says why
    late       inputs that the module is not for; what Triton does not take
    odd        what no user should see
"""

import json
import math
import resource
import sys
from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.tensor_types import info_of
from mlirc.execution import triton_interpreter
from mlirc.lowering.files.file import verify_file
from mlirc.lowering.files.text import TextError, parse_module
from mlirc.lowering.module.forms import stage_of
from mlirc.lowering.module.rules import StageError
from mlirc.lowering.pipeline.pass_manager import PassError, functions, run_pipeline
from mlirc.lowering.pipeline.pipelines import pipeline
from tests.guard_pages import Guards
from tests.guard_worker import MEMORY

LOWER = "split-unaligned,lower-triton,lower-kernels"
REST = {"graph": pipeline("gpu", "lower"), "kernel": f"plan-memory,{LOWER}", "memory": LOWER, "lowered": ""}
MOST = 20_000  # points of a kernel; the interpreter is slow
guards = Guards()


def main() -> None:
    triton_interpreter.start()
    from triton.runtime.errors import InterpreterError

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    verify = (lambda module, runs: {}) if "--trust" in sys.argv else verify_file
    for line in sys.stdin:
        text, values = json.loads(line)
        try:
            found = outcome(text, values, verify)
        except (TextError, StageError, PassError) as error:
            found = f"refused {type(error).__name__}: {error}"
        except InterpreterError as error:  # as it says when it compiles such a kernel, or of what the interpreter lacks
            found = f"late {type(error).__name__}: {error}"
        except Exception as error:
            found = f"odd {type(error).__name__}: {error}"
        print(" ".join(found.split())[:300], flush=True)


def outcome(text: str, values: dict[str, int], verify: Any) -> str:
    with context():
        module = parse_module(text.encode("utf-8", "surrogateescape"))
        obligations = verify(module, runs=True)
        if any(value(n, values) < 0 for n in obligations.get("graph", ())):
            return "late: sizes that it is not for"
        for function in functions(module):
            if rest := REST[stage_of(function) or "lowered"]:
                run_pipeline(module, rest, verify=False)
                break
        kernels = {attribute_value(op.attributes["sym_name"]): op for op in found(module.body, "mlirc.triton")}
        count = 0
        for function in functions(module):
            for run in found(function.regions[0].blocks[0], "mlircx.run"):
                name = attribute_value(run.attributes["kernel"])
                if name in kernels and is_small(run, values):
                    launch(run, kernels[name], values)
                    count += 1
                    if guards.end():
                        return "odd: wrote beside a buffer"
    return f"ran {count}"


def found(block: Any, name: str) -> list[Any]:
    return [op for op in block.operations if op.operation.name == name]


def value(n: symbols.Int, values: dict[str, int]) -> int:
    return symbols.evaluate(n, dict.fromkeys(symbols.free_symbols(n), 6) | values)


def is_small(run: Any, values: dict[str, int]) -> bool:
    sizes = [n for name in ("parallel", "inner") for n in symbols.parse_list(attribute_value(run.attributes[name]))]
    extents = [value(info_of(x).extent, values) for x in run.operands]
    return math.prod(value(n, values) for n in sizes) <= MOST and max(extents, default=0) <= 50 * MOST


def launch(run: Any, kernel: Any, values: dict[str, int]) -> None:
    """Once with each buffer at its end's page, once at its start's."""
    source, name = attribute_value(kernel.attributes["source"]), attribute_value(kernel.attributes["sym_name"])
    constants = {n.name: attribute_value(n.attr) for n in ir.DictAttr(kernel.attributes["constants"])}
    grid = tuple(value(symbols.parse(n), values) for n in attribute_value(kernel.attributes["grid"]))
    names = symbols.parse_list(attribute_value(run.attributes["symbols"]))
    for guards.at_end in (True, False):
        given: list[Any] = []
        for x in run.operands:
            info = info_of(x)
            shape, stride = ([value(n, values) for n in each] for each in (info.shape, info.stride))
            given.append(guards.tensor(shape, stride, info.dtype))
        given += [value(n, values) for n in names]
        if len(attribute_value(kernel.attributes["signature"])) > len(given):
            given.append(guards.tensor([3], [1], torch.int64))
        if all(grid):
            untrapped = dict.fromkeys(constants.keys() & {"TRAP", "PTX"}, 0)
            triton_interpreter.interpreted(source, name)[grid](*given, **constants | untrapped)


if __name__ == "__main__":
    main()
