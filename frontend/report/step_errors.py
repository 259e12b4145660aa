"""What fails in a step becomes an error that names the op, the user's source line, and a file that reproduces it."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mlirc.codegen.emit.emit import EarlyKernels
from mlirc.dialects.core.context import context
from mlirc.frontend.errors import CompilationError, UnsupportedGraph
from mlirc.frontend.graph.aten_graph import AtenGraph
from mlirc.frontend.graph.observer import Observer
from mlirc.frontend.importer.locations import where
from mlirc.frontend.report.reproduce import import_script, write_reproducer
from mlirc.lowering.module import errors
from mlirc.lowering.pipeline.parser import parse
from mlirc.lowering.pipeline.pass_manager import PassError, to_import


class StepErrors(Observer):
    """Raises UnsupportedGraph for what mlirc does not take, and CompilationError for a bug of mlirc's.

    `link` runs on another thread: what fails there is raised where its result is waited for (`emit_error`).
    """

    def __init__(self, graph: AtenGraph):
        self.graph = graph

    @contextmanager
    def around(self, step: str, *given: Any) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if step == "import":
                raise import_error(self.graph, error) from error
            if step == "emit":
                raise emit_error(given[0], error) from error
            if isinstance(error, PassError):
                raise pass_error(self.graph.kind, error) from error
            raise


def import_error(graph: AtenGraph, error: Exception) -> UnsupportedGraph | CompilationError:
    """The error of a failed step `import`, with the FX node's source line, and for a bug with a script that reproduces it."""
    node = getattr(error, "fx_node", None)  # the importer sets it
    place = f" at {where(node)}" if node is not None else ""
    if isinstance(error, UnsupportedGraph):
        return UnsupportedGraph(f"{error}{place}")
    why = f"import failed{place}: {' '.join(f'{type(error).__name__}: {error}'.split())}"
    path = write_reproducer(graph.kind, "import", import_script(graph.gm, why), ".py")
    return CompilationError(f"{why}; to reproduce: python {path}")


def pass_error(kind: str, error: PassError) -> CompilationError:
    """The error of a failed pass, with the module before it in a file, and the command that fails on that."""
    source = to_import(parse(error.step)[0].name)
    words = f"-p '{error.step}'" + (f" --import {shlex.quote(source)}" if source else "")
    path = write_reproducer(kind, error.step, f"// mlirc opt %s {words}\n// {error}\n{error.module_text}", ".mlir")
    return CompilationError(f"{error}; to reproduce: mlirc opt {path} {words}")


def emit_error(lowering: Any, error: Exception) -> CompilationError:
    """The error of a failed step `emit`, or `link` after it, with a file that reproduces it."""
    kernels: EarlyKernels = lowering.kernels
    with context():
        why = f"emit failed{errors.describe(error)}"
        text = kernels.with_kernels(lowering.module.operation.get_asm(enable_debug_info=True))
        path = write_reproducer(lowering.graph.kind, "emit", f"// {why}\n{text}", ".mlir")
    return CompilationError(f"{why}; to reproduce: mlirc opt {path} --emit asm")
