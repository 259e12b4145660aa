"""Runs programs of Python in processes of their own, forked from a server that has imported PyTorch: a program starts at once.

A program has the arguments, environment, folder, streams and exit code that `python` would give it. Of PyTorch only what
TORCH_LOGS and TORCH_TRACE say is read again; a test of another variable that PyTorch reads when it is imported starts Python itself.
A program that runs programs itself asks this process's servers where `lent` said so in its environment.
"""

import atexit
import functools
import gc
import importlib
import io
import json
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from tests import quick_capture

ROOT = Path(__file__).parents[1]
PYTORCH = ("torch", "torch._dynamo", "torch_mlir.ir", "llvmlite.binding", "rich.console", "safetensors.torch", "click")
LENT = "MLIRC_TESTS_SERVERS"
COMMANDS = (
    *(*PYTORCH, "mlirc.commands.run", "mlirc.frontend.entry.backend", "mlirc.frontend.driver.steps"),
    *("mlirc.frontend.driver.driver", "mlirc.frontend.driver.observers"),
    "mlirc.lowering.passes.fuse.fuse_elementwise",
    *("mlirc.lowering.passes.plan.plan_memory", "mlirc.lowering.passes.lower.lower_kernels"),
)
"""And what a first graph would have a program import: a quarter of its time."""


def python(
    *arguments: Any, cwd: Any = None, env: Mapping[str, str] | None = None, imported: Sequence[str] = PYTORCH
) -> subprocess.CompletedProcess[str]:
    """What `python ARGUMENTS` does, where these are `-m MODULE ...`, `-c TEXT ...` or `FILE ...`."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given = [str(a) for a in arguments]
        code = _server(tuple(imported)).run(given, str(cwd or os.getcwd()), dict(env or os.environ), out, err)
        texts = []
        for stream in (out, err):
            stream.seek(0)
            texts.append(stream.read().decode(errors="replace"))
    return subprocess.CompletedProcess(given, code, *texts)


def lent(*imported: Sequence[str]) -> dict[str, str]:
    """A variable by which a program finds the servers of this process, which waits for the program's end meanwhile."""
    streams = []
    for names in imported:
        server = _server(tuple(names))
        ends = [f"/proc/{os.getpid()}/fd/{stream.fileno()}" for stream in (server.requests, server.answers)]
        streams.append([names, *ends])
    return {LENT: json.dumps(streams)}


class _Server:
    """A process that forks programs, one at a time. It ends when its standard input does: with this process."""

    def __init__(self, imported: Sequence[str]):
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        }
        command = [sys.executable, __file__, *imported]
        for names, requests, answers in json.loads(os.environ.get(LENT, "[]")):
            if tuple(names) == tuple(imported):
                self.requests, self.answers = open(requests, "w"), open(answers)  # noqa: SIM115  # as long as this process lives
                return
        process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdin is not None and process.stdout is not None
        self.process, self.requests, self.answers = process, process.stdin, process.stdout

    def run(self, arguments: list[str], cwd: str, env: dict[str, str], out: Any, err: Any) -> int:
        streams = [f"/proc/{os.getpid()}/fd/{stream.fileno()}" for stream in (out, err)]
        self.requests.write(json.dumps([arguments, cwd, env, streams]) + "\n")
        self.requests.flush()
        return int(self.answers.readline())


@functools.cache
def _server(imported: tuple[str, ...]) -> _Server:
    return _Server(imported)


def serve() -> list[str]:
    """Forks for each request. Returns in the forked processes, with the arguments of their programs."""
    path = sys.path[:]
    for line in sys.stdin:
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            arguments, cwd, env, streams = json.loads(line)
            _become(cwd, env, streams)
            sys.path[:] = path
            return arguments
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    os._exit(0)


def _become(cwd: str, env: dict[str, str], streams: list[str]) -> None:
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    for number, name in enumerate(("/dev/null", *streams)):
        opened = os.open(name, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_APPEND)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False))  # the server's has read ahead
    from torch._logging import _internal

    _internal.LOG_TRACE_HANDLER = None
    _internal._init_logs()


def start(arguments: list[str]) -> None:
    """Runs the program as Python does."""
    first, *rest = arguments
    if first == "-c":
        sys.argv, sys.path[0] = ["-c", *rest[1:]], ""
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    elif first == "-m":
        sys.argv, sys.path[0] = [rest[0], *rest[1:]], os.getcwd()
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = arguments, str(Path(first).resolve().parent)
        runpy.run_path(first, run_name="__main__")


def finish(arguments: list[str]) -> NoReturn:
    """Runs the program, and ends as Python does, except that it gives no memory back: with PyTorch that takes a second."""
    code = 1
    try:
        start(arguments)
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if not isinstance(ended.code, int | None):
            print(ended.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        importlib.import_module(name)
    if "torch._dynamo" in sys.modules:
        quick_capture.leave_out()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    finish(serve())
