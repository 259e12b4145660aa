"""A graph's profile as a table for the terminal."""

from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

COLUMNS = ("us", "share", "floor us", "of floor", "bound by", "times", "MB", "kind", "label", "lines")


def profile_table(rows: list[dict[str, Any]]) -> Table:
    """The longest first. A share is of the time of all rows."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in COLUMNS:
        table.add_column(
            name,
            justify="right" if COLUMNS.index(name) < 7 else "left",
            no_wrap=name not in ("label", "lines"),
            overflow="fold",
        )
    for row in rows:
        moved = None if row["read"] is None or row["written"] is None else row["read"] + row["written"]
        table.add_row(
            f"{1e6 * row['seconds']:.1f}",
            f"{row['share']:.1%}",
            "" if row["floor"] is None else f"{1e6 * row['floor']:.1f}",
            "" if row["of_floor"] is None else f"{row['of_floor']:.0%}",
            row["bound"],
            str(row["times"]),
            "" if moved is None else f"{1e-6 * moved:.2f}",
            row["kind"],
            Text(row["label"]),
            Text(by_file(row["lines"])),
        )
    return table


def by_file(lines: list[str]) -> str:
    """Source lines "PATH:NUMBER" as "model.py:66, 67 loss.py:3": each file once, without its folder."""
    numbers: dict[str, list[str]] = {}
    for line in lines:
        path, _, number = line.rpartition(":")
        numbers.setdefault(path, []).append(number)
    return " ".join(f"{path.rsplit('/', 1)[-1]}:{', '.join(found)}" for path, found in numbers.items())
