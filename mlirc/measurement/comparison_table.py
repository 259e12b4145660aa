"""A comparison as a table for the terminal."""

from collections.abc import Sequence
from statistics import median

from rich import box
from rich.table import Table

from mlirc.measurement.comparing import NAMES, SubjectComparison, overall
from mlirc.measurement.error import RelativeError
from mlirc.measurement.facts import CompiledFacts
from mlirc.measurement.intervals import Interval

COLUMNS = (
    *("", "wall ms", "B faster, wall", "CPU ms", "B faster, CPU", "kernels", "launches"),
    *("calls", "MB moved", "arena MB", "compile s", "error", "of grad"),
)
WIDTHS = (8, 9, 23, 9, 23, 7, 8, 5, 8, 8, 9, 7, 7)


def tables_of(found: Sequence[SubjectComparison], inserted: Sequence[str] = ()) -> list[tuple[str, Table]]:
    """For each subject a title, and a line for A and for B. `MB moved`: read and written, each operand of a kernel or call once.
    inserted: passes of B's, whose decisions the title counts."""
    tables = []
    for comparison in found:
        said = comparison.verdicts
        made = table()
        for side in NAMES:
            made.add_row(*line(comparison, side))
        same = "; B has A's kernels, calls and arena" if comparison.same_plan else ""
        same += "".join(f"; {name} took {comparison.facts['B'].taken.get(name, 0)}" for name in inserted)
        tables.append((f"{comparison.name}: by wall clock {said['wall']}, by CPU time {said['cpu']}{same}", made))
    if len(found) > 1:
        made = table()
        made.add_row("B", "", shown(overall(found, "wall")), "", shown(overall(found, "cpu")))
        tables.append(("all (geometric mean)", made))
    return tables


def table() -> Table:
    made = Table(box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1))
    for name, width in zip(COLUMNS, WIDTHS, strict=True):
        made.add_column(name, justify="right" if name else "left", no_wrap=True, min_width=width)
    return made


def line(comparison: SubjectComparison, side: str) -> list[str]:
    wall, cpu = (shown(comparison.faster[clock]) if side == "B" else "" for clock in ("wall", "cpu"))
    return [
        side,
        milliseconds(comparison.seconds(side, "wall")),
        wall,
        milliseconds(comparison.seconds(side, "cpu")),
        cpu,
        *facts_cells(comparison.facts[side]),
        *error_cells(comparison.errors[side]),
    ]


def milliseconds(compilations: Sequence[Sequence[float]]) -> str:
    """The median of the medians of a side's compilations."""
    return f"{1e3 * median(map(median, compilations)):.3f}"


def shown(ratio: Interval) -> str:
    return f"{ratio.value:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"


def facts_cells(facts: CompiledFacts) -> list[str]:
    calls = None if facts.library is None or facts.aten is None else facts.library + facts.aten
    return [
        number(facts.kernels),
        number(facts.launches),
        number(calls),
        "" if facts.bytes is None else f"{1e-6 * facts.bytes:.2f}",
        "" if facts.arena is None else f"{1e-6 * facts.arena:.2f}",
        "" if facts.compile is None else f"{facts.compile:.2f}",
    ]


def number(value: int | None) -> str:
    return "" if value is None else str(value)


def error_cells(error: RelativeError | None) -> list[str]:
    if error is None:
        return ["", ""]
    return [f"{error.outputs:.1e}", f"{error.gradients:.1e}" if error.gradients else ""]
