"""How a command fails: one line on standard error that says what and where, exit code 1 or 2, no traceback."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

HELP = {"help_option_names": ["-h", "--help"]}


class Failure(Exception):
    """Ends a command. `code` is 1 where a file or a pass is wrong, 2 where the command line is."""

    def __init__(self, message: str, code: int = 1):
        super().__init__(message)
        self.code = code


@contextmanager
def reported(traceback: bool = False) -> Iterator[None]:
    """Turns a Failure into its line and exit code. With `traceback` it is raised instead."""
    try:
        yield
    except Failure as failure:
        if traceback:
            raise
        click.echo(f"{click.get_current_context().command_path}: {' '.join(str(failure).split())}", err=True)
        sys.exit(failure.code)
