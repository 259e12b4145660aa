"""Raises an exception once at the call of any function of mlirc's, wherever it is called from, or has a signal handler
raise there: its code object is exchanged."""

import gc
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

ROOT = str(Path(__file__).parents[1])
PARTS = tuple(f"{ROOT}/{part}/" for part in ("frontend", "codegen", "lowering", "dialects"))
LINKS = tuple(f"{ROOT}/mlirc/{part}/" for part in ("frontend", "codegen", "lowering", "dialects"))

_armed: dict[str, tuple[FunctionType, CodeType, BaseException | int]] = {}


def fire(key: str, args: tuple, kwargs: dict) -> Any:
    """What an armed function does: raises when it is called first, or gets the signal of that number."""
    found = _armed.pop(key, None)
    if found is None:
        raise RuntimeError(f"{key} is not armed")
    function, code, error = found
    function.__code__ = code
    if isinstance(error, BaseException):
        raise error
    if threading.current_thread() is threading.main_thread():  # where Python runs handlers
        signal.raise_signal(error)
    return function(*args, **kwargs)


def _trap(key: str, free: tuple[str, ...]) -> CodeType:
    """Code that fires, with the free variables that a function has."""
    inner = "\n".join(f"        {name}" for name in free) or "        pass"
    outer = "".join(f"    {name} = None\n" for name in free)
    text = (
        f"def make():\n{outer}    def trap(*args, **kwargs):\n        from tests.faults import fire\n"
        f"        return fire({key!r}, args, kwargs)\n{inner}\n    return trap\n"
    )
    space: dict[str, Any] = {}
    exec(text, space)
    return space["make"]().__code__


@contextmanager
def fault(function: FunctionType, error: BaseException | int) -> Iterator[Callable[[], bool]]:
    """Within, the function raises `error` at its first call, or gets the signal of that number. Gives whether it has."""
    key, code = name_of(function), function.__code__
    _armed[key] = function, code, error
    function.__code__ = _trap(key, code.co_freevars)
    try:
        yield lambda: key not in _armed
    finally:
        _armed.pop(key, None)
        function.__code__ = code


def name_of(function: FunctionType) -> str:
    return f"{function.__module__}.{function.__qualname__}"


def called(run: Callable[[], Any]) -> list[FunctionType]:
    """The functions of mlirc's that `run` calls, in any thread, in the order of their first calls."""
    codes: dict[CodeType, None] = {}

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith((*PARTS, *LINKS)):
            codes.setdefault(frame.f_code)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    functions = {f.__code__: f for f in gc.get_objects() if type(f) is FunctionType}
    return [functions[code] for code in codes if code in functions and "<" not in functions[code].__qualname__]
