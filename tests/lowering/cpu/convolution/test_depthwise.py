"""Weight gradients of depthwise convolutions: against float64, over shapes, threads and vectors, and in nets."""

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
from mlirc.lowering.module.rules import StageError
from mlirc.lowering.module.target_attribute import set_target
from mlirc.lowering.pipeline.pass_manager import run_pipeline
from mlirc.lowering.verify.stage import verify_stage
from tests.kernel_runner import of_width
from tests.lowering.cpu.convolution.test_convolutions import compiled
from tests.lowering.cpu.convolution.test_generated_convolutions import LOWER, channels_last, like, listed

pytestmark = pytest.mark.thinned

# name -> N, C, H, W, kernel, stride, padding, dilation, parts
SHAPES = {
    "3x3": (2, 8, 9, 9, (3, 3), (1, 1), (1, 1), (1, 1), 1),
    "more taps than rows": (3, 32, 4, 5, (7, 7), (1, 1), (3, 3), (1, 1), 2),
    "several chunks, ragged": (2, 150, 14, 11, (5, 5), (1, 1), (2, 2), (1, 1), 5),
    "several blocks of rows": (1, 20, 190, 40, (7, 6), (1, 1), (3, 2), (1, 1), 3),
    "strided": (3, 19, 15, 12, (5, 5), (2, 2), (2, 1), (1, 1), 3),
    "uneven, dilated": (2, 33, 50, 30, (9, 2), (3, 2), (9, 1), (2, 3), 4),
    "windows wholly outside": (1, 16, 4, 4, (3, 3), (1, 1), (3, 4), (1, 1), 1),
    "more stride than taps": (2, 12, 10, 11, (1, 2), (3, 3), (0, 1), (1, 1), 1),
    "a row": (2, 40, 1, 333, (1, 31), (1, 1), (0, 30), (1, 2), 2),
    "one of each": (1, 1, 5, 5, (1, 1), (1, 1), (0, 0), (1, 1), 1),
    "more parts than rows": (1, 8, 2, 9, (3, 3), (1, 1), (1, 1), (1, 1), 7),
    "no images": (0, 8, 9, 9, (3, 3), (1, 1), (1, 1), (1, 1), 2),
}


class Case:
    """The op, its operands, and what ATen computes in a dtype."""

    def __init__(self, shape: str):
        n, c, h, w, self.kernel, *windows, self.parts = SHAPES[shape]
        self.x, self.windows, self.channels = torch.randn(n, c, h, w), windows, c
        self.w = torch.randn(c, 1, *self.kernel)
        self.dy = torch.randn_like(nn.functional.conv2d(self.x, self.w, None, *windows, groups=c))
        self.operands = [channels_last(self.x), channels_last(self.dy)]

    def reference(self, dtype: torch.dtype) -> torch.Tensor:
        x, w, dy = (t.to(dtype) for t in (self.x, self.w, self.dy))
        args = dy, x, w, [0], *map(list, self.windows), False, [0, 0], self.channels, [False, True, False]
        return torch.ops.aten.convolution_backward(*args)[1]

    def module(self) -> ir.Module:
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            function = func.FuncOp("graph", ([type_of(like(t)) for t in self.operands], []))
        block = function.add_entry_block()
        sums = TensorInfo(torch.float32, (self.parts, *self.kernel, self.channels))
        attributes = dict(zip(("stride", "padding", "dilation"), map(listed, self.windows), strict=True))
        attributes |= {"parts": str(self.parts), "window": listed(self.kernel)}
        with ir.InsertionPoint(block):
            out = create("depthwise_weight_gradient", list(block.arguments), [type_of(sums)], attributes).out
            func.ReturnOp([out])
        types = [t.type for t in block.arguments], [out.type]
        function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(*types))
        return module

    def program(self, vector_bytes: int = 0):
        with context():
            module = self.module()
            set_target(module, of_width(vector_bytes))
            run_pipeline(module, LOWER)
            return compile_module(module)


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def close(made: torch.Tensor, case: Case) -> None:
    assert made.shape == (case.parts, *case.kernel, case.channels)
    made = made.sum(0).permute(2, 0, 1).unsqueeze(1)
    wanted, eager = case.reference(torch.float64), case.reference(torch.float32)
    assert (made - wanted).norm() <= max(2 * (eager - wanted).norm(), 1e-7 * wanted.norm())


@pytest.mark.thinned(3)
@pytest.mark.parametrize("shape", SHAPES)
def test_values(shape):
    """And the same bits with any number of threads."""
    case = Case(shape)
    program, made = case.program(), []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        made.append(program(list(case.operands))[0])
        assert torch.equal(made[0], made[-1])
    close(made[0], case)


def test_narrow_vectors():
    case = Case("several chunks, ragged")
    close(case.program(vector_bytes=16)(list(case.operands))[0], case)


def test_layers_share_code():
    """Whatever their sizes, strides and taps are; not their dilation."""
    made = []
    for shape in ("3x3", "strided", "several blocks of rows", "uneven, dilated"):
        with context():
            module = Case(shape).module()
            run_pipeline(module, LOWER)
            made.append([x for op in module.body.operations if "@graph" not in (x := str(op))])
    assert made[0] == made[1] == made[2] != made[3]


@pytest.mark.parametrize("passes", ["", "to-kernels,plan-memory", LOWER])
def test_every_form_is_interpreted(passes):
    case = Case("strided")
    with context():
        module = case.module()
        if passes:
            run_pipeline(module, passes)
        close(run(module.body.operations[0], list(case.operands))[0], case)


def test_infinities_stay_where_eager_has_them():
    case = Case("3x3")
    case.operands[0][..., 0, 0] = torch.inf
    case.x = case.operands[0].contiguous()
    made = case.program()(list(case.operands))[0].sum(0).permute(2, 0, 1).unsqueeze(1)
    assert torch.equal(made.isfinite(), case.reference(torch.float64).isfinite())
    assert not made.isfinite().all() and made.isfinite().any()


@pytest.mark.parametrize(
    "change", [("1x3x3x8", "1x3x2x8"), ('stride = "1, 1"', 'stride = "2, 1"'), ("1x3x3x8", "1x3x3x7")]
)
def test_what_does_not_belong_together_is_refused(change):
    with context():
        module = ir.Module.parse(str(Case("3x3").module()).replace(*change))
        with pytest.raises(StageError):
            verify_stage(module.body.operations[0], "graph")


# ---- in nets

# a layer, and the images that it reads
LAYERS = {
    "7x7": (nn.Conv2d(48, 48, 7, padding=3, groups=48), (4, 48, 28, 28)),
    "5x5, strided": (nn.Conv2d(40, 40, 5, 2, 2, groups=40, bias=False), (8, 40, 31, 30)),
    "several filters of a channel": (nn.Conv2d(12, 36, 5, padding=2, groups=12), (4, 12, 20, 21)),
    "transposed": (nn.ConvTranspose2d(20, 20, 5, 2, 1, output_padding=1, groups=20), (4, 20, 16, 17)),
    "transposed, several filters": (nn.ConvTranspose2d(10, 30, 4, 2, groups=10), (3, 10, 15, 9)),
    "rows": (nn.Conv1d(32, 64, 31, padding=15, groups=32), (4, 32, 120)),
}


def gradients(module: nn.Module, call, x: torch.Tensor) -> list:
    module.zero_grad(set_to_none=True)
    x = x.detach().requires_grad_()
    result = call(x)
    (result * torch.linspace(-1, 1, result.numel(), dtype=x.dtype).cos().reshape(result.shape)).sum().backward()
    return [result, x.grad, *(p.grad for p in module.parameters())]


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_training(name, dynamic):
    """As exact as eager's own contiguous code, and laid out so; also with a batch that changes."""
    layer, shape = LAYERS[name]
    module = nn.Sequential(layer, nn.Tanh())
    exact, call = copy.deepcopy(module).double(), compiled(module, dynamic=dynamic or None)
    for batch in (shape[0], shape[0] + 1)[: 1 + dynamic]:
        x = torch.randn(batch, *shape[1:])
        if dynamic:
            torch._dynamo.mark_dynamic(x, 0)
            torch._dynamo.mark_static(x, 2)
        wanted, eager, made = (
            gradients(m, f, t) for m, f, t in ((exact, exact, x.double()), (module, module, x), (module, call, x))
        )
        for a, b, c in zip(wanted, eager, made, strict=True):
            assert b.stride() == c.stride() and b.shape == c.shape
            assert (c - a).norm() <= max(2 * (b - a).norm(), 1.5e-7 * a.norm())


def test_the_kernel_is_ours():
    layer, shape = LAYERS["7x7"]
    data = mlirc.explain(layer)(torch.randn(shape)).data
    backward = next(graph for graph in data["graphs"] if graph["kind"] == "backward")
    assert ["depthwise_weight_gradient"] in [kernel["ops"] for kernel in backward["kernels"]]


@pytest.mark.parametrize("groups", [4, 1])
def test_output_padding_of_a_stride(groups):
    """It may be below the dilation alone: a window of the result's gradient is then of no element of x."""
    f = lambda x, w: nn.functional.conv_transpose2d(x, w, None, 1, 2, 1, groups, 2)
    torch.manual_seed(0)
    x, w = torch.randn(2, 4, 5, 6, requires_grad=True), torch.randn(4, 8 // groups, 3, 2, requires_grad=True)
    torch._dynamo.reset()
    compiled = torch.compile(f, backend="mlirc", options={"fallback": "error"})
    found, wanted = (torch.autograd.grad(g(x, w).square().sum(), (x, w)) for g in (compiled, f))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-3)
