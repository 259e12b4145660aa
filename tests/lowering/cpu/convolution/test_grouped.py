"""Convolutions in groups as kernels of ours, in inference: against float64, over random geometries, vectors and threads, and in nets."""

import copy
import random
from dataclasses import dataclass

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
from mlirc.lowering.cpu.convolution.choice import generates_groups
from mlirc.lowering.module.rules import StageError
from mlirc.lowering.module.target_attribute import set_target
from mlirc.lowering.pipeline.pass_manager import run_pipeline
from mlirc.lowering.target import parse_target
from mlirc.lowering.verify.stage import verify_stage
from tests.kernel_runner import of_width
from tests.lowering.cpu.convolution.test_convolutions import as_good_as_eager, compiled, with_statistics
from tests.lowering.cpu.convolution.test_generated_convolutions import LOWER, channels_last, like, listed
from tests.property.module_seeds import Seed
from tests.property.test_wrong_modules import Worker


@dataclass(frozen=True)
class Geometry:
    """`channels` and `filters` are of a group."""

    groups: int
    channels: int
    filters: int
    image: tuple[int, int]
    kernel: tuple[int, int] = (3, 3)
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    images: int = 2

    @property
    def windows(self) -> tuple:
        return self.stride, self.padding, self.dilation


# vectors of one group, of two, and of many; tiles of several kinds; no multiples of a vector
NAMED = {
    "4 of 16 lanes": Geometry(8, 4, 4, (9, 30)),
    "8 of 16 lanes, strided": Geometry(5, 8, 8, (15, 57), stride=(2, 2)),
    "16": Geometry(3, 16, 16, (7, 7), images=3),
    "24": Geometry(4, 24, 24, (5, 14)),
    "40": Geometry(2, 40, 40, (6, 9)),
    "3 and 5": Geometry(7, 3, 5, (8, 11)),
    "12, a ragged last tile": Geometry(3, 12, 12, (6, 20), kernel=(5, 5), padding=(2, 2)),
    "20 of 10 filters, pixels": Geometry(6, 20, 10, (4, 9), kernel=(1, 1), padding=(0, 0)),
    "one filter": Geometry(9, 2, 1, (6, 6)),
    "far apart": Geometry(2, 4, 8, (9, 50), stride=(2, 3), padding=(4, 6), dilation=(3, 5)),
    "windows wholly outside": Geometry(2, 4, 4, (2, 1), padding=(4, 4)),
    "rows of taps": Geometry(4, 8, 8, (1, 70), kernel=(1, 7), padding=(0, 3)),
    "columns of taps": Geometry(4, 8, 8, (9, 1), kernel=(4, 1), padding=(2, 0)),
    "no images": Geometry(4, 8, 8, (5, 5), images=0),
}


def random_geometry(seed: int) -> Geometry:
    """Of few multiplications; every window has a tap inside its image or its padding."""
    r = random.Random(seed)
    while True:
        kernel = r.choice([(3, 3), (1, 1), (5, 5), (2, 4), (1, 3)])
        stride, dilation = (r.choice([1, 1, 2, 3]), r.choice([1, 1, 2, 3])), (r.choice([1, 1, 2]), r.choice([1, 1, 3]))
        padding = tuple(r.randrange(gap * (k - 1) + 1) for gap, k in zip(dilation, kernel, strict=True))
        image = r.randrange(1, 12), r.randrange(1, 40)
        groups, channels = r.randrange(2, 9), r.choice([2, 3, 4, 5, 8, 12, 16, 20, 24, 33])
        filters = r.choice([channels, channels, 1, 2, 7, 16, 24])
        reach = [n + 2 * p - d * (k - 1) for n, p, d, k in zip(image, padding, dilation, kernel, strict=True)]
        if min(reach) > 0 and groups * channels * filters < 4000:
            return Geometry(groups, channels, filters, image, kernel, stride, padding, dilation, r.randrange(1, 4))


class Case:
    """The op, its operands, and what ATen computes in a dtype."""

    def __init__(self, g: Geometry, lanes: int):
        self.g, self.lanes = g, lanes
        self.x = torch.randn(g.images, g.groups * g.channels, *g.image)
        self.w = torch.randn(g.groups * g.filters, g.channels, *g.kernel)
        self.out = nn.functional.conv2d(self.x, self.w, None, *g.windows, groups=g.groups)

    @property
    def operands(self) -> list[torch.Tensor]:
        filters, channels, high, wide = self.w.shape
        tiles = -(-filters // self.lanes)
        w = torch.full((tiles * self.lanes, channels, high, wide), torch.nan)
        w[:filters] = self.w
        w = w.view(tiles, self.lanes, channels, high, wide).permute(0, 3, 2, 4, 1).contiguous()
        return [channels_last(self.x), w]

    def reference(self, dtype: torch.dtype) -> torch.Tensor:
        return nn.functional.conv2d(self.x.to(dtype), self.w.to(dtype), None, *self.g.windows, groups=self.g.groups)

    def module(self) -> ir.Module:
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            function = func.FuncOp("graph", ([type_of(like(t)) for t in self.operands], []))
        block = function.add_entry_block()
        attributes = dict(zip(("stride", "padding", "dilation"), map(listed, self.g.windows), strict=True))
        attributes["groups"] = str(self.g.groups)
        info = TensorInfo(torch.float32, tuple(self.out.shape), like(channels_last(self.out)).stride)
        with ir.InsertionPoint(block):
            out = create("grouped_convolution", list(block.arguments), [type_of(info)], attributes).out
            func.ReturnOp([out])
        types = [t.type for t in block.arguments], [out.type]
        function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(*types))
        return module

    def program(self):
        with context():
            module = self.module()
            set_target(module, of_width(self.lanes * 4))
            run_pipeline(module, LOWER)
            return compile_module(module)


def widths() -> list[int]:
    """Lanes of the vectors that this machine has."""
    return [lanes for lanes in (16, 8, 4) if lanes * 4 <= of_width(0).cpu.vector_bytes]


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def close(made: torch.Tensor, case: Case) -> None:
    wanted, eager = case.reference(torch.float64), case.reference(torch.float32)
    assert made.shape == wanted.shape
    assert (made - wanted).norm() <= max(2 * (eager - wanted).norm(), 1e-7 * wanted.norm())


@pytest.mark.thinned(3)
@pytest.mark.parametrize("lanes", widths())
@pytest.mark.parametrize("name", NAMED)
def test_values(name, lanes):
    """And the same bits with any number of threads. What follows the last filter's weights is not read."""
    case = Case(NAMED[name], lanes)
    program, made = case.program(), []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        made.append(program(case.operands)[0])
        assert torch.equal(made[0], made[-1])
    close(made[0], case)


@pytest.mark.parametrize("seed", range(8))
def test_random_geometries(seed):
    case = Case(random_geometry(seed), widths()[seed % len(widths())])
    close(case.program()(case.operands)[0], case)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(8, 200))
def test_many_random_geometries(seed):
    case = Case(random_geometry(seed), widths()[seed % len(widths())])
    close(case.program()(case.operands)[0], case)


@pytest.mark.parametrize("passes", ["", "to-kernels,plan-memory", LOWER])
def test_every_form_is_interpreted(passes):
    case = Case(NAMED["3 and 5"], widths()[0])
    with context():
        module = case.module()
        if passes:
            run_pipeline(module, passes)
        close(run(module.body.operations[0], case.operands)[0], case)


def test_the_kernel_is_written_by_hand():
    """Not by the general loops, which compute the same: each tile has a function of its own."""
    for name, geometry in NAMED.items():
        if geometry.images:
            with context():
                module = Case(geometry, widths()[0]).module()
                run_pipeline(module, LOWER)
                assert "_taps" in str(module), name


def test_nothing_outside_the_buffers_is_read():
    """Each operand lies between pages that may not be touched, flush with one of them."""
    worker = Worker()
    for name in ("8 of 16 lanes, strided", "3 and 5", "12, a ragged last tile", "far apart", "one filter"):
        with context():
            assert worker.run(Seed(name, str(Case(NAMED[name], widths()[0]).module()))) == "ran"
    worker.end()


@pytest.mark.thinned(3)
@pytest.mark.parametrize("lanes", widths())
@pytest.mark.parametrize("name", ["4 of 16 lanes", "24", "3 and 5"])
def test_infinities_stay_in_their_group(name, lanes):
    case = Case(NAMED[name], lanes)
    case.x[:, 3, 0, 0], case.x[:, 5, 2, 3] = torch.inf, torch.nan
    made, wanted = case.program()(case.operands)[0], case.reference(torch.float64)
    assert torch.equal(made.isnan(), wanted.isnan()) and torch.equal(made.isinf(), wanted.isinf())
    assert not made.isfinite().all() and made.isfinite().any()


@pytest.mark.thinned(3)
@pytest.mark.parametrize("lanes", widths())
@pytest.mark.parametrize("name", ["4 of 16 lanes", "24", "3 and 5"])
def test_infinite_weights_do_not_reach_the_padding(name, lanes):
    """As in oneDNN; the first row of taps is outside for the first row of windows, and the last column for the last one."""
    case = Case(NAMED[name], lanes)
    case.x = case.x.abs() + 1
    case.w[1, :, 0], case.w[-1, ..., -1] = torch.inf, -torch.inf
    infinite = case.program()(case.operands)[0].isinf()
    wanted = torch.zeros_like(infinite)
    wanted[:, 1, 1:], wanted[:, -1, :, :-1] = True, True
    assert torch.equal(infinite, wanted)


@pytest.mark.parametrize(
    "change",
    [
        ('groups = "8"', 'groups = "4"'),
        ('groups = "8"', 'groups = "16"'),
        ('groups = "8"', 'groups = "0"'),
        ('stride = "1, 1"', 'stride = "0, 1"'),
        ("x3x4x3x", "x3x8x3x"),
        ("x32x9x30x", "x48x9x30x"),
    ],
)
def test_what_does_not_belong_together_is_refused(change):
    with context():
        text = str(Case(NAMED["4 of 16 lanes"], 16).module())
        assert change[0] in text
        with pytest.raises(StageError):
            verify_stage(ir.Module.parse(text.replace(*change)).body.operations[0], "graph")


def test_the_rule():
    """Many channels of a group are oneDNN's with AVX2, and pixels with AVX-512."""
    wide, narrow, none = (parse_target(f"cpu{{vector-bytes={n}}}").cpu for n in (64, 32, 16))
    assert generates_groups(32, (3, 3), wide) and generates_groups(32, (3, 3), narrow)
    assert not generates_groups(32, (3, 3), none)
    assert generates_groups(64, (3, 3), wide) and not generates_groups(64, (3, 3), narrow)
    assert not generates_groups(64, (1, 1), wide) and generates_groups(48, (1, 1), wide)


# ---- in nets


class Bottleneck(nn.Module):
    """As in ResNeXt: a residual connection around a convolution in groups."""

    def __init__(self, channels: int, groups: int, stride: int = 1):
        super().__init__()
        self.convolution = nn.Conv2d(channels, channels, 3, stride, 1, groups=groups, bias=False)
        self.norms, self.stride = nn.ModuleList([nn.BatchNorm2d(channels)]), stride

    def forward(self, x):
        return (self.norms[0](self.convolution(x)) + x[:, :, :: self.stride, :: self.stride]).relu()


def only_kernels(module: nn.Module, x: torch.Tensor) -> list:
    (graph,) = mlirc.explain(module, options={"fallback": "error"})(x).data["graphs"]
    assert not graph["aten"]
    return graph["kernels"]


@torch.no_grad()
def test_what_surrounds_a_convolution_is_in_its_kernel():
    module = with_statistics(Bottleneck(48, 6))
    x = torch.randn(2, 48, 10, 12).to(memory_format=torch.channels_last)
    assert len(only_kernels(module, x)) == 1
    as_good_as_eager(compiled(module)(x), module, x)


@torch.no_grad()
def test_images_of_any_strides():
    """Contiguous, sliced and expanded ones, and rows."""
    module = with_statistics(Bottleneck(24, 3, 2))
    base = torch.randn(3, 26, 11, 15)
    for x in (base[:, 1:25], base[:, 2:].transpose(2, 3), base[:1, :24].expand(3, -1, -1, -1), base[:, :24, ::2, 1::3]):
        torch._dynamo.reset()
        as_good_as_eager(compiled(module)(x), copy.deepcopy(module), x)
    rows, x = nn.Conv1d(24, 36, 5, 2, 2, groups=4).eval(), torch.randn(2, 24, 50)
    only_kernels(rows, x)
    as_good_as_eager(compiled(rows)(x), rows, x)


@torch.no_grad()
@pytest.mark.parametrize("sizes", [(0,), (0, 2), (0, 2, 3)], ids=["batch", "height", "width"])
def test_sizes_that_change(sizes):
    """oneDNN keeps images whose width changes."""
    module = with_statistics(Bottleneck(32, 4))
    call = compiled(module)
    for n in (2, 3, 5):
        shape = [2, 32, 9, 13]
        for d in sizes:
            shape[d] += n
        x = torch.randn(shape).to(memory_format=torch.channels_last)
        for d in sizes:
            torch._dynamo.mark_dynamic(x, d)
        as_good_as_eager(call(x), copy.deepcopy(module), x)


@torch.no_grad()
def test_weights_that_change_are_laid_out_anew():
    module, x = with_statistics(Bottleneck(32, 8)), torch.randn(1, 32, 8, 8)
    call = compiled(module)
    first = call(x)
    module.convolution.weight.mul_(2)
    module.norms[0].running_mean.add_(1)
    second = call(x)
    assert not torch.equal(first, second)
    as_good_as_eager(second, module, x)


class Standardised(nn.Conv2d):
    """A filter's weights have mean 0 and variance 1, as a normaliser-free net's, by a batch norm."""

    def forward(self, x):
        w = nn.functional.batch_norm(self.weight.reshape(1, self.out_channels, -1), None, None, training=True)
        return nn.functional.conv2d(x, w.reshape_as(self.weight), self.bias, 1, self.padding, 1, self.groups)


@torch.no_grad()
@pytest.mark.parametrize("groups", [1, 4])
def test_weights_that_are_standardised_are_laid_out_once(groups):
    module, x = Standardised(24, 24, 3, padding=1, groups=groups).eval(), torch.randn(4, 24, 40, 40)
    (graph,) = mlirc.explain(module)(x).data["graphs"]
    folded = [entry["taken"] for entry in graph["ledger"] if entry["pass_name"] == "fold-convolutions"]
    assert folded == [True]
    assert not any("rsqrt" in kernel["name"] for kernel in graph["kernels"])
    call = compiled(module)
    as_good_as_eager(call(x), module, x)
    module.weight[:, :, 0].mul_(2)
    as_good_as_eager(call(x), module, x)
