"""A table as text: no line ends with spaces, which Rich fills up to the width of the table."""

import io
import shutil
import sys

from rich.console import Console
from rich.table import Table


def table_text(table: Table, width: int) -> str:
    """Lines of at most `width` characters, without colours, each with its newline."""
    console = Console(file=io.StringIO(), width=width, highlight=False, no_color=True)
    console.print(table)
    return trimmed(console.file.getvalue())  # type: ignore[attr-defined]


def output_width(least: int) -> int:
    """Columns of the terminal, and not fewer than `least`; in a file or a pipe each row is one line, for grep and sort."""
    return max(shutil.get_terminal_size().columns, least) if sys.stdout.isatty() else 10_000


def trimmed(text: str) -> str:
    """The lines without the spaces at their ends, each with its newline."""
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())
