"""Weights that oneDNN packs, in modules from files: what is run is right, and every lie about them is refused before anything runs."""

import json

import pytest
import torch

from mlirc.codegen.emit.checked_program import CheckedProgram, InputError
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.execution.modules import MachineCode, interpret
from mlirc.lowering.files.file import verify_file
from mlirc.lowering.module.rules import StageError
from mlirc.lowering.pipeline.pass_manager import run_pipeline

X, W, B, Y = (f"tensor<{shape}xf32>" for shape in ("2x8x9x9", "6x4x3x3", "6", "2x6x4x4"))
LAST = {
    name: f'tensor<2x{c}x{n}x{n}xf32, {{stride = "{c * n * n}, 1, {c * n}, {c}"}}>' for name, c, n in (("Y", 6, 4),)
}
P = 'tensor<6x4x3x3xf32, {layout = "mkldnn"}>'
REORDER = "mkldnn._reorder_convolution_weight.default"
CONVOLVE = "mkldnn._convolution_pointwise.default"
BINARY = "mkldnn._convolution_pointwise.binary"
PACK = '[{"$": 0}, [0, 0], [2, 2], [1, 1], 2, [2, 8, 9, 9]]'
CALL = '[{"$": 0}, {"$": 1}, {"$": 2}, [0, 0], [2, 2], [1, 1], 2, "none", [], ""]'
ADD = '[{"$": 0}, {"$": 3}, {"$": 1}, {"$": 2}, [0, 0], [2, 2], [1, 1], 2, "add", null, null, [], null]'
COPY = f'%c = "mlirc.copy"(%1) : ({LAST["Y"]}) -> {Y}'


def aten(result, op, args, operands, types, made):
    text = args.replace('"', "\\22")
    return (
        f'{result} = "mlircx.aten"({operands}) {{aliases = "-1", args = "{text}", op = "{op}"}} : ({types}) -> {made}'
    )


def graph(pack=PACK, call=CALL, op=CONVOLVE, packed=P, weights=W, images=X, bias=B, made=LAST["Y"], more=""):
    operands, types = "%x, %p, %b", f"{images}, {packed}, {bias}"
    if op == BINARY:
        operands, types = f"{operands}, %y", f"{types}, {LAST['Y']}"
    extra = f", %y: {LAST['Y']}" if op == BINARY else ""
    result = made if more else Y
    return f"""func.func @graph(%x: {images}, %w: {weights} {{mlirc.parameter}}, %b: {bias} {{mlirc.parameter}}{extra}) -> {result} {{
      {aten("%p", REORDER, pack, "%w", weights, packed)}
      {aten("%1", op, call, operands, types, made)}
      {more or COPY}
      return {"%r" if more else "%c"} : {result}
    }}"""


def inputs(*more):
    torch.manual_seed(0)
    return [torch.randn(2, 8, 9, 9), torch.randn(6, 4, 3, 3), torch.randn(6), *more]


def parsed(text):
    return ir.Module.parse(text)


def refused(text):
    with context(), pytest.raises(StageError) as error:
        verify_file(parsed(text), runs=True)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("how", ["graph", "kernel", "machine"])
def test_it_is_run(binary, how):
    """In any form; from `kernel` on, @prepare packs the weights."""
    y = torch.randn(2, 6, 4, 4).to(memory_format=torch.channels_last)
    given = inputs(*([y] if binary else []))
    with context():
        module = parsed(graph(op=BINARY, call=ADD) if binary else graph())
        verify_file(module, runs=True)
        passes = {"graph": "", "kernel": "hoist-parameters,to-kernels"}.get(
            how, "hoist-parameters,to-kernels,plan-memory,lower-kernels"
        )
        run_pipeline(module, passes)
        verify_file(module, runs=True)
        (got,) = (MachineCode(module)(given) if how == "machine" else interpret(module, given)).results
    expected = torch.nn.functional.conv2d(*given[:3], stride=2, groups=2)
    torch.testing.assert_close(got, expected + y if binary else expected)


NUMBERS = {"padding": (3, "[0, 0]"), "stride": (4, "[2, 2]"), "dilation": (5, "[1, 1]"), "groups": (6, "2")}
WRONG = [
    "[0, 0]",
    "[-1, 1]",
    "[1]",
    "[1, 1, 1]",
    "0",
    "-1",
    "3",
    "null",
    '["a", 1]',
    "[true, 1]",
    "[1e400, 1]",
    '{"size": "s0"}',
    "[9999999, 1]",
]


@pytest.mark.parametrize("which", ["pack", "call", "both"])
@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.thinned
def test_every_wrong_number(name, which):
    for wrong in WRONG:
        texts = {"pack": PACK, "call": CALL}
        for key in texts if which == "both" else [which]:
            items = json.loads(texts[key])
            position = NUMBERS[name][0] - 2 * (key == "pack")
            if items[position] == json.loads(wrong):
                break
            items[position] = json.loads(wrong)
            texts[key] = json.dumps(items)
        else:
            refused(graph(**texts))


LIES = {
    "images of other channels": {"images": "tensor<2x6x9x9xf32>"},
    "images of 3 dimensions": {"images": "tensor<8x9x9xf32>"},
    "images of another dtype": {"images": "tensor<2x8x9x9xf64>"},
    "a short bias": {"bias": "tensor<5xf32>"},
    "a long bias": {"bias": "tensor<7xf32>"},
    "a bias of another dtype": {"bias": "tensor<6xi64>"},
    "weights of another dtype": {"weights": "tensor<6x4x3x3xf64>"},
    "weights of another size": {"weights": "tensor<6x4x2x3xf32>"},
    "packed as another dtype": {"packed": 'tensor<6x4x3x3xbf16, {layout = "mkldnn"}>'},
    "packed into memory": {"packed": W},
    "packed as another size": {"packed": 'tensor<6x4x3x4xf32, {layout = "mkldnn"}>'},
    "another layout": {"packed": 'tensor<6x4x3x3xf32, {layout = "sparse_coo"}>'},
    "images too small to pack for": {"pack": PACK.replace("9, 9", "1, 9")},
    "images of no size": {"pack": PACK.replace("9, 9", "0, 9")},
    "images of other channels to pack for": {"pack": PACK.replace("8, 9, 9", "4, 9, 9")},
    "a larger result": {
        "made": "tensor<2x6x5x4xf32>",
        "more": '%r = "mlirc.neg"(%1) : (tensor<2x6x5x4xf32>) -> tensor<2x6x5x4xf32>',
    },
    "an operand that is none": {"call": CALL.replace('{"$": 1}', '{"$": 7}')},
    "weights in memory": {"call": CALL.replace('{"$": 1}', '{"$": 2}')},
    "packed images": {"call": CALL.replace('{"$": 0}', '{"$": 1}')},
    "a packed bias": {"call": CALL.replace('{"$": 2}', '{"$": 1}')},
    "something applied": {"call": CALL.replace("none", "relu")},
    "one argument more": {"call": CALL.replace('""]', '"", 1]')},
    "read as elements": {"more": f'%r = "mlirc.neg"(%p) : ({P}) -> {P}', "made": P},
    "copied": {"more": f'%r = "mlirc.copy"(%p) : ({P}) -> {W}', "made": W},
    "viewed": {"more": f'%r = "mlirc.view"(%p) {{map = "", offset = "0"}} : ({P}) -> {W}', "made": W},
    "given to ATen": {"more": aten("%r", "aten.neg.default", '[{"$": 0}]', "%p", P, P), "made": P},
}


@pytest.mark.parametrize("lie", LIES)
def test_lies(lie):
    refused(graph(**LIES[lie]))


def test_packed_weights_are_not_returned():
    refused(f"func.func @graph(%w: {W}) -> {P} {{\n{aten('%p', REORDER, PACK, '%w', W, P)}\nreturn %p : {P}\n}}")


def test_packed_weights_are_no_input():
    call = aten("%1", CONVOLVE, CALL, "%x, %p, %b", f"{X}, {P}, {B}", LAST["Y"])
    text = f"func.func @graph(%x: {X}, %p: {P}, %b: {B}) -> {Y} {{\n{call}\n{COPY}\nreturn %c : {Y}\n}}"
    assert "let @prepare make it" in refused(text)


@pytest.mark.parametrize("groups", [1, 2])
def test_prepared_for_other_groups(groups):
    """What @prepare makes is what @graph reads: in order, for the same numbers."""
    with context():
        module = parsed(graph())
        run_pipeline(module, "hoist-parameters,to-kernels")
        text = str(module)
        head, prepare = text.split("func.func @prepare")
    if groups == 2:
        with context():
            verify_file(parsed(text), runs=True)
        return
    assert "2, [2, 8, 9, 9]" in prepare
    refused(head + "func.func @prepare" + prepare.replace("2, [2, 8, 9, 9]", "1, [2, 4, 9, 9]"))


def test_what_else_is_given_for_packed_weights():
    with context():
        module = parsed(graph())
        run_pipeline(module, "hoist-parameters,to-kernels,plan-memory,lower-kernels")
        program = CheckedProgram(module)
    x, w, b = inputs()
    other = torch.ops.mkldnn._reorder_convolution_weight.default(torch.randn(8, 4, 3, 3), [0, 0], [2, 2], [1, 1], 2)
    for wrong in (w, w.double(), other, None, 3):
        with pytest.raises(InputError):
            program([x, w, b, wrong])
