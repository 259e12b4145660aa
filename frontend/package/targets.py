"""A compiled graph for other processors than this one, as data: what a package for several kinds of processors has."""

from collections.abc import Sequence
from typing import Any

from mlirc.codegen.emit.stored_program import code_to_data
from mlirc.codegen.host.host_program import host_program
from mlirc.codegen.llvm.machine_code import mlir_to_llvm, relocatable_object
from mlirc.codegen.process.limits import with_room
from mlirc.codegen.runtime.shared_kernels import key_of
from mlirc.codegen.standalone.object_file import for_target
from mlirc.dialects.core.context import context
from mlirc.frontend import statistics
from mlirc.frontend.driver import steps
from mlirc.frontend.graph.aten_graph import AtenGraph
from mlirc.frontend.options import read_options
from mlirc.frontend.package.exported import Functional
from mlirc.frontend.package.packaged_graph import PackagedGraph, PackageError
from mlirc.lowering.module.target_attribute import set_target
from mlirc.lowering.pipeline.pass_manager import functions
from mlirc.lowering.target import NAMED, CpuTarget, Target

HOSTS = ("graph", "prepare")


def targets_of(names: Sequence[str]) -> list[tuple[str, CpuTarget]]:
    """The targets of these names, the best last. Raises PackageError."""
    found = []
    for name in dict.fromkeys(names):
        target = NAMED.get(f"cpu-{name}")
        if not isinstance(target, CpuTarget) or target.arch != "x86_64":
            known = ", ".join(x.removeprefix("cpu-") for x, t in NAMED.items() if getattr(t, "arch", "") == "x86_64")
            raise PackageError(f"there is no target '{name}' for packages; there are {known}")
        found.append((name, target))
    return sorted(found, key=lambda one: (one[1].vector_bytes, one[1].bf16_pairs))


def graphs_for(
    found: Functional, program: PackagedGraph, names: Sequence[str]
) -> tuple[list[tuple[str, dict[str, Any]]], list[bytes]]:
    """[(target's text, the graph as data of frontend.cache.compiled.to_data)], the best target last; and the blobs of their code."""
    blobs: list[bytes] = []
    made = [(str(Target(target)), with_room(graph_data, found, target, blobs)) for _, target in targets_of(names)]
    return made, blobs


def graph_data(found: Functional, target: CpuTarget, blobs: list[bytes]) -> dict[str, Any]:
    """The graph's code for any processor of that kind. Raises PackageError."""
    graph = AtenGraph(
        found.gm, "inference", read_options(None), statistics.GraphReport("inference"), tuple(found.parameters)
    )
    with context():
        lowering = steps.import_aten(graph, None)
        set_target(lowering.module, Target(target))
        for stage in graph.stages:
            lowering = steps.run_stage(lowering, stage)
        if lowering.imported.objects:
            raise PackageError("the model cannot be saved for targets: it needs an object that has no text")
        programs, positions = code_of(lowering.module, target, blobs)
    data: dict[str, Any] = {
        "inputs": lowering.imported.inputs,
        "outputs": lowering.outputs,
        "graph": programs["graph"],
        "prepare": None,
    }
    if "prepare" in programs:
        data["prepare"] = programs["prepare"] | {"parameters": positions}
    return data


def code_of(module: Any, target: CpuTarget, blobs: list[bytes]) -> tuple[dict[str, dict[str, Any]], list[int]]:
    """The host programs of a lowered module as data, and which arguments of @graph its @prepare takes."""
    named = {op.attributes["sym_name"].value: op for op in module.body.operations if "sym_name" in op.attributes}
    kernels = [
        op.operation.get_asm(use_local_scope=True)
        for name, op in named.items()
        if name not in HOSTS and op.operation.name in ("func.func", "llvm.func")
    ]
    code, text = b"", ""
    if kernels:
        text = for_target(mlir_to_llvm("\n".join(kernels)), target)
        code = relocatable_object([text])
    made = {}
    for function in functions(module):
        if (name := function.name.value) not in HOSTS:
            continue
        host = host_program(named[name], [], False, False)
        used = {link: (code, key_of(f"{target} {link} {text}"), link) for link in host.links if link in named}
        made[name] = code_to_data(host, relocatable_object([host.text]), used, blobs)
    return made, steps.prepared_positions(named)
