"""The host program, from memory-level modules: values, strides, views, symbols, numbers, and what it refuses."""

import gc
import os
import re
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
import torch

from mlirc.codegen.abi import shim
from mlirc.codegen.host import program as program_module
from mlirc.codegen.runtime import arena
from tests.memory_level import allocate, aten, build, call, equal, resident_bytes, slot, view


@pytest.fixture(autouse=True)
def _no_grad():
    with torch.no_grad():
        yield


A, B, C = "tensor<4x8xf32>", "tensor<8x3xf32>", "tensor<4x3xf32>"
MATMUL_SIGNATURE = f'(%x: {A}, %w: {B}) -> {C} attributes {{mlirc.arena = "112"}}'
MATMUL_RELU = [
    slot("%0", C, "64"),
    call("matmul", "%x, %w, %0", f"{A}, {B}, {C}"),
    aten("%1", "aten.relu.default", '[{"$": %0}]', f"({C}) -> {C}"),
    f"return %1 : {C}",
]

# ---- library calls and memory


def test_a_product_in_the_arena_then_an_aten_call():
    program = build(MATMUL_SIGNATURE, MATMUL_RELU)
    x, w = torch.randn(4, 8), torch.randn(8, 3)
    first = program([x, w])
    kept = (x @ w).relu()
    equal(first[0], kept)
    program([x + 1, w])  # the arena is used again: an earlier result must not be in it
    equal(first[0], kept)
    assert arena.idle_bytes() >= 112
    assert [c.op for c in program.calls] == ["aten.relu.default"]


def test_what_python_calls_holds_all_that_it_runs_on():
    """Its machine code, and the record that Python reads when it frees a function."""
    program = build(MATMUL_SIGNATURE, MATMUL_RELU)
    native, code = program.native, weakref.ref(program.code)
    (method,) = (x for x in native.__self__[-1] if isinstance(x, bytearray))
    del program
    gc.collect()
    x, w = torch.randn(4, 8), torch.randn(8, 3)
    held = sys.getrefcount(method)
    assert code() is not None
    equal(native([x, w])[0], (x @ w).relu())
    del native
    gc.collect()
    assert code() is None and sys.getrefcount(method) == held - 1


@pytest.mark.parametrize("dtype, text", [(torch.bfloat16, "bf16"), (torch.int64, "i64"), (torch.float64, "f64")])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_products_of_other_dtypes_with_bias(dtype, text, batch):
    lead = "".join(f"{n}x" for n in batch)
    bias_type, x_type, y_type, out = (f"tensor<{n}x{text}>" for n in ("3", f"{lead}4x8", f"{lead}8x3", f"{lead}4x3"))
    types = f"{bias_type}, {x_type}, {y_type}, {out}"
    ops = [allocate("%0", out), call("addmm", "%bias, %x, %y, %0", types), f"return %0 : {out}"]
    program = build(f"(%bias: {bias_type}, %x: {x_type}, %y: {y_type}) -> {out}", ops)
    x, y = torch.randn(*batch, 4, 8).mul(9).to(dtype), torch.randn(*batch, 8, 3).mul(9).to(dtype)
    bias = torch.arange(3).to(dtype)
    equal(program([bias, x, y])[0], torch.baddbmm(bias, x, y) if batch else torch.addmm(bias, x, y))


def test_a_result_keeps_the_strides_of_its_type():
    t = 'tensor<4x3xf32, {stride = "1, 4"}>'
    ops = [allocate("%0", t), call("copy", "%x, %0", f"{C}, {t}"), f"return %0 : {t}"]
    x = torch.randn(4, 3)
    equal(build(f"(%x: {C}) -> {t}", ops)([x])[0], x.t().contiguous().t())


def test_views_of_arguments_allocations_and_aten_results_share_memory():
    row, transposed, part = "tensor<3xf32>", 'tensor<3x4xf32, {stride = "1, 3"}>', "tensor<2x3xf32>"
    types = f"{row}, {transposed}, {C}, {row}, {row}, {C}"
    ops = [
        view("%v", "%x", C, row, "3"),
        view("%t", "%x", C, transposed),
        allocate("%a", C),
        call("copy", "%x, %a", f"{C}, {C}"),
        view("%w", "%a", C, part, "6"),
        view("%w2", "%w", part, row, "3"),
        aten("%n", "aten.neg.default", '[{"$": %w}]', f"({part}) -> {part}"),
        view("%n2", "%n", part, row, "3"),
        f"return %v, %t, %a, %w2, %n2, %x : {types}",
    ]
    x = torch.randn(6, 3)[1:5]  # its storage begins before it
    v, t, a, w2, n2, same = build(f"(%x: {C}) -> ({types})", ops)([x])
    assert same is x
    equal(v, x[1])
    equal(t, x.t())
    equal(w2, x[3])
    equal(n2, -x[3])
    x[1] = 7
    assert v.tolist() == [7.0] * 3 and t[:, 1].tolist() == [7.0] * 3
    w2.fill_(9)
    assert a[3].tolist() == [9.0] * 3 and x[3].tolist() != a[3].tolist()


def test_a_view_outlives_the_release_of_its_base():
    long, short = "tensor<4xf32>", "tensor<2xf32>"
    ops = [
        aten("%a", "aten.neg.default", '[{"$": %x}]', f"({long}) -> {long}"),
        aten("%s", "aten.slice.Tensor", '[{"$": %a}, 0, 1, 3]', f"({long}) -> {short}", aliases="0"),
        f'"mlirc.release"(%a) : ({long}) -> ()',
        f"return %s : {short}",
    ]
    x = torch.randn(4)
    got = build(f"(%x: {long}) -> {short}", ops)([x])[0]
    equal(got, -x[1:3])
    assert got.storage_offset() == 1


def test_assign_broadcasts_into_an_input_that_is_an_inference_tensor_or_a_parameter():
    part, row = "tensor<2x3xf32>", "tensor<3xf32>"
    ops = [
        view("%v", "%x", C, part, "3"),
        f'"mlirc.assign"(%v, %y) : ({part}, {row}) -> ()',
        f"return %x : {C}",
    ]
    program = build(f"(%x: {C}, %y: {row}) -> {C}", ops)
    with torch.inference_mode():
        inference = torch.zeros(4, 3)
    for x in (inference, torch.nn.Parameter(torch.zeros(4, 3))):
        program([x, torch.tensor([1.0, 2.0, 3.0])])
        assert x.tolist() == [[0.0] * 3, [1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [0.0] * 3]


def test_inference_mode():
    program = build(MATMUL_SIGNATURE, MATMUL_RELU)
    with torch.inference_mode():
        x, w = torch.randn(4, 8), torch.randn(8, 3)
        got = program([x, w])[0]
        assert got.is_inference()
        equal(got, (x @ w).relu())
    equal(program([x, w])[0], (x @ w).relu())


def test_calls_leave_nothing_behind():
    program = build(MATMUL_SIGNATURE, MATMUL_RELU)
    x, w = torch.randn(4, 8), torch.randn(8, 3)
    for k in range(4000):
        program([x, w])
        if k == 1000:
            before = resident_bytes()
    assert resident_bytes() - before < 1 << 20


def test_an_arena_grows_and_is_freed_with_the_last_program():
    t = 'tensor<?xf32, {size = "s0"}>'
    ops = [
        slot("%0", t),
        call("copy", "%x, %0", f"{t}, {t}"),
        aten("%1", "aten.neg.default", '[{"$": %0}]', f"({t}) -> {t}"),
        f"return %1 : {t}",
    ]
    program = build(f'(%x: {t}) -> {t} attributes {{mlirc.arena = "4*s0"}}', ops)
    arena.free_idle()
    assert arena.idle_bytes() == 0
    for size in (10, 100_000, 7, 300_000):
        x = torch.randn(size)
        equal(program([x])[0], -x)
        assert arena.idle_bytes() >= 4 * size
    assert arena.idle_bytes() < 2_000_000  # the smaller ones were replaced
    another = build("() -> i64", ['%0 = "mlirc.constant"() {value = "1"} : () -> i64', "return %0 : i64"])
    del program
    gc.collect()
    assert another([]) == [1]
    del another
    torch._dynamo.reset()
    gc.collect()
    assert program_module._live or arena.idle_bytes() == 0  # code that an earlier test compiled may be alive still


# ---- symbols and numbers


def test_sizes_come_from_arguments_and_from_tensors():
    x_type, y_type = 'tensor<?x4xf32, {size = "s0, 4"}>', 'tensor<4x?xf32, {size = "4, s1"}>'
    out, flat = 'tensor<?x?xf32, {size = "s0, s1"}>', 'tensor<?xf32, {size = "s0*s1"}>'
    ops = [
        slot("%0", out, "(4*s0 + 63)//64*64"),
        call("matmul", "%x, %y, %0", f"{x_type}, {y_type}, {out}"),
        aten("%1", "aten.reshape.default", '[{"$": %0}, [{"size": "s0*s1"}]]', f"({out}) -> {flat}"),
        '%2 = "mlirc.size"() {expr = "s0*2 - s1 % 3 + max(s0, s1) + (s1 - 9)//4"} : () -> i64',
        f"return %1, %2, %n : {flat}, i64, i64",
    ]
    signature = (
        f'(%n: i64 {{mlirc.symbol = "s0"}}, %x: {x_type}, %y: {y_type}) -> ({flat}, i64, i64) '
        'attributes {mlirc.arena = "(4*s0 + 63)//64*64 + 4*s0*s1"}'
    )
    program = build(signature, ops)
    for s0, s1 in ((3, 5), (0, 4), (1, 1), (70, 33)):
        x, y = torch.randn(s0, 4), torch.randn(4, s1)
        got, number, same = program([s0, x, y])
        equal(got, (x @ y).reshape(-1))
        assert number == s0 * 2 - s1 % 3 + max(s0, s1) + (s1 - 9) // 4 and same == s0


def test_a_symbol_that_only_a_compound_size_tells():
    t = 'tensor<?xf32, {size = "2*s0 + 1"}>'
    size = '%0 = "mlirc.size"() {{expr = "{}"}} : () -> i64'
    assert build(f"(%x: {t}) -> i64", [size.format("s0"), "return %0 : i64"])([torch.zeros(9)]) == [4]
    with pytest.raises(ValueError, match="s7"):
        build(f"(%x: {t}) -> i64", [size.format("s7"), "return %0 : i64"])


def test_constants():
    ops = [
        '%0 = "mlirc.constant"() {value = "-3"} : () -> i64',
        '%1 = "mlirc.constant"() {value = "-inf"} : () -> f64',
        '%2 = "mlirc.constant"() {value = "0x1.999999999999ap-4"} : () -> f64',
        "return %0, %1, %2 : i64, f64, f64",
    ]
    assert build("() -> (i64, f64, f64)", ops)([]) == [-3, float("-inf"), 0.1]


def test_floats_are_float64_memory_and_python_numbers():
    x_type, scalar_type = "tensor<2xf32>", "tensor<f64>"
    types = f"{scalar_type}, {x_type}, {x_type}, {x_type}, {scalar_type}, f64"
    ops = [
        allocate("%0", scalar_type),
        call("copy", "%s, %0", f"{scalar_type}, {scalar_type}"),
        aten("%1", "aten.mul.Scalar", '[{"$": %x}, {"$": %s}]', f"({x_type}, {scalar_type}) -> {x_type}"),
        aten("%2", "aten.add.Scalar", '[{"$": %x}, {"$": %f}]', f"({x_type}, f64) -> {x_type}"),
        aten("%3", "aten.add.Scalar", '[{"$": %x}, {"$": %0}]', f"({x_type}, {scalar_type}) -> {x_type}"),
        f"return %0, %1, %2, %3, %s, %f : {types}",
    ]
    program = build(f"(%x: {x_type}, %s: {scalar_type} {{mlirc.scalar}}, %f: f64) -> ({types})", ops)
    x = torch.tensor([1.0, -3.0])
    copied, times, plus, plus_item, scalar, number = program([x, -1.0, 0.1])
    equal(copied, torch.tensor(-1.0, dtype=torch.float64))
    equal(scalar, copied)
    equal(times, x * -1.0)
    equal(plus, x + 0.1)
    equal(plus_item, x - 1.0)
    assert number == 0.1 and program([x, 2.0, -1.0])[5] == -1.0


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 1)])
def test_empty_tensors_also_with_null_pointers(shape):
    m, n = shape
    x_type, y_type, out = f"tensor<{m}x4xf32>", f"tensor<4x{n}xf32>", f"tensor<{m}x{n}xf32>"
    ops = [
        slot("%0", out),
        call("matmul", "%x, %y, %0", f"{x_type}, {y_type}, {out}"),
        allocate("%1", out),
        call("copy", "%0, %1", f"{out}, {out}"),
        aten("%2", "aten.exp.default", '[{"$": %0}]', f"({out}) -> {out}"),
        f"return %1, %2 : {out}, {out}",
    ]
    signature = f'(%x: {x_type}, %y: {y_type}) -> ({out}, {out}) attributes {{mlirc.arena = "{4 * m * n}"}}'
    x, y = torch.randn(m, 4), torch.randn(4, n)
    got = build(signature, ops)([x, y])
    equal(got[0], x @ y)
    equal(got[1], (x @ y).exp())


# ---- kernels

KERNEL = """
func.func @kernel_{0}(%args: !llvm.ptr) -> i64 {{
  %p = llvm.load %args : !llvm.ptr -> !llvm.ptr
  %which = llvm.load %p : !llvm.ptr -> i64
  %n_at = llvm.getelementptr %args[1] : (!llvm.ptr) -> !llvm.ptr, i64
  %n = llvm.load %n_at : !llvm.ptr -> i64
  %threads_at = llvm.getelementptr %args[2] : (!llvm.ptr) -> !llvm.ptr, i64
  %threads = llvm.load %threads_at : !llvm.ptr -> i64
  llvm.store %threads, %p : i64, !llvm.ptr
  %index_at = llvm.getelementptr %args[3] : (!llvm.ptr) -> !llvm.ptr, i64
  %size_at = llvm.getelementptr %args[4] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.store %which, %index_at : i64, !llvm.ptr
  llvm.store %n, %size_at : i64, !llvm.ptr
  return %which : i64
}}
"""
RUN = '"mlircx.run"(%x) {{kernel = "kernel_{0}", symbols = "s0", messages = {1}}} : (tensor<i64>) -> ()'
KERNEL_SIGNATURE = '(%x: tensor<i64>, %y: tensor<?xf32, {size = "s0"}>)'


def test_a_bad_index_has_the_message_of_its_check():
    messages = '["first: {index} of {size}", "index {index} is out of bounds for dimension 0 with size {size}"]'
    program = build(KERNEL_SIGNATURE, [RUN.format(0, messages), "return"], KERNEL.format(0))
    assert program([torch.tensor(0), torch.zeros(6)]) == []
    with pytest.raises(IndexError, match="first: 1 of 6"):
        program([torch.tensor(1), torch.zeros(6)])
    with pytest.raises(IndexError, match="index 2 is out of bounds for dimension 0 with size 5"):
        program([torch.tensor(2), torch.zeros(5)])


def test_a_kernel_is_told_the_number_of_threads():
    program = build(KERNEL_SIGNATURE, [RUN.format(0, "[]"), "return"], KERNEL.format(0))
    before = torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            x = torch.tensor(0)
            program([x, torch.zeros(1)])
            assert x.item() == threads
    finally:
        torch.set_num_threads(before)


def test_equal_kernels_of_two_graphs_share_machine_code():
    programs = [build(KERNEL_SIGNATURE, [RUN.format(k, "[]"), "return"], KERNEL.format(k)) for k in (0, 12)]
    addresses = [[kernel.address for kernel in program.kernels.values()] for program in programs]
    assert addresses[0] == addresses[1] and len(addresses[0]) == 1


def test_a_program_that_is_made_while_another_is_has_its_own_kernels(monkeypatch):
    """Threads make the programs of a graph's pieces, each with a kernel of the name kernel_0. Here one is made within the other."""
    settings, programs = program_module.library_settings, {}

    def make(stored):
        kernel = KERNEL.format(0).replace("store %threads, %p", f"store %{stored}, %p")
        programs[stored] = build(KERNEL_SIGNATURE, [RUN.format(0, "[]"), "return"], kernel)

    def make_another():
        monkeypatch.undo()
        make("n")
        return settings()

    monkeypatch.setattr(program_module, "library_settings", make_another)
    make("threads")
    for stored, value in (("threads", torch.get_num_threads()), ("n", 7)):
        x = torch.tensor(0)
        programs[stored]([x, torch.zeros(7)])
        assert x.item() == value


# ---- what it refuses


def test_what_has_no_place_in_a_host_program():
    t = "tensor<4xi64>"
    with pytest.raises(ValueError, match=r"mlirc\.iota .* has no place in a host program"):
        build("()", ['%0 = "mlirc.iota"() {expr = "d0"} : () -> tensor<4xi64>', "return"])
    with pytest.raises(ValueError, match="lies in the arena"):
        build(f"() -> {t}", [slot("%0", t), f"return %0 : {t}"])
    with pytest.raises(ValueError, match="callee 'nothing'"):
        build(f"(%x: {t})", [call("nothing", "%x", t), "return"])
    with pytest.raises(ValueError, match="does not own"):
        build(f"(%x: {t})", [f'"mlirc.release"(%x) : ({t}) -> ()', "return"])


def test_wrong_inputs():
    program = build("(%x: tensor<2xf32>, %n: i64) -> tensor<2xf32>", ["return %x : tensor<2xf32>"])
    x = torch.zeros(2)
    with pytest.raises(TypeError, match="a list of 2 inputs"):
        program([x])
    with pytest.raises(SystemError):
        program((x, 1))
    with pytest.raises(AttributeError):
        program([1, 1])
    with pytest.raises(TypeError):
        program([x, "1"])
    assert program([x, -1])[0] is x


def test_a_library_failure_has_pytorchs_text_and_the_users_line():
    x_type, y_type, out = "tensor<2x3xi1>", "tensor<3x2xi1>", "tensor<2x2xi1>"
    product = call("matmul", "%x, %y, %0", f"{x_type}, {y_type}, {out}") + ' loc("model.py":7:0)'
    program = build(f"(%x: {x_type}, %y: {y_type}) -> {out}", [allocate("%0", out), product, f"return %0 : {out}"])
    x = torch.ones(2, 3, dtype=torch.bool)
    tells = hasattr(shim.library(), "torch_exception_get_what_without_backtrace")  # torch 2.13 does, 2.11 prints it
    reason = "not implemented for 'Bool'" if tells else "wrote the reason to stderr"
    with pytest.raises(RuntimeError, match=f"(?s){reason}.*matmul.*model.py:7"):
        program([x, x.t().contiguous()])


def test_large_results_ask_for_huge_pages():
    large, small = torch.randn(2048, 1024), torch.randn(16, 16)
    double = torch.compile(lambda x: x * 2, backend="mlirc", options={"fallback": "error"})
    for x in (large, small, large[:, 1:], large[:0]):
        torch.testing.assert_close(double(x), x * 2, rtol=0, atol=0)
    result = double(large)
    start = result.data_ptr()
    flags, inside = "", False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            first, last = (int(word, 16) for word in line.split()[0].split("-"))
            inside = first <= start + (1 << 21) < last
        if inside and line.startswith("VmFlags:"):
            flags = line
    assert " hg" in flags


GARBAGE = """
import gc
import torch
from mlirc.codegen.host.program import Program

gc.disable()
run = torch.compile(lambda x: x.sin() + 1, backend="mlirc", options={"cache": False})
run(torch.ones(4))
gc.collect()
(program,) = [x for x in gc.get_objects() if isinstance(x, Program)]
cycle = [program.native]
cycle.append(cycle)
del program, cycle, run
torch._dynamo.reset()
gc.collect()
"""


def test_a_program_in_a_cycle_is_garbage():
    """The collector empties what is in the cycle one by one, and Python reads the function's method to free it. Freed memory is filled here."""
    filled = os.environ | {"PYTHONMALLOC": "malloc", "MALLOC_PERTURB_": "91"}
    done = subprocess.run(
        [sys.executable, "-c", GARBAGE], env=filled, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
