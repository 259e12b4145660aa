"""Files with MLIR in them: read, parsed, printed and written. Torch and MLIR are imported where they are needed."""

import errno
import os
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from mlirc.commands.failure import Failure

KEPT = re.compile(r"(dynamo_)?\d{3,9}[_.]|capture\.json$")
"""Names of files that captures consist of."""


def read_file(file: str) -> bytes:
    """The bytes of a regular file; - is standard input. Raises Failure."""
    if file == "-":
        if sys.stdin is None:
            raise Failure("-: standard input is closed", 2)
        return sys.stdin.buffer.read()
    try:
        if not Path(file).is_file() and Path(file).exists() and not Path(file).is_dir():
            raise Failure(f"{file}: no regular file; - is standard input", 2)
        return Path(file).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a name with a zero in it
        raise Failure(f"{file}: {getattr(error, 'strerror', None) or error}") from error


def parse_bytes(content: bytes, file: str, part: bool = False) -> Any:
    """The module in what was read of a file; `part`: it is a part of one. Raises Failure. Needs an entered context."""
    from mlirc.lowering.files.text import TextError, parse_module

    try:
        return parse_module(content, "-" if part else file)
    except TextError as error:
        if file.endswith(".py"):
            raise Failure(f"{file} is a Python script; `mlirc capture --out DIR {file}` makes the MLIR", 2) from error
        text = str(error)
        raise Failure(file + text[1:] if part and text.startswith("-:") else text) from error


def parse_file(file: str) -> Any:
    """The module in a file. Raises Failure. Needs an entered context."""
    return parse_bytes(read_file(file), file)


def module_text(module: Any, locations: bool = False) -> str:
    text = module.operation.get_asm(enable_debug_info=locations)
    return text if text.endswith("\n") else text + "\n"


def check_outputs(*outputs: str | None, inputs: Iterable[str | None] = ()) -> None:
    """Says of files that cannot be written so before anything is computed for them, and of those that are an input, a file of a
    folder of captured graphs that is one, or another output. Raises Failure."""
    named = [x for x in outputs if x is not None and x != "-"]
    given = [Path(x) for x in inputs if x is not None and "\0" not in x]
    for k, output in enumerate(named):
        path = Path(output)
        if "\0" not in output and path.is_file():
            if any(x.is_file() and path.samefile(x) for x in given):
                raise Failure(f"{output}: is an input of this command; name another file", 2)
            if KEPT.match(path.name) and any(x.is_dir() and path.resolve().parent == x.resolve() for x in given):
                raise Failure(f"{output}: is a file of the capture; name another", 2)
        if any(os.path.realpath(output) == os.path.realpath(x) for x in named[:k]):
            raise Failure(f"{output}: two outputs go there", 2)
        if "\0" in output:
            reason = errno.EINVAL
        elif path.is_dir():
            reason = errno.EISDIR
        elif not path.parent.is_dir():
            reason = errno.ENOENT
        else:
            reason = 0 if os.access(path if path.exists() else path.parent, os.W_OK) else errno.EACCES
        if reason:
            raise Failure(f"{output}: {os.strerror(reason)}")


def check_inputs(*inputs: str | None) -> None:
    """Says of files and folders that are not there so before anything is done with others. Raises Failure, of the command line."""
    for name in inputs:
        if name is not None and name != "-" and "\0" not in name:
            try:
                os.stat(name)
            except FileNotFoundError as error:
                raise Failure(f"{name}: {error.strerror}", 2) from error
            except OSError:  # whoever reads it says what is wrong with it
                continue


def write_output(output: str, text: str) -> None:
    """Writes a whole file; - is standard output. Raises Failure."""
    if output == "-":
        click.echo(text, nl=False)
        return
    try:
        write_whole(output, text.encode(errors="backslashreplace"))
    except (OSError, ValueError) as error:
        raise Failure(f"{output}: {getattr(error, 'strerror', None) or error}") from error


def write_whole(output: str, content: bytes) -> None:
    """Writes a file beside its place, and moves it there: what was there stays where the disk is full, or the command is interrupted.
    What is no plain file (/dev/null, a pipe), or lies in a folder that takes no new files, is written to as it is. Raises OSError."""
    target = os.path.realpath(output)
    folder, there = os.path.dirname(target), os.path.lexists(target)
    if (there and not os.path.isfile(target)) or not os.access(folder, os.W_OK):
        Path(output).write_bytes(content)
        return
    if there and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    beside = os.path.join(folder, f".mlirc-{os.getpid()}.part")
    try:
        Path(beside).write_bytes(content)
        if there:
            os.chmod(beside, os.stat(target).st_mode & 0o7777)
        os.replace(beside, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside)
        raise
