"""The memory plan as live ranges: which bytes of the arena a buffer has, from its first use to its last."""

from pathlib import Path
from typing import Any

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.memory_ops import arenas
from mlirc.dialects.core.tensor_types import info_of
from mlirc.lowering.module.source_lines import source_line
from mlirc.lowering.pipeline.pass_manager import functions
from mlirc.report.stage_modules import StageModules

TYPICAL = 96  # of a size that is a symbol, where the inputs do not say
WORKS = ("mlircx.launch", "mlircx.call", "mlircx.run", "mlircx.aten", "mlircx.aten_effect", "mlirc.assign")


def memory_data(stages: StageModules, inputs: Path | None) -> dict[str, Any] | None:
    """The plan of @graph after the stage `plan`; None where the capture has none.

    peak     bytes of the arenas that are in use at one step, at most
    arenas   bytes by device
    steps    the labels of the ops that run, in order
    slots    the buffers: place and bytes in the arena, numbers of the first and the last step that uses one
    note     where the values of symbols are from; "" where there are none
    """
    module = stages.module("plan")
    if module is None:
        return None
    function = next(f for f in functions(module) if f.name.value == "graph")
    sizes = arenas(function)
    known, note = _symbols(function, inputs)

    def number(n: Any) -> int:
        unknown = dict.fromkeys(symbols.free_symbols(n), TYPICAL) if not isinstance(n, int) else {}
        return symbols.evaluate(n, unknown | known)

    roots: dict[ir.Value, ir.Value] = {}
    first: dict[ir.Value, int] = {}
    last: dict[ir.Value, int] = {}
    labels = []
    slots: list[tuple[str, ir.Value, Any]] = []
    numbered = 0  # as MLIR prints values: asking it for each name takes the square of their number
    for op in function.regions[0].blocks[0].operations:
        name = op.operation.name
        if name == "mlirc.slot":
            slots.append((f"%{numbered}", op.results[0], op))
        elif name == "mlirc.view":
            roots[op.results[0]] = roots.get(op.operands[0], op.operands[0])
        elif name in WORKS:
            for x in op.operands:
                root = roots.get(x, x)
                first.setdefault(root, len(labels))
                last[root] = len(labels)
            labels.append(label_of(op))
        numbered += len(op.results) > 0
    found = []
    for shown, value, op in slots:
        info = info_of(value)
        found.append(
            {
                "name": shown,
                "device": info.device,
                "offset": number(symbols.parse(attribute_value(op.attributes["offset"]))),
                "bytes": number(info.extent) * info.dtype.itemsize,
                "first": first.get(value, 0),
                "last": last.get(value, 0),
                "type": str(value.type),
                "line": source_line(op.location),
            }
        )
    peak = most_live([(x["device"], x["first"], x["last"], x["offset"], x["bytes"]) for x in found])
    return {
        "peak": peak,
        "arenas": {d: number(n) for d, n in sizes.items()},
        "steps": labels,
        "slots": found,
        "note": note,
    }


def most_live(slots: list[tuple[str, int, int, int, int]]) -> int:
    """Bytes of the arenas that are in use at one step; those that two buffers share, where one is made in place of another, count once."""
    changes: dict[int, list[tuple[int, str, int, int]]] = {}
    for device, first, last, offset, size in slots:
        changes.setdefault(first, []).append((1, device, offset, size))
        changes.setdefault(last + 1, []).append((-1, device, offset, size))
    live: dict[tuple[str, int, int], int] = {}
    most = 0
    for step in sorted(changes):
        for sign, device, offset, size in changes[step]:
            key = device, offset, size
            live[key] = live.get(key, 0) + sign
            if not live[key]:
                del live[key]
        used, end, device = 0, 0, ""
        for at, offset, size in sorted(live):
            if at != device:
                device, end = at, 0
            used += max(0, offset + size - max(offset, end))
            end = max(end, offset + size)
        most = max(most, used)
    return most


def label_of(op: Any) -> str:
    """What the op runs: the kernel's label, the routine, the ATen operator, or the kernel's name."""
    for name in ("label", "callee", "op", "kernel"):
        if name in op.attributes:
            return str(attribute_value(op.attributes[name]))
    return op.operation.name


def _symbols(function: Any, inputs: Path | None) -> tuple[dict[str, int], str]:
    """Values of the symbols in the first call, and a note where they are not known."""
    import torch

    from mlirc.dialects.core.graph_signature import bind_symbols

    arguments = list(function.regions[0].blocks[0].arguments)
    symbolic = any(
        not isinstance(n, int) for x in arguments if isinstance(x.type, ir.RankedTensorType) for n in info_of(x).shape
    )
    if not symbolic:
        return {}, ""
    try:
        from safetensors import safe_open

        given: list[Any] = []
        with safe_open(str(inputs), framework="pt") as file:
            names = set(file.keys())
            for k, x in enumerate(arguments):
                if f"arg{k}" not in names:  # @prepare makes it
                    given.append(None)
                elif isinstance(x.type, ir.RankedTensorType):
                    given.append(torch.empty(file.get_slice(f"arg{k}").get_shape(), device="meta"))
                else:
                    given.append(file.get_tensor(f"arg{k}").item())
        return bind_symbols(function, given), "sizes are those of the first call"
    except Exception:
        return {}, f"sizes depend on the inputs: drawn for {TYPICAL}"
