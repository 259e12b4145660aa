"""TORCH_LOGS and TORCH_TRACE: a graph's IR after every stage, its fusions, its code.

    TORCH_LOGS="mlirc_ir"        the IR after every stage
    TORCH_LOGS="mlirc_fusion"    the ledger of the passes that fuse: a line for each decision
    TORCH_LOGS="mlirc_code"      LLVM IR and Triton's Python
    TORCH_LOGS="+mlirc"          all of it, and why graphs run in eager
    TORCH_TRACE=DIR              all of it as artifacts that tlparse shows: mlirc_ir, mlirc_fusion, mlirc_code

`+mlirc.ir`, `+mlirc.lowering.fusion` and `+mlirc.codegen` are the same three: PyTorch knows names of modules in any case, and the
others where it asks backends before it reads TORCH_LOGS. A graph that is shown is compiled, although the disk cache may have it.
"""

import itertools
import logging
from collections.abc import Callable, Iterator
from typing import Any

from mlirc.frontend.fallback.fallback import optional
from mlirc.frontend.graph.aten_graph import AtenGraph
from mlirc.frontend.graph.observer import Observer
from mlirc.frontend.torch_compat.dynamo.structured_trace import structured_trace
from mlirc.frontend.torch_compat.log_names import artifact_logger

LOGGERS = {"ir": "mlirc.ir", "fusion": "mlirc.lowering.fusion", "code": "mlirc.codegen"}
_numbers = itertools.count()


def asked(kind: str) -> logging.Logger | None:
    """The logger of a kind of LOGGERS where somebody asked for it. The level of a program's root logger asks for nothing."""
    if (artifact := artifact_logger(f"mlirc_{kind}")) is not None:
        return artifact
    wanted = logging.getLogger(LOGGERS[kind])
    logger: logging.Logger | None = wanted
    while logger is not None and logger.name != "root":
        if logger.level:
            return wanted if logger.level <= logging.DEBUG else None
        logger = logger.parent
    return None


def shown() -> set[str]:
    """The kinds that are logged or traced."""
    if (found := structured_trace()) is not None and found[0]():
        return set(LOGGERS)
    return {kind for kind in LOGGERS if asked(kind) is not None}


class Logs(Observer):
    """Tells loggers and the structured trace. Where that fails, the graph is compiled nevertheless."""

    def __init__(self, graph: AtenGraph):
        self.kinds = shown()
        self.stages = list(graph.stages)
        self.title = f"graph {next(_numbers)}, {graph.kind}"

    def on_step(self, step: str, made: Any, seconds: float) -> None:
        if step != "import" and step not in self.stages:
            return
        if "ir" in self.kinds:
            optional(self.tell, "ir", step, lambda: made.module.operation.get_asm(enable_debug_info=True))
        if "fusion" in self.kinds and step == "fuse":
            optional(self.tell, "fusion", step, lambda: "\n".join(decisions(made.record.ledger)))
        if "code" in self.kinds and step == self.stages[-1]:
            optional(self.tell, "code", step, lambda: "\n".join(code(made.module)))

    def tell(self, kind: str, step: str, text: Callable[[], str]) -> None:
        made = text()
        if (logger := asked(kind)) is not None:
            logger.debug("%s, after %s:\n%s", self.title, step, made)
        if (found := structured_trace()) is not None and found[0]():
            found[1](
                f"mlirc_{kind}_{step}" if kind == "ir" else f"mlirc_{kind}", f"// {self.title}, after {step}\n{made}"
            )


def decisions(ledger: Any) -> Iterator[str]:
    """Lines for the log mlirc_fusion: what the passes fuse-* and to-kernels did and refused."""
    for entry in ledger.entries:
        if entry.pass_name.startswith(("fuse-", "to-kernels")):
            numbers = " ".join(f"{name}={value}" for name, value in entry.numbers.items())
            taken = "taken" if entry.taken else "refused"
            yield f"{entry.pass_name}: {entry.action} {entry.subject}: {taken}, {entry.rule} {numbers} {entry.location}".rstrip()


def code(module: Any) -> Iterator[str]:
    from mlirc.codegen.emit.readable import llvm_texts, triton_texts

    for name, text in triton_texts(module):
        yield f"# {name}\n{text}"
    for name, text, _ in llvm_texts(module):
        yield f"; {name}\n{text}"
