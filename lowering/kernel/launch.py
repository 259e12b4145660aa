"""Turns the launch of a kernel into a run of its code, on either target."""

from typing import Any

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import create
from mlirc.lowering.kernel.nodes import messages


def run_instead(launch: Any, name: str, symbols: list[str]) -> None:
    """Puts a `mlircx.run` of kernel `name`, which is given `symbols`, in the launch's place. The body moves along."""
    attributes = {"kernel": name, "symbols": ", ".join(symbols), "messages": messages(launch)}
    with ir.InsertionPoint(launch), launch.location:
        made = create("run", list(launch.operands), [], dict(launch.attributes.items()) | attributes, regions=1)
    launch.regions[0].blocks[0].append_to(made.regions[0])
    launch.operation.erase()
