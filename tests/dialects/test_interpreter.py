"""The interpreter: each op's meaning, said with eager PyTorch and plain numbers."""

import math

import pytest
import torch

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.dialects.interpreter.interpreter import InterpreterError, first_line, run


def execute(signature: str, body: str, *inputs, objects=()):
    """The results of a function of this signature (arguments, results, attributes) and these ops."""
    with context():
        module = ir.Module.parse(f"func.func @graph{signature} {{\n{body}\n}}")
        return run(module.body.operations[0], inputs, objects)


def kernel(x: str, body: str, out: str, space: str, inner: str = "") -> str:
    return f"""
      %out = "mlircx.kernel"(%x) ({{
      ^bb0(%a: {x}):
        {body}
      }}) {{parallel = "{space}", inner = "{inner}", label = "test"}} : ({x}) -> {out}
      return %out : {out}"""


def read(map_: str, dtype: str, x: str, more: str = "", types: str = "", masked: str = "false") -> str:
    return f'"mlirc.read"(%a{more}) {{map = "{map_}", masked = {masked}}} : ({x}{types}) -> {dtype}'


# ---- graph level


def test_half_types_compute_in_float32_and_round_once():
    x = torch.randn(64, dtype=torch.bfloat16)
    body = """
      %c = "mlirc.constant"() {value = "0x1.0101020000000p+0"} : () -> tensor<f32>
      %0 = "mlirc.mul"(%x, %c) : (tensor<64xbf16>, tensor<f32>) -> tensor<64xbf16>
      return %0 : tensor<64xbf16>"""
    (found,) = execute("(%x: tensor<64xbf16>) -> tensor<64xbf16>", body, x)
    assert torch.equal(found, (x.float() * float.fromhex("0x1.010102p+0")).bfloat16())


def test_comparison_converts_operands_to_their_common_dtype():
    body = """
      %0 = "mlirc.lt"(%x, %y) : (tensor<3xi64>, tensor<3xf64>) -> tensor<3xi1>
      return %0 : tensor<3xi1>"""
    x, y = torch.tensor([1, 2, 3]), torch.tensor([1.5, 1.5, math.nan], dtype=torch.float64)
    (found,) = execute("(%x: tensor<3xi64>, %y: tensor<3xf64>) -> tensor<3xi1>", body, x, y)
    assert found.tolist() == [True, False, False]


@pytest.mark.parametrize("rows", [0, 3])
def test_reductions_of_nothing_and_of_nan(rows):
    x = torch.randn(2, rows)
    if rows:
        x[0, 1] = math.nan
    body = f"""
      %0 = "mlirc.sum"(%x) {{dims = "1", keepdim = false}} : (tensor<2x{rows}xf32>) -> tensor<2xf32>
      %1 = "mlirc.amax"(%x) {{dims = "1", keepdim = true}} : (tensor<2x{rows}xf32>) -> tensor<2x1xf32>
      return %0, %1 : tensor<2xf32>, tensor<2x1xf32>"""
    total, most = execute(f"(%x: tensor<2x{rows}xf32>) -> (tensor<2xf32>, tensor<2x1xf32>)", body, x)
    torch.testing.assert_close(total, x.sum(1), equal_nan=True)
    wanted = x.amax(1, keepdim=True) if rows else torch.full((2, 1), -math.inf)
    torch.testing.assert_close(most, wanted, equal_nan=True)


def test_results_have_the_strides_of_their_types():
    type_ = 'tensor<3x4xf32, {stride = "1, 3"}>'
    view = 'tensor<2x2xf32, {stride = "6, 1"}>'
    body = f"""
      %0 = "mlirc.copy"(%x) : (tensor<3x4xf32>) -> {type_}
      %1 = "mlirc.view"(%0) {{map = "", offset = "3"}} : ({type_}) -> {view}
      return %0, %1 : {type_}, {view}"""
    x = torch.arange(12.0).reshape(3, 4)
    copy, part = execute(f"(%x: tensor<3x4xf32>) -> ({type_}, {view})", body, x)
    assert copy.stride() == (1, 3) and torch.equal(copy, x)
    assert part.tolist() == [[1.0, 5.0], [3.0, 7.0]]


def test_symbols_come_from_arguments_sizes_and_linear_sizes():
    types = 'tensor<?x?xf32, {size = "s0, 2*s1 + 1"}>'
    body = """
      %0 = "mlirc.size"() {expr = "s0*100 + s1*10 + s2"} : () -> i64
      %1 = "mlirc.iota"() {expr = "d0*s1"} : () -> tensor<?xf32, {size = "s1"}>
      return %0, %1 : i64, tensor<?xf32, {size = "s1"}>"""
    signature = f'(%n: i64 {{mlirc.symbol = "s2"}}, %x: {types}) -> (i64, tensor<?xf32, {{size = "s1"}}>)'
    number, iota = execute(signature, body, 7, torch.zeros(4, 7))
    assert number == 437
    assert iota.tolist() == [0.0, 3.0, 6.0]


def test_assign_writes_the_input_and_values_keep_what_they_were():
    body = """
      "mlirc.assign"(%x, %y) : (tensor<4xf32>, tensor<f32>) -> ()
      "mlirc.assign"(%y, %y) : (tensor<f32>, tensor<f32>) -> ()
      %0 = "mlirc.neg"(%x) : (tensor<4xf32>) -> tensor<4xf32>
      return %x, %x, %0 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>"""
    groups = 'attributes {mlirc.results = ["arg0", "g0", "g1"]}'
    types = "(tensor<4xf32>, tensor<4xf32>, tensor<4xf32>)"
    x, y = torch.arange(4.0), torch.tensor(9.0)
    same, old, negated = execute(f"(%x: tensor<4xf32>, %y: tensor<f32>) -> {types} {groups}", body, x, y)
    assert same is x and x.tolist() == [9.0] * 4
    assert old.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert torch.equal(negated, -old)


def test_aten_calls_with_views_lists_and_data_dependent_sizes():
    body = r"""
      %0:2 = "mlircx.aten"(%x) {op = "aten.split.Tensor", args = "[{\"$\": 0}, 2]", aliases = "0, 0"}
        : (tensor<4xf32>) -> (tensor<2xf32>, tensor<2xf32>)
      %1 = "mlircx.aten"(%x) {op = "aten.nonzero.default", args = "[{\"$\": 0}]", aliases = "-1"}
        : (tensor<4xf32>) -> tensor<?x1xi64, {size = "u0, 1"}>
      %2 = "mlirc.size"() {expr = "u0"} : () -> i64
      return %0#1, %2 : tensor<2xf32>, i64"""
    x = torch.tensor([0.0, 1.0, 2.0, 3.0])
    part, count = execute("(%x: tensor<4xf32>) -> (tensor<2xf32>, i64)", body, x)
    assert part.data_ptr() == x[2:].data_ptr()
    assert count == 3


# ---- kernels


def test_reduce_over_two_dimensions_counts_positions_row_major():
    x = torch.tensor([[[1.0, 5.0], [5.0, 2.0]], [[math.nan, 0.0], [9.0, math.nan]]])
    type_ = "tensor<2x2x2xf32>"
    body = f"""
        %r = {read("d0, d1, d2", "f32", type_)}
        %m = "mlirc.reduce"(%r) {{kind = "argmax"}} : (f32) -> i64
        "mlircx.yield"(%m) {{maps = ["d0"]}} : (i64) -> ()"""
    signature = f"(%x: {type_}) -> tensor<2xi64>"
    (found,) = execute(signature, kernel(type_, body, "tensor<2xi64>", "2", "2, 2"), x)
    assert torch.equal(found, x.flatten(1).argmax(1))


def test_masked_reads_are_zero_where_the_mask_is_false():
    body = f"""
        %d = "mlirc.size"() {{expr = "d0"}} : () -> i64
        %n = "mlirc.constant"() {{value = "3"}} : () -> i64
        %m = "mlirc.lt"(%d, %n) : (i64, i64) -> i1
        %r = {read("d0", "f32", "tensor<3xf32>", ", %m", ", i1", "true")}
        "mlircx.yield"(%r) {{maps = ["d0"]}} : (f32) -> ()"""
    signature = "(%x: tensor<3xf32>) -> tensor<5xf32>"
    (found,) = execute(signature, kernel("tensor<3xf32>", body, "tensor<5xf32>", "5"), torch.ones(3))
    assert found.tolist() == [1.0, 1.0, 1.0, 0.0, 0.0]


def gather(wraps: str) -> str:
    message = "index {index} is out of range for dimension 0 with size {size}"
    return f"""
      %out = "mlircx.kernel"(%x, %i) ({{
      ^bb0(%a: tensor<3xf32>, %b: tensor<2xi64>):
        %0 = "mlirc.read"(%b) {{map = "d0", masked = false}} : (tensor<2xi64>) -> i64
        %1 = "mlirc.check_index"(%0) {{size = "3", wraps = {wraps}, message = "{message}"}} : (i64) -> i64
        %2 = "mlirc.read"(%a, %1) {{map = "i0", masked = false}} : (tensor<3xf32>, i64) -> f32
        "mlircx.yield"(%2) {{maps = ["d0"]}} : (f32) -> ()
      }}) {{parallel = "2", inner = "", label = "gather"}} : (tensor<3xf32>, tensor<2xi64>) -> tensor<2xf32>
      return %out : tensor<2xf32>"""


def test_gather_wraps_negative_indices_or_raises():
    signature = "(%x: tensor<3xf32>, %i: tensor<2xi64>) -> tensor<2xf32>"
    x = torch.arange(3.0)
    (found,) = execute(signature, gather("true"), x, torch.tensor([-1, 0]))
    assert found.tolist() == [2.0, 0.0]
    with pytest.raises(IndexError, match="index -1 is out of range for dimension 0 with size 3"):
        execute(signature, gather("false"), x, torch.tensor([0, -1]))


@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min"])
def test_scan(kind):
    x = torch.randn(2, 5)
    x[1, 2] = math.nan
    type_ = "tensor<2x5xf32>"
    body = f"""
        %r = {read("d0, d1", "f32", type_)}
        %s = "mlirc.scan"(%r) {{kind = "{kind}"}} : (f32) -> f32
        "mlircx.yield"(%s) {{maps = ["d0, d1"]}} : (f32) -> ()"""
    (found,) = execute(f"(%x: {type_}) -> {type_}", kernel(type_, body, type_, "2", "5"), x)
    eager = {"sum": x.cumsum(1), "prod": x.cumprod(1), "max": x.cummax(1).values, "min": x.cummin(1).values}
    torch.testing.assert_close(found, eager[kind], equal_nan=True)


@pytest.mark.parametrize(
    ("map_", "out_map", "message"),
    [
        ("d0 + 1", "d0", "reads index 3 of dimension 0, whose size is 3"),
        ("d0", "0", "each element of the result exactly"),
    ],
)
def test_broken_kernels_are_found_out(map_, out_map, message):
    body = f"""
        %r = {read(map_, "f32", "tensor<3xf32>")}
        "mlircx.yield"(%r) {{maps = ["{out_map}"]}} : (f32) -> ()"""
    text = kernel("tensor<3xf32>", body, "tensor<3xf32>", "3")
    with pytest.raises(InterpreterError, match=rf"mlircx.kernel at -:3: .*{message}"):
        execute("(%x: tensor<3xf32>) -> tensor<3xf32>", text, torch.ones(3))


# ---- memory level


def test_memory_starts_as_poison_and_released_buffers_are_gone():
    signature = '(%x: tensor<4xf32>) -> tensor<4xf32> attributes {mlirc.arena = "64"}'
    unwritten = """
      %0 = "mlirc.slot"() {offset = "0"} : () -> tensor<4xf32>
      %1 = "mlirc.allocate"() : () -> tensor<4xf32>
      "mlircx.call"(%0, %1) {callee = "copy", inputs = 1 : i64} : (tensor<4xf32>, tensor<4xf32>) -> ()
      return %1 : tensor<4xf32>"""
    (found,) = execute(signature, unwritten, torch.ones(4))
    assert found.isnan().all()
    released = """
      %0 = "mlirc.allocate"() : () -> tensor<4xf32>
      "mlirc.release"(%0) : (tensor<4xf32>) -> ()
      return %0 : tensor<4xf32>"""
    with pytest.raises(InterpreterError, match="released"):
        execute(signature, released, torch.ones(4))


def test_slots_share_the_arena():
    signature = '(%x: tensor<2x2xf32>) -> tensor<2x2xf32> attributes {mlirc.arena = "64"}'
    body = """
      %0 = "mlirc.slot"() {offset = "0"} : () -> tensor<2x2xf32>
      "mlircx.call"(%x, %x, %0) {callee = "matmul", inputs = 2 : i64}
        : (tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>) -> ()
      %1 = "mlirc.slot"() {offset = "0"} : () -> tensor<2x2xf32, {stride = "1, 2"}>
      %2 = "mlirc.allocate"() : () -> tensor<2x2xf32>
      "mlircx.call"(%1, %2) {callee = "copy", inputs = 1 : i64}
        : (tensor<2x2xf32, {stride = "1, 2"}>, tensor<2x2xf32>) -> ()
      return %2 : tensor<2x2xf32>"""
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    (found,) = execute(signature, body, x)
    assert torch.equal(found, (x @ x).t())


def test_inputs_must_fit():
    with pytest.raises(InterpreterError, match=r"input 0 is torch\.float64"):
        execute("(%x: tensor<3xf32>) -> tensor<3xf32>", "return %x : tensor<3xf32>", torch.ones(3).double())
    with pytest.raises(InterpreterError, match="2 inputs for 1 arguments"):
        execute("(%x: tensor<3xf32>) -> tensor<3xf32>", "return %x : tensor<3xf32>", torch.ones(3), 1)


def test_an_error_names_the_source_line():
    """Of a location that is made of several, the first."""
    with context():
        lines = [ir.Location.file("model.py", 3, 0), ir.Location.file("other.py", 5, 0)]
        assert first_line(ir.Location.fused(lines)) == "model.py:3"
        assert first_line(ir.Location.unknown()) == "unknown line"
