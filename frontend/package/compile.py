"""`mlirc.compile`: a model compiled ahead of time, for inference or training."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch.fx import GraphModule

from mlirc.codegen.abi.python_tensor import why_no_programs
from mlirc.codegen.process.limits import with_room
from mlirc.frontend import statistics
from mlirc.frontend.cache.compiled import Compiled
from mlirc.frontend.cache.graph_cache import DiskCache
from mlirc.frontend.capture.flex_attention import expand_flex_attention
from mlirc.frontend.capture.rewrites import adapt
from mlirc.frontend.driver.boxed_call import wrap
from mlirc.frontend.driver.driver import compile_anew, compile_part
from mlirc.frontend.driver.parts import in_parts
from mlirc.frontend.driver.pending import Pending
from mlirc.frontend.errors import UnsupportedGraph
from mlirc.frontend.fallback import in_eager
from mlirc.frontend.graph.aten_graph import AtenGraph
from mlirc.frontend.importer.computed_numbers import part_numbers
from mlirc.frontend.importer.sizes import depends_on_data
from mlirc.frontend.options import read_options
from mlirc.frontend.package.exported import Functional, exported_program, functional
from mlirc.frontend.package.from_onnx import CompiledOnnx, exported_onnx, is_onnx
from mlirc.frontend.package.model import CompiledModel
from mlirc.frontend.package.packaged_graph import PackagedGraph


def compile(
    model: Any,
    args: tuple = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    options: Mapping[str, Any] | None = None,
    training: bool = False,
    optimizer: torch.optim.Optimizer | None = None,
) -> CompiledModel:
    """The model compiled for inference or training, whole, now; a callable that can be saved.

    model           a module, a function, a torch.export.ExportedProgram, what torch.jit.script or trace made, an onnx.ModelProto
                    or the path of an ONNX file
    args, kwargs    example arguments, as torch.export.export takes them; none for an ExportedProgram, and none need be given for ONNX
    dynamic_shapes  which sizes may be others in later calls, as torch.export.export takes it
    options         as for torch.compile(model, backend="mlirc", options={...}); "fallback" is "error" where it is not given
    training        what the model gives is, or begins with, a loss, a tensor without dimensions. A call gives (that, {name of a parameter:
                    its gradient, or None})
    optimizer       of the model's parameters: a call takes its step, and gives what the model gives. Its state is among the weights,
                    "optimizer.exp_avg.0.weight". What it does with numbers, such as the learning rate, is part of the code

    Raises what torch.export raises, UnsupportedGraph for what mlirc has no code for, OptionError.
    """
    chosen = replace(read_options({"fallback": "error", **(options or {})}), compile_seconds=None)
    if training or optimizer is not None:
        from mlirc.frontend.package.training import CompiledStep, training_graph

        found = training_graph(exported_program(model, args, kwargs or {}, dynamic_shapes, training=True), optimizer)
        weights = {name: x for name, (_, x) in found.state.items()}
        made = compiled_program(found, chosen), found.signature, weights, found
        return CompiledModel(*made) if optimizer is None else CompiledStep(*made).of(optimizer)
    if is_onnx(model):
        module, exported = exported_onnx(model, args, kwargs or {}, dynamic_shapes)
    else:
        module, exported = None, exported_program(model, args, kwargs or {}, dynamic_shapes)
    found = functional(exported)
    program = compiled_program(found, chosen)
    weights = {name: x for name, (_, x) in found.state.items()}
    if module is not None:
        return CompiledOnnx(program, found.signature, weights, found).with_inputs_of(module)
    return CompiledModel(program, found.signature, weights, found)


def compiled_program(found: Functional, options: Any) -> PackagedGraph:
    gm = found.gm
    expand_flex_attention(gm, options)
    adapt("inference", gm, [])
    graph = AtenGraph(gm, "inference", options, statistics.GraphReport("inference"), tuple(found.parameters))
    size, compiled, why = graph.arguments, None, in_python(gm)
    if why:
        run = in_parts(graph, partial(in_eager.guarded, partial(with_room, compile_part)))
    else:
        compiled, objects = with_room(compiled_whole, graph)
        run = wrap(compiled, size, [], compiled.program.native)
        statistics.record(graph.report)
        if objects:
            compiled, why = None, f"it needs an object that has no text: {objects[0][:60]}"
        elif graph.on_gpu:
            compiled, why = None, "it has tensors on a GPU"
    state = {name: k for name, (k, _) in found.state.items()}
    return PackagedGraph(run, compiled, why, size, state, found.arguments, found.written, found.views)


def in_python(gm: GraphModule) -> str:
    """Why Python runs between the parts of a graph, or ""."""
    if depends_on_data(gm):
        return "its sizes depend on data"
    return "" if part_numbers(gm) is None else "it computes numbers in Python"


def compiled_whole(graph: AtenGraph) -> tuple[Compiled, list[str]]:
    """The graph's programs, and what they need that has no text."""
    if why := why_no_programs():
        raise UnsupportedGraph(why)
    cache = DiskCache(graph)
    made = cache.find() or compile_anew(graph, cache)
    compiled = made.result() if isinstance(made, Pending) else made
    return compiled, cache.without_text(compiled)
