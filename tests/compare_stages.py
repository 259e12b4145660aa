"""What the op tests share: a function's graph, imported, must give what eager gives at every level of the dialect."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from mlirc.dialects.core import composites
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.dialects.core.dialect import Composite
from mlirc.dialects.core.kernel_builder import KernelBuilder
from mlirc.dialects.core.kernel_forms import form_of
from mlirc.dialects.interpreter.interpreter import run
from mlirc.frontend.importer.importer import Imported, import_graph


def check(
    function: Callable,
    *inputs: torch.Tensor,
    dynamic: bool | Sequence[int] = False,
    aten: bool = False,
    **tolerance: float,
) -> None:
    """Import `function`, then run it as imported, with composites expanded, and as kernels; compare each with eager.

    dynamic  sizes are symbols: all of them, or those of these dimensions
    aten     ATen calls are allowed
    """
    expected = flat(function(*inputs))
    with context():
        top, imported = prepare(function, *inputs, dynamic=dynamic)
        assert aten or not imported.aten, imported.aten
        for stage in (lambda _: None, expand_composites, make_kernels):
            stage(top)
            imported.module.operation.verify()
            compare(run(top, inputs, imported.objects), expected, **tolerance)


def prepare(function: Callable, *inputs: torch.Tensor, dynamic: bool | Sequence[int] = False) -> tuple[Any, Imported]:
    """The function's graph, imported: its `func.func` and what else the importer says."""
    mode = FakeTensorMode(shape_env=ShapeEnv())
    graph = make_fx(lambda *x: flat(function(*x)), tracing_mode="real")(*(fake(mode, x, dynamic) for x in inputs))
    imported = import_graph(graph)
    return imported.module.body.operations[0], imported


def fake(mode: FakeTensorMode, x: torch.Tensor, dynamic: bool | Sequence[int]) -> torch.Tensor:
    dims = range(x.dim()) if dynamic is True else dynamic or ()
    sizes = [DimDynamic.DUCK if d in dims else DimDynamic.STATIC for d in range(x.dim())]
    return mode.from_tensor(x, symbolic_context=StatelessSymbolicContext(dynamic_sizes=sizes))


def compare(found: Sequence[Any], expected: Sequence[torch.Tensor], **tolerance: float) -> None:
    assert len(found) == len(expected)
    for ours, eager in zip(found, expected, strict=True):
        assert ours.dtype == eager.dtype
        torch.testing.assert_close(ours, eager, equal_nan=True, **tolerance)
        assert eager.numel() <= 1 or strides(ours) == strides(eager)


def strides(x: torch.Tensor) -> list[int]:
    return [s for s, n in zip(x.stride(), x.shape, strict=True) if n > 1]


def rewrite(function: Any, wanted: Callable[[Any], bool], build: Callable[[Any], Sequence[ir.Value]]) -> None:
    for op in reversed(list(function.regions[0].blocks[0].operations)):  # users first: they may take in what they use
        if wanted(op):
            with ir.InsertionPoint(op), op.location:
                made = build(op)
            for old, new in zip(op.results, made, strict=True):
                assert old.type == new.type, f"{op}\nbecame {new.type}"
                old.replace_all_uses_with(new)
            op.operation.erase()


def expand_composites(function: Any) -> None:
    rewrite(function, lambda op: isinstance(op, Composite), composites.expand)


def make_kernels(function: Any) -> None:
    rewrite(function, lambda op: form_of(type(op)) is not None, lambda op: form_of(type(op))(KernelBuilder, op))


def flat(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]
