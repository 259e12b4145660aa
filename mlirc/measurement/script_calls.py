"""Runs a user's script as it is, and keeps each call of what it compiles: the function, its arguments, whether gradients are on."""

import builtins
import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import open_code
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from mlirc.frontend.torch_compat.dynamo.trees import tree_leaves, tree_map

COMMON = ("fullgraph", "dynamic")  # arguments of torch.compile that hold under any backend
EXPLAIN = "mlirc.frontend.explain.explain"  # its backend compiles: scripts read what it found


class ScriptError(ValueError):
    """A script that fails, or that compiles nothing."""


@dataclass
class ScriptCall:
    """A call of a function that the script compiles, with arguments as they were before it.

    arguments  of torch.compile, those of COMMON
    grad       whether gradients were on
    count      how often the script made a call like it
    """

    function: Callable
    args: tuple
    kwargs: dict[str, Any]
    arguments: dict[str, Any]
    grad: bool
    count: int = 1

    @property
    def name(self) -> str:
        leaves = [x for x in tree_leaves((self.args, self.kwargs)) if isinstance(x, torch.Tensor)]
        shapes = ", ".join("x".join(map(str, x.shape)) or "scalar" for x in leaves[:4])
        named = self.function if hasattr(self.function, "__qualname__") else type(self.function)
        more = ", …" if len(leaves) > 4 else ""
        return f"{named.__qualname__.replace('<locals>.', '')}({shapes}{more}){' with gradients' if self.grad else ''}"

    def fresh(self, convert: Callable[[torch.Tensor], torch.Tensor] = lambda x: x) -> tuple[tuple, dict[str, Any]]:
        """Arguments that a call may write to."""
        return tree_map(lambda x: copied(x, convert), (self.args, self.kwargs))


def copied(x: Any, convert: Callable[[torch.Tensor], torch.Tensor] = lambda x: x) -> Any:
    if not isinstance(x, torch.Tensor):
        return x
    return convert(x.detach().clone()).requires_grad_(x.requires_grad)


def run_script(path: str, arguments: Sequence[str] = ()) -> list[ScriptCall]:
    """The distinct calls of compiled functions that a script makes, in order. The script runs in eager. Raises ScriptError.

    The script's module stays `__main__`: Dynamo looks the globals of its functions up there, when the calls are compiled.
    """
    if not Path(path).is_file():
        raise ScriptError(f"{path}: No such file or directory")
    calls: dict[Any, ScriptCall] = {}
    with noting(calls), as_main(path, arguments):
        try:
            run_main(path)
        except SystemExit as error:
            if error.code:
                raise ScriptError(f"{path}: exits with {error.code}") from error
        except Exception as error:
            line = next((f.lineno for f in inspect.trace()[::-1] if f.filename == path), None)
            place = path if line is None else f"{path}:{line}"
            raise ScriptError(f"{place}: {type(error).__name__}: {error}") from error
    if not calls:
        raise ScriptError(f"{path}: calls nothing that torch.compile made")
    return list(calls.values())


def run_main(path: str) -> None:
    """As `runpy.run_path`, which takes the module out of `sys.modules` at the end."""
    with open_code(path) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    module = ModuleType("__main__")
    module.__file__ = path
    module.__dict__.update(__builtins__=builtins, __cached__=None)
    sys.modules["__main__"] = module
    exec(code, module.__dict__)


@contextmanager
def as_main(path: str, arguments: Sequence[str]) -> Iterator[None]:
    """Sets sys.argv and sys.path as `python path arguments` does, within a `with` block. At its end the process is in the folder that
    it was in."""
    argv, first, folder = sys.argv, sys.path[0], os.getcwd()
    sys.argv, sys.path[0] = [path, *arguments], str(Path(path).resolve().parent)
    try:
        yield
    finally:
        sys.argv, sys.path[0] = argv, first
        os.chdir(folder)


@contextmanager
def noting(calls: dict[Any, ScriptCall]) -> Iterator[None]:
    """torch.compile gives, within, what notes its calls and runs in eager; to `mlirc.explain`, what notes them and is compiled."""
    real = torch.compile

    def compile(model: Callable | None = None, **given: Any) -> Any:
        if model is None:
            return lambda function: compile(function, **given)
        if given.get("disable"):
            return real(model, **given)
        explained = getattr(given.get("backend"), "__module__", "") == EXPLAIN
        run = real(model, **given) if explained else model
        noted = noting_function(model, run, {k: v for k, v in given.items() if k in COMMON and v is not None}, calls)
        if explained:
            return noted
        if not isinstance(model, torch.nn.Module):
            return functools.update_wrapper(noted, model)
        module = real(model, backend="eager")  # scripts ask for its parameters and state
        module.forward = noted
        return module

    torch.compile = compile
    try:
        yield
    finally:
        torch.compile = real


def noting_function(
    function: Callable, run: Callable, arguments: dict[str, Any], calls: dict[Any, ScriptCall]
) -> Callable:
    def noted(*args: Any, **kwargs: Any) -> Any:
        grad = torch.is_grad_enabled()
        leaves = [
            (x.dtype, x.shape, x.stride(), x.device, x.requires_grad) if isinstance(x, torch.Tensor) else repr(x)[:200]
            for x in tree_leaves((args, kwargs))
        ]
        key = (id(function), grad, getattr(function, "training", None), *leaves)
        if key in calls:
            calls[key].count += 1
        else:
            calls[key] = ScriptCall(function, tree_map(copied, args), tree_map(copied, kwargs), arguments, grad)
        return run(*args, **kwargs)

    return noted
