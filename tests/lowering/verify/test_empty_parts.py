"""Kernels that no point executes, and reads that no mask lets through, are right whatever place their maps name."""

import pytest
import torch

from mlirc.lowering.verify.index_proofs import Space, symbol
from tests.sampling import some

PARTS = [
    (slice(5, None), slice(0, 3)),
    (slice(4, 2, 3), 0),
    (0, slice(3, 1)),
    (slice(9, None, 2), None),
    (slice(2, 2), slice(1, None)),
]
USES = {
    "kron": lambda part, x: torch.kron(part, x * x),
    "cat": lambda part, x: torch.cat([part.reshape(-1), x.reshape(-1)]) * 2,
    "sum": lambda part, x: part.sum(0) + x.exp().sum(),
    "padded": lambda part, x: torch.nn.functional.pad(part, (1, 2)) - x.mean(),
    "an image of it": lambda part, x: torch.masked_scatter(x, x > 0, x)[part.shape[0] :].sin() * 2,
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("dynamic", [False, True])
def test_parts_without_elements(use, dynamic):
    for part in some(PARTS[dynamic:], 2):

        def program(x, s, part=part):
            y = torch.sub(x, x, alpha=s)
            taken = y[part]
            return USES[use](taken, y), taken * 3

        torch._dynamo.reset()
        x = torch.randn(5, 3, dtype=torch.float64).requires_grad_()
        compiled = torch.compile(program, backend="mlirc", dynamic=dynamic, options={"fallback": "error"})
        for found, expected in zip(compiled(x, 0.5), program(x, 0.5), strict=True):
            torch.testing.assert_close(found, expected)
            gradients = [torch.autograd.grad(y.sum(), x, retain_graph=True)[0] for y in (found, expected)]
            torch.testing.assert_close(*gradients)


def test_a_space_is_empty_where_facts_contradict_each_other():
    d0, d1 = symbol("d0"), symbol("d1")
    sizes = {"d0": 3, "d1": symbol("s0")}
    assert Space(sizes, (d0 - 3,)).empty() and Space(sizes, (d1 - 4, 2 - d1)).empty()
    assert Space({"d0": 6}, (d0 - 3, 1 - symbol("d0") % 4 - 1, 3 - d0)).empty()
    assert not Space(sizes, (d0 - 2,)).empty() and not Space(sizes, (d1 - 4, 4 - d1)).empty()
    assert not Space(sizes, ()).empty()


def test_a_masked_read_that_some_point_executes_is_refused():
    from mlirc.dialects.core.bindings import ir
    from mlirc.dialects.core.context import context
    from mlirc.lowering.module.rules import StageError
    from mlirc.lowering.verify.stage import verify_stage

    text = """func.func @graph(%0: tensor<0x4xf32>) -> tensor<3xf32> {{
      %1 = "mlircx.kernel"(%0) ({{
      ^bb0(%2: tensor<0x4xf32>):
        %3 = "mlirc.size"() {{expr = "d0 - {first}"}} : () -> i64
        %4 = "mlirc.constant"() {{value = "0"}} : () -> i64
        %5 = "mlirc.ge"(%3, %4) : (i64, i64) -> i1
        %6 = "mlirc.read"(%2, %5) {{map = "-1, d0", masked = true}} : (tensor<0x4xf32>, i1) -> f32
        "mlircx.yield"(%6) {{maps = ["d0"]}} : (f32) -> ()
      }}) {{inner = "", label = "x", parallel = "3"}} : (tensor<0x4xf32>) -> tensor<3xf32>
      return %1 : tensor<3xf32>
    }}"""
    with context():
        right, wrong = (ir.Module.parse(text.format(first=first)) for first in (3, 2))
        verify_stage(right.body.operations[0], "kernel")
        with pytest.raises(StageError, match="reads dimension 0 at -1"):
            verify_stage(wrong.body.operations[0], "kernel")


PERHAPS_EMPTY = {
    "diagonal": lambda x: x.diagonal(2),
    "diagonal below": lambda x: x.mT.diagonal(-1),
    "rows": lambda x: x[2:].sum(1),
    "inner": lambda x: x[1:-1, 1],
}
MODULO = {
    "roll": lambda v: v.roll(1),
    "roll by nothing": lambda v: v.roll(0) * 2,
    "repeat": lambda v: v.repeat(2),
    "repeat_interleave": lambda v: v.repeat_interleave(2),
    "view": lambda v: torch.outer(v, v).view(-1).roll(1),
}


@pytest.mark.thinned(1)
@pytest.mark.parametrize("part", PERHAPS_EMPTY)
def test_indices_modulo_a_size_that_may_be_0(part):
    for use in some(tuple(MODULO), 2):

        def program(x, part=part, use=use):
            return MODULO[use](PERHAPS_EMPTY[part](x))

        torch._dynamo.reset()
        compiled = torch.compile(program, backend="mlirc", dynamic=True, options={"fallback": "error"})
        for shape in ((4, 6), (3, 7), (2, 2)):
            x = torch.randn(shape)
            torch.testing.assert_close(compiled(x), program(x), msg=use)
