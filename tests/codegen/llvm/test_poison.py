"""No poison or undef in what is emitted: the check of LLVM IR text finds each kind, and finds none in kernels of all kinds.

tests/conftest.py makes the same check of every kernel that any test lowers.
"""

import pytest
import torch
import torch.nn.functional as F

from mlirc.codegen.llvm import translation as mlir_translation
from tests.llvm_poison import poison

BAD = {
    "nsw": "%r = add nsw i64 %x, 1",
    "nuw": "%r = mul nuw i64 %x, 1",
    "exact": "%r = lshr exact i64 %x, 1",
    "inbounds": "%r = getelementptr inbounds i8, ptr %p, i64 %x",
    "disjoint": "%r = or disjoint i64 %x, 1",
    "nneg": "%r = zext nneg i32 %n to i64",
    "undef": "%r = add i64 undef, %x",
    "poison": "%r = add i64 poison, %x",
    "fast": "%r = fadd fast float %a, %b",
    "no signed zeros": "%r = call nsz float @llvm.maximum.f32(float %a, float %b)",
    "reassociated": "%r = fadd reassoc float %a, %b",
    "no NaN": "%r = call nnan float @llvm.maxnum.f32(float %a, float %b)",
    "a lane that may be NaN": "%r = call nnan float @llvm.vector.reduce.fmax.v4f32(<4 x float> %v)\n  %s = fadd float %r, %a",
    "a conversion": "%r = fptosi float %a to i32\n  %s = add i32 %r, 1",
    "a conversion under another condition": "%r = fptosi float %a to i32\n  %s = select i1 %c, i32 %r, i32 0",
    "a conversion of another number": (
        "%r = fptosi float %a to i32\n  %f = call float @llvm.fabs.f32(float %b)\n"
        "  %k = fcmp olt float %f, 2.0\n  %s = select i1 %k, i32 %r, i32 0"
    ),
    "division by 0": "%r = udiv <4 x i32> %i, splat (i32 0)",
    "division by -1": "%r = sdiv i32 %n, -1",
    "remainder by -1": "%r = srem <4 x i32> %i, splat (i32 -1)",
    "division by data": "%r = sdiv <4 x i32> %i, %j",
    "a wide shift": "%r = shl i32 %n, 32",
    "a shift by data": "%r = ashr <4 x i32> %i, %j\n  %s = add <4 x i32> %r, %i",
    "a shift under another condition": "%r = shl i32 %n, %m\n  %s = select i1 %c, i32 %r, i32 0",
    "a shift by at most the width": "%m = call i32 @llvm.umin.i32(i32 %n, i32 32)\n  %r = shl i32 %n, %m",
    "one lane of poison": "%r = insertelement <4 x i32> poison, i32 %n, i32 0\n  %s = add <4 x i32> %r, %i",
    "a lane that may be none": "%r = insertelement <4 x i32> %i, i32 %n, i32 %m",
    "a lane that is none": "%r = extractelement <4 x i32> %i, i64 4",
    "a shuffle of poison": "%r = shufflevector <2 x i32> %i, <2 x i32> poison, <2 x i32> <i32 0, i32 2>",
    "lanes of poison": "%r = shufflevector <2 x i32> %i, <2 x i32> %j, <2 x i32> <i32 0, i32 poison>",
    "a masked load": "%r = call <2 x float> @llvm.masked.load.v2f32.p0(ptr %p, <2 x i1> %m, <2 x float> poison)",
    "a load of what was there": "%r = call <2 x float> @llvm.masked.load.v2f32.p0(ptr %p, <2 x i1> %m, <2 x float> %v)",
    "abs": "%r = call i32 @llvm.abs.i32(i32 %n, i1 true)",
    "ctlz": "%r = call i32 @llvm.ctlz.i32(i32 %n, i1 true)",
    "assume": "call void @llvm.assume(i1 %c)",
    "range": "%r = load i64, ptr %p, align 8, !range !0",
}


@pytest.mark.parametrize("name", BAD)
def test_each_kind_is_found(name):
    assert poison(f"define void @f() {{\n  {BAD[name]}\n  ret void\n}}\n")


def test_promises_about_arguments_are_found():
    assert poison("define void @f(ptr noalias %0) {\n  ret void\n}\n")


def products(x, y, q):
    gated = F.silu(x @ y) * (x @ y)
    return gated, F.scaled_dot_product_attention(q, q, q, is_causal=True), F.softmax(x, -1), x.cumsum(0), x.argmax(1)


def images(x, weight):
    y = F.conv2d(x, weight, stride=2, padding=1)
    return F.max_pool2d(y, 3, 2, 1), F.avg_pool2d(y, 2), F.pad(y, (1, 2, 3, 4)), F.group_norm(y, 2), x.flip(2)


def rows(x, index, n):
    picked = F.embedding(index, x)
    return picked, x.gather(0, index[:, :1]), x.roll(n, 0), torch.where(torch.arange(x.shape[1]) + n > 3, x, 0.0)


def integers(x, n):
    return x // 3, x % -3, x // -1, x % -1, x << 40, x >> 70, x.abs(), x.float().mul(3e9).to(x.dtype), x.sum(0), x * n


@pytest.mark.thinned(1)
@pytest.mark.parametrize("dynamic", [False, True])
def test_kernels_make_no_poison(dynamic, monkeypatch):
    texts, translate = [], mlir_translation.translate

    def listening(source):
        texts.append(translate(source))
        return texts[-1]

    monkeypatch.setattr(mlir_translation, "translate", listening)

    def compiled(f, *args):
        torch.compiler.reset()
        return torch.compile(f, backend="mlirc", dynamic=dynamic, fullgraph=True)(*args)

    dtype, integer = (torch.float32, torch.int64) if dynamic else (torch.bfloat16, torch.int8)
    compiled(products, *(torch.randn(*s, dtype=dtype) for s in ((33, 65), (65, 47), (2, 2, 37, 16))))
    compiled(images, *(torch.randn(*s, dtype=dtype) for s in ((2, 3, 17, 19), (8, 3, 3, 3))))
    compiled(rows, torch.randn(50, 19, dtype=dtype), torch.randint(0, 50, (6, 7)), 3)
    compiled(integers, torch.randint(-99, 99, (5, 37)).to(integer), 3)
    x = torch.randn(7, 33, requires_grad=True)
    for y in compiled(lambda x: (F.layer_norm(x, (33,)), F.cross_entropy(x, torch.arange(7)), x.var(1)), x):
        y.sum().backward(retain_graph=True)
    assert len(texts) >= 10 and not [line for text in texts for line in poison(text)]
