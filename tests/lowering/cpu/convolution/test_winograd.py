"""Convolutions by fewer multiplications: against float64, over sizes and tiles, with what is not finite, and which are chosen."""

import copy
from collections.abc import Sequence

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import nn

from mlirc.codegen.emit.emit import compile_module
from mlirc.codegen.llvm.shared_parts import take_parts
from mlirc.dialects.core.context import context
from mlirc.dialects.core.scalar_builder import TorchBuilder
from mlirc.lowering.cpu.convolution import winograd_choice
from mlirc.lowering.cpu.convolution.call import results_of_tile
from mlirc.lowering.cpu.convolution.winograd_transform import Winograd
from mlirc.lowering.host import host_cpu
from mlirc.lowering.module.target_attribute import set_target
from mlirc.lowering.pipeline.pass_manager import run_pipeline
from tests.kernel_runner import of_width
from tests.lowering.cpu.convolution.test_convolutions import Block, as_good_as_eager, compiled, report, with_statistics
from tests.lowering.cpu.convolution.test_generated_convolutions import LOWER, SHAPES, Case, channels_last, read

pytestmark = pytest.mark.thinned

TILES = ((2, 2), (2, 4), (4, 2), (4, 4))
KINDS = ("convolution", "convolution_add", "transposed_convolution")


def case_of(kind: str, sizes: Sequence[int], padding: tuple[int, int] = (1, 1)) -> Case:
    """sizes: images, channels, filters, height, width."""
    n, c, o, h, w = sizes
    SHAPES["winograd"] = (n, c, o, h, w, (3, 3), (1, 1), padding, (1, 1))
    made = Case(kind, "winograd")
    del SHAPES["winograd"]
    return made


def program_of(case: Case, results: tuple[int, int] | None, vector_bytes: int = 0):
    """The case by tiles of so many results."""
    with pytest.MonkeyPatch.context() as patch, context():
        patch.setattr(winograd_choice, "results_of_tile", lambda sizes, target: results)
        module = case.module()
        set_target(module, of_width(vector_bytes))
        run_pipeline(module, LOWER)
        return compile_module(module)


def errors(made: torch.Tensor, case: Case) -> tuple[float, float]:
    """Ours and eager's."""
    wanted = case.reference(torch.float64)
    return float((made - wanted).norm()), float((case.reference(torch.float32) - wanted).norm())


@pytest.mark.parametrize("m", [2, 4])
def test_the_maps_give_sums_of_three_taps(m):
    one, b = Winograd(m), TorchBuilder(torch.float64)
    d, g = torch.randn(m + 2, dtype=torch.float64), torch.randn(3, dtype=torch.float64)
    products = [x * y for x, y in zip(one.inputs(b, list(d)), one.weights(b, list(g)), strict=True)]
    made = torch.stack(one.results(b, products))
    torch.testing.assert_close(made, torch.stack([(d[i : i + 3] * g).sum() for i in range(m)]))


@settings(max_examples=5, deadline=None, phases=[Phase.reuse, Phase.generate])
@given(
    st.sampled_from(KINDS),
    st.sampled_from(TILES),
    st.tuples(*(st.integers(lo, hi) for lo, hi in ((0, 5), (1, 90), (1, 70), (3, 19), (3, 40)))),
    st.tuples(st.integers(0, 4), st.integers(0, 4)),
)
def test_any_size(kind, results, sizes, padding):
    """And the same bits with any number of threads."""
    torch.manual_seed(0)
    case, before = case_of(kind, sizes, padding), torch.get_num_threads()
    program = program_of(case, results)
    made = []
    for threads in (1, 2, 5, 24):
        torch.set_num_threads(threads)
        made.append(program(list(case.operands))[0])
    torch.set_num_threads(before)
    assert all(torch.equal(made[0], other) for other in made[1:])
    assert made[0].shape == case.out.shape and made[0].stride() == case.out.stride()
    wanted = case.reference(torch.float64)
    assert made[0].numel() == 0 or (made[0] - wanted).norm() <= 3e-6 * wanted.norm()


def test_loops_are_the_same_for_all_tiles_and_whatever_follows(monkeypatch):
    loops: list[set[str]] = []

    def listen(name, kernel):
        parts = take_parts(kernel.functions, name, kernel.declarations)[1]
        loops.append({part for part, pieces in parts.items() if "%calls" in pieces[-1]})

    for kind, results in (("convolution", (4, 4)), ("convolution", (2, 4)), ("convolution_add", (4, 4))):
        monkeypatch.setattr(winograd_choice, "results_of_tile", lambda sizes, target, results=results: results)
        with context():
            module = case_of(kind, (2, 37, 70, 9, 11)).module()
            run_pipeline(module, LOWER, given={"lower-kernels": {"listener": listen}})
    assert len(loops[0]) == 1 and loops[0] == loops[1] == loops[2]


@pytest.mark.parametrize("kind", KINDS)
def test_vectors_of_other_widths(kind):
    from mlirc.codegen.llvm.machine_code import mlir_to_llvm

    torch.manual_seed(0)
    case = case_of(kind, (2, 37, 23, 9, 11))
    made = program_of(case, (4, 4), vector_bytes=16)(list(case.operands))[0]
    assert errors(made, case)[0] <= 3e-6 * case.reference(torch.float64).norm()
    with pytest.MonkeyPatch.context() as patch, context():
        patch.setattr(winograd_choice, "results_of_tile", lambda sizes, target: (4, 4))
        module = case.module()
        set_target(module, of_width(64))
        run_pipeline(module, LOWER)
        kernels = "\n".join(str(op) for op in module.body.operations if "@graph" not in str(op)[:20])
        assert "<16 x float>" in mlir_to_llvm(kernels)


@pytest.mark.parametrize("kind", ("convolution_add", "transposed_convolution"))
@pytest.mark.parametrize("results", ((2, 2), (4, 4)))
def test_what_is_not_finite_stays_where_eager_has_it(kind, results):
    """Beside the padding, inside, in the last tile; an overflow of the maps alone."""
    torch.manual_seed(0)
    case = case_of(kind, (2, 72, 40, 13, 18))
    case.w *= 0.03
    program, (x, *rest) = program_of(case, results), case.operands
    source = case.dy if kind == "transposed_convolution" else case.x
    for value in (torch.inf, -torch.inf, torch.nan, 3e38, -3e38):
        for channel, y, z in ((0, 0, 0), (39, 12, 17), (21, 6, 7)):
            here = x.clone(memory_format=torch.preserve_format)
            here[1, channel, y, z] = value
            if kind == "transposed_convolution":
                case.dy = here
            else:
                case.x = here
            made, wanted = program([here, *rest])[0], case.reference(torch.float32)
            assert torch.equal(made.isnan(), wanted.isnan()) and torch.equal(made.isinf(), wanted.isinf())
            assert torch.equal(made[made.isinf()], wanted[wanted.isinf()])
            assert made.isfinite().sum() > made.numel() * 0.9
            exact, within = case.reference(torch.float64), wanted.isfinite()
            assert (made - exact)[within].norm() <= 3e-6 * exact[within].norm()
    assert source.isfinite().all()


def test_weights_that_are_not_finite():
    torch.manual_seed(0)
    case = case_of("convolution", (1, 16, 24, 9, 9))
    program = program_of(case, (2, 4))
    for value in (torch.inf, torch.nan, 3e38):
        case.w.copy_(torch.randn_like(case.w))
        case.w[5, 3, 1, 2] = value
        made, wanted = program(list(case.operands))[0], case.reference(torch.float32)
        # eager has NaN, for 0 times infinity, where a window reaches into the padding
        inside = (..., slice(1, -1), slice(1, -1))
        assert torch.equal(made[inside].isnan(), wanted[inside].isnan())
        assert torch.equal(made[inside].isinf(), wanted[inside].isinf())
        assert made[:, :5].isfinite().all() and made[:, 6:].isfinite().all()


def test_zeros_have_eager_s_sign():
    case = case_of("transposed_convolution", (1, 32, 16, 8, 8))
    program = program_of(case, (4, 4))
    for dy in (torch.zeros_like(case.dy), -torch.zeros_like(case.dy)):
        case.dy = dy
        made = program([channels_last(dy), case.operands[1]])[0]
        assert torch.equal(made.signbit(), case.reference(torch.float32).signbit())


# ---- the choice


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    ("kind", "sizes", "results"),
    [
        ("convolution_add", (1, 32, 32, 28, 28), (2, 2)),
        ("convolution_add", (1, 64, 64, 56, 56), (2, 4)),
        ("convolution_add", (1, 128, 128, 28, 28), (4, 4)),
        ("convolution_add", (4, 512, 512, 7, 7), (4, 4)),
        ("transposed_convolution", (1, 64, 64, 28, 28), (2, 2)),
        ("transposed_convolution", (2, 256, 256, 14, 14), (2, 2)),
        ("convolution", (4, 8, 64, 20, 20), None),  # too few channels to be exact
        ("convolution", (1, 512, 512, 3, 3), None),  # nothing is saved
    ],
)
def test_the_choice_is_as_exact_as_eager(kind, sizes, results):
    torch.manual_seed(0)
    case = case_of(kind, sizes)
    case.x.relu_()
    case.operands[0] = channels_last(case.dy if kind == "transposed_convolution" else case.x)
    if results is not None and host_cpu().has_avx512:
        results = (2, 2)
    assert results_of_tile(read(case), host_cpu()) == results
    if results is not None:
        ours, eager = errors(program_of(case, results)(list(case.operands))[0], case)
        assert ours <= (1.8 if kind == "transposed_convolution" else 1.3) * eager


@pytest.mark.parametrize("change", [{"stride": (2, 2)}, {"dilation": (2, 2)}, {"kernel": (5, 5)}])
def test_other_windows_are_sums_of_products(change, monkeypatch):
    kernel, stride, dilation = (
        change.get(k, d) for k, d in (("kernel", (3, 3)), ("stride", (1, 1)), ("dilation", (1, 1)))
    )
    monkeypatch.setitem(SHAPES, "other", (2, 64, 64, 28, 28, kernel, stride, (1, 1), dilation))
    assert results_of_tile(read(Case("convolution", "other")), host_cpu()) is None


@torch.no_grad()
def test_a_net():
    module, x = with_statistics(Block(64)), torch.randn(2, 64, 20, 20)
    graph = report(module, x)
    assert not graph["aten"]
    assert [k["ops"] for k in graph["kernels"] if k["ops"]] == [["convolution"], ["convolution_add"]]
    as_good_as_eager(compiled(module)(x), module, x)


def test_any_batch():
    torch.manual_seed(0)
    module = nn.Conv2d(48, 64, 3, padding=1)
    call = compiled(module, dynamic=True)
    for batch in (2, 5, 3):
        x = torch.randn(batch, 48, 15, 17)
        wanted = copy.deepcopy(module).double()(x.double())
        assert (call(x) - wanted).norm() <= 1e-6 * wanted.norm()
