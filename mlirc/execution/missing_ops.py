"""Finds ATen operators without an mlirc op: a backend of torch.compile that imports each ATen graph, then interprets it in eager.

Each call is timed.
"""

import importlib
import re
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node

from mlirc.frontend.driver.parts import in_parts
from mlirc.frontend.graph.aten_graph import AtenGraph, Run
from mlirc.frontend.options import Options
from mlirc.frontend.statistics import GraphReport

MODULES = re.compile(r"^((torch|aten|ops|F|nn|functional|special|linalg|fft)_)+")


@dataclass
class MissingOp:
    """An ATen overload that is not imported as an op.

    calls      occurrences in graphs
    seconds    their time in eager
    subjects   the calls of a script, or the entries of OpInfo, that they come from
    """

    name: str
    why: str
    calls: int = 0
    seconds: float = 0.0
    subjects: set[str] = field(default_factory=set)


@dataclass
class MissingOps:
    """What was found in all graphs.

    refused     reason -> the number of graphs that cannot be imported at all
    seconds     of all calls, imported or not
    subject     the call of a script, or the entry of OpInfo, that is compiled now
    """

    ops: dict[str, MissingOp] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)
    graphs: int = 0
    seconds: float = 0.0
    subject: str = ""

    def by_time(self) -> list[MissingOp]:
        """The longest first."""
        return sorted(self.ops.values(), key=lambda op: (-op.seconds, -op.calls, op.name))

    def as_dict(self) -> dict[str, Any]:
        """The JSON of `mlirc ops --missing --json`, which docs/debugging.md describes."""
        rows = [vars(op) | {"subjects": sorted(op.subjects)} for op in self.by_time()]
        return {
            "schema": 1,
            "graphs": self.graphs,
            "seconds": self.seconds,
            "missing": rows,
            "refused": dict(self.refused),
        }

    def backend(self, gm: GraphModule, inputs: Sequence[Any], **_: Any) -> Callable:
        """The backend of torch.compile: it notes the missing operators, and the graph runs in eager."""
        from mlirc.frontend.cache.trace_cache import CachedTrace
        from mlirc.frontend.capture.aot_autograd import Capture

        options = Options(dump=None, cache=False)
        # Capture wants a trace; without a cache it looks nothing up.
        trace = CachedTrace(gm, inputs, options, lambda *_: None)  # type: ignore[arg-type,return-value]
        return Capture(options, trace, self.compile_graph).traced(gm, inputs)

    def compile_graph(self, gm: GraphModule, kind: str, options: Options) -> Run:
        return in_parts(AtenGraph(gm, kind, options, GraphReport(kind)), self.compile_part)

    def compile_part(self, graph: AtenGraph) -> Run:
        from mlirc.dialects.core.context import context
        from mlirc.frontend.importer.importer import import_graph

        self.graphs += 1
        without_op: dict[str, tuple[int, str]] = {}  # overload -> its calls, and why
        try:
            with context():
                without_op = import_graph(graph.gm).aten
        except Exception as error:  # the importer refuses the graph, or has a bug: both are reported
            self.refused[" ".join(str(error).split())[:300]] += 1
        for name, (calls, why) in without_op.items():
            missing = self.ops.setdefault(name, MissingOp(name, why))
            missing.calls += calls
            missing.subjects.add(self.subject)
        return _timed(graph.gm, without_op, self)


class _Timed(Interpreter):
    """Runs a graph op by op. If only some calls of an overload lack an op, its time is scaled by their fraction."""

    def __init__(self, gm: GraphModule, aten: dict[str, tuple[int, str]], found: MissingOps):
        super().__init__(gm)
        self.found = found
        calls = Counter(_name_of(node.target) for node in gm.graph.nodes if node.op == "call_function")
        self.shares = {name: count / max(calls[name], 1) for name, (count, _) in aten.items()}

    def run_node(self, n: Node) -> Any:
        if n.op != "call_function":
            return super().run_node(n)
        start = time.perf_counter()
        result = super().run_node(n)
        elapsed = time.perf_counter() - start
        self.found.seconds += elapsed
        name = _name_of(n.target)
        if name in self.shares:
            self.found.ops[name].seconds += self.shares[name] * elapsed
        return result


def _name_of(target: Any) -> str:
    """The operator's name as the importer writes it; "" for a function that is no operator."""
    from mlirc.frontend.errors import UnsupportedGraph
    from mlirc.frontend.importer.aten_import import operator_text

    try:
        return operator_text(target)
    except UnsupportedGraph:
        return ""


def _timed(gm: GraphModule, aten: dict[str, tuple[int, str]], found: MissingOps) -> Run:
    def run(boxed: list) -> list:
        arguments, boxed[:] = list(boxed), []  # the caller's list is emptied
        return _Timed(gm, aten, found).run(*arguments)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def missing_in_script(script: str, arguments: Sequence[str]) -> MissingOps:
    """The missing ops of all that a script compiles. The script runs once, then each distinct compiled function. Raises ScriptError."""
    from mlirc.measurement.script_calls import run_script

    found = MissingOps()
    for call in run_script(script, arguments):
        found.subject = call.name
        torch.compiler.reset()
        args, kwargs = call.fresh()
        with torch.set_grad_enabled(call.grad):
            _call_and_backward(
                torch.compile(call.function, backend=found.backend, **call.arguments), args, kwargs, call.grad
            )
    return found


def near_names(name: str, known: Iterable[str]) -> list[str]:
    """OpInfo's names for what is called otherwise elsewhere: "special.log_ndtr" for "aten.special_log_ndtr.default"."""
    by_key = {bare(x): x for x in known}
    return [by_key[key] for key in get_close_matches(bare(name), list(by_key), n=3, cutoff=0.7)]


def bare(name: str) -> str:
    """Without the modules that an operator is in: "gelu" of "nn.functional.gelu", and of "F.gelu"."""
    return MODULES.sub("", name.replace(".", "_")).removesuffix("_default")


def missing_in_opinfo(names: Iterable[str]) -> tuple[MissingOps, dict[str, str]]:
    """The missing ops of OpInfo's operators `names`, all if there are none, on a sample for each way to call them, forward and backward.

    Also gives, by operator, the error of those that could not run.

    Raises ImportError where PyTorch's tests lack a package, and LookupError for unknown names: its arguments are these, each with the
    names that come near.
    """
    database: Any = importlib.import_module("torch.testing._internal.common_methods_invocations")
    wanted = set(names)
    known = {op.name for op in database.op_db}
    if wanted - known:
        raise LookupError(*((name, near_names(name, known)) for name in sorted(wanted - known)))
    found, failed, original = MissingOps(), {}, database.wrapper_set_seed
    database.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)  # the original causes a graph break
    try:
        for op in database.op_db:
            if wanted and op.name not in wanted:
                continue
            found.subject = f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name
            try:
                with warnings.catch_warnings(action="ignore"):  # of operators that are deprecated or slow in eager
                    _call_samples(op, found)
            except Exception as error:  # a sample that eager does not run either, for any reason
                failed[found.subject] = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    finally:
        database.wrapper_set_seed = original
    return found, failed


def _call_samples(op: Any, found: MissingOps) -> None:
    """Calls `op` on the first sample of each way to call it, with gradients, in the first of float32, int64, complex64, bool and others.

    Raises TypeError if it has no dtype.
    """
    first = (torch.float32, torch.int64, torch.complex64, torch.bool)
    dtypes = [*(d for d in first if d in op.dtypes), *sorted(set(op.dtypes) - set(first), key=str)]
    if not dtypes:
        raise TypeError("no dtype on a CPU")
    grad = op.supports_autograd and dtypes[0] in op.backward_dtypes
    samples: dict[Any, Any] = {}
    for sample in op.sample_inputs("cpu", dtypes[0], requires_grad=grad):
        samples.setdefault(_way(sample), sample)
    for sample in samples.values():
        torch.compiler.reset()
        compiled = torch.compile(lambda *args, **kwargs: op(*args, **kwargs), backend=found.backend)
        with torch.set_grad_enabled(grad):
            _call_and_backward(compiled, (sample.input, *sample.args), sample.kwargs, grad)


def _way(sample: Any) -> tuple[Any, ...]:
    """How a sample calls its operator, which tells overloads apart: the types of its arguments, and the names of the others."""
    return (*(type(x) for x in (sample.input, *sample.args)), frozenset(sample.kwargs))


def _call_and_backward(compiled: Callable, args: tuple, kwargs: dict[str, Any], grad: bool) -> None:
    """Calls it, then runs backward from its differentiable results."""
    from mlirc.frontend.torch_compat.dynamo.trees import tree_leaves

    results = [x for x in tree_leaves(compiled(*args, **kwargs)) if isinstance(x, torch.Tensor)]
    differentiable = [x for x in results if grad and x.requires_grad and x.grad_fn is not None]
    if differentiable:
        torch.autograd.backward(differentiable, [torch.ones_like(x) for x in differentiable])
