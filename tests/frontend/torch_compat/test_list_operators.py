"""Operators on lists of tensors: each is compiled, and gives what eager gives; an optimizer's step made of them is few kernels."""

from typing import Any

import pytest
import torch

import mlirc
from mlirc.frontend import statistics
from mlirc.frontend.torch_compat.list_operators import functional, list_operators

KINDS = {
    "List[Tensor]": lambda k: [torch.rand(3, 4) + k, torch.rand(2) + k],
    "Tensor": lambda k: torch.tensor(0.75),
    "List[number]": lambda k: [1.5, 2],
    "number": lambda k: 1.5,
}
MATRICES = [torch.rand(3, 3), torch.rand(4, 4)]


def arguments(op: Any) -> list[Any]:
    given = [a for a in op._schema.arguments if not a.has_default_value() and not a.kwarg_only]
    if op._schema.name == "aten::_foreach_mm":
        return [MATRICES, MATRICES]
    if op._schema.name == "aten::_foreach_copy":
        return [KINDS["List[Tensor]"](k) for k in range(2)]
    return [KINDS[str(a.type)](k) for k, a in enumerate(given)]


def in_place(op: Any) -> Any:
    """The operator that writes to its first list; those that write to no list, or take a number first, have none."""
    packet = getattr(torch.ops.aten, f"{op._schema.name.removeprefix('aten::')}_", None)
    return getattr(packet, op._overloadname, None) if packet else None


OPS = sorted(functional(), key=str)


def test_all_of_them_have_parts():
    parts = list_operators()
    assert parts is not None and len(OPS) > 60 and set(OPS) <= set(parts)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("part", range(4))
def test_they_are_compiled(part):
    """Several in one graph; each in place too."""
    ops = OPS[part::4]
    given = [arguments(op) for op in ops]
    places = [(op, args) for op, args in zip(map(in_place, ops), given, strict=True) if op is not None]

    def function(given, copies):
        for (op, args), tensors in zip(places, copies, strict=True):
            op(tensors, *args[1:])
        return [op(*args) for op, args in zip(ops, given, strict=True)], copies

    def copies():
        return [[x.clone() for x in args[0]] for _, args in places]

    torch._dynamo.reset()
    statistics.reset()
    with torch.no_grad():
        found = torch.compile(function, backend="mlirc", options={"fallback": "error"})(given, copies())
        torch.testing.assert_close(found, function(given, copies()))
    (graph,) = statistics.graphs
    assert not [name for name in graph.aten if "_foreach_" in name]


@pytest.mark.parametrize("make", [torch.optim.AdamW, torch.optim.SGD, torch.optim.RMSprop])
def test_steps_of_optimizers(make):
    def steps(compiled: bool) -> list[torch.Tensor]:
        parameters = [torch.nn.Parameter(torch.linspace(-1, 1, 12 + k % 3).sin()) for k in range(9)]
        for p in parameters:
            p.grad = p.detach().cos()
        optimizer = make(parameters, lr=0.1, foreach=True)
        step = torch.compile(optimizer.step, backend="mlirc") if compiled else optimizer.step
        for _ in range(3):
            step()
        return [p.detach() for p in parameters]

    torch._dynamo.reset()
    statistics.reset()
    torch.testing.assert_close(steps(True), steps(False))
    assert statistics.graphs and all(len(g.kernels) <= 3 and not g.fallback for g in statistics.graphs)


def quantized_cases(x, i, scales, zeros):
    """Each operator of quantized_decomposed that is made of ATen's: numbers, tensors of one number, halves, both axes."""
    q, low, high, limits = (
        torch.ops.quantized_decomposed,
        torch.tensor(-128),
        torch.tensor(127),
        (-128, 127, torch.int8),
    )
    for scale, zero in ((scales[:1], zeros[:1]), (scales[0].double(), zeros[0].int())):
        yield q.quantize_per_tensor.tensor(x, scale, zero, *limits)
        yield q.quantize_per_tensor.tensor2(x, scale, zero, low, high, torch.int8)
        yield q.dequantize_per_tensor.tensor(i, scale, zero, *limits)
        yield q.dequantize_per_tensor.tensor2(i, scale, zero, low, high, torch.int8, out_dtype=torch.bfloat16)
    for given in (x, x.bfloat16(), x.half()):
        yield q.quantize_per_tensor.default(given, 0.037, 3, *limits)
        yield q.quantize_per_channel.default(given, scales, zeros, 1, *limits)
    yield q.quantize_per_channel.default(x, scales[:6], zeros[:6], 0, 0, 255, torch.uint8)
    yield q.dequantize_per_tensor.default(i, 0.037, 3, *limits)
    yield q.dequantize_per_channel.default(i, scales, None, 1, *limits)
    for dtype in (None, torch.bfloat16):
        yield q.dequantize_per_channel.default(i, scales[:6], zeros[:6].int(), 0, *limits, out_dtype=dtype)


def test_quantized_operators_are_kernels_with_eager_s_results():
    import torch.ao.quantization.fx._decomposed  # it defines them

    integers = torch.randint(-128, 128, (6, 8), dtype=torch.int8)
    given = torch.randn(6, 8) * 3, integers, torch.rand(8) + 0.1, torch.randint(-5, 5, (8,))

    def all_of_them(*given):
        return list(quantized_cases(*given))

    torch._dynamo.reset()
    found = torch.compile(all_of_them, backend="mlirc", fullgraph=True, options={"fallback": "error"})(*given)
    torch.testing.assert_close(found, all_of_them(*given), rtol=0, atol=0, check_stride=True)
    (graph,) = mlirc.explain(all_of_them)(*given).data["graphs"]
    assert not graph["aten"]
    torch.testing.assert_close(mlirc.compile(all_of_them, given)(*given), all_of_them(*given), rtol=0, atol=0)
