"""`mlirc.explain(fn)(*args)`: what Dynamo and mlirc did with a function, as text (print it) and as data (`.data`)."""

import io
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from mlirc.frontend import statistics


@dataclass
class Explanation:
    """data: graphs (kernels, aten, library, arena, buffers, seconds, fallback), graph_breaks (reason, user_stack), compiled. Prints as text."""

    data: dict[str, Any]

    def __str__(self) -> str:
        console = Console(file=io.StringIO(), width=110)
        data = self.data
        console.print(f"{len(data['graphs'])} compiled graphs, {len(data['graph_breaks'])} graph breaks")
        for item in data["graph_breaks"]:
            console.print(f"  graph break: {item['reason']}", markup=False)
            for line in item["user_stack"]:
                console.print(f"    {line}", markup=False)
        for number, graph in enumerate(data["graphs"]):
            console.print(_graph_title(number, graph), markup=False)
            if graph["fallback"]:
                continue
            console.print(_kernel_table(graph))
            for name, count in graph["library"].items():
                console.print(f"  {count:4d} library calls  {name}", markup=False)
            for name, (count, why) in graph["aten"].items():
                console.print(f"  {count:4d} ATen calls     {name}: {why}", markup=False)
            seconds = ", ".join(f"{stage} {1e3 * value:.0f} ms" for stage, value in graph["seconds"].items())
            console.print(f"  arena {graph['arena']} bytes; all buffers {graph['buffers']}; {seconds}", markup=False)
        return console.file.getvalue()  # type: ignore[attr-defined]

    __repr__ = __str__


def _graph_title(number: int, graph: dict[str, Any]) -> str:
    if graph["fallback"]:
        return f"graph {number} ({graph['kind']}): runs in eager: {graph['fallback']}"
    launches = sum(k["launches"] for k in graph["kernels"])
    return f"graph {number} ({graph['kind']}): {len(graph['kernels'])} kernels, {launches} launches, {graph['fusions']} fusions"


def _kernel_table(graph: dict[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 2))
    for title in ("times", "kernel", "ops", "lines"):
        table.add_column(title, overflow="fold")
    for kernel in graph["kernels"]:
        lines = [line.rsplit("/", 1)[-1] for line in kernel["lines"]]
        table.add_row(str(kernel["launches"]), kernel["name"], " ".join(kernel["ops"]), " ".join(lines))
    return table


def explain(fn: Callable, **compile_options: Any) -> Callable[..., Explanation]:
    """Compile `fn` anew with mlirc, call it, and say what happened: `print(mlirc.explain(model)(x))`.

    Keywords are torch.compile's (`dynamic`, `options`). When the result is a loss (a 0-d tensor that requires grad), or a
    tensor that does, its backward graph is compiled and reported too; no gradient of the user's is touched.
    """

    def run(*args: Any, **kwargs: Any) -> Explanation:
        import torch._dynamo

        breaks = _graph_breaks(fn, args, kwargs)
        torch._dynamo.reset()
        first = len(statistics.graphs)
        compiled = torch.compile(fn, backend="mlirc", **compile_options)
        result = compiled(*args, **kwargs)
        _compile_backward(result)
        graphs = [asdict(graph) for graph in statistics.graphs[first:]]
        return Explanation({"graphs": graphs, "graph_breaks": breaks})

    return run


def _graph_breaks(fn: Callable, args: tuple, kwargs: dict) -> list[dict[str, Any]]:
    import torch._dynamo

    torch._dynamo.reset()
    output = torch._dynamo.explain(fn)(*args, **kwargs)
    found = []
    for item in output.break_reasons:
        if item.graph_break:
            found.append(
                {"reason": str(item.reason).split("\n")[0], "user_stack": [_frame(f) for f in item.user_stack[-3:]]}
            )
    return found


def _frame(frame: Any) -> str:
    return f"{frame.filename}:{frame.lineno} in {frame.name}"


def _compile_backward(result: Any) -> None:
    leaves = [t for t in torch.utils._pytree.tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
    sources = [t for t in leaves if t.grad_fn is not None]
    if sources:
        inputs = list(_leaf_parameters(sources))
        if inputs:
            torch.autograd.grad([t.sum() for t in sources], inputs, allow_unused=True)


def _leaf_parameters(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """The leaves that these tensors' autograd graphs reach."""
    seen, found = set(), []
    stack = [t.grad_fn for t in tensors]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.append(node.variable)
        stack.extend(parent for parent, _ in node.next_functions)
    return found
