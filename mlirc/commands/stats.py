"""`mlirc opt --stats`: ops, kernels, bytes, operations and arena of each function, after the last pass."""

from typing import Any

import click


def show_stats(module: Any) -> None:
    """To standard error. Needs an entered context."""
    from mlirc.dialects.core.memory_ops import arenas
    from mlirc.lowering.analysis.work import work_of
    from mlirc.lowering.pipeline.pass_manager import functions

    for function in functions(module):
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
        click.echo(f"@{function.name.value}", err=True)
        for name, value in rows:
            click.echo(f"  {name:14s} {value}", err=True)
        for name, count in sorted(work.ops.items(), key=lambda item: (-item[1], item[0])):
            click.echo(f"  {count:6d}  {name}", err=True)
