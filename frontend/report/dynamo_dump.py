"""Keeps a graph of TorchDynamo's: its FX graph as text, the frame it is of, guards, why it was compiled again, why it ends."""

import dataclasses
import inspect
import os
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.fx import GraphModule

from mlirc.frontend.fallback import fallback
from mlirc.frontend.options import Options
from mlirc.frontend.report.capture_folder import GraphFiles
from mlirc.frontend.torch_compat.dynamo.compilation import compilation
from mlirc.frontend.torch_compat.dynamo.tracing_context import CompileContext, TracingContext

_TORCH = os.path.join(os.path.dirname(torch.__file__), "")
_dumps: "WeakKeyDictionary[TracingContext, DynamoDump]" = WeakKeyDictionary()


class DynamoDump:
    """Writes DIR/dynamo_000.json, dynamo_000.py and, at the first call, dynamo_000_guards.txt."""

    def __init__(self, gm: GraphModule, options: Options):
        assert options.dump is not None
        self.record = GraphFiles(options.dump, "dynamo_", options=dataclasses.asdict(options), aten=[], fallback="")
        self.compile_id = fallback.optional(CompileContext.current_compile_id)
        context = TracingContext.try_get()
        if context is not None:
            _dumps[context] = self
        if self.record.folder is not None:
            fallback.optional(self._describe, gm)

    @property
    def number(self) -> int:
        return self.record.number

    def _describe(self, gm: GraphModule) -> None:
        text = fallback.optional(lambda: gm.print_readable(print_output=False)) or str(gm.graph)
        graph = self.record.write("graph.py", text)
        reason = getattr(gm, "compile_subgraph_reason", None)
        found = compilation()
        why = None if found is None else found.reason()
        self.record.save(
            graph=graph,
            compile_id=str(self.compile_id),
            recompiled=why,
            ended_by=None if reason is None else graph_end(reason),
        )

    def became(self, number: int) -> None:
        """Records the number of an ATen graph that this graph was traced to."""
        self.record.data["aten"].append(number)
        self.record.save()

    def failed(self, error: Exception) -> None:
        self.record.save(fallback=fallback.reason(error))

    def at_first_call(self, run: Callable) -> Callable:
        """Guards are there once Dynamo has compiled what the graph is a part of."""

        def call(*args: Any) -> Any:
            nonlocal waits
            if waits:
                waits = False
                fallback.optional(self._note_guards)
            return run(*args)

        waits = True
        return call

    def _note_guards(self) -> None:
        found = compilation()
        guarded = None if found is None or self.compile_id is None else found.guarded(self.compile_id)
        if guarded is None:
            return
        code, text = guarded
        frame = {"function": code.co_qualname, "file": code.co_filename, "line": code.co_firstlineno}
        if code.co_filename.startswith(_TORCH):
            frame = call_of_the_program() or frame
        self.record.save(guards=self.record.write("guards.txt", text), frame=frame)


def call_of_the_program() -> dict[str, Any] | None:
    """The line of the user's that calls what is compiled: a module of torch.nn has no function of the user's."""
    frame = inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in ("torch", "mlirc"):
        frame = frame.f_back
    if frame is None:
        return None
    code = frame.f_code
    return {"function": f"call in {code.co_qualname}", "file": code.co_filename, "line": frame.f_lineno}


def current() -> DynamoDump | None:
    """What keeps the graph of Dynamo's that is compiled now."""
    context = TracingContext.try_get()
    return None if context is None else _dumps.get(context)


def graph_end(reason: Any) -> dict[str, Any]:
    """Why Dynamo ended a graph: at a graph break, or because the function ends there."""
    stack = [f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in getattr(reason, "user_stack", ())]
    return {
        "reason": str(getattr(reason, "reason", reason)),
        "graph_break": bool(getattr(reason, "graph_break", True)),
        "user_stack": stack,
    }
