"""Runs a script for `mlirc capture`: as Python would, but with mlirc as the backend of every torch.compile, and with its graphs dumped."""

import functools
import json
import os
import platform
import runpy
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from mlirc.execution.captures import FORMAT, RUN
from mlirc.frontend.explain.explain import graph_break, skipped
from mlirc.frontend.options import MODES
from mlirc.frontend.report.capture_folder import INCOMPLETE, write_file

RUNNERS = (__file__, runpy.__file__, runpy.run_path.__code__.co_filename)
"""Files whose frames come before the script's in a traceback."""


def captured_run(script: str, arguments: list[str], folder: str) -> int:
    """Runs a script; if it is "-m", the module that the first argument names. Returns the exit code that Python would give.

    The graphs go to the folder, and capture.json, a record of the run. Where that cannot be written, INCOMPLETE[folder] says why.
    """
    folder = os.path.abspath(folder)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # as a program has it
    compile_, left_out = torch.compile, []
    torch.compile = with_mlirc(compile_, folder, left_out)
    os.environ["MLIRC_DUMP"] = folder  # of processes that the program starts
    warnings.filterwarnings("ignore", message="mlirc option 'dump' is")  # the command's last line says so
    start = time.perf_counter()
    said: dict[str, Any] = {
        "format": FORMAT,
        "command": [script, *arguments],
        "folder": os.getcwd(),
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "machine": platform.machine(),
    }
    code, error = 1, None
    try:
        code, error = _run(script, arguments)
    finally:
        torch.compile = compile_
        said |= {"exit": code, "error": error, "seconds": time.perf_counter() - start, "left_out": left_out}
        try:
            write_file(os.path.join(folder, RUN), json.dumps(said | _of_dynamo(), indent=1, default=str).encode())
        except OSError as problem:
            INCOMPLETE.setdefault(folder, problem.strerror or str(problem))
    return code


def _of_dynamo() -> dict[str, Any]:
    """Graph breaks since the program last reset Dynamo, and functions that it left to eager."""
    from mlirc.frontend.torch_compat.dynamo.log import counters, graph_break_reasons

    found = [graph_break(reason) for reason in graph_break_reasons]
    return {"graph_breaks": found, "skipped": skipped(counters["unimplemented"], found)}


def _run(script: str, arguments: list[str]) -> tuple[int, str | None]:
    """The exit code, and the exception that ended the script, in one line, or None."""
    before = sys.argv, sys.path[:]
    is_module = script == "-m"
    sys.argv = arguments[:] if is_module else [script, *arguments]
    sys.path.insert(0, os.getcwd() if is_module else str(Path(script).resolve().parent))
    try:
        if is_module:
            runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(script, run_name="__main__")
        return 0, None
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return int(ended.code or 0), None
        print(ended.code, file=sys.stderr)
        return 1, " ".join(f"SystemExit: {ended.code}".split())
    except BaseException as error:
        _print(error)
        return 130 if isinstance(error, KeyboardInterrupt) else 1, " ".join(f"{type(error).__name__}: {error}".split())
    finally:
        sys.argv, sys.path[:] = before
        for stream in (sys.stdout, sys.stderr):
            stream.flush()


def _print(error: BaseException) -> None:
    """The traceback as Python prints it: from the script on."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename in RUNNERS:
        frames = frames.tb_next
    traceback.print_exception(type(error), error, frames)


def with_mlirc(compile_: Callable, folder: str, left_out: list[str]) -> Callable:
    """torch.compile with mlirc in place of any backend. Options of other backends are left out, and noted."""

    @functools.wraps(compile_)
    def compile_with_mlirc(model: Any = None, **how: Any) -> Any:
        backend, options, mode = how.pop("backend", "inductor"), how.pop("options", None), how.pop("mode", None)
        ours = backend == "mlirc" or getattr(backend, "__module__", "").startswith("mlirc.")
        given = dict(options) if isinstance(options, Mapping) else {}
        passed = given if ours else {}
        left_out.extend(f"option {name!r} of {backend}" for name in given if name not in passed)
        if mode is not None and mode not in MODES:
            left_out.append(f"mode {mode!r}")
            mode = None
        if mode is not None:
            passed["mode"] = mode
        return compile_(model, backend="mlirc", options=passed | {"dump": folder}, **how)

    return compile_with_mlirc
