"""mlirc: `torch.compile(model, backend="mlirc")`, a compiler on MLIR, LLVM and Triton.

    compile(model, args)    the model compiled ahead of time, a callable that can be saved to a file
    load(path)              a model that was saved, without tracing and compiling
    explain(fn)(*args)      what the compiler did with fn, as text and as data
    read_capture(folder)    the graphs that `mlirc capture`, MLIRC_DUMP or the option `dump` kept
    finish_compiling()      waits for the best code, where the option compile_seconds runs other code first
    options()               what torch.compile(model, backend="mlirc", options={...}) takes
    backend                 what torch.compile(model, backend="mlirc") finds by itself

Nothing has to be imported for torch.compile. Where torch is there already, importing this makes torch.compiler.load_cache_artifacts
know our artifacts.
"""

import os
import sys
import time
from typing import TYPE_CHECKING, Any

IMPORTED_AT = time.time()  # a file of ours that was changed later is not what runs in this process

if TYPE_CHECKING:
    from mlirc.execution.captures import read_capture
    from mlirc.frontend.budget.jobs import finish_compiling
    from mlirc.frontend.entry.backend import mlirc as backend
    from mlirc.frontend.explain.explain import explain
    from mlirc.frontend.option_list import options
    from mlirc.frontend.package.compile import compile
    from mlirc.frontend.package.model import load

__all__ = ["backend", "compile", "explain", "finish_compiling", "load", "options", "read_capture"]


def _torch_is_imported() -> bool:
    """Whether torch is there as a whole; not while it is being imported."""
    torch = sys.modules.get("torch")
    return torch is not None and not getattr(torch.__spec__, "_initializing", False)


if _torch_is_imported():
    from mlirc.frontend.cache.artifacts import register

    register()


def on_import_of_torch() -> None:
    """Tells PyTorch the names that TORCH_LOGS has of ours, where it has any; without them this leaves no trace.

    PyTorch calls it in each process that imports torch, by the entry point "torch.backends". It raises nothing: torch could not
    be imported then.
    """
    settings = os.environ.get("TORCH_LOGS", "")
    if "mlirc" in settings or "help" in settings:
        from mlirc.frontend.torch_compat.log_names import log_names

        log_names()
    elif not any(name.startswith("mlirc.") for name in list(sys.modules)):
        sys.modules.pop("mlirc", None)  # whoever imports it now, with torch there, has it register artifacts


def __getattr__(name: str) -> Any:
    # torch is slow to import, and `mlirc opt` does not need the front end
    if name == "explain":
        from mlirc.frontend.explain.explain import explain

        return explain
    if name == "compile":
        from mlirc.frontend.package.compile import compile

        return compile
    if name == "load":
        from mlirc.frontend.package.model import load

        return load
    if name == "finish_compiling":
        from mlirc.frontend.budget.jobs import finish_compiling

        return finish_compiling
    if name == "options":
        from mlirc.frontend.option_list import options

        return options
    if name == "read_capture":
        from mlirc.execution.captures import read_capture

        return read_capture
    if name == "backend":
        from mlirc.frontend.entry.backend import mlirc

        return mlirc
    raise AttributeError(f"module 'mlirc' has no attribute '{name}'")
