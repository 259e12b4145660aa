"""Reads off the FX graph what recording it as a CUDA graph needs, or why it cannot be recorded."""

from typing import Any

import torch
from torch.fx import GraphModule

from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.frontend.importer.bodies import WITH_REGIONS, all_nodes
from mlirc.frontend.torch_compat.dynamo.tracing_context import TracingContext
from mlirc.frontend.torch_compat.dynamo.trees import tree_leaves
from mlirc.frontend.torch_compat.fake_tensors import storage_id

BY_DATA = ("cond", "while_loop")
"""Operators of which the host has to know something that a GPU computes."""


@dataclass(frozen=True)
class Facts:
    """Positions count the placeholders and the results of the FX graph.

    why          why the graph cannot be recorded, or ""
    device       the GPU
    tensors      inputs that are tensors; numbers: those that are numbers, which sizes depend on
    fixed        inputs that are used where they are: parameters, buffers, and what the graph writes to
    aliases      result -> the input whose memory it is
    returned     results that outlive the next call: everything but what a forward graph saves for its backward graph
    symbolic     whether sizes differ from call to call
    """

    why: str = ""
    device: int = 0
    tensors: tuple[int, ...] = ()
    numbers: tuple[int, ...] = ()
    fixed: frozenset[int] = frozenset()
    aliases: tuple[tuple[int, int], ...] = ()
    returned: frozenset[int] = frozenset()
    symbolic: bool = False


def read_facts(gm: GraphModule, kind: str) -> Facts:
    """Reads them while the graph is compiled: what are parameters is asked of the TracingContext."""
    placeholders = gm.graph.find_nodes(op="placeholder")
    values = [node.meta.get("val") for node in placeholders]
    why, devices = obstacle(gm)
    if why:
        return Facts(why)
    storages = {storage(v): k for k, v in reversed(list(enumerate(values))) if isinstance(v, torch.Tensor)}
    fixed = set(parameters(kind))
    for node in gm.graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default):
        position = storages.get(storage(node.args[0].meta["val"]))
        if position is not None:
            fixed.add(position)
    aliases: dict[int, int] = {}
    own: set[int] = set()
    results: Any = gm.graph.output_node().args[0]
    for k, result in enumerate(results):
        value = result.meta.get("val") if isinstance(result, torch.fx.Node) else None
        if isinstance(value, torch.SymFloat):
            return Facts("a result is a float, which the host waits for")
        if not isinstance(value, torch.Tensor):
            continue
        if storage(value) in storages:
            aliases[k] = storages[storage(value)]
        elif storage(value) in own:
            return Facts("two results share memory")
        else:
            own.add(storage(value))
    returned = returned_to_user(kind, len(results))
    sizes = [s for v in values if isinstance(v, torch.Tensor) for s in (*v.shape, *v.stride())]
    numbers = tuple(k for k, v in enumerate(values) if isinstance(v, (int, torch.SymInt)))
    return Facts(
        device=devices.pop(),
        tensors=tuple(k for k, v in enumerate(values) if isinstance(v, torch.Tensor)),
        numbers=numbers,
        fixed=frozenset(fixed),
        aliases=tuple(aliases.items()),
        returned=frozenset(range(returned)),
        symbolic=any(isinstance(s, torch.SymInt) for s in sizes) or bool(numbers),
    )


def obstacle(gm: GraphModule) -> tuple[str, set[int]]:
    """Why the graph cannot be recorded, or ""; and the GPUs that it works on. Functions of loops of known length are looked at too."""
    devices: set[int] = set()
    for node in all_nodes(gm):
        if node.op == "output":
            continue
        if node.op == "call_function" and isinstance(node.target, torch._ops.HigherOrderOperator):
            name = node.target.name()
            if name in BY_DATA:
                return f"what {name} runs depends on data", devices
            if name not in WITH_REGIONS:
                return f"{name} is an operator that may do anything", devices
        for value in tree_leaves(node.meta.get("val")):
            if isinstance(value, torch.SymFloat):
                return f"{node.name} is a float that changes", devices
            if not isinstance(value, torch.Tensor):
                continue
            if value.device.type != "cuda":
                what = "input" if node.op == "placeholder" else "the result of"
                name = node.name if node.op == "placeholder" else node.target
                return f"{what} {name} is on the CPU", devices
            devices.add(value.device.index or 0)
    if len(devices) != 1:
        return f"it works on {len(devices)} GPUs", devices
    return "", devices


def storage(value: torch.Tensor) -> int:
    return storage_id(value)


def parameters(kind: str) -> list[int]:
    """Placeholders that hold parameters and buffers; of a backward graph nothing is said."""
    tracing = TracingContext.try_get()
    if kind == "backward" or tracing is None or tracing.fw_metadata is None:
        return []
    return list(tracing.fw_metadata.static_input_indices or ())


def returned_to_user(kind: str, results: int) -> int:
    """How many of the first results the caller gets; the others of a forward graph are saved for its backward graph. Tokens of effects
    come before all, and AOTAutograd does not count them."""
    tracing = TracingContext.try_get()
    if kind != "forward" or tracing is None or tracing.fw_metadata is None:
        return results
    return len(tracing.fw_metadata.tokens) + tracing.fw_metadata.num_forward
