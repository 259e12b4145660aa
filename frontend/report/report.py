"""Reads the report of a graph off its planned module: kernels, library and ATen calls, arena."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from mlirc.codegen.host.parts import HostCall
from mlirc.dialects.control_flow.region_ops import REGION_OPS, nested_functions
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import OPS, attribute_value
from mlirc.frontend.graph.observer import Observer
from mlirc.frontend.statistics import GraphReport, KernelReport
from mlirc.lowering.analysis.work import Work, work_of
from mlirc.lowering.kernel.nodes import structural_key
from mlirc.lowering.module.forms import is_generated
from mlirc.lowering.module.source_lines import source_lines
from mlirc.lowering.pipeline.pass_manager import PipelineRun, functions

PLUMBING = ("constant", "cast", "size")  # not worth a reader's attention


class Report(Observer):
    """Fills in a graph's report."""

    def __init__(self, report: GraphReport):
        self.report = report

    def on_step(self, step: str, made: Any, seconds: float) -> None:
        # On a CPU once launches are runs: the kernel's name says which are equal. For a GPU that stage splits some.
        if step in ("plan", "lower") and made.graph.on_gpu == (step == "plan"):
            read_report(made.module, made.record, made.imported.aten, self.report)
        elif step == "emit":
            self.report.through_python = calls_through_python(made.programs["graph"].host.calls)


def read_report(
    module: ir.Module, record: PipelineRun, why_aten: Mapping[str, tuple[int, str]], report: GraphReport
) -> None:
    """Fill in `report` from a planned or lowered module, the ledger of its passes, and the importer's reasons for ATen calls."""
    graph = next(function for function in functions(module) if function.name.value == "graph")
    kernels: dict[tuple, KernelReport] = {}
    library: Counter[str] = Counter()
    aten: Counter[str] = Counter()
    why = {name: reason for name, (_, reason) in why_aten.items()}
    work: dict[tuple, Work] = {}
    launches = Launches()
    for op in (op for function in (graph, *nested_functions(graph)) for op in function.regions[0].blocks[0].operations):
        name, key, part = op.operation.name, (), None
        if name in ("mlircx.launch", "mlircx.run"):
            ops, part = launches.read(op)
            label, lines = attribute_value(op.attributes["label"]), source_lines(op.location)
            key = (label, *ops, *lines)
            kernels.setdefault(key, KernelReport(label, ops, lines, 0)).launches += 1
        elif name == "mlircx.call" and is_generated(attribute_value(op.attributes["callee"])):
            lines, label = source_lines(op.location), attribute_value(op.attributes["callee"])
            key = (label, *lines)
            kernels.setdefault(key, KernelReport(label, [label], lines, 0)).launches += 1
        elif name == "mlircx.call":
            library[attribute_value(op.attributes["callee"])] += 1
        elif name in ("mlircx.aten", "mlircx.aten_effect"):
            called = attribute_value(op.attributes["op"])
            aten[called] += 1
            why.setdefault(called, "it has effects" if name.endswith("effect") else "a pass calls it")
        if name not in REGION_OPS:  # what is in it counts once
            work.setdefault(key, Work()).include(part or work_of([op]))
    for key, kernel in kernels.items():
        kernel.read, kernel.written, kernel.flops = texts(work[key])
    report.read, report.written, report.flops = texts(Work.sum(work.values()))
    report.kernels = list(kernels.values())
    report.library = dict(library)
    report.aten = {name: (calls, why[name]) for name, calls in aten.items()}
    report.arena = attribute_value(graph.attributes["mlirc.arena"])
    report.ledger = record.ledger.entries
    if record.ledger.fusion is not None and record.ledger.fusion.wanted:
        report.candidates = [candidate.as_dict() for candidate in record.ledger.fusion.candidates]
    report.fusions = sum(1 for e in record.ledger.entries if e.taken and e.action.startswith("fuse"))
    # Each function that is no region's has an entry, in order, and @graph is the first.
    of_graphs = ("plan-memory", "TOTAL", "the graph")
    totals = [e.numbers for e in record.ledger.entries if (e.pass_name, e.rule, e.subject) == of_graphs]
    report.buffers = str(totals[0]["bytes_of_slots"])


class Launches:
    """The ops and the work of launches. Equal ones are gone through once: layers of a model are alike."""

    def __init__(self) -> None:
        self.known: dict[tuple, tuple[list[str], Work]] = {}

    def read(self, launch: Any) -> tuple[list[str], Work]:
        operands = list(launch.operands)
        first = tuple([operands.index(x) for x in operands])  # of its bytes, each tensor's count once
        lowered = launch.operation.name == "mlircx.run"
        code = launch.attributes["kernel"] if lowered else structural_key(launch)
        types = tuple([x.type for x in operands])
        key = code, types, attribute_value(launch.attributes["inputs"]), first
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = kernel_ops(launch), work_of([launch])
        return found


def texts(work: Work) -> tuple[str, str, str]:
    return str(work.read), str(work.written), str(work.flops)


def kernel_ops(launch: Any) -> list[str]:
    """The ops in a kernel that do work, by name and in order."""
    names = [op.operation.name.removeprefix("mlirc.") for op in launch.regions[0].blocks[0].operations]
    return [name for name in names if name in ("reduce", "scan") or (name in OPS and name not in PLUMBING)]


def calls_through_python(calls: Iterable[HostCall]) -> dict[str, tuple[int, str]]:
    """ATen calls that the host program makes from Python: the operator's name -> how many, and why."""
    found: dict[str, tuple[int, str]] = {}
    for call in calls:
        if call.why:
            found[call.op] = (found.get(call.op, (0, ""))[0] + 1, call.why)
    return found
