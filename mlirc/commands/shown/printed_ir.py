"""Prints the IR between passes to standard error: `mlirc opt --print-ir-before PASS`, `-after PASS`, `-after-all`, `-after-change`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from mlirc.commands.failure import Failure
from mlirc.commands.module_file import module_text


@dataclass(frozen=True)
class Wanted:
    """Which IR is printed. `before` and `after` are names of passes."""

    before: Sequence[str] = ()
    after: Sequence[str] = ()
    after_all: bool = False
    after_change: bool = False
    locations: bool = False


class PrintedIr:
    """Prints what `wanted` asks for. Created with the module before the first of `steps`; `show` is called after each step."""

    def __init__(self, wanted: Wanted, steps: Sequence[Any], module: Any):
        self.wanted, self.steps, self.count = wanted, steps, 0
        for side, name in (*(("before", x) for x in wanted.before), *(("after", x) for x in wanted.after)):
            if name not in {step.name for step in steps}:
                from mlirc.lowering.module.nearest import nearest

                names = list(dict.fromkeys(step.name for step in steps))
                told = f"it runs {', '.join(names)}" if names else "it runs none"
                close = nearest(name, names) or ";"
                raise Failure(f"--print-ir-{side}: no pass '{name}' in this pipeline{close} {told}", 2)
        self.text = module_text(module, wanted.locations) if wanted.after_change else ""
        self._before(module)

    def show(self, step: str, module: Any) -> None:
        name = self.steps[self.count].name
        self.count += 1
        text = module_text(module, self.wanted.locations) if self.wanted.after_change else ""
        changed = self.wanted.after_change and text != self.text
        self.text = text
        if self.wanted.after_all or changed or name in self.wanted.after:
            self._print(f"after {step}", module)
        elif self.wanted.after_change:
            click.echo(f"// ----- after {step}: no change -----", err=True)
        self._before(module)

    def _before(self, module: Any) -> None:
        if self.count < len(self.steps) and self.steps[self.count].name in self.wanted.before:
            self._print(f"before {self.steps[self.count]}", module)

    def _print(self, where: str, module: Any) -> None:
        click.echo(f"// ----- {where} -----\n{module_text(module, self.wanted.locations)}", err=True)
