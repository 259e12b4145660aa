"""Checks the import: compares an imported module with the ATen graph that a capture keeps beside it (aten_text.py), in float64.

Where they differ, the node is named that computes what the module does not have, though the module has all of its operands.
"""

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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

EXACT = 1e-6  # of the largest element: ATen's flash attention has exponentials of float32 in float64, too
ROUNDED, HALF = 1e-3, 2e-2  # the same without float64, and with half types
IMPORTED = re.compile(r"((\d{3,9})_(?:inference|forward|backward)_)\d+_import\.mlir")


@dataclass(frozen=True)
class WrongImport:
    """A value of the imported module that is not the ATen graph's, and the node to blame, "aten.sub.Tensor 'sub_1' (model.py:12)", or ""."""

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
    """What is wrong with the module of a file, against the ATen graph beside it. None: nothing is, or there is no such graph.

    `expected` is what the module computes. `told` hears a line. Needs an entered context.
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


class _Comparison:
    def __init__(self, graph: AtenText, module: ir.Module, inputs: Sequence[Any], expected: Expectation):
        self.graph, self.module, self.inputs, self.expected = graph, module, inputs, expected
        arguments = list(graph_of(module).regions[0].blocks[0].arguments)
        if len(inputs) != len(arguments):
            raise NoReference(f"the module takes {counted(len(arguments), 'argument')}, and {len(inputs)} are given")

    def run(self) -> WrongImport | None:
        expected = self.expected
        own, drawn = self.evaluated(None)
        halves = self.rounds
        exact = None if expected.exact is None else self.evaluated(drawn)[0]
        for which, what in enumerate(("result", "argument")):
            mine = (expected.own.results, expected.own.arguments)[which]
            wide = None if expected.exact is None else (expected.exact.results, expected.exact.arguments)[which]
            if len(own[which]) != len(mine):
                raise NoReference(f"the graph has {counted(len(own[which]), 'result')}, the module {len(mine)}")
            for k, (right, got) in enumerate(zip(own[which], mine, strict=True)):
                wrong = _wrong(f"{what} {k}", k, right, exact and exact[which][k], got, wide and wide[k], halves)
                if wrong is not None:
                    return WrongImport(wrong, self.blamed(wrong, drawn, halves))
        return None

    def given(self, wide: bool) -> list[Any]:
        begin(self.inputs)
        return copies(in_wider_dtypes(self.inputs) if wide else self.inputs)

    def evaluated(
        self,
        drawn: Any,
        visit: Callable[[Evaluation, AtenNode], None] | None = None,
    ) -> tuple[Any, Any]:
        """Results, and arguments afterwards; and in what dtypes random numbers were drawn."""
        given = self.given(drawn is not None)
        evaluation = Evaluation(self.graph, drawn)
        try:
            with torch.no_grad(), one_thread_if_small(given):
                results = evaluation.run(given, visit)
        except (RecursionError, MemoryError) as error:
            raise NoReference(type(error).__name__) from error
        self.makers, self.rounds = evaluation.makers, evaluation.rounds
        return (copies(results), given), evaluation.drawn

    def blamed(self, wrong: Wrong, drawn: Any, halves: bool) -> str:
        """The first node, on the way to the wrong value, whose value the module does not have, though it has all of its operands."""
        wide = self.expected.wide if self.expected.exact is not None else None
        known = _Known(HALF if halves else ROUNDED if wide is None else EXACT)
        for x in self.given(wide is not None):
            known.add(x)
        reads: dict[int, list[int]] = {}  # by node: the makers of operands that the module does not have

        def visit(evaluation: Evaluation, node: AtenNode) -> None:
            names = {x.id for x in ast.walk(node.value) if isinstance(x, ast.Name)} & evaluation.makers.keys()
            unknown = [x for x in names if x in evaluation.values and not known.has(evaluation.values[x])]
            reads[evaluation.number] = [evaluation.makers[x] for x in unknown]

        try:
            interpret(*((self.module, self.inputs) if wide is None else (wide, in_wider_dtypes(self.inputs))), known)
            self.evaluated(None if wide is None else drawn, visit)
        except Exception:  # that it is wrong is known; which node it was is a help only
            return ""
        names = (
            self.returned()
            if wrong.what.startswith("result")
            else [self.graph.parameters[k] for k in self.graph.inputs]
        )
        start = self.makers.get(names[wrong.position]) if wrong.position < len(names) else None
        waiting, seen, found = [] if start is None else [start], set(), []
        while waiting:
            k = waiting.pop()
            if k not in seen:
                seen.add(k)
                bad = [maker for maker in reads.get(k, ()) if maker < k]
                waiting += bad
                found += [] if bad else [k]
        return self.describe(min(found)) if found else ""

    def returned(self) -> list[str]:
        names = dict.fromkeys(x.id for x in self.graph.returned if isinstance(x, ast.Name))
        none = {x for k, x in enumerate(self.graph.parameters) if k not in self.graph.inputs}
        return [x for x in names if x not in none]

    def describe(self, number: int) -> str:
        node = self.graph.nodes[number]
        match = OPERATOR.fullmatch(ast.unparse(node.value.func)) if isinstance(node.value, ast.Call) else None
        return f"{match[1] if match else ast.unparse(node.value)} '{node.name}' ({node.line or 'unknown line'})"


class _Known:
    """What the module computes. A tensor whose elements are all equal may be one element that is expanded."""

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


def _wrong(what: str, position: int, own: Any, exact: Any, mine: Any, wide: Any, halves: bool) -> Wrong | None:
    """`own` and `exact` are the ATen graph's value in its own dtypes and in float64, or None; `mine` and `wide` the module's. With half
    types the limit is of eager's own error: where eager rounds a number to a half type, so does the module, in float64 as well."""
    if not isinstance(own, torch.Tensor) or not isinstance(mine, torch.Tensor):
        return compared(what, position, _number(own), None, _number(mine))
    if exact is None or (own.dtype, own.shape) != (mine.dtype, mine.shape):
        return compared(what, position, own, None, mine)
    if halves or own.dtype not in (*WIDER, *WIDER.values()):
        rounded = compared(what, position, own, exact, wide.to(own.dtype))
        return rounded and compared(what, position, own, exact, mine)
    unit = torch.finfo(own.dtype).eps * _largest(exact)
    jumps = (own.to(exact.dtype) - exact).abs() > ALONE * unit  # where eager is far from float64, too
    return compared(what, position, exact, exact, torch.where(jumps, exact, wide), EXACT)


def _largest(x: torch.Tensor) -> float:
    finite = x[torch.isfinite(x)].abs()
    return float(finite.max()) if finite.numel() else 0.0


def _number(x: Any) -> Any:
    return x.item() if isinstance(x, torch.Tensor) and x.numel() == 1 else x
