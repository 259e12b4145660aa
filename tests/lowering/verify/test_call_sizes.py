"""Modules from files whose library calls are given tensors that do not belong together, or whose launches overwrite an index."""

import pytest
import torch

from mlirc.codegen.emit.checked_program import CheckedProgram, InputError
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.lowering.module.rules import StageError
from mlirc.lowering.pipeline.pass_manager import functions, run_pipeline
from mlirc.lowering.verify.stage import verify_stage

ATTENTION = """func.func @graph(%q: tensor<1x2x5x8xf32>, %k: tensor<1x2x?x8xf32, {{size = "1, 2, s5, 8"}}>,
  %v: tensor<1x2x?x8xf32, {{size = "1, 2, {values}, 8"}}>, %m: tensor<1x1x5x?x{mask}, {{size = "1, 1, 5, s5"}}>) -> tensor<1x2x5x8xf32>
  attributes {{mlirc.results = ["g0"]}} {{
  %0:2 = "mlirc.attention"(%q, %k, %v, %m) {{causal = "none", scale = 0.5 : f64}} : (tensor<1x2x5x8xf32>,
    tensor<1x2x?x8xf32, {{size = "1, 2, s5, 8"}}>, tensor<1x2x?x8xf32, {{size = "1, 2, {values}, 8"}}>,
    tensor<1x1x5x?x{mask}, {{size = "1, 1, 5, s5"}}>) -> (tensor<1x2x5x8xf32>, tensor<1x2x5xf32>)
  return %0#0 : tensor<1x2x5x8xf32>
}}"""
IMAGES = 'tensor<2x8x?x9xf32, {{size = "2, 8, s1, 9", stride = "72*s1, 1, 72, 8"}}>'
MADE = 'tensor<2x4x?x9xf32, {{size = "2, 4, {rows}, 9", stride = "36*({rows}), 1, 36, 4"}}>'
CONVOLUTION = f"""func.func @graph(%x: {IMAGES}, %w: tensor<4x8x3x3xf32>, %b: tensor<{{factor}}xf32>) -> {MADE} {{{{
  %0 = "mlirc.convolution"(%x, %w, %b) {{{{after = "shift", dilation = "1, 1", padding = "1, 1", stride = "1, 1"}}}} :
    ({IMAGES}, tensor<4x8x3x3xf32>, tensor<{{factor}}xf32>) -> {MADE}
  return %0 : {MADE}
}}}}"""
LAUNCH = """func.func @graph(%i: tensor<4xi64>, %t: tensor<4xi64>) -> tensor<4xi64> attributes {{mlirc.arena = "{arena}"}} {{
  %a = "mlirc.slot"() {{offset = "0"}} : () -> tensor<4xi64>
  %b = "mlirc.slot"() {{offset = "{offset}"}} : () -> tensor<8xi64>
  %c = "mlirc.view"(%b) {{map = "d0 + {first}", offset = "{first}"}} : (tensor<8xi64>) -> tensor<4xi64>
  %r = "mlirc.allocate"() : () -> tensor<4xi64>
  "mlircx.call"(%i, %a) {{callee = "copy", inputs = 1 : i64}} : (tensor<4xi64>, tensor<4xi64>) -> ()
  "mlircx.launch"(%a, %t, %c) ({{
  ^bb0(%x: tensor<4xi64>, %y: tensor<4xi64>):
    %1 = "mlirc.read"(%x) {{map = "{read}", masked = false}} : (tensor<4xi64>) -> i64
    %2 = "mlirc.check_index"(%1) {{message = "", size = "4", wraps = false}} : (i64) -> i64
    %3 = "mlirc.read"(%y, %2) {{map = "i0", masked = false}} : (tensor<4xi64>, i64) -> i64
    "mlircx.yield"(%3) {{maps = ["d0"]}} : (i64) -> ()
  }}) {{inner = "", inputs = 2 : i64, label = "", parallel = "4"}} : (tensor<4xi64>, tensor<4xi64>, tensor<4xi64>) -> ()
  "mlircx.call"(%c, %r) {{callee = "copy", inputs = 1 : i64}} : (tensor<4xi64>, tensor<4xi64>) -> ()
  return %r : tensor<4xi64>
}}"""


def verify(stage: str, text: str):
    with context():
        module = ir.Module.parse(text)
        (function,) = functions(module)
        return verify_stage(function, stage)


def program(text: str) -> CheckedProgram:
    with context():
        module = ir.Module.parse(text)
        run_pipeline(module, "decompose,select-attention,to-kernels,plan-memory,lower-kernels")
        return CheckedProgram(module)


def test_values_of_another_length_than_keys() -> None:
    text = ATTENTION.format(values="s6", mask="f32")
    assert len(verify("graph", text)) == 2
    run = program(text)
    q, k, mask = torch.randn(1, 2, 5, 8), torch.randn(1, 2, 7, 8), torch.zeros(1, 1, 5, 7)
    (out,) = run([q, k, k, mask])
    torch.testing.assert_close(out, (q @ k.mT * 0.5).softmax(-1) @ k)
    for n in (6, 8, 0):
        with pytest.raises(InputError):
            run([q, k, torch.randn(1, 2, n, 8), mask])


@pytest.mark.parametrize("mask", ["i64", "f64", "f16", "complex<f32>"])
def test_masks_of_other_dtypes(mask: str) -> None:
    with pytest.raises(StageError):
        verify("graph", ATTENTION.format(values="s5", mask=mask))


def test_the_scratch_of_gradients_is_not_read() -> None:
    """Gradients that ATen computes have none: select-attention would leave a use of nothing."""
    x, lse = "tensor<1x2x5x8xf32>", "tensor<1x2x5xf32>"
    wide = 'tensor<1x2x5x8xf32, {stride = "4096, 2048, 256, 16"}>'  # which no kernel of ours writes
    types = ", ".join([x] * 5)
    text = f"""func.func @graph(%d: {x}, %q: {x}, %k: {x}, %v: {x}, %o: {x}, %l: {lse}) -> (RETURNED) {{
      %0:4 = "mlirc.attention_backward"(%d, %q, %k, %v, %o, %l) {{causal = "none", scale = 0.5 : f64}} :
        ({types}, {lse}) -> ({wide}, {x}, {x}, tensor<1x2x5x1xf32>)
      return %0#NUMBER : RETURNED
    }}"""
    verify("graph", text.replace("RETURNED", wide).replace("NUMBER", "0"))
    with pytest.raises(StageError, match="scratch"):
        verify("graph", text.replace("RETURNED", "tensor<1x2x5x1xf32>").replace("NUMBER", "3"))


def test_windows_of_symbolic_images() -> None:
    assert verify("graph", CONVOLUTION.format(rows="s1", factor=4)) == ()
    for rows in ("s1 + 1", "2*s1"):
        try:
            obligations = verify("graph", CONVOLUTION.format(rows=rows, factor=4))
        except StageError:
            continue
        assert obligations  # which some s1 do not satisfy
    for factor in (1, 3, 8):
        with pytest.raises(StageError):
            verify("graph", CONVOLUTION.format(rows="s1", factor=factor))


@pytest.mark.parametrize(
    ("offset", "first", "read", "fits"),
    [
        (64, 0, "d0", True),
        (0, 4, "d0", True),  # behind the index in the same bytes
        (0, 0, "d0", True),  # each point overwrites its own index
        (0, 0, "3 - d0", False),
        (0, 0, "0", False),
        (0, 1, "d0", False),
        (0, 3, "d0", False),
    ],
)
def test_an_index_is_not_overwritten(offset: int, first: int, read: str, fits: bool) -> None:
    text = LAUNCH.format(arena=128, offset=offset, first=first, read=read)
    if fits:
        verify("memory", text)
        return
    with pytest.raises(StageError, match="may overwrite"):
        verify("memory", text)


QUOTIENT = """func.func @graph(%n: i64 {{mlirc.symbol = "s0"}}, %m: i64 {{mlirc.symbol = "{m}"}}) -> i64
  attributes {{mlirc.results = ["g0"]}} {{
  %0 = "mlirc.size"() {{expr = "s0 {operator} {m}"}} : () -> i64
  return %0 : i64
}}"""


@pytest.mark.parametrize("m", ["s1", "us1"])
@pytest.mark.parametrize("operator", ["//", "%"])
def test_sizes_divided_by_zero(operator: str, m: str) -> None:
    """Python raises: the processor's trap would end the process."""
    run = program(QUOTIENT.format(operator=operator, m=m))
    numbers = (3, 1, -2) if m == "us1" else (3, 1)
    for n in numbers:
        assert run([7, n]) == [7 // n if operator == "//" else 7 % n]
    with pytest.raises(InputError, match="is 0"):
        run([7, 0])


def test_an_image_that_is_added_lies_as_the_result_does() -> None:
    image, out = (f'tensor<2x{c}x8x8xf32, {{stride = "{64 * c}, 1, {8 * c}, {c}"}}>' for c in (8, 16))
    weights, factor = "tensor<16x8x3x3xf32>", "tensor<16xf32>"
    text = f"""func.func @graph(%x: {image}, %w: {weights}, %y: ADDED, %b: FACTOR) -> {out} {{
      %0 = "mlirc.convolution_add"(%x, %w, %y, %b) {{after = "shift", dilation = "1, 1", padding = "1, 1", stride = "1, 1"}} :
        ({image}, {weights}, ADDED, FACTOR) -> {out}
      return %0 : {out}
    }}"""
    verify("graph", text.replace("ADDED", out).replace("FACTOR", factor))
    for strides in ("1, 2, 4, 8", "1024, 64, 8, 1", "0, 0, 0, 0"):
        other = f'tensor<2x16x8x8xf32, {{stride = "{strides}"}}>'
        with pytest.raises(StageError, match="adds what lies by"):
            verify("graph", text.replace("ADDED", other).replace("FACTOR", factor))
    for strides in ("0", "2"):
        with pytest.raises(StageError, match="a factor by strides"):
            verify("graph", text.replace("ADDED", out).replace("FACTOR", f'tensor<16xf32, {{stride = "{strides}"}}>'))
