"""options={"dump": DIR}: keeps a graph: ATen's FX graph, the IR after every stage, inputs and results of its first call."""

import dataclasses
import json
import linecache
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx import GraphModule

from mlirc.dialects.core.bindings import ir
from mlirc.frontend.fallback import fallback
from mlirc.frontend.graph.aten_graph import AtenGraph
from mlirc.frontend.graph.observer import Native, Observer
from mlirc.frontend.graph.source_line import last_line
from mlirc.frontend.importer.importer import Imported
from mlirc.frontend.report.capture_folder import GraphFiles
from mlirc.frontend.report.dynamo_dump import current
from mlirc.frontend.report.first_call import FirstCall
from mlirc.frontend.report.tensor_file import write_tensors
from mlirc.lowering.module.target_attribute import target_of
from mlirc.lowering.pipeline.fusion_log import json_lines
from mlirc.lowering.pipeline.pipelines import STAGES
from mlirc.lowering.pipeline.standard_steps import set_stage


class Dump(Observer):
    """Writes DIR/003.json, DIR/003_forward_2_fuse.mlir and so on: the number of the graph, its kind, the number and name of the stage.

    The first lines of an .mlir file say how to run the stages that are left, and what else the graph needs. Tensors of the graph
    module are arguments of @graph; their values go to 003_forward_constants.safetensors, named as arguments. Where
    anything fails, a warning says so, and the graph has no more files.
    """

    def __init__(self, folder: str, graph: AtenGraph):
        self.graph, self.rest = graph, dict(graph.stages)
        self.count = 0
        self.notes: list[str] = []
        self.files: dict[str, str | None] = {}
        dynamo = current()
        self.record = record = GraphFiles(
            folder,
            kind=graph.kind,
            subgraph=graph.report.subgraph,
            dynamo=None if dynamo is None else dynamo.number,
            options=dataclasses.asdict(graph.options),
            passes=dict(graph.stages),
        )
        if dynamo is not None:
            dynamo.became(record.number)
        self._optional(self._describe)

    def _describe(self) -> None:
        """What is known before anything is compiled."""
        gm, record = self.graph.gm, self.record
        aten = record.write(f"{self.graph.kind}_aten.py", fx_text(gm))
        record.save(aten=aten, arguments=arguments_of(self.graph), source=source_map(gm))

    @contextmanager
    def around(self, step: str, *given: Any) -> Iterator[None]:  # type: ignore[override]
        try:
            yield
        except Exception as error:
            self.record.save(failed={"step": step, "why": fallback.reason(error)})
            raise

    def on_step(self, step: str, made: Any, seconds: float) -> None:
        if step == "import":
            self._optional(self.begin, made.imported)
        elif step == "link":
            self.save()
            return
        elif self.rest.pop(step, None) is None:
            return
        self.write(step, made.module)
        if step == "fuse" and self.record.folder is not None:
            self._optional(self._fusion, made)

    def _fusion(self, made: Any) -> None:
        """Each pair of kernels that a fusion pass looked at."""
        passes, target = ",".join(self.graph.stages.values()), str(target_of(made.module))
        text = json_lines(made.record.ledger.fusion.candidates, passes, target, kind=self.graph.kind)
        self.record.data["fusion"] = self.record.write(f"{self.graph.kind}_fusion.jsonl", text)
        self.save()

    def begin(self, imported: Imported) -> None:
        self.notes += [f"object {k}, not in this file: {describe(x)}" for k, x in enumerate(imported.objects)]
        if imported.constants:
            name = f"{self.graph.kind}_constants.safetensors"
            self.notes.append(f"arguments {{mlirc.constant}}: {self.record.prefix}_{name}")
            first = len(imported.inputs)
            held = {f"arg{first + k}": x for k, x in enumerate(imported.constants)}
            write_tensors(self.record.path(name), held)
            self.record.data["constants"] = f"{self.record.prefix}_{name}"
        self.record.data |= {"inputs_of": imported.inputs, "objects": len(imported.objects)}

    def write(self, stage: str, module: ir.Module) -> None:
        """The module as it is after `stage`, with the passes of those that follow."""
        name = f"{self.graph.kind}_{self.count}_{stage}.mlir"
        self.count += 1
        if self.record.folder is not None:
            self._optional(self._write, name, stage, module)

    def _write(self, name: str, stage: str, module: ir.Module) -> None:
        rest = ",".join(self.rest.values())
        header = "".join(f"// {line}\n" for line in (f'mlirc opt {self.record.prefix}_{name} -p "{rest}"', *self.notes))
        self.record.data.setdefault("target", str(target_of(module)))
        set_stage(module, stage if stage in STAGES else None)
        try:
            text = header + module.operation.get_asm(enable_debug_info=True)
        finally:
            set_stage(module, None)
        self.files[stage] = self.record.write(name, text)
        self.save()

    def native(self, native: Native, compiled: Any, written: Sequence[int], constants: Sequence[Any]) -> Native:
        if self.record.folder is None:
            return native
        arguments = len(compiled.inputs) + len(constants)
        mutated = [compiled.inputs.index(k) for k in written if k in compiled.inputs]
        return FirstCall(native, self.record, self.graph.kind, arguments, mutated, self.save)

    def save(self) -> None:
        self.record.save(stages=self.files, report=_plain(self.graph.report))

    def _optional(self, work: Callable[..., None], *given: Any) -> None:
        if self.record.folder is None:
            return
        try:
            work(*given)
        except Exception as error:
            self.record.give_up(error)


def _plain(value: Any) -> Any:
    """A dataclass, or a list of them, as JSON data; a value that JSON lacks becomes its text."""
    made = [dataclasses.asdict(x) for x in value] if isinstance(value, list) else dataclasses.asdict(value)
    return json.loads(json.dumps(made, default=str))


def fx_text(gm: GraphModule) -> str:
    """An FX graph as Python, with types, strides and source lines."""
    text = fallback.optional(lambda: gm.print_readable(print_output=False, include_stride=True, include_device=True))
    return text if text is not None else str(gm.graph)


def arguments_of(graph: AtenGraph) -> list[dict[str, Any]]:
    """The placeholders of the FX graph: name, meaning, whether it is a parameter that Dynamo tells of."""
    nodes = graph.gm.graph.find_nodes(op="placeholder")
    return [
        {"name": node.name, "type": type_text(node.meta.get("val")), "parameter": k in graph.parameters}
        for k, node in enumerate(nodes)
    ]


def type_text(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        numbers = (f"[{', '.join(map(str, x))}]" for x in (value.shape, value.stride()))
        return f"{str(value.dtype).removeprefix('torch.')} {' strides '.join(numbers)} {value.device}"
    return f"{type(value).__name__} {value}"


LINE = re.compile(r'File "(.*)", line (\d+)(?:, in (.*))?')


def source_map(gm: GraphModule) -> dict[str, dict[str, Any]]:
    """The user's lines that the graph comes from -> text of the line, function, and the calls of ATen made of it."""
    found: dict[str, dict[str, Any]] = {}
    for node in gm.graph.nodes:
        match = LINE.search(last_line(node)) if node.op == "call_function" else None
        if match is None:
            continue
        file, line, function = match[1], int(match[2]), match[3] or ""
        known = found.setdefault(
            f"{file}:{line}", {"text": linecache.getline(file, line).strip(), "function": function, "aten": []}
        )
        known["aten"].append([node.name, str(node.target)])
    return found


def describe(x: Any) -> str:
    """What an object of an ATen call is, in one line: it has no text from which it could be made again."""
    if isinstance(x, torch.fx.GraphModule):
        return "a subgraph: " + " ".join(x.code.split())
    return " ".join(f"{type(x).__name__} {x}".split())
