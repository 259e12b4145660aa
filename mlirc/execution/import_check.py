"""Checks the importer: compares an imported module's results with those of the ATen graph that a capture keeps beside it, in float64.

Both run on the same inputs: the graph's text by aten_text.py, the module by the interpreter. Where a result differs, the node to blame
is found by values: no value of the module equals the node's, but some value of the module equals each of its operands.
"""

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.interpreter.float64 import WIDER
from mlirc.execution.accuracy import ALONE, Expectation, Wrong, compared, in_wider_dtypes
from mlirc.execution.aten_text import OPERATOR, AtenNode, AtenText, Evaluation, NoReference, read_graph, tensors_in
from mlirc.execution.culprit import Signatures
from mlirc.execution.modules import copies, graph_of, interpret, one_thread_if_small
from mlirc.execution.random_state import begin
from mlirc.lowering.module.counted import counted

# Errors that are allowed, relative to the largest element. ATen's flash attention computes exponentials in float32 even in float64.
FLOAT64 = 1e-6
# The same where the node to blame is looked for, without float64, and with half types.
OWN_DTYPES, HALF_DTYPES = 1e-3, 2e-2
IMPORTED = re.compile(r"((\d{3,9})_(?:inference|forward|backward)_)\d+_import\.mlir")


@dataclass(frozen=True)
class WrongImport:
    """A result of the imported module, or an argument that it writes, that differs from the ATen graph's.

    node   the node to blame, "aten.sub.Tensor 'sub_1' (model.py:12)"; "" where none was found
    """

    wrong: Wrong
    node: str

    def __str__(self) -> str:
        return f"the import is wrong{f', of {self.node}' if self.node else ''}: {self.wrong}"


def aten_beside(file: str) -> Path | None:
    """The text of the ATen graph, if the file is the imported module of a capture."""
    match = IMPORTED.fullmatch(Path(file).name)
    path = Path(file).with_name(f"{match[1]}aten.py") if match else None
    return path if path is not None and path.is_file() else None


def wrong_import(
    file: str, module: ir.Module, inputs: Sequence[Any], expected: Expectation, told: Callable[[str], None]
) -> WrongImport | None:
    """Compares the module of a file with the ATen graph beside it. None: they agree, there is no such graph, or it cannot be evaluated.

    `expected` is what the module computes on `inputs`. `told` is called with a line that says what was compared, or why nothing was.
    Needs an entered context.
    """
    path = aten_beside(file)
    if path is None:
        return None
    try:
        found = _Comparison(read_graph(path), module, inputs, expected).run()
    except NoReference as error:
        told(f"no reference of the import stage: {error}")
        return None
    if found is None:
        how = "float64" if expected.exact is not None else "its own dtypes"
        told(f"import: right, compared with {path.name} in {how}")
    return found


@dataclass(frozen=True)
class _Left:
    """What evaluating the ATen graph left: its results, and its arguments afterwards, some of which it may have written.

    evaluation   which node made each value, and in which dtypes random numbers were drawn
    """

    results: list[Any]
    arguments: list[Any]
    evaluation: Evaluation


class _Comparison:
    """One ATen graph and one module, on the same inputs. `in_float64` is whether the module could be computed in float64, too."""

    def __init__(self, graph: AtenText, module: ir.Module, inputs: Sequence[Any], expected: Expectation):
        self.graph, self.module, self.inputs, self.expected = graph, module, inputs, expected
        self.in_float64 = expected.exact is not None
        arguments = list(graph_of(module).regions[0].blocks[0].arguments)
        if len(inputs) != len(arguments):
            raise NoReference(f"the module takes {counted(len(arguments), 'argument')}, and {len(inputs)} are given")

    def run(self) -> WrongImport | None:
        own = self.evaluated(None)
        wide = self.evaluated(own.evaluation.drawn) if self.in_float64 else None
        for what in ("result", "argument"):
            values = attrgetter(f"{what}s")
            of_graph, of_module = values(own), values(self.expected.own)
            if len(of_graph) != len(of_module):
                raise NoReference(f"the graph has {counted(len(of_graph), 'result')}, the module {len(of_module)}")
            for k, (right, got) in enumerate(zip(of_graph, of_module, strict=True)):
                pair = None if wide is None else (values(wide)[k], values(self.expected.exact)[k])
                wrong = _wrong(f"{what} {k}", k, right, got, pair, own.evaluation.rounds)
                if wrong is not None:
                    return WrongImport(wrong, self.blamed(wrong, own))
        return None

    def given(self, wide: bool) -> list[Any]:
        """Copies of the inputs, in float64 if `wide`; random numbers begin as they did for the module."""
        begin(self.inputs)
        return copies(in_wider_dtypes(self.inputs) if wide else self.inputs)

    def evaluated(
        self, drawn: dict[int, list[torch.dtype]] | None, visit: Callable[[Evaluation, AtenNode], None] | None = None
    ) -> _Left:
        """Evaluates the ATen graph: in its own dtypes if `drawn` is None, else in float64, but with random numbers of the dtypes `drawn`.

        Raises NoReference.
        """
        given = self.given(drawn is not None)
        evaluation = Evaluation(self.graph, drawn)
        try:
            with torch.no_grad(), one_thread_if_small(given):
                results = evaluation.run(given, visit)
        except (RecursionError, MemoryError) as error:
            raise NoReference(type(error).__name__) from error
        return _Left(copies(results), given, evaluation)

    def blamed(self, wrong: Wrong, own: _Left) -> str:
        """The first node on the way to the wrong value whose value the module does not compute, though it computes each operand."""
        half = own.evaluation.rounds
        known = _Known(HALF_DTYPES if half else FLOAT64 if self.in_float64 else OWN_DTYPES)
        for x in self.given(self.in_float64):
            known.add(x)
        unknown: dict[int, list[int]] = {}  # node -> those that made its operands that the module does not compute

        def visit(evaluation: Evaluation, node: AtenNode) -> None:
            names = {x.id for x in ast.walk(node.value) if isinstance(x, ast.Name)} & evaluation.makers.keys()
            strange = [x for x in names if x in evaluation.values and not known.has(evaluation.values[x])]
            unknown[evaluation.number] = [evaluation.makers[x] for x in strange]

        try:
            if self.in_float64:
                interpret(self.expected.wide, in_wider_dtypes(self.inputs), known)
            else:
                interpret(self.module, self.inputs, known)
            makers = self.evaluated(own.evaluation.drawn if self.in_float64 else None, visit).evaluation.makers
        except Exception:  # the import is wrong all the same; the node is a help only
            return ""
        is_result = wrong.what.startswith("result")
        names = self.returned() if is_result else [self.graph.parameters[k] for k in self.graph.inputs]
        start = makers.get(names[wrong.position]) if wrong.position < len(names) else None
        waiting, seen, found = [] if start is None else [start], set(), []
        while waiting:
            k = waiting.pop()
            if k not in seen:
                seen.add(k)
                earlier = [maker for maker in unknown.get(k, ()) if maker < k]
                waiting += earlier
                found += [] if earlier else [k]
        return self.describe(min(found)) if found else ""

    def returned(self) -> list[str]:
        """The names that the graph returns, each once, without those of parameters that are None: the module's results, in order."""
        names = dict.fromkeys(x.id for x in self.graph.returned if isinstance(x, ast.Name))
        none = {x for k, x in enumerate(self.graph.parameters) if k not in self.graph.inputs}
        return [x for x in names if x not in none]

    def describe(self, number: int) -> str:
        node = self.graph.nodes[number]
        match = OPERATOR.fullmatch(ast.unparse(node.value.func)) if isinstance(node.value, ast.Call) else None
        return f"{match[1] if match else ast.unparse(node.value)} '{node.name}' ({node.line or 'unknown line'})"


class _Known:
    """The values that the module computes: an observer of the interpreter.

    A tensor whose elements are all equal is known by one element, too: the module may have it as that element, which it expands.
    """

    def __init__(self, tolerance: float):
        self.signatures = Signatures(tolerance)

    def before(self, op: Any, operands: Sequence[Any]) -> None:
        pass

    def after(self, op: Any, values: Sequence[Any], held: Sequence[Any]) -> None:
        for x in held:
            self.add(x)

    def add(self, found: Any) -> None:
        for x in tensors_in(found):
            self.signatures.add(self.signatures.of(x))
            if _uniform(x):
                self.signatures.add(self.signatures.of(x.flatten()[:1]))

    def has(self, found: Any) -> bool:
        has, of = self.signatures.has, self.signatures.of
        return all(has(of(x)) or (_uniform(x) and has(of(x.flatten()[:1]))) for x in tensors_in(found))


def _uniform(x: torch.Tensor) -> bool:
    return x.numel() > 1 and bool((x == x.flatten()[0]).all())


def _wrong(what: str, position: int, aten: Any, got: Any, wide: tuple[Any, Any] | None, half: bool) -> Wrong | None:
    """Compares a value of the ATen graph with the module's: `aten` and `got` in their own dtypes, `wide` the same two in float64.

    With half types (`half`) eager rounds between its operators, in float64 too, and so does the module, at other places. So it is right
    there if its value is within twice eager's own error, whether computed in its own dtypes or in float64.
    """
    if not isinstance(aten, torch.Tensor) or not isinstance(got, torch.Tensor):
        return compared(what, position, _number(aten), None, _number(got))
    if wide is None or (aten.dtype, aten.shape) != (got.dtype, got.shape):
        return compared(what, position, aten, None, got)
    exact, got_wide = wide
    if half or aten.dtype not in (*WIDER, *WIDER.values()):
        wrong = compared(what, position, aten, exact, got_wide.to(aten.dtype))
        return wrong and compared(what, position, aten, exact, got)
    unit = torch.finfo(aten.dtype).eps * _largest(exact)
    # Where eager itself is far from float64 (beside a jump, say), the module may be, too.
    skipped = (aten.to(exact.dtype) - exact).abs() > ALONE * unit
    return compared(what, position, exact, exact, torch.where(skipped, exact, got_wide), FLOAT64)


def _largest(x: torch.Tensor) -> float:
    finite = x[torch.isfinite(x)].abs()
    return float(finite.max()) if finite.numel() else 0.0


def _number(x: Any) -> Any:
    return x.item() if isinstance(x, torch.Tensor) and x.numel() == 1 else x
