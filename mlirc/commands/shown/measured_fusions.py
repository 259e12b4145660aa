"""`mlirc opt --ledger-json FILE --measure`: what each fusion gains, in the records and as lines on standard error."""

from typing import Any

import click

from mlirc.commands.failure import Failure
from mlirc.lowering.module.counted import counted


def measure_fusions(
    content: bytes, file: str, passes: str, fusion: Any, most: int, rounds: int, inputs: str | None
) -> None:
    """Fills in `measured` of records. Raises Failure. Needs an entered context."""
    import torch

    from mlirc.execution.inputs import InputsError, read_inputs
    from mlirc.execution.modules import NoGraph, graph_of
    from mlirc.execution.random_inputs import random_inputs
    from mlirc.lowering.files.text import parse_module
    from mlirc.lowering.module.target_attribute import is_on_gpu
    from mlirc.measurement.fusion_gains import GainsError, MeasuredGraph, measure_gains

    module = parse_module(content, file)
    if is_on_gpu(module) and not torch.cuda.is_available():
        raise Failure(f"{file}: --measure: its tensors are on a GPU, and PyTorch finds none here", 2)
    try:
        graph_of(module)
        given = read_inputs(module, inputs) if inputs is not None else random_inputs(module, 0)
        measured = measure_gains(
            MeasuredGraph(content, file, passes, given, fusion.plan), fusion.candidates, rounds, most
        )
    except (NoGraph, InputsError, GainsError) as error:
        raise Failure(f"{file}: {error}" if isinstance(error, NoGraph) else str(error)) from error
    taken = sum(c.taken for c in fusion.candidates)
    click.echo(
        f"measured {len(measured)} of {counted(taken, 'fusion')}, each beside the same graph without it:", err=True
    )
    for candidate in measured:
        click.echo(
            f"  {candidate.pass_name}: {candidate.first.name} -> {candidate.second.name}: {_result_line(candidate)}",
            err=True,
        )


def _result_line(candidate: Any) -> str:
    found = candidate.measured
    if "failed" in found:
        return f"not measured: {found['failed']}"
    wall = found["faster"]["wall"]
    times = f"{wall['value']:.3f} [{wall['low']:.3f}, {wall['high']:.3f}] times as fast with it"
    return f"{times} ({found['verdict']['wall']}), {found['gain']:.0f} ns; estimated {candidate.estimated_gain:.0f} ns"
