"""The measurements as a table for the terminal."""

from typing import Any

from rich import box
from rich.table import Table

COLUMNS = ("", "first s", "steady ms", "± %", "vs eager", "% copy", "peak MB", "error", "of grad", "kernels", "ATen")


def table_of(rows: list[dict[str, Any]]) -> Table:
    """A line for each row under its setting. `% copy`: of the bytes a second of a plain copy. `!`: more than twice eager's error."""
    title = "Steady time alternates in one process; first call and memory are of fresh ones"
    table = Table(*COLUMNS, title=title, box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1))
    table.columns[0].min_width = max((len(row["setting"]) for row in rows), default=0)
    for column in table.columns[1:]:
        column.justify, column.no_wrap = "right", True
    eager = {row["setting"]: row for row in rows if row["backend"] == "eager"}
    previous = None
    for row in rows:
        if row["setting"] != previous:
            table.add_section()
            table.add_row(row["setting"], style="bold")
        previous = row["setting"]
        if row.get("failure"):
            table.add_row(f"  {row['backend']}: failed")
        else:
            table.add_row(f"  {row['backend']}", *cells(row, eager.get(row["setting"])))
    return table


def cells(row: dict[str, Any], eager: dict[str, Any] | None) -> list[str]:
    steady = row["steady"]
    half_spread = 50 * (steady["high"] - steady["low"]) / steady["median"]
    speed_up = f"{eager['steady']['median'] / steady['median']:.2f}x" if eager else ""
    return [
        number(row, "first_call", "{:.2f}"),
        f"{1e3 * steady['median']:.2f}",
        f"{half_spread:.1f}",
        speed_up,
        number(row, "copy_fraction", "{:.0f}", 100),
        number(row, "peak_memory", "{:.0f}", 1e-6),
        error_cell(row, eager, "outputs"),
        error_cell(row, eager, "gradients"),
        number(row, "kernels", "{}"),
        number(row, "aten_calls", "{}"),
    ]


def number(row: dict[str, Any], name: str, form: str, factor: float = 1) -> str:
    return form.format(row[name] * factor) if name in row else ""


def error_cell(row: dict[str, Any], eager: dict[str, Any] | None, part: str) -> str:
    error = row["error"][part]
    too_large = eager is not None and not row["accurate"]
    return f"{error:.1e}{' !' if too_large else ''}" if error else ""
