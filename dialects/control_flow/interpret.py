"""Executes ops with regions, at any level, given what executes a function."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from mlirc.dialects.control_flow.region_ops import INVOKE, RegionCall, region_functions

Run = Callable[[Any, list[torch.Tensor]], None]


def interpret(
    call: RegionCall, given: Sequence[torch.Tensor], results: Sequence[torch.Tensor], length: int, run: Run
) -> None:
    """Fills `results`, memory of the op's results. `run(function, arguments)` executes a region's function; `length` is a scan's."""
    functions = region_functions(call.op)
    if call.op.operation.name == INVOKE:
        run(functions[0], [*given, *results])
        return
    if call.op.operation.name == "mlircx.cond":
        true, false = functions
        run(true if given[0] else false, [*given[1:], *results])
        return
    carried, others = call.carried, given[call.carried :]
    for memory, start in zip(results[:carried], given[:carried], strict=True):
        memory.copy_(start)
    if call.op.operation.name == "mlircx.scan_loop":
        (body,) = functions
        scanned, others = others[: call.scanned], others[call.scanned :]
        for k in range(length):
            parts, stacked = [x[k] for x in scanned], [x[k] for x in results[carried:]]
            run(body, [*results[:carried], *parts, *others, *stacked])
        return
    condition, body = functions
    goes_on = torch.zeros((), dtype=torch.bool)
    while True:
        run(condition, [*results, *others, goes_on])
        if not goes_on:
            return
        run(body, [*results, *others])
