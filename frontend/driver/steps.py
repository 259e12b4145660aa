"""The steps of a graph's way that need MLIR: import, the passes of a stage, emit, link. A graph of the disk cache takes none of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from torch.fx import GraphModule, Node

from mlirc.codegen.cache.folder import CacheFolder
from mlirc.codegen.emit.emit import EarlyKernels, Unlinked, begin_module
from mlirc.codegen.host.program import Program
from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.frontend.cache.compiled import Compiled
from mlirc.frontend.cache.frozen_parameters import FrozenParameters
from mlirc.frontend.capture.lazy_results import with_flags, with_results_in_memory
from mlirc.frontend.capture.result_views import is_view, seen_by, with_views
from mlirc.frontend.capture.views_to_replay import with_replays
from mlirc.frontend.cuda_graphs.facts import returned_to_user
from mlirc.frontend.driver.verification import EACH_STAGE, PROOFS
from mlirc.frontend.graph.aten_graph import AtenGraph
from mlirc.frontend.importer.bodies import DENSE
from mlirc.frontend.importer.importer import Imported, import_graph
from mlirc.frontend.importer.result_outputs import Outputs
from mlirc.frontend.options import CUDA_GRAPH_MODES
from mlirc.frontend.report.logs import shown
from mlirc.lowering.pipeline.fusion_log import FusionLog
from mlirc.lowering.pipeline.ledger import Ledger
from mlirc.lowering.pipeline.pass_manager import PipelineRun, functions, run_pipeline


@dataclass(frozen=True)
class Lowering:
    """A graph in the dialect, on its way through the stages; the passes change `module` in place.

    outputs   what the graph gives, as in Imported, with views of one another
    kernels   those whose code is begun while others are lowered
    record    what the passes left behind
    given     what observers give passes beside text, by the pass's name (run_pipeline)
    after_pass  what observers have called after each pass
    """

    graph: AtenGraph
    imported: Imported
    outputs: list[tuple[str, Any]]
    kernels: EarlyKernels
    record: PipelineRun = field(default_factory=PipelineRun)
    given: dict[str, dict[str, Any]] = field(default_factory=dict)
    after_pass: list[Callable[[], None]] = field(default_factory=list)

    @property
    def module(self) -> ir.Module:
        return self.imported.module


@dataclass(frozen=True)
class Emitted:
    """Programs whose machine code other threads are making; nothing of MLIR's.

    programs    "graph", and "prepare" where the pass hoist-parameters took one out of it
    positions   which arguments of @graph its @prepare takes
    objects     what ATen calls need that has no text, each in one line
    """

    programs: dict[str, Unlinked]
    positions: list[int]
    inputs: list[int]
    outputs: list[tuple[str, Any]]
    objects: list[str]
    freeze: bool


def import_aten(graph: AtenGraph, folder: CacheFolder | None) -> Lowering:
    """`folder` is where kernels are looked up, and kept."""
    results = len(graph.gm.graph.output_node().args[0])  # type: ignore[arg-type]
    gm, flags = with_results_in_memory(graph.gm, returned_to_user(graph.kind, results))
    imported = import_graph(gm, graph.parameters, graph.after_node)
    returned = returned_to_user(graph.kind, len(imported.outputs))
    outputs = with_views(gm, imported.outputs, returned)
    recorded = graph.on_gpu and graph.options.mode in CUDA_GRAPH_MODES
    outputs = with_replays(gm, outputs, returned, gradients=graph.kind == "forward" and not recorded)
    outputs = with_flags(with_objects(gm, imported.module, outputs, returned), flags)
    ledger = Ledger(fusion=fusion_log(graph))
    for region in imported.regions:
        made = region.function
        rule, subject = ("SHARED", made.name) if made else (region.why, region.name)
        ledger.record("import", "compile once", subject, rule, made is not None, region.line, calls=region.calls)
    for call, rule, line in graph.gm.meta.get(DENSE, ()):
        ledger.record("capture", "generate", call, rule, False, line)
    return Lowering(graph, imported, outputs, EarlyKernels(folder), PipelineRun(ledger=ledger))


def with_objects(gm: GraphModule, module: ir.Module, outputs: Outputs, returned: int) -> list[tuple[str, Any]]:
    """The outputs, of which each view that is laid out as its input becomes ("alias", k): a program gives the input's own tensor object,
    whose sizes a graph may change (`x.t_()`)."""
    nodes: list[Any] = list(gm.graph.output_node().args[0])  # type: ignore[arg-type]
    block = next(f for f in functions(module) if f.name.value == "graph").regions[0].blocks[0]
    results, arguments = list(block.operations)[-1].operands, {str(x.type) for x in block.arguments}
    made = list(outputs)
    for place, (node, (kind, k)) in enumerate(zip(nodes[:returned], outputs, strict=False)):
        of_input = isinstance(node, Node) and is_view(node) and seen_by(node).op == "placeholder"
        if of_input and kind == "result" and str(results[k].type) in arguments:
            made[place] = "alias", k
    return made


def fusion_log(graph: AtenGraph) -> FusionLog | None:
    """Where records of fusion go, if somebody wants them: the option of that name, a dump or a log; and what a plan says."""
    options = graph.options
    wanted = options.candidates or options.dump is not None or options.fusion_plan is not None or "fusion" in shown()
    return FusionLog(options.fusion_plan, graph.kind, wanted=options.candidates) if wanted else None


def run_stage(lowering: Lowering, stage: str) -> Lowering:
    """Runs the passes of a stage."""
    text, record = lowering.graph.stages[stage], lowering.record

    def after_pass(step: str, module: ir.Module) -> None:
        for call in lowering.after_pass:
            call()

    how: dict[str, Any] = {
        "record": record,
        "verify": False,
        "verify_others": True,
        "proofs": PROOFS,
        "each": EACH_STAGE,
    }
    how |= {"given": lowering.given}
    run_pipeline(lowering.module, text, after_pass if lowering.after_pass else None, **how)
    if record.ledger.fusion is not None and stage == list(lowering.graph.stages)[-1]:
        record.ledger.fusion.check_plan()
    return lowering


def emit(lowering: Lowering) -> Emitted:
    """Begins to make the code of the host programs, and of kernels that are left."""
    module, imported, kernels = lowering.module, lowering.imported, lowering.kernels
    profile = lowering.graph.options.profile
    # a backward graph is the last to use what the forward one saved: each goes after its last use
    consume = {"graph": lowering.graph.kind == "backward", "prepare": False}
    found = {function.name.value: function for function in functions(module)}
    programs = {
        name: begin_module(
            module, imported.objects, name, consume[name], kernels.folder, kernels, profile and name == "graph"
        )
        for name in consume
        if name == "graph" or name in found
    }
    positions = prepared_positions(found)
    objects = described(imported.objects)
    return Emitted(programs, positions, imported.inputs, lowering.outputs, objects, lowering.graph.options.freeze)


def described(objects: Sequence[Any]) -> list[str]:
    """Each in one line. Few graphs have any; the others load none of what dumps need."""
    if not objects:
        return []
    from mlirc.frontend.report.dump import describe

    return [describe(x) for x in objects]


def prepared_positions(found: Mapping[str, Any]) -> list[int]:
    """Which arguments of @graph its @prepare takes, of a lowered module's functions by name."""
    if "prepare" not in found:
        return []
    return [int(str(k)) for k in symbols.parse_list(found["prepare"].attributes["mlirc.parameters"].value)]


def link(emitted: Emitted) -> Compiled:
    """Waits for the code. Any thread may do so."""
    programs: dict[str, Program] = {name: code.link() for name, code in emitted.programs.items()}
    frozen = FrozenParameters(programs["prepare"], emitted.positions, emitted.freeze) if "prepare" in programs else None
    return Compiled(programs["graph"], frozen, emitted.inputs, emitted.outputs)
