"""The backend that `torch.compile(model, backend="mlirc")` finds through the entry point group torch_dynamo_backends."""

from collections.abc import Callable, Sequence
from typing import Any

from torch.fx import GraphModule

from mlirc.codegen.abi.reach import Missing
from mlirc.frontend.cache import artifacts
from mlirc.frontend.errors import UnsupportedGraph
from mlirc.frontend.fallback import fallback
from mlirc.frontend.options import Options, read_options
from mlirc.frontend.report.progress import compiling
from mlirc.frontend.torch_compat.dynamo.aot_compile import is_saving
from mlirc.frontend.torch_compat.dynamo.stashed_objects import keep_stashed_objects
from mlirc.frontend.torch_compat.dynamo.suppressed_guards import trace_again_with_guards
from mlirc.frontend.torch_compat.dynamo.written_scalars import keeping_writes
from mlirc.frontend.torch_compat.jagged_attention import pad_jagged_attention
from mlirc.frontend.torch_compat.scripted_models import on_skipped

artifacts.register()  # torch.compile(model, backend="mlirc") comes here, before any graph


def mlirc(
    gm: GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: dict[str, Any] | None = None,
    mode: str | None = None,
) -> Callable:
    """Compile one graph of TorchDynamo's, for inference and training.

    `options` are those of frontend/options.py. Raises OptionError for an unknown option, before tracing. After any other error of ours the graph
    runs in eager (fallback/).
    """
    keep_stashed_objects()
    trace_again_with_guards()
    with keeping_writes(gm):
        return compiled(gm, example_inputs, options, mode)


def compiled(
    gm: GraphModule, example_inputs: Sequence[Any], options: dict[str, Any] | None, mode: str | None
) -> Callable:
    """What `mlirc` gives."""
    chosen, dump = Options(dump=None), None
    try:
        chosen = read_options(options, mode)
        if chosen.dump is not None:
            from mlirc.frontend.report.dynamo_dump import DynamoDump

            dump = DynamoDump(gm, chosen)
        compile_captured = _compiler()
        with compiling("tracing", chosen):
            if is_saving():
                from mlirc.frontend.entry.aot_compile import compiled_ahead

                return compiled_ahead(gm, example_inputs, chosen)
            run = compile_captured(gm, example_inputs, chosen)
    except fallback.PASSES_THROUGH:
        raise
    except Exception as error:
        if dump is not None:
            dump.failed(error)
        if is_saving():
            raise  # eager cannot be saved
        run = fallback.whole(gm, example_inputs, chosen, error)
    return run if dump is None else dump.at_first_call(run)


def _compiler() -> Callable:
    """`compile_captured`, loaded by the first graph: until then Dynamo looks at each module that is loaded, once. Raises UnsupportedGraph with a
    PyTorch that nobody has tried."""
    try:
        from mlirc.frontend.driver.driver import compile_captured
    except Missing as reason:
        raise UnsupportedGraph(str(reason)) from reason
    return compile_captured


def skipped(given: dict[str, Any]) -> None:
    """Says that a module which torch.jit traced runs in eager. Raises UnsupportedGraph with the option fallback="error"."""
    why = "Dynamo does not look into what torch.jit traced: compile the module that it was traced from, or call mlirc.compile"
    if read_options(given.get("options"), given.get("mode")).fallback == "error":
        raise UnsupportedGraph(why)
    fallback.warn(f"mlirc: the module runs in eager: {why}")


on_skipped(mlirc, skipped)
pad_jagged_attention()
