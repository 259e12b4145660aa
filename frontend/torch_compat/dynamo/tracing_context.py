"""The context that Dynamo, AOTAutograd and a backend share while a graph is compiled."""

from mlirc.codegen.abi.reach import needed

with needed("tracing-context"):
    from torch._guards import CompileContext as CompileContext
    from torch._guards import TracingContext as TracingContext
    from torch._guards import compile_context as compile_context
    from torch._guards import tracing as tracing
