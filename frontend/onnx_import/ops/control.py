"""Control flow: branches, and loops whose number of steps is known when a model is compiled."""

from typing import Any

import torch

from mlirc.frontend.onnx_import.registry import OnnxNode, op
from mlirc.frontend.onnx_import.values import Known, OnnxValueError, Value, number, positive, tensor

MOST_STEPS = 1024
"""Of a loop that is unrolled."""


@op("If", raw=True)
def branch(node: OnnxNode, condition: Value) -> Any:
    """The branch that is known, or both and a choice between their results where those have the same sizes."""
    assert node.run is not None
    graphs = node.need("then_branch"), node.need("else_branch")
    if isinstance(condition, Known):
        return tuple(node.run(graphs[0] if number(condition, "cond") else graphs[1], {}))
    taken, other = (node.run(graph, {}) for graph in graphs)
    found = []
    for a, b in zip(map(tensor, taken), map(tensor, other), strict=True):
        if a.shape != b.shape:
            raise OnnxValueError(f"its branches give {list(a.shape)} and {list(b.shape)}, and only a call says which")
        found.append(torch.where(tensor(condition).reshape(()), a, b))
    return tuple(found)


@op("Loop", raw=True)
def loop(node: OnnxNode, trips: Value, condition: Value, *carried: Value) -> Any:
    """Unrolled. A condition that the call computes keeps values as they are once it is false."""
    assert node.run is not None
    body = node.need("body")
    if trips is None:
        raise OnnxValueError("its number of steps is not known when the model is compiled")
    count = number(trips, "number of steps")
    if not isinstance(count, int) or count > MOST_STEPS:
        raise OnnxValueError(f"it takes {count} steps; up to {MOST_STEPS} are unrolled, if their number is known")
    names = [v.name for v in body.input]
    values = list(carried)
    rows: list[list[torch.Tensor]] = [[] for _ in range(len(body.output) - 1 - len(values))]
    going: Value = condition if condition is not None else Known(True, torch.bool)
    for k in range(count):
        if isinstance(going, Known) and not number(going, "cond"):
            break
        given = dict(zip(names, [Known(k, torch.int64), going, *values], strict=True))
        after, *results = node.run(body, given)
        if not isinstance(going, Known) or not isinstance(after, Known):
            if rows:
                raise OnnxValueError("only a call says how many steps it takes, and so how many rows it gives")
            if not isinstance(going, Known):
                results = [
                    torch.where(tensor(going).reshape(()), tensor(b), tensor(a))
                    for a, b in zip(values, results, strict=True)
                ]
                after = torch.logical_and(tensor(going), tensor(after))
        going, values = after, results[: len(values)]
        for row, x in zip(rows, results[len(values) :], strict=True):
            row.append(tensor(x))
    if any(not row for row in rows):
        raise OnnxValueError("it takes no step, and the sizes of its results are not known")
    return (*values, *(torch.stack(row) for row in rows))


@op("Scan")
def scan(node: OnnxNode, *operands: torch.Tensor) -> Any:
    """Unrolled over its axis."""
    assert node.run is not None
    body, count = node.need("body"), node.need("num_scan_inputs")
    kept = len(operands) - count
    values, scanned = list(operands[:kept]), operands[kept:]
    axes = node.get("scan_input_axes") or [0] * count
    backwards = node.get("scan_input_directions") or [0] * count
    steps = scanned[0].shape[positive(axes[0], scanned[0].dim())]
    if not isinstance(steps, int) or steps > MOST_STEPS or not steps:
        raise OnnxValueError(f"it takes {steps} steps; 1 to {MOST_STEPS} are unrolled, if their number is known")
    names = [v.name for v in body.input]
    rows: list[list[torch.Tensor]] = [[] for _ in range(len(body.output) - kept)]
    for k in range(steps):
        pieces = [
            x.select(axis, steps - 1 - k if back else k) for x, axis, back in zip(scanned, axes, backwards, strict=True)
        ]
        results = [tensor(x) for x in node.run(body, dict(zip(names, [*values, *pieces], strict=True)))]
        values = results[:kept]
        for row, x in zip(rows, results[kept:], strict=True):
            row.append(x)
    out_axes = node.get("scan_output_axes") or [0] * len(rows)
    reverse = node.get("scan_output_directions") or [0] * len(rows)
    stacked = [
        torch.stack(row[::-1] if back else row, axis) for row, axis, back in zip(rows, out_axes, reverse, strict=True)
    ]
    return (*values, *stacked)
