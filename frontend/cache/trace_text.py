"""Writes a graph of TorchDynamo's as text with everything that AOTAutograd's trace depends on, apart from installed software.

    %7 = call_method view(%6, 2, -1) {} | <stack trace>

and what there is to say of each input, and the state of the process that traced operators ask for. What cannot be told by
text, or is not torch's own and may mean another thing tomorrow, raises NoText.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from mlirc.codegen.abi.modes import modes
from mlirc.codegen.process import floating_point
from mlirc.frontend.cache.graph_text import GraphTextWriter, comes_with_torch, target_text
from mlirc.frontend.errors import NoText
from mlirc.frontend.importer.bodies import attribute, has_regions, is_flex_attention
from mlirc.frontend.torch_compat import global_switches
from mlirc.frontend.torch_compat.aot_autograd import compiled_autograd
from mlirc.frontend.torch_compat.aot_autograd.tracing import config
from mlirc.frontend.torch_compat.autocast import autocast_devices
from mlirc.frontend.torch_compat.dynamo.tracing_context import TracingContext
from mlirc.frontend.torch_compat.fake_tensors import FakeTensor, is_view, storage_id

# What a node may carry that changes what is traced: activation checkpointing, annotations, wrapped functions.
MARKS = ("recompute", "custom", "is_wrapped", "ac_graph_id")


def trace_text(gm: GraphModule, inputs: Sequence[Any], static: Sequence[int]) -> str:
    """The text. `inputs` are the tensors of the first call, `static` the positions of those that stay in place."""
    odd = _odd_state(gm)
    if odd:
        raise NoText(odd)
    writer = GraphTextWriter(gm)
    lines = [repr(surroundings()), f"static {list(static)}"]
    placeholders = gm.graph.find_nodes(op="placeholder")
    lines += [_input(writer, x, node.meta.get("example_value")) for x, node in zip(inputs, placeholders, strict=True)]
    for node in gm.graph.nodes:
        writer.numbers[node] = len(writer.numbers)
        lines.append(_node(writer, node))
    return "\n".join(lines)


def surroundings() -> list[Any]:
    """The state of this process that tracing depends on. Raises NoText where PyTorch does not tell all of it."""
    if global_switches.switches() is None:
        raise NoText(global_switches.switches.why)
    devices = autocast_devices()
    return [
        [torch.is_grad_enabled(), torch.is_inference_mode_enabled(), bool(devices)],
        [(kind, str(dtype)) for kind, dtype in devices],
        [str(torch.get_default_device()), sorted((name, str(value)) for name, value in global_switches.read().items())],
        sorted(global_switches.functorch_settings().items()),
        floating_point.mode(),
        torch.get_num_threads() == 1,  # ATen has other kernels of convolutions then, whose results lie in another way
    ]


def _odd_state(gm: GraphModule) -> str:
    """What this process or graph has that text does not tell, or ""."""
    tracing = TracingContext.try_get()
    if tracing is None or tracing.fakify_first_call or getattr(tracing, "ddp_optimizer_ctx", None) is not None:
        return "another way to be traced than Dynamo's own"
    if hasattr(gm, "saved_tensors_hooks_pack_0"):
        return "hooks for saved tensors"
    around = modes()
    if any(not mode.__module__.startswith("torch._subclasses") for mode in around):
        return f"a mode around it: {around[-1].__name__}"
    if compiled_autograd.is_on() or config.debug_assert:
        return "compiled autograd or debugging around it"
    if callable(config.activation_memory_budget_runtime_estimator) or callable(config.activation_memory_budget_solver):
        return "a memory budget by functions"
    return ""


def _input(writer: GraphTextWriter, x: Any, fake: Any) -> str:
    """`fake` is what Dynamo has in its place."""
    if type(x) not in (torch.Tensor, torch.nn.Parameter) or type(fake) is not FakeTensor:
        raise NoText(f"an input of type {type(x).__name__}")
    if x.layout is not torch.strided:
        raise NoText(f"an input in the layout {x.layout}")
    if not all(type(n) is int for n in (*fake.shape, *fake.stride(), fake.storage_offset())):
        raise NoText("a size that is a symbol")
    if x.is_conj() or x.is_neg():
        raise NoText("an input that conjugates or negates what is in memory")
    numbers = [list(x.shape), list(x.stride()), x.storage_offset(), x.untyped_storage().nbytes()]
    place = writer.storages.setdefault(storage_id(x), len(writer.storages))
    flags = [type(x).__name__, x.requires_grad, x.is_leaf, is_view(x)]
    flags += [x.is_inference(), x.is_quantized]
    return f"{x.dtype} {numbers} {x.device} in {place} {flags}"


def _node(writer: GraphTextWriter, node: Node) -> str:
    if any(node.meta.get(mark) for mark in MARKS):
        raise NoText("a node that is marked for recomputation or otherwise")
    what = node.op
    if node.op == "call_function":
        known = comes_with_torch(node.target) and not isinstance(node.target, torch._ops.HigherOrderOperator)
        if not known and not takes_known_functions(node.target):
            raise NoText(f"a call of {target_text(node.target)}")
        what = target_text(node.target)
    elif node.op == "call_method":
        owner = node.args[0] if node.args else None
        value = owner.meta.get("example_value") if isinstance(owner, Node) else None
        if type(value) not in (FakeTensor, torch.Size):
            raise NoText(f"a method of a {type(value).__name__}")
        what = f"call_method {node.target}"
    elif node.op == "get_attr" and all(takes_known_functions(user.target) for user in node.users):
        what = _function(writer, attribute(writer.gm, node))
    elif node.op not in ("placeholder", "output"):
        raise NoText(f"a node of kind {node.op}")
    arguments = writer.value(node.args) if node.op != "placeholder" else ""
    return f"%{writer.numbers[node]} = {what}{arguments} {writer.value(node.kwargs)} | {node.meta.get('stack_trace') or ''}"


def takes_known_functions(target: Any) -> bool:
    """Whether it is an operator that takes functions, whose text says what it does."""
    return has_regions(target) or is_flex_attention(target)


def _function(writer: GraphTextWriter, gm: Any) -> str:
    """The text of a function that an operator takes."""
    if not isinstance(gm, GraphModule):
        raise NoText(f"a function that is a {type(gm).__name__}")
    if id(gm) in writer.bodies:
        return f"function {writer.bodies[id(gm)]}"
    writer.bodies[id(gm)] = len(writer.bodies)
    inner, lines = GraphTextWriter(gm), ["function"]
    inner.storages, inner.bodies = writer.storages, writer.bodies
    for node in gm.graph.nodes:
        inner.numbers[node] = len(inner.numbers)
        lines.append(_node(inner, node))
    return "\n  ".join(lines)
