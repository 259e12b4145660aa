"""Numbered rewrites: each pass asks here before it takes one, as LLVM's debug counters are asked, so that any failure is a bisection.

A pass asks by its ledger, `ledger.allows(self.name, op)`, once for each rewrite and just before it. Rewrites of one pass are
numbered from 0 on, through all functions and all runs of it in a pipeline. What was allowed up to a number is the same
in any two pipelines, so that the first n + 1 questions are too. An upstream pass is one rewrite for each run.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.module.nearest import nearest
from mlirc.lowering.module.source_lines import source_line
from mlirc.lowering.pipeline.parser import PipelineError

Range = tuple[int, int | None]
"""First and last number; None: all from the first on."""

KEPT = 1 << 18  # rewrites of one pass: one that asks without end fills the memory otherwise, 80 MB in a second

Subject = Any
"""What is rewritten: an op, a text, or a function that gives the text if it is wanted."""


class LimitError(PipelineError):
    """A limit names a pass that does not run."""


@dataclass(frozen=True)
class Rewrite:
    """A rewrite that a pass asked for.

    number    its place among the rewrites of this pass, from 0
    subject   what is rewritten: "mlirc.exp (model.py:3)"
    allowed   whether the pass may do it
    """

    pass_name: str
    number: int
    subject: str
    allowed: bool

    def __str__(self) -> str:
        return f"{self.pass_name} {self.number}: {self.subject}"


@dataclass
class Rewrites:
    """Which rewrites passes may take, and which they asked for, of each pass the first KEPT. A pass that `limits` does
    not name takes all of its own."""

    limits: Mapping[str, tuple[Range, ...]] = field(default_factory=dict)
    asked: list[Rewrite] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def allows(self, pass_name: str, subject: Subject) -> bool:
        number = self.counts.get(pass_name, 0)
        self.counts[pass_name] = number + 1
        limit = self.limits.get(pass_name)
        allowed = limit is None or any(a <= number and (b is None or number <= b) for a, b in limit)
        if number < KEPT:
            self.asked.append(Rewrite(pass_name, number, text_of(subject), allowed))
        return allowed

    def limit(self, pass_name: str) -> bool:
        """Whether some rewrites of a pass may be refused."""
        return pass_name in self.limits

    def of(self, pass_name: str) -> list[Rewrite]:
        return [r for r in self.asked if r.pass_name == pass_name]


def text_of(subject: Subject) -> str:
    if isinstance(subject, str):
        return subject
    if callable(subject):
        return str(subject())
    return describe(subject)


def describe(op: Any) -> str:
    """ "mlircx.kernel 'exp_add' (model.py:12)"."""
    texts = [attribute_value(op.attributes[n]) for n in ("label", "callee", "op") if n in op.attributes]
    named = f" '{texts[0]}'" if texts and isinstance(texts[0], str) else ""
    return f"{op.operation.name}{named} ({source_line(op.location)})"


def parse_limits(texts: Iterable[str]) -> dict[str, tuple[Range, ...]]:
    """Parses limits such as "fuse-elementwise=0-41,50,60-", one for each pass; "none" allows no rewrite. Raises PipelineError."""
    found = {}
    for text in texts:
        name, equals, ranges = text.partition("=")
        name = name.strip()
        if not equals or not name:
            raise PipelineError(f"'{text[:100]}' is not PASS=RANGES, as fuse-elementwise=0-41,50,60-")
        if name in found:
            raise PipelineError(f"'{name}' is there twice; write all of its ranges after one PASS=")
        found[name] = () if ranges.strip() == "none" else tuple(_range(part, text) for part in ranges.split(","))
    return found


def _range(part: str, text: str) -> Range:
    match = re.fullmatch(r"(\d{1,9})(-?)(\d{1,9})?", part.strip())
    if match is None or (match[3] and not match[2]) or (match[3] and int(match[3]) < int(match[1])):
        raise PipelineError(f"'{part.strip()[:50]}' in '{text[:100]}' is no range: write 3, 0-41, 60- or none")
    first = int(match[1])
    return first, int(match[3]) if match[3] else None if match[2] else first


def print_limits(limits: Mapping[str, tuple[Range, ...]]) -> list[str]:
    """The texts that parse_limits reads."""

    def one(first: int, last: int | None) -> str:
        return f"{first}-" if last is None else str(first) if first == last else f"{first}-{last}"

    return [f"{name}={','.join(one(*r) for r in ranges) or 'none'}" for name, ranges in limits.items()]


def check_names(limits: Mapping[str, tuple[Range, ...]], names: Iterable[str]) -> None:
    """Raises LimitError for a pass that does not run: a limit that limits nothing is a mistake."""
    known = list(dict.fromkeys(names))
    for name in limits:
        if name not in known:
            runs = f"the pipeline is {','.join(known)}" if known else "no pass runs"
            raise LimitError(f"rewrites of '{name}': no such pass runs{nearest(name, known) or ';'} {runs}")
