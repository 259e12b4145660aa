"""ATen operators that the host program calls without Python, by routine or dispatcher: the same results as eager's."""

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from mlirc.codegen.aten import shim_call
from mlirc.dialects.core.context import context
from mlirc.dialects.core.tensor_types import TensorInfo, type_text
from tests.memory_level import allocate, aten, build, call, equal, slot, view


@pytest.fixture(autouse=True)
def _no_grad():
    with torch.no_grad():
        yield


def text_of(tensor: torch.Tensor) -> str:
    with context():
        return type_text(TensorInfo(tensor.dtype, tuple(tensor.shape), tensor.stride()))


@dataclass
class Case:
    """An operator's JSON arguments, in which %0, %1, ... are the tensors; what eager takes in their place."""

    op: Any
    json: str
    tensors: list[torch.Tensor]
    arguments: tuple
    native: bool = True
    kept: list[int] = field(default_factory=list)  # which results the graph has, if not all


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


x, w, b = randn(2, 3, 8, 8), randn(4, 3, 3, 3), randn(4)
q, mask = randn(2, 2, 16, 8), randn(2, 1, 16, 16)
rows = torch.tensor([1, 0, 2])
last = x.contiguous(memory_format=torch.channels_last)
grad = randn(2, 4, 8, 8)
flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
conv, conv_backward = torch.ops.aten.convolution.default, torch.ops.aten.convolution_backward.default
conv_json = '[{"$": %0}, {"$": %1}, BIAS, [1, 1], [1, 1], [1, 1], false, [0, 0], 1]'
conv_more = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
backward_json = '[{"$": %0}, {"$": %1}, {"$": %2}, [4], [1, 1], [1, 1], [1, 1], false, [0, 0], 1, MASK]'

image, weight = randn(2, 4, 5, 6), randn(4, 4, 3, 3)
CASES = {
    "convolution": Case(conv, conv_json.replace("BIAS", '{"$": %2}'), [x, w, b], (x, w, b, *conv_more)),
    "convolution-no-bias-channels-last": Case(
        conv, conv_json.replace("BIAS", "null"), [last, w], (last, w, None, *conv_more)
    ),
    "convolution-backward": Case(
        conv_backward,
        backward_json.replace("MASK", "[true, true, true]"),
        [grad, x, w],
        (grad, x, w, [4], *conv_more, [True, True, True]),
    ),
    "convolution-backward-mask": Case(
        conv_backward,
        backward_json.replace("MASK", "[false, true, false]"),
        [grad, x, w],
        (grad, x, w, [4], *conv_more, [False, True, False]),
        kept=[1],
    ),
    "attention": Case(flash, '[{"$": %0}, {"$": %0}, {"$": %0}]', [q], (q, q, q)),
    "attention-mask-scale": Case(
        flash,
        '[{"$": %0}, {"$": %0}, {"$": %0}, 0.0, false, {"kwargs": {"attn_mask": {"$": %1}, "scale": 0.125}}]',
        [q, mask],
        (q, q, q, 0.0, False),
    ),
    "max-pool": Case(
        torch.ops.aten.max_pool2d_with_indices.default,
        '[{"$": %0}, [3, 3], [2, 2], [1, 1]]',
        [x],
        (x, [3, 3], [2, 2], [1, 1]),
    ),
    "sort": Case(torch.ops.aten.sort.stable, '[{"$": %0}, {"kwargs": {"stable": true, "dim": 1}}]', [x], (x,)),
    "cumsum-dtype": Case(
        torch.ops.aten.cumsum.default, '[{"$": %0}, 0, {"kwargs": {"dtype": {"dtype": "float64"}}}]', [b], (b, 0)
    ),
    "cat": Case(torch.ops.aten.cat.default, '[[{"$": %0}, {"$": %1}], 1]', [x, last], ([x, last], 1)),
    "pow": Case(torch.ops.aten.pow.Tensor_Scalar, '[{"$": %0}, 2.5]', [b.abs()], (b.abs(), 2.5)),
    "pow-integer-scalar": Case(torch.ops.aten.pow.Tensor_Scalar, '[{"$": %0}, 2]', [b], (b, 2)),
    "pow-of-integers": Case(torch.ops.aten.pow.Tensor_Scalar, '[{"$": %0}, 2]', [rows], (rows, 2), native=False),
    "pow-large-scalar": Case(
        torch.ops.aten.pow.Tensor_Scalar, f'[{{"$": %0}}, {2**60}]', [b], (b, 2**60), native=False
    ),
    "a-view": Case(torch.ops.aten.slice.Tensor, '[{"$": %0}, 0, 1, 3]', [b], (b, 0, 1, 3), native=False),
    "index": Case(
        torch.ops.aten.index.Tensor,
        '[{"$": %0}, [null, {"$": %1}, null, {"$": %1}]]',
        [x, rows],
        (x, [None, rows, None, rows]),
    ),
    "layer-norm": Case(
        torch.ops.aten.native_layer_norm.default,
        '[{"$": %0}, [8], null, {"$": %1}, 1e-05]',
        [x, randn(8)],
        (x, [8], None, randn(8), 1e-5),
    ),
    "upsample": Case(
        torch.ops.aten.upsample_nearest2d.vec, '[{"$": %0}, null, [2.0, 1.5]]', [x], (x, None, [2.0, 1.5]), native=False
    ),
    "upsample-size": Case(
        torch.ops.aten.upsample_bilinear2d.default, '[{"$": %0}, [4, 5], true, 2.0]', [x], (x, [4, 5], True, 2.0)
    ),
    "logsumexp": Case(torch.ops.aten.logsumexp.default, '[{"$": %0}, [1, 2], true]', [x], (x, [1, 2], True)),
    "softmax-backward": Case(
        torch.ops.aten._softmax_backward_data.default,
        '[{"$": %0}, {"$": %1}, 1, {"dtype": "float32"}]',
        [x, x.softmax(1)],
        (x, x.softmax(1), 1, torch.float32),
    ),
    "onednn-convolution": Case(
        torch.ops.mkldnn._convolution_pointwise.default,
        '[{"$": %0}, {"$": %1}, null, [1, 1], [1, 1], [1, 1], 1, "leaky_relu", [0.5], ""]',
        [image, weight],
        (image, weight, None, [1, 1], [1, 1], [1, 1], 1, "leaky_relu", [0.5], ""),
    ),
    "onednn-convolution-add": Case(
        torch.ops.mkldnn._convolution_pointwise.binary,
        '[{"$": %0}, {"$": %0}, {"$": %1}, null, [1, 1], [1, 1], [1, 1], 1, "add", null, "relu", [], null]',
        [image, weight],
        (image, image, weight, None, [1, 1], [1, 1], [1, 1], 1, "add", None, "relu", [], None),
    ),
    "tril-indices": Case(
        torch.ops.aten.tril_indices.default,
        '[4, 4, -1, {"kwargs": {"device": {"device": "cpu"}, "pin_memory": false}}]',
        [],
        (4, 4, -1),
    ),
    "hann-window": Case(
        torch.ops.aten.hann_window.default,
        '[8, {"kwargs": {"dtype": {"dtype": "float64"}, "layout": {"layout": "strided"}}}]',
        [],
        (8,),
    ),
    "multinomial": Case(torch.ops.aten.multinomial.default, '[{"$": %0}, 6, true]', [b.abs()], (b.abs(), 6, True)),
    "randperm": Case(torch.ops.aten.randperm.default, "[9]", [], (9,)),
    "index-add": Case(
        torch.ops.aten.index_add.default, '[{"$": %0}, 1, {"$": %1}, {"$": %0}]', [x, rows], (x, 1, rows, x)
    ),
    "index-add-of-strided": Case(
        torch.ops.aten.index_add.default,
        '[{"$": %0}, -1, {"$": %1}, {"$": %2}]',
        [w, rows[::2], w[..., :2]],
        (w, -1, rows[::2], w[..., :2]),
    ),
    "index-add-times": Case(
        torch.ops.aten.index_add.default,
        '[{"$": %0}, 0, {"$": %1}, {"$": %0}, {"kwargs": {"alpha": 2}}]',
        [w[:3], rows],
        (w[:3], 0, rows, w[:3]),
        native=False,
    ),
    "erfinv": Case(torch.ops.aten.erfinv.default, '[{"$": %0}]', [b.sin()], (b.sin(),)),
}
KEYWORDS = {
    "attention-mask-scale": {"attn_mask": mask, "scale": 0.125},
    "sort": {"stable": True, "dim": 1},
    "cumsum-dtype": {"dtype": torch.float64},
    "hann-window": {"dtype": torch.float64},
    "index-add-times": {"alpha": 2},
}


@pytest.mark.parametrize("name", CASES)
def test_the_results_are_eagers(name):
    case = CASES[name]
    torch.manual_seed(0)
    made = case.op(*case.arguments, **KEYWORDS.get(name, {}))
    want = [made] if isinstance(made, torch.Tensor) else [made[k] for k in case.kept] if case.kept else list(made)
    types = [text_of(t) for t in case.tensors]
    results = ", ".join(text_of(t) for t in want)
    alias = "0" if name == "a-view" else ", ".join(["-1"] * len(want))
    names = "%r" if len(want) == 1 else f"%r:{len(want)}"
    ops = [
        aten(names, str(case.op), case.json.replace("%", "%a"), f"({', '.join(types)}) -> ({results})", aliases=alias),
        f"return {', '.join(f'%r#{k}' for k in range(len(want)))} : {results}",
    ]
    arguments = ", ".join(f"%a{k}: {t}" for k, t in enumerate(types))
    program = build(f"({arguments}) -> ({results})", ops)
    assert (not program.calls[0].why) == case.native, program.calls[0].why
    torch.manual_seed(0)
    for got, expected in zip(program(case.tensors), want, strict=True):
        equal(got, expected)


def test_the_results_come_in_the_strides_of_their_types():
    """Copied where they differ, and seen anew where only a dimension of size 1 does."""
    types = 'tensor<2x3xf32, {stride = "1, 2"}>', 'tensor<1x3xf32, {stride = "7, 1"}>', "tensor<0x3xf32>"
    sources = [torch.randn(2, 3), torch.randn(1, 3), torch.randn(0, 3)]
    ops = [
        *(
            aten(f"%r{k}", "aten.angle.default", f'[{{"$": %x{k}}}]', f"({text_of(s)}) -> {t}")
            for k, (s, t) in enumerate(zip(sources, types, strict=True))
        ),
        f"return %r0, %r1, %r2 : {', '.join(types)}",
    ]
    arguments = ", ".join(f"%x{k}: {text_of(s)}" for k, s in enumerate(sources))
    got = build(f"({arguments}) -> ({', '.join(types)})", ops)(sources)
    assert [g.stride() for g in got] == [(1, 2), (7, 1), (3, 1)]
    assert all(torch.equal(g, s.angle()) for g, s in zip(got, sources, strict=True))


def test_operands_in_the_arena_sizes_and_a_size_that_the_data_decides():
    t = 'tensor<?x4xf32, {size = "s0, 4"}>'
    indices, picked = 'tensor<?x4xi64, {size = "s0, 4"}>', 'tensor<?x2xi64, {size = "u0, 2", stride = "1, u0"}>'
    ops = [
        slot("%s", t),
        call("copy", "%x, %s", f"{t}, {t}"),
        aten("%v:2", "aten.topk.default", '[{"$": %s}, {"size": "s0"}, 0]', f"({t}) -> ({t}, {indices})", "-1, -1"),
        aten("%n", "aten.nonzero.default", '[{"$": %s}]', f"({t}) -> {picked}"),
        allocate("%c", picked),
        call("copy", "%n, %c", f"{picked}, {picked}"),
        f"return %v#0, %c : {t}, {picked}",
    ]
    program = build(f'(%x: {t}) -> ({t}, {picked}) attributes {{mlirc.arena = "16*s0"}}', ops)
    assert [c.why for c in program.calls] == ["", ""]
    for n in (5, 1, 0):
        x = torch.randn(n, 4).relu()
        values, positions = program([x])
        equal(values, x.topk(n, 0).values)
        equal(positions, x.nonzero())


def test_a_failure_raises_what_eager_raises():
    t, index = "tensor<4xf32>", "tensor<2xi64>"
    ops = [
        slot("%s", t),
        call("copy", "%x, %s", f"{t}, {t}"),
        aten("%c", "aten.cumsum.default", '[{"$": %s}, 0]', f"({t}) -> {t}"),
        view("%v", "%c", t, "tensor<3xf32>", "1"),
        aten("%0", "aten.index.Tensor", '[{"$": %v}, [{"$": %i}]]', f"(tensor<3xf32>, {index}) -> tensor<2xf32>")
        + ' loc("model.py":5:0)',
        "return %0 : tensor<2xf32>",
    ]
    program = build(f'(%x: {t}, %i: {index}) -> tensor<2xf32> attributes {{mlirc.arena = "16"}}', ops)
    assert [c.why for c in program.calls] == ["", ""]
    x = torch.arange(4.0)
    for _ in range(3):
        assert program([x, torch.tensor([2, 0])])[0].tolist() == [6.0, 1.0]
        with pytest.raises(IndexError, match="index 3 is out of bounds for dimension 0 with size 3") as caught:
            program([x, torch.tensor([0, 3])])
    assert caught.value.__notes__ == ["in aten.index.Tensor, called by a compiled graph from model.py:5"]


def test_a_native_call_that_fails_is_made_again_from_python():
    """Under a dispatch mode, AOTAutograd's at a first call, the shim's `pow` of a number fails with an exception pending."""
    b = torch.tensor([True, False])

    def f(b):
        return 1.5 ** b.to(torch.complex64)

    torch.compiler.reset()
    compiled = torch.compile(f, backend="mlirc", fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(compiled(b), f(b))


def test_a_result_that_its_meta_function_did_not_promise():
    t = "tensor<4xf32>"
    for wrong in ("tensor<5xf32>", "tensor<4xf64>", "tensor<4x1xf32>"):
        ops = [aten("%0", "aten.cumsum.default", '[{"$": %x}, 0]', f"({t}) -> {wrong}"), f"return %0 : {wrong}"]
        with pytest.raises(RuntimeError, match="other sizes or dtype"):
            build(f"(%x: {t}) -> {wrong}", ops)([torch.zeros(4)])


def test_inference_tensors_and_parameters():
    t, part = "tensor<4xf32>", "tensor<2xf32>"
    ops = [
        view("%v", "%x", t, part, "2"),
        aten("%0", "aten.cumsum.default", '[{"$": %v}, 0]', f"({part}) -> {part}"),
        aten("%1", "aten.cumsum.default", '[{"$": %x}, 0]', f"({t}) -> {t}"),
        f"return %0, %1 : {part}, {t}",
    ]
    program = build(f"(%x: {t}) -> ({part}, {t})", ops)
    with torch.inference_mode():
        inference = torch.arange(4.0)
    for x in (inference, torch.nn.Parameter(torch.arange(4.0))):
        short, long = program([x])
        assert short.tolist() == [2.0, 5.0] and long.tolist() == [0.0, 1.0, 3.0, 6.0] and not long.requires_grad


def test_the_shims_header_is_where_it_is_looked_for():
    assert len(shim_call.routines()) > 100
