"""`mlirc opt --stats`: ops, kernels, bytes, operations and arena of each function, after the last pass, and of each kernel.

A function of a region (a branch, a step of a loop) has a table of its own: how often it runs is not known.
"""

from collections import Counter
from typing import Any

import click


def show_stats(module: Any) -> None:
    """Prints statistics of each function to standard error. Needs an entered context."""
    from mlirc.dialects.control_flow.region_ops import nested_functions
    from mlirc.dialects.core.memory_ops import arenas
    from mlirc.lowering.analysis.work import work_of
    from mlirc.lowering.pipeline.pass_manager import functions

    for function in (f for outer in functions(module) for f in (outer, *nested_functions(outer))):
        work = work_of(function.regions[0].blocks[0].operations)
        work.ops.pop("func.return", None)
        rows = [
            ("ops", f"{sum(work.ops.values())}"),
            ("kernels", f"{work.kernels}"),
            ("bytes read", f"{work.read}"),
            ("bytes written", f"{work.written}"),
            ("flops", f"{work.flops}"),
        ]
        if "mlirc.arena" in function.attributes:
            rows += [(f"arena, {device}", f"{size}") for device, size in arenas(function).items()]
        around = function.operation.parent.name
        within = "" if around == "builtin.module" else f", each time that {around} runs it"
        click.echo(f"@{function.name.value}{within}", err=True)
        for name, value in rows:
            click.echo(f"  {name:14s} {value}", err=True)
        for name, count in sorted(work.ops.items(), key=lambda item: (-item[1], item[0])):
            click.echo(f"  {count:6d}  {name}", err=True)
        for row, count in _kernels(function).items():
            click.echo(f"  {count:6d}  {row}", err=True)


def _kernels(function: Any) -> Counter[str]:
    """A line for each kernel and call of a library, and how often there is one like it."""
    from mlirc.dialects.core.dialect import attribute_value
    from mlirc.lowering.analysis.work import BODIES, work_of
    from mlirc.lowering.module.source_lines import source_lines

    found: Counter[str] = Counter()
    for op in function.regions[0].blocks[0].operations:
        name = {**dict.fromkeys(BODIES, "label"), "mlircx.call": "callee"}.get(op.operation.name)
        if name is None:
            continue
        work = work_of([op])
        label = attribute_value(op.attributes[name]) if name in op.attributes else "no label"
        lines = ", ".join(line.rsplit("/", 1)[-1] for line in source_lines(op.location))
        numbers = f"reads {work.read}, writes {work.written}, {work.flops} flops"
        found[f"{label}: {numbers}{lines and f' ({lines})'}"] += 1
    return found
