"""Passes for a GPU that change products: what a graph gives before and after, by the interpreter."""

import re

import pytest
import torch

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.dialects.interpreter import interpreter
from mlirc.lowering.pipeline.pass_manager import run_pipeline

BF16 = torch.bfloat16


def text(arguments: str, body: str, result: str) -> str:
    """A function on a GPU; types are written without the device."""
    made = f"func.func @graph({arguments}) -> {result} {{\n{body}\n}}"
    made = re.sub(r"(tensor<(?:\d+x)*\w+), \{stride", r'\1, {device = "cuda:0", stride', made)
    return re.sub(r"(tensor<(?:\d+x)*[a-z]\w*)>", r'\1, {device = "cuda:0"}>', made)


def both(source: str, pipeline: str, inputs: list[torch.Tensor]) -> tuple[str, torch.Tensor, torch.Tensor]:
    """The text after the passes, and the first result before and after them, on the CPU."""
    made, *results = results_of_both(source, pipeline, inputs)
    return made, *(found[0] for found in results)


def results_of_both(source: str, pipeline: str, inputs: list[torch.Tensor]) -> tuple[str, list, list]:
    results = []
    with context():
        for passes in ("", pipeline):
            module = ir.Module.parse(source)
            if passes:
                run_pipeline(module, passes)
            made = str(module)
            on_cpu = ir.Module.parse(re.sub(r', \{device = "cuda:0"\}', "", made.replace('device = "cuda:0", ', "")))
            results.append(interpreter.run(on_cpu.body.operations[0], inputs))
    return made, *results


def test_patches_are_multiplied():
    """Also of images that lie channels last, whose strides the copy takes as they are."""
    call = (
        '%0 = "mlircx.aten"(%x, %w, %b) {aliases = "-1", op = "aten.convolution.default", args = "[{\\22$\\22: 0}, '
        '{\\22$\\22: 1}, {\\22$\\22: 2}, STRIDE, [0, 0], [1, 1], false, [0, 0], 1]"} : (X, tensor<6x3x4x2xbf16>, '
        "tensor<6xbf16>) -> tensor<2x6x3x5xbf16>\nreturn %0 : tensor<2x6x3x5xbf16>"
    )
    x, w, b = torch.randn(2, 3, 12, 10, dtype=BF16), torch.randn(6, 3, 4, 2, dtype=BF16), torch.randn(6, dtype=BF16)
    for image, type_ in (
        (x, "tensor<2x3x12x10xbf16>"),
        (x.to(memory_format=torch.channels_last), 'tensor<2x3x12x10xbf16, {stride = "360, 1, 30, 3"}>'),
    ):
        source = text(
            f"%x: {type_}, %w: tensor<6x3x4x2xbf16>, %b: tensor<6xbf16>",
            call.replace("X,", f"{type_},").replace("STRIDE", "[4, 2]"),
            "tensor<2x6x3x5xbf16>",
        )
        made, before, after = both(source, "patches-to-matmul,eliminate-views", [image, w, b])
        assert "mlirc.addmm" in made and "convolution" not in made
        torch.testing.assert_close(after, before, rtol=2e-2, atol=2e-2)
        assert after.stride() == before.stride()
    overlapping = source.replace("[4, 2]", "[3, 2]").replace("x3x5x", "x3x5x")
    with context():
        module = ir.Module.parse(overlapping)
        run_pipeline(module, "patches-to-matmul")
        assert "mlirc.addmm" not in str(module)


@pytest.mark.parametrize("mask", ["false, true, true", "false, true, false", "true, true, true"])
def test_gradients_of_filters_of_patches(mask):
    """Gradients may be a part of something wider; where the image's is wanted too, all stay."""
    sizes = zip(("2x3x12x10", "6x3x4x2", "6"), mask.split(", "), strict=True)
    types = [f"tensor<{size}xbf16>" for size, wanted in sizes if wanted == "true"]
    results, dy = ", ".join(types), 'tensor<2x6x3x5xbf16, {stride = "96, 1, 30, 6"}>'
    given = ", ".join(f"{{\\22$\\22: {k}}}" for k in range(3))
    attributes = (
        f'{{aliases = "{", ".join(["-1"] * len(types))}", op = "aten.convolution_backward.default", '
        f'args = "[{given}, [6], [4, 2], [0, 0], [1, 1], false, [0, 0], 1, [{mask}]]"}}'
    )
    x, w = "tensor<2x3x12x10xbf16>", "tensor<6x3x4x2xbf16>"
    body = (
        f'%r:{len(types)} = "mlircx.aten"(%dy, %x, %w) {attributes} : ({dy}, {x}, {w}) -> ({results})\n'
        f"return {', '.join(f'%r#{k}' for k in range(len(types)))} : {results}"
    )
    source = text(f"%dy: {dy}, %x: {x}, %w: {w}", body, f"({results})")
    inputs = [torch.randn(2, 96, dtype=BF16).as_strided((2, 6, 3, 5), (96, 1, 30, 6))]
    inputs += [torch.randn(2, 3, 12, 10, dtype=BF16), torch.randn(6, 3, 4, 2, dtype=BF16)]
    made, before, after = results_of_both(source, "patches-to-matmul,eliminate-views", inputs)
    assert ("convolution" in made) == mask.startswith("true")
    for x, y in zip(after, before, strict=True):
        torch.testing.assert_close(x, y, rtol=2e-2, atol=2e-2)
        assert x.stride() == y.stride()


WRITTEN_OUT = """
%h = "mlirc.constant"() {value = "0x1.0000000000000p-1"} : () -> tensor<f32>
%c = "mlirc.constant"() {value = "CUBE"} : () -> tensor<f32>
%s = "mlirc.constant"() {value = "0x1.9884533d43651p-1"} : () -> tensor<f32>
%o = "mlirc.constant"() {value = "0x1.0000000000000p+0"} : () -> tensor<bf16>
%0 = "mlirc.addmm"(%b, %x, %w) : (tensor<16xbf16>, tensor<24x8xbf16>, tensor<8x16xbf16>) -> tensor<24x16xbf16>
%1 = "mlirc.view"(%0) {map = "12*d0 + d1, d2", offset = "0"} : (tensor<24x16xbf16>) -> tensor<2x12x16xbf16>
%2 = "mlirc.mul"(%1, %h) : (tensor<2x12x16xbf16>, tensor<f32>) -> tensor<2x12x16xbf16>
%3 = "mlirc.cast"(%1) : (tensor<2x12x16xbf16>) -> tensor<2x12x16xf32>
%4 = "mlirc.mul"(%3, %3) : (tensor<2x12x16xf32>, tensor<2x12x16xf32>) -> tensor<2x12x16xf32>
%5 = "mlirc.mul"(%4, %3) : (tensor<2x12x16xf32>, tensor<2x12x16xf32>) -> tensor<2x12x16xf32>
%6 = "mlirc.cast"(%5) : (tensor<2x12x16xf32>) -> tensor<2x12x16xbf16>
%7 = "mlirc.mul"(%6, %c) : (tensor<2x12x16xbf16>, tensor<f32>) -> tensor<2x12x16xbf16>
%8 = "mlirc.add"(%1, %7) : (tensor<2x12x16xbf16>, tensor<2x12x16xbf16>) -> tensor<2x12x16xbf16>
%9 = "mlirc.mul"(%8, %s) : (tensor<2x12x16xbf16>, tensor<f32>) -> tensor<2x12x16xbf16>
%10 = "mlirc.tanh"(%9) : (tensor<2x12x16xbf16>) -> tensor<2x12x16xbf16>
%11 = "mlirc.add"(%10, %o) : (tensor<2x12x16xbf16>, tensor<bf16>) -> tensor<2x12x16xbf16>
%12 = "mlirc.mul"(%2, %11) : (tensor<2x12x16xbf16>, tensor<2x12x16xbf16>) -> tensor<2x12x16xbf16>
return %LAST : tensor<2x12x16xbf16>"""


@pytest.mark.parametrize(
    ("cube", "last", "extra", "taken"),
    [
        ("0x1.6e4e26d4801f7p-5", "12", "", True),
        ("0x1.7e4e26d4801f7p-5", "12", "", False),  # another constant
        ("0x1.6e4e26d4801f7p-5", "13", '%13 = "mlirc.add"(%12, %2) : (T, T) -> T\n', False),  # its argument is read
    ],
)
def test_gelu_goes_into_the_product(cube, last, extra, taken):
    extra = extra.replace("T", "tensor<2x12x16xbf16>")
    body = WRITTEN_OUT.replace("CUBE", cube).replace("return", f"{extra}return").replace("%LAST", f"%{last}")
    source = text("%b: tensor<16xbf16>, %x: tensor<24x8xbf16>, %w: tensor<8x16xbf16>", body, "tensor<2x12x16xbf16>")
    inputs = [torch.randn(16, dtype=BF16), torch.randn(24, 8, dtype=BF16), torch.randn(8, 16, dtype=BF16)]
    made, before, after = both(source, "fuse-matmul-epilogue,canonicalize,eliminate-dead", inputs)
    assert ("mlirc.addmm_gelu" in made) == taken and ("mlirc.tanh" in made) != taken
    torch.testing.assert_close(after, before, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("columns", [37, 42, 44])
def test_unaligned_rows_are_written_where_they_lie(columns):
    """In 8, 4 and 2 classes of rows; what is left are the first and the last columns."""
    source = text(
        f"%x: tensor<16x24xbf16>, %w: tensor<{columns}x24xbf16>",
        f'%0 = "mlirc.view"(%w) {{map = "d1, d0", offset = "0"}} : (tensor<{columns}x24xbf16>) -> '
        f'tensor<24x{columns}xbf16, {{stride = "1, 24"}}>\n%1 = "mlirc.matmul"(%x, %0) : (tensor<16x24xbf16>, '
        f'tensor<24x{columns}xbf16, {{stride = "1, 24"}}>) -> tensor<16x{columns}xbf16>\nreturn %1 : tensor<16x{columns}xbf16>',
        f"tensor<16x{columns}xbf16>",
    )
    inputs = [torch.randn(16, 24, dtype=BF16), torch.randn(columns, 24, dtype=BF16)]
    made, before, after = both(source, "to-kernels,plan-memory,split-unaligned", inputs)
    assert made.count('callee = "matmul"') == {37: 8, 42: 4, 44: 2}[columns] and "matmul_edges" in made
    torch.testing.assert_close(after, before, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize(
    ("rows", "columns", "inner", "taken"),
    [
        (128, 50257, 768, True),  # an H200's times in microseconds, of eight products and ours: 182, 35
        (1024, 50257, 768, True),  # 209, 134
        (2048, 50257, 768, True),  # 274, 262
        (4096, 50257, 768, False),  # 501, 520
        (1024, 32001, 2048, True),  # 332, 191
        (1024, 50256, 768, False),  # aligned: one product of the library
    ],
)
def test_few_unaligned_rows_are_ours(rows, columns, inner, taken):
    w, transposed = f"tensor<{columns}x{inner}xbf16>", f'tensor<{inner}x{columns}xbf16, {{stride = "1, {inner}"}}>'
    x, out = f"tensor<{rows}x{inner}xbf16>", f"tensor<{rows}x{columns}xbf16>"
    source = text(
        f"%x: {x}, %w: {w}",
        f'%0 = "mlirc.view"(%w) {{map = "d1, d0", offset = "0"}} : ({w}) -> {transposed}\n'
        f'%1 = "mlirc.matmul"(%x, %0) : ({x}, {transposed}) -> {out}\nreturn %1 : {out}',
        out,
    )
    with context():
        module = ir.Module.parse(source)
        run_pipeline(module, "generate-triton-matmuls")
        assert ("mlircx.kernel" in str(module)) == taken and ("mlirc.matmul" in str(module)) != taken


@pytest.mark.parametrize(("height", "window", "padding"), [(20, 7, 3), (21, 3, 1), (17, 4, 0)])
def test_pixels_become_channels(height, window, padding):
    out = (height + 2 * padding - window) // 2 + 1
    types = f"tensor<2x3x{height}x18xbf16>", f"tensor<8x3x{window}x{window}xbf16>"
    across = (18 + 2 * padding - window) // 2 + 1
    result = f"tensor<2x8x{out}x{across}xbf16>"
    call = (
        '%0 = "mlircx.aten"(%x, %w) {aliases = "-1", op = "aten.convolution.default", args = "[{\\22$\\22: 0}, {\\22$\\22: 1}, '
        f'null, [2, 2], [{padding}, {padding}], [1, 1], false, [0, 0], 1]"}} : ({types[0]}, {types[1]}) -> {result}\n'
    )
    source = text(f"%x: {types[0]}, %w: {types[1]} {{mlirc.parameter}}", f"{call}return %0 : {result}", result)
    inputs = [torch.randn(2, 3, height, 18, dtype=BF16), torch.randn(8, 3, window, window, dtype=BF16)]
    made, before, after = both(source, "space-to-depth,eliminate-views", inputs)
    assert "tensor<8x16x" in made
    torch.testing.assert_close(after, before, rtol=2e-2, atol=5e-2)


def test_batch_norms_go_into_convolutions_with_their_relu():
    """The block's end: a convolution, and beside it a shortcut with a batch norm of its own, added before the relu."""
    x, w, c = "tensor<2x4x5x5xbf16>", "tensor<4x4x1x1xbf16>", "tensor<4xbf16>"
    conv = (
        '%NAME = "mlircx.aten"(%x, %WEIGHT) {aliases = "-1", op = "aten.convolution.default", args = "[{\\22$\\22: 0}, '
        f'{{\\22$\\22: 1}}, null, [1, 1], [0, 0], [1, 1], false, [0, 0], 1]"}} : ({x}, {w}) -> {x}\n'
    )
    norm = (
        '%NAME = "mlirc.batch_norm_inference"(%FROM, %c, %c, %c, %c) {eps = 1.0e-05 : f64} : '
        f"({x}, {c}, {c}, {c}, {c}) -> {x}\n"
    )
    body = conv.replace("NAME", "0").replace("WEIGHT", "w") + norm.replace("NAME", "1").replace("FROM", "0")
    body += conv.replace("NAME", "2").replace("WEIGHT", "v") + norm.replace("NAME", "3").replace("FROM", "2")
    body += f'%4 = "mlirc.add"(%1, %3) : ({x}, {x}) -> {x}\n%5 = "mlirc.relu"(%4) : ({x}) -> {x}\nreturn %5 : {x}'
    parameters = f"%x: {x}, %w: {w} {{mlirc.parameter}}, %v: {w} {{mlirc.parameter}}, %c: {c} {{mlirc.parameter}}"
    with context():
        module = ir.Module.parse(text(parameters, body, x))
        run_pipeline(module, "fold-cudnn,canonicalize,eliminate-dead")
        made = str(module)
    assert made.count("cudnn_convolution_add_relu") == 1 and made.count("aten.convolution.default") == 1
    assert "batch_norm" not in made and "mlirc.relu" not in made
    with context():  # what is no parameter is not folded into each call's weights
        module = ir.Module.parse(text(parameters.replace(" {mlirc.parameter}", ""), body, x))
        run_pipeline(module, "fold-cudnn")
        assert "cudnn_convolution" not in str(module)


@pytest.mark.parametrize(("rows", "columns"), [(1, 1536), (1, 1533), (3, 1533)])
def test_few_rows_are_a_kernel(rows, columns):
    """One row, or few whose results begin anywhere; others, weights along n, and small ones, stay products."""
    x, w, out = (
        f"tensor<{rows}x768xbf16>",
        f'tensor<768x{columns}xbf16, {{stride = "1, 768"}}>',
        f"tensor<{rows}x{columns}xbf16>",
    )
    body = (
        f'%0 = "mlirc.addmm"(%b, %x, %w) : (tensor<{columns}xbf16>, {x}, {w}) -> {out}\n'
        f'%1 = "mlirc.relu"(%0) : ({out}) -> {out}\nreturn %1 : {out}'
    )
    source = text(f"%x: {x}, %w: {w}, %b: tensor<{columns}xbf16>", body, out)
    passes = "generate-dot-products,to-kernels,fuse-elementwise,fuse-reductions,split-reductions"
    inputs = [torch.randn(rows, 768).to(BF16), torch.randn(columns, 768).to(BF16).t(), torch.randn(columns).to(BF16)]
    made, before, after = both(source, passes, inputs)
    assert "mlirc.addmm" not in made and made.count('"mlircx.kernel"') == 1
    torch.testing.assert_close(after, before, rtol=2e-2, atol=2e-2)
    along_n = source.replace('"1, 768"', f'"{columns}, 1"')
    for other in (source.replace(f"{rows}x", "17x"), source.replace(str(columns), "153"), along_n):
        with context():
            module = ir.Module.parse(other)
            run_pipeline(module, "generate-dot-products")
            assert "mlirc.addmm" in str(module)
