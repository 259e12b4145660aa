"""Reports a command's failure: one line on standard error that says what and where, exit code 1 or 2, no traceback."""

import errno
import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import click

from mlirc.execution.named_crash import go_on_in_child
from mlirc.lowering.module.nearest import unknown

NO_ROOM = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EIO,
    errno.EBADF,
)  # of standard output; a closed pipe is Click's
HELP = {"help_option_names": ["-h", "--help"]}
traceback_option = click.option("--traceback", is_flag=True, help="Show where in Python a failure comes from.")


class Failure(Exception):
    """Ends a command. `code` is 1 where a file or a pass is wrong, 2 where the command line is; `more` are messages on lines of
    their own, where several parts of a file are wrong."""

    def __init__(self, message: str, code: int = 1, more: Sequence[str] = ()):
        super().__init__(message)
        self.code = code
        self.messages = [message, *more]


class WrongUsage(click.UsageError):
    """A wrong command line, reported in one line; Click's own report takes four."""

    def show(self, file: Any = None) -> None:
        path = f"{self.ctx.command_path}: " if self.ctx is not None else ""
        help_option = "; -h is help" if self.ctx is not None else ""
        click.echo(f"{path}{' '.join(self.format_message().split()).rstrip('.')}{help_option}", file=file, err=True)


class OneLineUsage(click.Command):
    """A command whose usage errors, and those of its subcommands, are a WrongUsage."""

    def main(self, *arguments: Any, **named: Any) -> Any:
        with _ends_at_interrupts("mlirc"):
            return super().main(*arguments, **named)

    def make_context(self, *arguments: Any, **named: Any) -> click.Context:
        with _in_one_line():
            return super().make_context(*arguments, **named)

    def invoke(self, ctx: click.Context) -> Any:
        with _in_one_line():
            return super().invoke(ctx)


class Commands(OneLineUsage, click.Group):
    """A group of commands, whose help has the first sentence of each, whole."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            ctx.fail(unknown("command", args[0], self.list_commands(ctx)))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [
            (name, self.commands[name].get_short_help_str(limit=10_000).rstrip(".")) for name in self.list_commands(ctx)
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


_process = 0  # the one that says that it was interrupted
_within: list[str] = []
"""What runs that is not ours, the innermost last: it may never end."""


@contextmanager
def within(what: str) -> Iterator[None]:
    """Where Ctrl-C interrupts the block, the line says so."""
    _within.append(what)
    try:
        yield
    finally:
        _within.pop()


@contextmanager
def _ends_at_interrupts(name: str) -> Iterator[None]:
    """Ctrl-C ends the process with one line and exit code 130: an exception would pass through native code that calls Python,
    which ends a process in another way. A program that `mlirc capture` runs has Python's own handler."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    global _process
    _process = os.getpid()

    def end(*_: Any) -> None:
        if os.getpid() == _process:  # no fork of it
            os.write(2, f"{name}: interrupted{''.join(f' in {what}' for what in _within[-1:])}\n".encode())
        os._exit(130)

    before = signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _in_one_line() -> Iterator[None]:
    try:
        yield
    except (WrongUsage, click.exceptions.NoArgsIsHelpError):  # the help is no line
        raise
    except KeyboardInterrupt:  # raised by a file that a command runs: Ctrl-C itself ends the process
        click.echo("mlirc: interrupted", err=True)
        sys.exit(130)
    except click.UsageError as error:
        raise WrongUsage(f"{error.format_message()}{_of_a_script(error)}", error.ctx) from error
    except OSError as error:
        if error.errno not in NO_ROOM or error.filename is not None:
            raise
        with suppress(OSError):  # what is left of it would fail again at the end
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        click.echo(f"mlirc: standard output: {error.strerror}", err=True)
        sys.exit(1)


def _of_a_script(error: click.UsageError) -> str:
    """Where the options of a script stand, of a command that takes one."""
    known = () if error.ctx is None else (parameter.name for parameter in error.ctx.command.params)
    unknown = isinstance(error, click.NoSuchOption) and "arguments" in known
    return "; options of a script stand after --, behind its name" if unknown else ""


@contextmanager
def reported(traceback: bool = False, crashes: bool = False) -> Iterator[None]:
    """Turns a Failure into its lines and exit code, and with `crashes` a crash of native code: the block runs in a child process. With
    `traceback` a failure is raised instead, and a crash writes its stack of Python."""
    global _process
    if traceback and not faulthandler.is_enabled():
        faulthandler.enable(2)
    if crashes and not traceback:
        go_on_in_child(click.get_current_context().command_path)
        _process = os.getpid()
    try:
        yield
    except Failure as failure:
        if traceback:
            raise
        for message in failure.messages:
            click.echo(f"{click.get_current_context().command_path}: {' '.join(message.split())}", err=True)
        sys.exit(failure.code)
