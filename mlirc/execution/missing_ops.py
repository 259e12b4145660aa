"""Which calls of ATen have no op of ours: what a function is compiled to is imported, and runs in eager, each call timed."""

import importlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node

from mlirc.frontend.driver.parts import in_parts
from mlirc.frontend.graph.aten_graph import AtenGraph, Run
from mlirc.frontend.options import Options
from mlirc.frontend.statistics import GraphReport


@dataclass
class MissingOp:
    """An overload of ATen's. `calls` are those in graphs, `seconds` what they took in eager, `subjects` who makes them."""

    name: str
    why: str
    calls: int = 0
    seconds: float = 0.0
    subjects: set[str] = field(default_factory=set)


@dataclass
class MissingOps:
    """What was found in all graphs.

    refused     why whole graphs cannot be imported -> how many
    seconds     of all calls of ATen's
    subject     who is compiled now
    """

    ops: dict[str, MissingOp] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)
    graphs: int = 0
    seconds: float = 0.0
    subject: str = ""

    def sorted(self) -> list[MissingOp]:
        """Those that took longest first."""
        return sorted(self.ops.values(), key=lambda op: (-op.seconds, -op.calls, op.name))

    def as_dict(self) -> dict[str, Any]:
        """docs/debugging.md describes it."""
        rows = [vars(op) | {"subjects": sorted(op.subjects)} for op in self.sorted()]
        return {
            "schema": 1,
            "graphs": self.graphs,
            "seconds": self.seconds,
            "missing": rows,
            "refused": dict(self.refused),
        }

    def backend(self, gm: GraphModule, inputs: Sequence[Any], **_: Any) -> Callable:
        """What torch.compile takes: it notes what is missing, and runs in eager."""
        from mlirc.frontend.cache.trace_cache import CachedTrace
        from mlirc.frontend.capture.aot_autograd import Capture

        options = Options(dump=None, cache=False)
        trace = CachedTrace(gm, inputs, options, lambda *_: None)  # type: ignore[arg-type,return-value]
        return Capture(options, trace, self.aten_graph).traced(gm, inputs)

    def aten_graph(self, gm: GraphModule, kind: str, options: Options) -> Run:
        return in_parts(AtenGraph(gm, kind, options, GraphReport(kind)), self.part)

    def part(self, graph: AtenGraph) -> Run:
        from mlirc.dialects.core.context import context
        from mlirc.frontend.importer.importer import import_graph

        self.graphs += 1
        aten: dict[str, tuple[int, str]] = {}
        try:
            with context():
                aten = import_graph(graph.gm).aten
        except Exception as error:  # of any kind: what the importer raises for what it does not know
            self.refused[" ".join(str(error).split())[:300]] += 1
        for name, (calls, why) in aten.items():
            missing = self.ops.setdefault(name, MissingOp(name, why))
            missing.calls += calls
            missing.subjects.add(self.subject)
        return _timed(graph.gm, aten, self)


class _Timed(Interpreter):
    """Runs a graph op by op. Of an overload of which only some calls are missing, their share of the time counts."""

    def __init__(self, gm: GraphModule, aten: dict[str, tuple[int, str]], found: MissingOps):
        super().__init__(gm)
        self.found = found
        calls = Counter(str(node.target) for node in gm.graph.nodes if node.op == "call_function")
        self.shares = {name: count / max(calls[name], 1) for name, (count, _) in aten.items()}

    def run_node(self, n: Node) -> Any:
        if n.op != "call_function":
            return super().run_node(n)
        start = time.perf_counter()
        result = super().run_node(n)
        taken = time.perf_counter() - start
        self.found.seconds += taken
        name = str(n.target)
        if name in self.shares:
            self.found.ops[name].seconds += self.shares[name] * taken
        return result


def _timed(gm: GraphModule, aten: dict[str, tuple[int, str]], found: MissingOps) -> Run:
    def run(given: list) -> list:
        arguments, given[:] = list(given), []
        return _Timed(gm, aten, found).run(*arguments)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def missing_in_script(script: str, arguments: Sequence[str]) -> MissingOps:
    """Of all that a script compiles, in its own run. Raises ScriptError."""
    from mlirc.measurement.script_calls import run_script

    found = MissingOps()
    for call in run_script(script, arguments):
        found.subject = call.name
        torch.compiler.reset()
        args, kwargs = call.fresh()
        with torch.set_grad_enabled(call.grad):
            _call(torch.compile(call.function, backend=found.backend, **call.arguments), args, kwargs, call.grad)
    return found


def missing_in_opinfo(names: Iterable[str]) -> tuple[MissingOps, dict[str, str]]:
    """Of PyTorch's operators with their own samples, forward and backward: those of these names, or all. Beside it, what failed, and why.

    Raises ImportError where PyTorch's tests lack a package, and LookupError for a name that it does not have.
    """
    database: Any = importlib.import_module("torch.testing._internal.common_methods_invocations")
    wanted = set(names)
    known = {op.name for op in database.op_db}
    if wanted - known:
        raise LookupError(min(wanted - known))
    found, failed, kept = MissingOps(), {}, database.wrapper_set_seed
    database.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)  # it breaks the graph
    try:
        for op in database.op_db:
            if wanted and op.name not in wanted:
                continue
            found.subject = f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name
            try:
                _sample(op, found)
            except Exception as error:  # of any kind: an operator that eager does not run either
                failed[found.subject] = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    finally:
        database.wrapper_set_seed = kept
    return found, failed


def _sample(op: Any, found: MissingOps) -> None:
    """Its first sample in float32, with its gradient, or in the first dtype that it has."""
    dtypes = [d for d in (torch.float32, torch.int64, torch.complex64, torch.bool) if d in op.dtypes]
    if not dtypes:
        return
    grad = op.supports_autograd and dtypes[0] in op.backward_dtypes
    sample = next(iter(op.sample_inputs("cpu", dtypes[0], requires_grad=grad)), None)
    if sample is None:
        return
    torch.compiler.reset()
    compiled = torch.compile(lambda *args, **kwargs: op(*args, **kwargs), backend=found.backend)
    with torch.set_grad_enabled(grad):
        _call(compiled, (sample.input, *sample.args), sample.kwargs, grad)


def _call(compiled: Callable, args: tuple, kwargs: dict[str, Any], grad: bool) -> None:
    """With the backward of what it gives."""
    from mlirc.frontend.torch_compat.dynamo.trees import tree_leaves

    results = [x for x in tree_leaves(compiled(*args, **kwargs)) if isinstance(x, torch.Tensor)]
    sources = [x for x in results if grad and x.requires_grad and x.grad_fn is not None]
    if sources:
        torch.autograd.backward(sources, [torch.ones_like(x) for x in sources])
