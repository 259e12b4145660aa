"""Statistics of compilations, as data for `mlirc.explain` and the benchmarks."""

from collections import Counter
from dataclasses import field
from typing import Any

from mlirc.dialects.core.fork_locks import fork_lock
from mlirc.dialects.lazy_dataclass import dataclass


@dataclass
class KernelReport:
    """A kernel: its name, the ops in it, the user's source lines, the number of its launches.

    read, written, flops   bytes and floating-point operations of all its launches (lowering/analysis/work.py)
    """

    name: str
    ops: list[str]
    lines: list[str]
    launches: int = 1
    read: str = "0"
    written: str = "0"
    flops: str = "0"


@dataclass
class GraphReport:
    """A compiled graph. Bytes and operations are numbers as text, or size expressions.

    kind            "inference", "forward" or "backward"
    aten            name of an operator -> (calls, why it is not compiled)
    through_python  those of them that the host program makes from Python -> (calls, why)
    library         name of a library routine -> calls
    read, written, flops  bytes that all kernels and calls read and write, each operand once, and their floating-point operations
    arena, buffers  the size of the arena, and the sum of the buffers that share it
    seconds         by stage; "wait" is what the first call waited for the code that other threads were making
    fallback        why the graph runs in eager, or ""
    cache           the disk cache: "hit", "miss", or "off: " and why
    key             the name of its entry there, or ""
    tracing         of an inference or forward graph, whether AOTAutograd's tracing was found in the disk cache too (trace_cache.py):
                    "hit", "miss", or "off: " and why; "" where nobody looked
    tuned           in a mode that measures kernels, for each of them: kernel, chosen, microseconds (what each way to write
                    it took, the cost model's first), how ("measured", "from the cache", "out of time")
    refused         on a GPU, why cuBLASLt and cuDNN left to ATen what they were asked for, once for each size: it grows as calls meet them
    quick           with a budget for compiling, while quick code runs the graph: "not begun", or the step at which its best code is;
                    then ""
    quick_calls     how many calls quick code has run
    cuda_graph      in a mode with CUDA graphs: "recorded" once it is, or "not recorded: " and why
    eager_calls     how many calls ran in eager, by why: with a number beyond what compiled code holds (number_limits.py)
    subgraphs          of a graph whose sizes depend on data: into how many it is parted (subgraphs.py), which come next in `graphs`; its
                    `aten` are the calls between them
    profile         with the option of that name, its ops in order, with the seconds of each call (codegen/host/parts.HostRange)
    candidates      with the option of that name, each pair of kernels that a fusion pass looked at (lowering/pipeline/fusion_log.py)
    subgraph           of such a subgraph, its number; else None
    """

    kind: str
    kernels: list[KernelReport] = field(default_factory=list)
    aten: dict[str, tuple[int, str]] = field(default_factory=dict)
    through_python: dict[str, tuple[int, str]] = field(default_factory=dict)
    library: dict[str, int] = field(default_factory=dict)
    read: str = "0"
    written: str = "0"
    flops: str = "0"
    arena: str = "0"
    buffers: str = "0"
    seconds: dict[str, float] = field(default_factory=dict)
    fallback: str = ""
    cache: str = ""
    key: str = ""
    tracing: str = ""
    tuned: list[dict[str, Any]] = field(default_factory=list)
    cuda_graph: str = ""
    refused: list[str] = field(default_factory=list)
    quick: str = ""
    quick_calls: int = 0
    fusions: int = 0
    ledger: list[Any] = field(default_factory=list)
    candidates: list[dict[str, Any]] = field(default_factory=list)
    eager_calls: dict[str, int] = field(default_factory=dict)
    subgraphs: int = 0
    subgraph: int | None = None
    profile: list[Any] = field(default_factory=list)

    def counts(self) -> bool:
        """Whether this is a graph that is compiled, and not a subgraph of one."""
        return not self.fallback and self.subgraph is None


_lock = fork_lock()
graphs: list[GraphReport] = []  # every graph since the process started or `reset`
fallbacks: Counter[str] = Counter()  # reason -> graphs that run in eager because of it


def record(report: GraphReport) -> None:
    with _lock:
        graphs.append(report)
    if report.fallback:
        record_fallback(report)


def record_fallback(report: GraphReport) -> None:
    """Counts a graph that runs in eager."""
    with _lock:
        fallbacks[report.fallback] += 1


def record_call(report: GraphReport, why: str) -> None:
    """Counts a call of a compiled graph that runs in eager, with its reason."""
    with _lock:
        report.eager_calls[why] = report.eager_calls.get(why, 0) + 1
        fallbacks[why] += 1


def reset() -> None:
    with _lock:
        graphs.clear()
        fallbacks.clear()
