"""Convolutions that are kernels of our own, and their gradients: against float64, over shapes, threads and vectors, and in nets."""

import copy

import pytest
import torch
from torch import nn

import mlirc
from mlirc.codegen.emit.emit import compile_module
from mlirc.dialects.core.bindings import func, ir
from mlirc.dialects.core.context import context
from mlirc.dialects.core.dialect import create
from mlirc.dialects.core.tensor_types import TensorInfo, type_of
from mlirc.dialects.interpreter.interpreter import run
from mlirc.lowering.cpu.convolution.call import ConvolutionProblem, read_convolution, refusal
from mlirc.lowering.module.rules import StageError
from mlirc.lowering.module.target_attribute import set_target
from mlirc.lowering.pipeline.pass_manager import run_pipeline
from mlirc.lowering.verify.stage import verify_stage
from tests.kernel_runner import of_width
from tests.lowering.cpu.convolution.test_convolutions import Block, as_good_as_eager, compiled, report, with_statistics

pytestmark = pytest.mark.thinned

LOWER = "to-kernels,plan-memory,lower-kernels"
# name -> N, C, O, H, W, kernel, stride, padding, dilation
SHAPES = {
    "3x3": (2, 8, 8, 9, 9, (3, 3), (1, 1), (1, 1), (1, 1)),
    "several tiles and blocks": (3, 36, 52, 30, 23, (3, 3), (1, 1), (1, 1), (1, 1)),
    "several groups of channels": (1, 130, 33, 16, 17, (5, 5), (1, 1), (2, 2), (1, 1)),
    "strided": (2, 19, 40, 15, 12, (3, 3), (2, 2), (1, 1), (1, 1)),
    "pointwise": (2, 33, 130, 8, 10, (1, 1), (2, 2), (0, 0), (1, 1)),
    "uneven, dilated": (3, 5, 7, 11, 6, (3, 2), (2, 1), (2, 1), (1, 2)),
    "windows wholly outside": (1, 16, 16, 4, 4, (3, 3), (1, 1), (3, 4), (1, 1)),
    "one of each": (1, 1, 1, 5, 5, (1, 1), (1, 1), (0, 0), (1, 1)),
    "as the first for code": (5, 32, 8, 20, 11, (5, 5), (2, 1), (0, 3), (1, 1)),
    "strided, more than reached": (2, 16, 24, 14, 13, (4, 3), (3, 2), (2, 0), (1, 1)),
    "strided and dilated": (3, 9, 20, 19, 18, (3, 4), (3, 4), (2, 3), (2, 2)),
    "stride and dilation of 2": (2, 8, 8, 13, 14, (3, 2), (2, 2), (0, 1), (2, 2)),
    "more stride than taps": (2, 12, 9, 10, 11, (1, 2), (3, 3), (0, 1), (1, 1)),
    "rows of one window": (17, 130, 40, 2, 1, (3, 3), (1, 1), (1, 1), (1, 1)),
    "no images": (0, 8, 8, 9, 9, (3, 3), (1, 1), (1, 1), (1, 1)),
}
KINDS = ("convolution", "convolution_add", "transposed_convolution", "convolution_weight_gradient")


def channels_last(x: torch.Tensor) -> torch.Tensor:
    n, c, h, w = x.shape
    return x.permute(0, 2, 3, 1).contiguous().as_strided((n, c, h, w), (c * h * w, 1, c * w, c))


def listed(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers))


def like(x: torch.Tensor) -> TensorInfo:
    return TensorInfo(x.dtype, tuple(x.shape), x.stride())


class Case:
    """An op, its operands and a tensor like its result; `reference` computes it by ATen in a dtype."""

    def __init__(self, kind: str, shape: str):
        n, c, o, h, w, kernel, stride, padding, dilation = SHAPES[shape]
        self.kind, self.windows = kind, (stride, padding, dilation)
        self.x, self.w, self.factors = torch.randn(n, c, h, w), torch.randn(o, c, *kernel), torch.randn(2, o)
        self.y = nn.functional.conv2d(self.x, self.w, None, *self.windows)
        self.dy = torch.randn_like(self.y)
        attributes = {"padding": listed(padding), "dilation": listed(dilation)}
        x, dy = channels_last(self.x), channels_last(self.dy)
        if kind == "convolution_weight_gradient":
            attributes |= {"stride": listed(stride), "window": listed(kernel)}
            self.operands, self.out = [x, dy], self.w
        elif kind == "transposed_convolution":
            axes = zip((h, w), kernel, self.y.shape[2:], *self.windows, strict=True)
            more = [n - (gap * (k - 1) + 1 - 2 * pad + (q - 1) * step) for n, k, q, step, pad, gap in axes]
            attributes |= {"stride": listed(stride), "more": listed(more), "after": ""}
            self.operands, self.out = [dy, self.w], x
        else:
            after = "shift" if kind == "convolution" else "scale, shift, relu"
            attributes |= {"stride": listed(stride), "after": after}
            factors = [self.factors[1]] if kind == "convolution" else list(self.factors)
            self.operands, self.out = [x, self.w, *[dy] * (kind == "convolution_add"), *factors], channels_last(self.y)
        self.attributes = attributes

    def reference(self, dtype: torch.dtype) -> torch.Tensor:
        x, w, dy, factors = (t.to(dtype) for t in (self.x, self.w, self.dy, self.factors))
        if self.kind == "convolution":
            return nn.functional.conv2d(x, w, factors[1], *self.windows)
        if self.kind == "convolution_add":
            scale, shift = (f.view(-1, 1, 1) for f in factors)
            return (nn.functional.conv2d(x, w, None, *self.windows) * scale + shift + dy).relu()
        which = self.kind == "convolution_weight_gradient"
        mask = [not which, which, False]
        args = dy, x, w, [0], *map(list, self.windows), False, [0, 0], 1, mask
        return torch.ops.aten.convolution_backward(*args)[which]

    def module(self) -> ir.Module:
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            function = func.FuncOp("graph", ([type_of(like(t)) for t in self.operands], []))
        block = function.add_entry_block()
        with ir.InsertionPoint(block):
            out = create(self.kind, list(block.arguments), [type_of(like(self.out))], self.attributes).out
            func.ReturnOp([out])
        types = [t.type for t in block.arguments], [out.type]
        function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(*types))
        return module


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def close(made: torch.Tensor, case: Case) -> None:
    wanted, eager = case.reference(torch.float64), case.reference(torch.float32)
    assert made.shape == case.out.shape and made.stride() == case.out.stride()
    if made.numel():
        floor = 2e-7 * wanted.norm()
        assert (made - wanted).norm() <= max(2 * (eager - wanted).norm(), floor)


@pytest.mark.parametrize("kind", ("convolution", "convolution_add", "convolution_weight_gradient"))
def test_layers_share_code(kind):
    """However many images, channels, pixels and taps they have."""
    made = []
    for shape in ("3x3", "as the first for code", "uneven, dilated"):
        with context():
            module = Case(kind, shape).module()
            run_pipeline(module, LOWER)
            made.append([x for op in module.body.operations if "@graph" not in (x := str(op))])
    assert made[0] == made[1] != made[2]


@pytest.mark.thinned(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_values(kind, shape):
    """And the same bits with any number of threads."""
    case = Case(kind, shape)
    with context():
        module = case.module()
        run_pipeline(module, LOWER)
        program = compile_module(module)
    made = []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        made.append(program(list(case.operands))[0])
        assert torch.equal(made[0], made[-1])
    close(made[0], case)


@pytest.mark.parametrize("kind", KINDS)
def test_narrow_vectors(kind):
    case = Case(kind, "strided")
    with context():
        module = case.module()
        set_target(module, of_width(16))
        run_pipeline(module, LOWER)
        close(compile_module(module)(list(case.operands))[0], case)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("kind", KINDS)
def test_wide_vectors_lower(kind):
    """For a processor that need not be here: the text is MLIR, and LLVM has code for it."""
    from mlirc.codegen.llvm.machine_code import mlir_to_llvm

    with context():
        module = Case(kind, "several tiles and blocks").module()
        set_target(module, of_width(64))
        run_pipeline(module, LOWER)
        kernels = "\n".join(str(op) for op in module.body.operations if "@graph" not in str(op)[:20])
        assert "<16 x float>" in mlir_to_llvm(kernels)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("passes", ["", "to-kernels", "to-kernels,plan-memory", LOWER])
def test_every_form_is_interpreted(kind, passes):
    case = Case(kind, "uneven, dilated")
    with context():
        module = case.module()
        if passes:
            run_pipeline(module, passes)
        close(run(module.body.operations[0], list(case.operands))[0], case)


def test_infinities_stay_where_eager_has_them():
    for kind in ("convolution", "convolution_weight_gradient"):
        case = Case(kind, "3x3")
        case.operands[0][..., 0, 0] = torch.inf
        case.x = case.operands[0].contiguous()
        with context():
            module = case.module()
            run_pipeline(module, LOWER)
            made = compile_module(module)(list(case.operands))[0]
        assert torch.equal(made.isfinite(), case.reference(torch.float64).isfinite())
        assert not made.isfinite().all() and made.isfinite().any()


@pytest.mark.parametrize("change", [("3, 3", "3, 2"), ('stride = "1, 1"', 'stride = "2, 1"'), ("8x8x3x3", "8x9x3x3")])
def test_what_does_not_belong_together_is_refused(change):
    with context():
        text = str(Case("convolution_weight_gradient", "3x3").module())
        module = ir.Module.parse(text.replace(*change))
        with pytest.raises(StageError):
            verify_stage(module.body.operations[0], "graph")


# ---- in nets


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.pool = nn.Conv2d(3, 32, 7, 2, 3, bias=False), nn.MaxPool2d(3, 2, 1)
        self.wide, self.side = nn.Conv2d(32, 272, 3, 2, 1), nn.Conv2d(32, 272, 1, 2, bias=False)
        self.block, self.head = Block(272), nn.Linear(272, 10)

    def forward(self, x):
        x = self.pool(self.stem(x).relu())
        x = self.block(self.wide(x).relu() + self.side(x))
        return self.head(x.mean((2, 3)))


def gradients(module: nn.Module, f, x: torch.Tensor) -> list[torch.Tensor]:
    module.zero_grad()
    x = x.detach().requires_grad_()
    f(x).square().sum().backward()
    return [x.grad, *(p.grad.clone() for p in module.parameters())]


def read(case: Case) -> ConvolutionProblem:
    with context():
        module = case.module()
        return read_convolution(module.body.operations[0].regions[0].blocks[0].operations[0])


def test_training():
    """Kernels of ours for every weight but the first; gradients as exact as eager's, and laid out so."""
    module, x = Net(), torch.randn(4, 3, 64, 64)
    wide, plain = copy.deepcopy(module).double(), copy.deepcopy(module)
    wanted, eager = gradients(wide, wide, x.double()), gradients(plain, plain, x)
    made = gradients(module, compiled(module), x)
    names = ["x", *(name for name, _ in module.named_parameters())]
    errors = []
    for name, a, b, c in zip(names, wanted, eager, made, strict=True):
        theirs, ours = (b - a).norm(), (c - a).norm()
        errors.append((theirs, ours))
        if name != "block.second.bias" and name != "block.first.bias":  # a batch norm follows: 0 but for rounding
            # a sum of what nearly cancels has the rounding of its summands: eager's happens to be small in one or the other
            assert ours <= max(4 * theirs, 3e-7 * a.norm()), name
        assert b.stride() == c.stride()
    theirs, ours = torch.tensor(errors).square().sum(0).sqrt()
    assert ours <= 2 * theirs


@pytest.mark.full
def test_a_frozen_layer_and_a_changing_batch():
    module = Net().eval()
    module.wide.weight.requires_grad_(False)
    call = compiled(module, dynamic=True)
    for batch in (2, 5, 3):
        x = torch.randn(batch, 3, 48, 48)
        wide = copy.deepcopy(module).double()
        module.zero_grad()
        call(x).square().sum().backward()
        wide(x.double()).square().sum().backward()
        assert module.wide.weight.grad is None
        for p, q in zip(module.parameters(), wide.parameters(), strict=True):
            if q.grad is not None:
                assert (p.grad - q.grad).norm() <= 1e-5 * q.grad.norm()


@torch.no_grad()
def test_large_weights_are_read_where_they_are():
    module, x = with_statistics(Block(176)), torch.randn(2, 176, 9, 9)
    graph = report(module, x)
    assert not graph["aten"]
    assert [k["ops"] for k in graph["kernels"] if k["ops"]] == [["convolution"], ["convolution_add"]]
    call = compiled(module)
    as_good_as_eager(call(x), module, x)
    module.float().second.weight.data.mul_(2)  # nothing was kept of it, so that nobody need count this write
    module.norms[0].running_mean.add_(1)
    as_good_as_eager(call(x), module, x)


@torch.no_grad()
def test_what_has_no_room_on_a_stack_stays_with_onednn(monkeypatch):
    module, x = with_statistics(nn.Conv2d(1024, 40, 3, padding=1)), torch.randn(1, 1024, 6, 6)
    assert report(module, x)["aten"]
    assert refusal(read(Case("convolution_weight_gradient", "3x3"))) == ""
    monkeypatch.setitem(SHAPES, "wide", (1, 16, 16, 1, 2100, (1, 3), (1, 1), (0, 0), (1, 1)))
    assert refusal(read(Case("convolution_weight_gradient", "wide"))) == "ROOM"


@torch.no_grad()
def test_small_weights_stay_with_onednn_unless_all_is_small():
    module = with_statistics(Block(24))
    for size, theirs in ((80, True), (9, False)):
        graph = mlirc.explain(module)(torch.randn(2, 24, size, size)).data["graphs"][0]
        assert bool(graph["aten"]) == theirs
