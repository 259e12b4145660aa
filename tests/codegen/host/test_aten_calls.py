"""ATen calls of the host program: results as promised, aliasing, effects, objects, exceptions, and what is freed."""

from contextlib import suppress

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from tests.memory_level import allocate, aten, build, call, equal, operators, resident_bytes, slot, view


@pytest.fixture(autouse=True)
def _no_grad():
    with torch.no_grad():
        yield


C = "tensor<4x3xf32>"
DTYPES = [(torch.bool, "i1"), (torch.bfloat16, "bf16"), (torch.uint8, "ui8"), (torch.complex64, "complex<f32>")]


@pytest.mark.parametrize("dtype, text", DTYPES)
def test_several_results_of_many_dtypes(dtype, text):
    t, first, second = f"tensor<5x{text}>", f"tensor<2x{text}>", f"tensor<3x{text}>"
    types = f"({t}) -> ({first}, {second})"
    ops = [
        aten("%0:2", "aten.split_with_sizes.default", '[{"$": %x}, [2, 3]]', types, aliases="0, 0"),
        f"return %0#1, %0#0 : {second}, {first}",
    ]
    x = torch.randint(0, 2, (5,)).to(dtype)
    a, b = build(f"(%x: {t}) -> ({second}, {first})", ops)([x])
    equal(a, x[2:])
    equal(b, x[:2])


def test_results_come_in_the_strides_of_their_types_and_in_memory_of_their_own():
    ops = [
        slot("%s", C),
        call("copy", "%x, %s", f"{C}, {C}"),
        aten("%0", "mlirc_test.column.default", '[{"$": %s}]', f"({C}) -> {C}"),
        aten("%1", "mlirc_test.same.default", '[{"$": %s}]', f"({C}) -> {C}"),
        aten("%2", "mlirc_test.same.default", '[{"$": %x}]', f"({C}) -> {C}"),
        f"return %0, %1, %2 : {C}, {C}, {C}",
    ]
    with operators("mlirc_test", column=lambda x: x.t().contiguous().t(), same=lambda x: x):
        program = build(f'(%x: {C}) -> ({C}, {C}, {C}) attributes {{mlirc.arena = "64"}}', ops)
        x = torch.randn(4, 3)
        column, same, input_copy = program([x])
        kept = x.clone()
        x += 1
        program([x])
        for got in (column, same, input_copy):
            equal(got, kept)


def test_a_result_of_another_size_or_dtype_is_an_error():
    for promised in ("tensor<3x4xf32>", "tensor<4x3xf64>", "tensor<12xf32>"):
        ops = [aten("%0", "mlirc_test.neg.default", '[{"$": %x}]', f"({C}) -> {promised}"), f"return %0 : {promised}"]
        with (
            operators("mlirc_test", neg=torch.neg),
            pytest.raises(RuntimeError, match=r"mlirc_test.neg.default gave torch.float32 \(4, 3\)"),
        ):
            build(f"(%x: {C}) -> {promised}", ops)([torch.randn(4, 3)])


def test_numbers_that_a_call_returns_and_a_symbol_that_one_binds():
    range_type, item = 'tensor<?xi64, {size = "u0 + 1"}>', "aten._local_scalar_dense.default"
    ops = [
        aten("%f", item, '[{"$": %x}]', "(tensor<f64>) -> f64"),
        aten("%n", item, '[{"$": %k}]', "(tensor<i64>) -> i64", more=', mlirc.symbol = "u0"'),
        aten("%z", "aten.arange.default", '[{"size": "u0 + 1"}]', f"() -> {range_type}"),
        f"return %f, %n, %z : f64, i64, {range_type}",
    ]
    program = build(f"(%x: tensor<f64>, %k: tensor<i64>) -> (f64, i64, {range_type})", ops)
    f, n, z = program([torch.tensor(2.5, dtype=torch.float64), torch.tensor(-1)])
    assert (f, n, z.tolist()) == (2.5, -1, [])
    f, n, z = program([torch.tensor(-1.0, dtype=torch.float64), torch.tensor(3)])
    assert (f, n, z.tolist()) == (-1.0, 3, [0, 1, 2, 3])


def test_a_size_that_the_data_decides():
    t = 'tensor<?x2xi64, {size = "u0, 2", stride = "1, u0"}>'
    ops = [
        aten("%z", "aten.nonzero.default", '[{"$": %x}]', f"(tensor<2x3xf32>) -> {t}"),
        allocate("%c", t),
        call("copy", "%z, %c", f"{t}, {t}"),
        f"return %c : {t}",
    ]
    program = build(f"(%x: tensor<2x3xf32>) -> {t}", ops)
    for x in (torch.tensor([[0.0, 1.0, 0.0], [2.0, 0.0, 3.0]]), torch.zeros(2, 3)):
        assert program([x])[0].tolist() == x.nonzero().tolist()


def test_a_conjugate_is_resolved():
    t = "tensor<2xcomplex<f32>>"
    ops = [aten("%0", "aten._conj.default", '[{"$": %x}]', f"({t}) -> {t}", aliases="0"), f"return %0 : {t}"]
    got = build(f"(%x: {t}) -> {t}", ops)([torch.tensor([1 + 2j, 3 - 1j])])[0]
    assert not got.is_conj() and got.tolist() == [1 - 2j, 3 + 1j]


def test_effects_happen_in_order_on_the_input_itself():
    t = "tensor<3xf32>"
    ops = [
        aten("%e", "aten.add_.Tensor", '[{"$": %x}, {"$": %y}]', f"({t}, {t}) -> {t}", aliases="0", kind="aten_effect"),
        aten("%0", "aten.clone.default", '[{"$": %x}]', f"({t}) -> {t}"),
        aten("%z", "aten.zero_.default", '[{"$": %x}]', f"({t}) -> {t}", aliases="0", kind="aten_effect"),
        f"return %0 : {t}",
    ]
    x, y = torch.ones(3), torch.arange(3.0)
    version = x._version
    assert build(f"(%x: {t}, %y: {t}) -> {t}", ops)([x, y])[0].tolist() == [1.0, 2.0, 3.0]
    assert x.tolist() == [0.0] * 3 and x._version > version


def test_objects_and_subgraphs_reach_the_operator():
    t = "tensor<4xf32>"
    bernoulli = '[{"$": %x}, {"kwargs": {"generator": {"object": 0}}}]'
    condition = '[true, {"object": 1}, {"object": 2}, {"tuple": [{"$": %x}]}]'
    ops = [
        aten("%0", "aten.bernoulli.default", bernoulli, f"({t}) -> {t}", kind="aten_effect"),
        aten("%1", "higher_order.cond", condition, f"({t}) -> {t}", kind="aten_effect"),
        f"return %0, %1 : {t}, {t}",
    ]
    objects = [torch.Generator().manual_seed(3), lambda x: (x + 1,), lambda x: (x - 1,)]
    program = build(f"(%x: {t}) -> ({t}, {t})", ops, objects=objects)
    x = torch.full((4,), 0.5)
    random, branch = program([x])
    equal(random, torch.bernoulli(x, generator=torch.Generator().manual_seed(3)))
    equal(branch, x + 1)


def test_a_call_may_run_the_program_again():
    """The arena of the outer call stays its own."""
    t = "tensor<4xf32>"
    ops = [
        slot("%s", t),
        call("copy", "%x, %s", f"{t}, {t}"),
        aten("%0", "mlirc_again.again.default", '[{"$": %s}]', f"({t}) -> {t}"),
        aten("%1", "aten.add.Tensor", '[{"$": %0}, {"$": %s}]', f"({t}, {t}) -> {t}"),
        f"return %1 : {t}",
    ]

    programs = []

    def again(x):
        return programs[0]([x - 1])[0] if x[0] > 0 else x.clone()

    with operators("mlirc_again", again=again):
        programs.append(build(f'(%x: {t}) -> {t} attributes {{mlirc.arena = "16"}}', ops))
        equal(programs[0]([torch.full((4,), 3.0)])[0], torch.full((4,), 0.0 + 0 + 1 + 2 + 3))
    programs.clear()  # the operator, which PyTorch keeps, would keep it


# ---- failures


class Broken(Exception):
    pass


def broken(x):
    raise Broken("as planned")


def test_an_exception_keeps_its_type_and_names_the_users_line():
    t = "tensor<2xf32>"
    failing = aten("%0", "mlirc_raise.broken.default", '[{"$": %x}]', f"({t}) -> {t}") + ' loc("model.py":12:0)'
    with operators("mlirc_raise", broken=broken):
        program = build(f"(%x: {t}) -> {t}", [failing, f"return %0 : {t}"])
        with pytest.raises(Broken, match="as planned") as caught:
            program([torch.zeros(2)])
    assert "mlirc_raise.broken.default" in caught.value.__notes__[0] and "model.py:12" in caught.value.__notes__[0]


def test_what_a_failing_call_held_is_freed():
    """Every kind of handle is live when the last operator fails: 10 MB a call, which must not stay."""
    t, part = "tensor<1024x1024xf32>", "tensor<512x1024xf32>"
    ops = [
        allocate("%a", t),
        call("copy", "%x, %a", f"{t}, {t}"),
        aten("%b", "aten.neg.default", '[{"$": %a}]', f"({t}) -> {t}"),
        view("%v", "%b", t, part, "1024"),
        aten("%c", "mlirc_raise.broken.default", '[{"$": %v}]', f"({part}) -> {part}"),
        f"return %a, %c : {t}, {part}",
    ]
    x = torch.zeros(1024, 1024)
    with operators("mlirc_raise", broken=broken):
        program = build(f"(%x: {t}) -> ({t}, {part})", ops)
        for k in range(120):
            with pytest.raises(Broken):
                program([x])
            if k == 20:
                before = resident_bytes()
        assert resident_bytes() - before < 16 << 20


def test_small_failing_calls_leave_no_handles():
    t = "tensor<2xf32>"
    ops = [
        slot("%s", t),
        call("copy", "%x, %s", f"{t}, {t}"),
        aten("%0", "aten.neg.default", '[{"$": %s}]', f"({t}) -> {t}"),
        aten("%1", "mlirc_raise.broken.default", '[{"$": %0}]', f"({t}) -> {t}"),
        f"return %1 : {t}",
    ]
    with operators("mlirc_raise", broken=broken):
        program = build(f'(%x: {t}) -> {t} attributes {{mlirc.arena = "8"}}', ops)
        x = torch.zeros(2)
        for k in range(3000):
            with suppress(Broken):
                program([x])
            if k == 1000:
                before = resident_bytes()
        assert resident_bytes() - before < 300_000  # 2,000 handles on tensors would be 1.5 MB


@pytest.mark.parametrize("consume", [False, True])
def test_a_consumed_input_is_freed_after_its_last_use(consume):
    """%x's last use is of a view, %u has none, %kept is held by the caller, %y is returned."""
    t, short = "tensor<4xf32>", "tensor<2xf32>"
    ops = [
        aten("%0", "mlirc_consume.look.default", '[{"$": %y}]', f"({t}) -> {t}"),
        view("%v", "%x", t, short, "1"),
        aten("%1", "aten.neg.default", '[{"$": %v}]', f"({short}) -> {short}"),
        aten("%2", "mlirc_consume.look.default", '[{"$": %kept}]', f"({t}) -> {t}"),
        aten("%3", "aten.mul.Scalar", '[{"$": %0}, {"$": %s}]', f"({t}, tensor<f64>) -> {t}"),
        f"return %1, %y, %n, %3 : {short}, {t}, i64, {t}",
    ]
    signature = (
        f"(%x: {t}, %n: i64, %u: {t}, %kept: {t}, %y: {t}, %s: tensor<f64> {{mlirc.scalar}}) "
        f"-> ({short}, {t}, i64, {t})"
    )
    seen = []

    def look(x):
        seen.append([reference.expired() for reference in references])
        return x + 1

    with operators("mlirc_consume", look=look):
        program = build(signature, ops, consume=consume)
        kept, y = torch.ones(4), torch.full((4,), 2.0)
        inputs = [torch.arange(4.0), -1, torch.zeros(4), kept, y, 3.0]
        references = [StorageWeakRef(inputs[k].untyped_storage()) for k in (0, 2)]
        negated, same, number, scaled = program(inputs)
    assert negated.tolist() == [-1.0, -2.0] and number == -1 and scaled.tolist() == [9.0] * 4
    assert same is y and kept.tolist() == [1.0] * 4
    assert len(inputs) == (0 if consume else 6)
    assert seen == [[False, consume], [consume, consume]]


def test_a_released_buffer_is_freed_during_the_call():
    t, short = "tensor<4xf32>", "tensor<2xf32>"
    made, expired = [], []

    def make(x):
        y = x + 1
        made.append(StorageWeakRef(y.untyped_storage()))
        return y

    def look(x):
        expired.append(made[-1].expired())
        return x + 1

    with operators("mlirc_release", make=make, look=look):
        for release in ([f'"mlirc.release"(%a) : ({t}) -> ()'], []):
            ops = [
                aten("%a", "mlirc_release.make.default", '[{"$": %x}]', f"({t}) -> {t}"),
                view("%s", "%a", t, short, "1"),
                aten("%b", "aten.neg.default", '[{"$": %s}]', f"({short}) -> {short}"),
                *release,
                aten("%c", "mlirc_release.look.default", '[{"$": %x}]', f"({t}) -> {t}"),
                f"return %c : {t}",
            ]
            build(f"(%x: {t}) -> {t}", ops)([torch.zeros(4)])
    assert expired == [True, False]
