"""Reads what a graph became, at the memory level, into its report: kernels, library and ATen calls, arena."""

from collections import Counter
from collections.abc import Mapping

from mlirc.dialects.bindings import ir
from mlirc.dialects.dialect import OPS
from mlirc.frontend.statistics import GraphReport, KernelReport
from mlirc.lowering.pass_manager import PipelineRun, functions
from mlirc.lowering.source_lines import source_lines
from mlirc.lowering.stage_forms import ATEN


def read_report(
    module: ir.Module, record: PipelineRun, why_aten: Mapping[str, tuple[int, str]], report: GraphReport
) -> None:
    """Fill in `report` from a planned module, the ledger of its passes, and the importer's reasons for ATen calls."""
    kernels: dict[tuple, KernelReport] = {}
    library: Counter[str] = Counter()
    aten: Counter[str] = Counter()
    for function in functions(module):
        if function.name.value != "graph":
            continue  # @prepare does not run in every call
        if "mlirc.arena" in function.attributes:
            report.arena = function.attributes["mlirc.arena"].value
        for op in function.regions[0].blocks[0].operations:
            name = op.operation.name
            if name == "mlircx.launch":
                ops = [inner.operation.name.removeprefix("mlirc.") for inner in op.regions[0].blocks[0].operations]
                ops = [
                    o for o in ops if (o in OPS and o not in ("constant", "cast", "size")) or o in ("reduce", "scan")
                ]
                lines = source_lines(op.location)
                label = op.attributes["label"].value
                known = kernels.setdefault((label, tuple(ops), tuple(lines)), KernelReport(label, ops, lines, 0))
                known.launches += 1
            elif name == "mlircx.call":
                library[op.attributes["callee"].value] += 1
            elif name in ATEN:
                aten[op.attributes["op"].value] += 1
    report.kernels = list(kernels.values())
    report.library = dict(library)
    report.aten = {name: (n, why_aten.get(name, (n, "a pass calls it"))[1]) for name, n in aten.items()}
    report.ledger = record.ledger.entries
    report.fusions = sum(1 for e in record.ledger.entries if e.taken and e.action.startswith("fuse"))
    # The entries come in the order of the functions, and @graph is the first.
    totals = [e.numbers for e in record.ledger.entries if (e.pass_name, e.rule) == ("plan-memory", "TOTAL")]
    if totals:
        report.buffers = str(totals[0]["bytes_of_slots"])
