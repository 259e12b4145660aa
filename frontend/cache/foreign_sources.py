"""Fingerprints the sources of other people's passes and ops, because a change to them changes the compiled graph.

Adding a pass or an op imports the registry that it is added to. So there are none where the registry's module is not loaded.
"""

import importlib
import inspect
import os
import sys
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any

from mlirc.codegen.cache import environment
from mlirc.lowering.pipeline.parser import parse
from mlirc.lowering.pipeline.pipelines import PIPELINES


class NoSource(Exception):
    """A pass or an op that is in no file, so that nobody can tell whether it is still the same."""


def foreign_sources(stages: Mapping[str, str]) -> str:
    """A digest of the files of every pass in the stages, and of every op and import rule, that is not mlirc's own;
    "" where there are none. Raises NoSource, and ChangedSources for a file that is newer than this process."""
    foreign = {x for x in (*_passes(stages), *_ops()) if not _is_ours(x)}
    files = {file for x in foreign for file in _files(x)}
    return environment.sources_digest(files) if files else ""


def _ops() -> Iterable[Any]:
    """Every op and import rule that there is."""
    if "mlirc.dialects.core.dialect" not in sys.modules:
        return ()
    dialect = importlib.import_module("mlirc.dialects.core.dialect")  # another thread may be importing it
    return (*dialect.OPS.values(), *dialect.IMPORTS.values())


def _passes(stages: Mapping[str, str]) -> set[type]:
    """The classes of the passes in the stages. Of a standard pipeline none, as long as this process has not looked for passes."""
    ours = stages in PIPELINES.values()
    if ours and "mlirc.lowering.pipeline.pass_manager" not in sys.modules:
        return set()
    passes = importlib.import_module("mlirc.lowering.pipeline.pass_manager").passes
    if ours and not passes.cache_info().currsize:
        return set()  # nobody can have registered another; finding them all takes longer than loading a graph
    known = passes()
    return {known[step.name] for text in stages.values() for step in parse(text) if step.name in known}


def _is_ours(x: Any) -> bool:
    """Whether a class or function is mlirc's own."""
    return x.__module__.startswith("mlirc.")


def _files(x: Any) -> Iterable[str]:
    """The file of a class or function; all files of its package, and those of modules beside it, which it may use."""
    module = sys.modules.get(x.__module__)
    package = sys.modules.get(x.__module__.partition(".")[0])
    for folder in getattr(package, "__path__", ()):
        yield from environment.python_files(folder)
    code = getattr(x, "run", x) if isinstance(x, type) else x
    name = getattr(module, "__file__", None) or _file_of_code(code) or ""
    if not os.path.isfile(name):
        raise NoSource(f"{x.__qualname__} is in no file")
    yield name
    yield from _beside(module)


def _beside(module: Any) -> set[str]:
    """Files of modules in a module's folder, or below, that it has names of, or that those have names of."""
    found: set[str] = set()
    folder, left = os.path.dirname(getattr(module, "__file__", None) or ""), [module] if module else []
    while folder and left:
        for value in list(vars(left.pop()).values()):
            used = value if isinstance(value, ModuleType) else sys.modules.get(str(getattr(value, "__module__", "")))
            name = getattr(used, "__file__", None)
            if (
                isinstance(name, str)
                and name not in found
                and name.startswith(folder + os.sep)
                and os.path.isfile(name)
            ):
                found.add(name)
                left.append(used)
    return found


def _file_of_code(code: Any) -> str | None:
    try:
        return inspect.getfile(code)
    except TypeError:
        return None
