"""The context that Dynamo, AOTAutograd and a backend share while a graph is compiled."""

from typing import Any

from mlirc.codegen.abi.reach import needed

with needed("tracing-context"):
    from torch._guards import CompileContext as CompileContext
    from torch._guards import TracingContext as TracingContext
    from torch._guards import compile_context as compile_context
    from torch._guards import tracing as tracing


def tracing_mode() -> Any:
    """The FakeTensorMode that a graph of Dynamo's is traced with, or None."""
    context = TracingContext.try_get()
    return None if context is None else context.fake_mode


def first_call_is_fake() -> bool:
    """Whether AOTAutograd answers the first call of what it compiles with fake tensors. DDPOptimizer asks for that."""
    return bool(getattr(TracingContext.try_get(), "fakify_first_call", False))
