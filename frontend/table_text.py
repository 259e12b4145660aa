"""A table as text: no line ends with spaces, which Rich fills up to the width of the table."""

import io

from rich.console import Console
from rich.table import Table


def table_text(table: Table, width: int) -> str:
    """Lines of at most `width` characters, without colours, each with its newline."""
    console = Console(file=io.StringIO(), width=width, highlight=False, no_color=True)
    console.print(table)
    return trimmed(console.file.getvalue())  # type: ignore[attr-defined]


def trimmed(text: str) -> str:
    """The lines without the spaces at their ends, each with its newline."""
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())
