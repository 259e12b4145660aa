"""Modules from files, beyond what each form's verifier says: symbols without a value, plans for which buffers share memory, results
whose elements do, and that whatever a rule raises refuses in one line."""

import re
from contextlib import suppress

import pytest
import torch

from mlirc.codegen.emit.checked_program import CheckedProgram
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.lowering.files.file import verify_file
from mlirc.lowering.module.rules import StageError
from tests.lowering.verify.test_stage import NEG, READ, SLOT, YIELD, X, kernel

SIZED = 'tensor<?xi64, {size = "s0"}>'
UNBOUND = {
    "a size": f"""func.func @graph() -> {SIZED} {{
      %0 = "mlirc.iota"() {{expr = "d0"}} : () -> {SIZED}
      return %0 : {SIZED}
      }}""",
    "an offset": """func.func @graph(%x: tensor<8xf32>) -> tensor<2xf32> {
      %0 = "mlirc.view"(%x) {map = "", offset = "s0"} : (tensor<8xf32>) -> tensor<2xf32>
      return %0 : tensor<2xf32>
      }""",
    "a number": """func.func @graph(%x: tensor<8xf32>) -> i64 {
      %0 = "mlirc.size"() {expr = "s0"} : () -> i64
      return %0 : i64
      }""",
    "an arena": f"""func.func @graph(%x: {X}) -> {X} attributes {{mlirc.arena = "64*s0"}} {{
      {SLOT.replace("OFFSET", "0")}
      }}""",
    "a stride": """func.func @graph(%x: tensor<8x8xf32, {stride = "s0, 1"}>) -> tensor<8x8xf32> {
      %0 = "mlirc.neg"(%x) : (tensor<8x8xf32, {stride = "s0, 1"}>) -> tensor<8x8xf32>
      return %0 : tensor<8x8xf32>
      }""",
    "two symbols of one size": """func.func @graph(%x: tensor<?xf32, {size = "s0*s1"}>) -> i64 {
      %0 = "mlirc.size"() {expr = "s0"} : () -> i64
      return %0 : i64
      }""",
    "a square": """func.func @graph(%x: tensor<?xf32, {size = "s0*s0"}>) -> i64 {
      %0 = "mlirc.size"() {expr = "s0"} : () -> i64
      return %0 : i64
      }""",
    "a kernel's size": f"""func.func @graph(%x: {X}) -> {X} {{
      {kernel(f"%n = {chr(34)}mlirc.size{chr(34)}() {{expr = {chr(34)}s0{chr(34)}}} : () -> i64 {READ} {YIELD}")}
      }}""",
}


@pytest.mark.parametrize("what", UNBOUND)
def test_symbols_without_a_value(what):
    with context():
        module = ir.Module.parse(UNBOUND[what])
        with pytest.raises(StageError, match="nothing binds s"):
            verify_file(module)


@pytest.mark.parametrize("name", ["results", "symbol", "device_arenas", "arena", "parameters"])
@pytest.mark.parametrize(
    "value", ["1 : i64", '"s0 +"', '"\\00"', '["x", 1]', "[[]]", '"999999999999999999999999"', "unit"]
)
def test_any_attribute_of_a_function_is_refused_in_a_line(name, value):
    """Or taken; no rule takes for granted what an attribute is."""
    text = f"""func.func @graph(%x: {X} {{mlirc.{name} = {value}}}) -> {X} attributes {{mlirc.{name} = {value}}} {{
      %0 = "mlirc.neg"(%x) : ({X}) -> {X}
      return %0 : {X}}}"""
    with context():
        module = ir.Module.parse(text)
        with suppress(StageError):
            verify_file(module)


UNREADABLE = ("tensor<?x8xf32>", "tensor<4x8xf32, 1 : i64>", "tensor<*xf32>")


@pytest.mark.parametrize("runs", [False, True])
@pytest.mark.parametrize("type_", UNREADABLE)
@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_type_that_is_not_ours_is_refused_in_a_line(at, type_, runs):
    """As an argument's, a result's of an op, and both of the last op."""
    x, y, z = (type_ if k in (at, at - 1) else X for k in (1, 2, 3))
    text = f"""func.func @graph(%x: {x}) -> {z} {{
      %0 = "mlircx.aten"(%x) {{op = "aten.relu.default", args = "[]", aliases = "-1"}} : ({x}) -> {y}
      %1 = "mlircx.aten"(%0) {{op = "aten.relu.default", args = "[]", aliases = "-1"}} : ({y}) -> {z}
      return %1 : {z}}}"""
    with context():
        module = ir.Module.parse(text)
        with pytest.raises(StageError):
            verify_file(module, runs)


@pytest.mark.parametrize("type_", ["f64", "tensor<f64>", "tensor<i64>", "tensor<4x8xf32>"])
def test_a_symbol_is_an_integer(type_):
    """As an argument, and as the result of a call."""
    scale = f'%1 = "mlirc.size"() {{expr = "u0"}} : () -> tensor<f64> {NEG.partition("return")[0]}'
    call = f'%s = "mlircx.aten"(%x) {{op = "aten.item.default", args = "[]", aliases = "-1", mlirc.symbol = "u0"}} : ({X}) -> {type_}'
    argument = f'func.func @graph(%x: {X}, %s: {type_} {{mlirc.symbol = "u0"}}) -> {X} {{ {scale} return %0 : {X} }}'
    result = f"func.func @graph(%x: {X}) -> {X} {{ {call} {scale} return %0 : {X} }}"
    for text in (argument, result):
        with context():
            module = ir.Module.parse(text)
            with pytest.raises(StageError, match="a symbol is an i64"):
                verify_file(module)


@pytest.mark.parametrize("name", ["s0", "su0", "uns0", "2*u0"])
def test_a_number_of_a_call_may_be_any(name):
    """A size made of it would be taken for larger than it is: nothing looks at what the call gives."""
    what = 'op = "aten.sparse_dim.default", args = "[{\\22$\\22: 0}]", aliases = "-1"'
    call = f'%s = "mlircx.aten"(%x) {{{what}, mlirc.symbol = "{name}"}} : ({X}) -> i64'
    with context():
        module = ir.Module.parse(f"func.func @graph(%x: {X}) -> {X} {{ {call} return %x : {X} }}")
        with pytest.raises(StageError, match="is no symbol" if "*" in name else "of what sign the number is"):
            verify_file(module)


def test_a_product_with_gelu_is_of_gpus():
    text = f"""func.func @graph(%b: tensor<8xf32>, %x: {X}, %w: tensor<8x8xf32>) -> {X} {{
      %0 = "mlirc.addmm_gelu"(%b, %x, %w) : (tensor<8xf32>, {X}, tensor<8x8xf32>) -> {X}
      return %0 : {X}}}"""
    with context(), pytest.raises(StageError, match="with GELU on the CPU"):
        verify_file(ir.Module.parse(text))


def test_a_function_ends_in_a_return():
    """MLIR takes an op that nobody registered for what ends a block."""
    for body in ("", f'"mlircx.aten"(%x) {{op = "aten.relu_.default", args = "[]", aliases = "-1"}} : ({X}) -> {X}'):
        with context(), suppress(ir.MLIRError):
            module = ir.Module.parse(f"func.func @graph(%x: {X}) -> {X} {{\n{NEG.partition('return')[0]}\n{body}\n}}")
            with pytest.raises(StageError, match=r"func\.return"):
                verify_file(module)


def slots(offset: str, arena: str, n: str = "4") -> str:
    """Two slots that are in use at one time, the second at `offset`."""
    t = f'tensor<?x8xf32, {{size = "{n}, 8"}}>' if n == "s0" else X
    copy = '"mlircx.call"(%{}, %{}) {{callee = "copy", inputs = 1 : i64}} : ({}, {}) -> ()'
    return f"""func.func @graph(%x: {t}, %y: {t}) -> ({t}, {t}) attributes {{mlirc.arena = "{arena}"}} {{
      %0 = "mlirc.slot"() {{offset = "0"}} : () -> {t}
      {copy.format("x", 0, t, t)}
      %1 = "mlirc.slot"() {{offset = "{offset}"}} : () -> {t}
      {copy.format("y", 1, t, t)}
      %2 = "mlirc.allocate"() : () -> {t}
      {copy.format(0, 2, t, t)}
      %3 = "mlirc.allocate"() : () -> {t}
      {copy.format(1, 3, t, t)}
      return %2, %3 : {t}, {t}
      }}"""


def test_slots_that_are_in_use_share_no_memory():
    with context():
        verify_file(ir.Module.parse(slots("128", "256")))
        for offset in ("0", "64"):
            with pytest.raises(StageError, match=r"reads the slot at 0, overwritten by mlircx.call"):
                verify_file(ir.Module.parse(slots(offset, "256")))
        with pytest.raises(StageError, match=r"reads an allocation before anything is written"):
            verify_file(ir.Module.parse(re.sub(r'"mlircx.call"\(%1, %3\).*', "", slots("128", "256"))))


def test_slots_of_sizes_that_arguments_give_are_looked_at_before_the_run():
    with context():
        right = CheckedProgram(ir.Module.parse(slots("64*max(s0, 1)", "128*max(s0, 1)", "s0")))
        wrong = CheckedProgram(ir.Module.parse(slots("128", "128 + 64*s0", "s0")))
    for n in (1, 3, 4, 5, 9):
        x, y = torch.randn(n, 8), torch.randn(n, 8)
        for program in (right, wrong):
            if program is wrong and n > 4:
                with pytest.raises(StageError, match="overwritten"):
                    program([x, y])
            else:
                assert all(map(torch.equal, program([x, y]), (x, y)))


@pytest.mark.parametrize("strides", ["6, 1", "0, 1", "1, 0", "1, 1", "4, 2"])
def test_no_two_elements_of_a_result_share_memory(strides):
    """Which of them is left would depend on how a kernel is cut into vectors."""
    text = f"""func.func @graph(%x: {X}) -> {X} {{
      %0 = "mlirc.neg"(%x) : ({X}) -> tensor<4x8xf32, {{stride = "{strides}"}}>
      %1 = "mlirc.neg"(%0) : (tensor<4x8xf32, {{stride = "{strides}"}}>) -> {X}
      return %1 : {X}}}"""
    with context(), pytest.raises(StageError, match="share memory; write each element in a place of its own"):
        verify_file(ir.Module.parse(text))


@pytest.mark.parametrize("strides", ["8, 1", "1, 4", "16, 2", "1, 100"])
def test_results_by_any_other_strides(strides):
    text = f"""func.func @graph(%x: {X}) -> tensor<4x8xf32, {{stride = "{strides}"}}> {{
      %0 = "mlirc.neg"(%x) : ({X}) -> tensor<4x8xf32, {{stride = "{strides}"}}>
      return %0 : tensor<4x8xf32, {{stride = "{strides}"}}>}}"""
    with context():
        verify_file(ir.Module.parse(text))


@pytest.mark.parametrize(
    "map_", ["d0, 0", "0, d1", "d0//2, d1", "d0, d1 % 4", "d0, d1//2*2", "(d0 + d1) % 4, d1 // 2 * 2"]
)
def test_each_element_of_a_result_is_written_once(map_):
    """As many points as elements, two of which write one: another keeps what the memory held."""
    with context(), pytest.raises(StageError, match="twice, and others never"):
        verify_file(ir.Module.parse(writing(map_)))


@pytest.mark.parametrize("map_", ["d0, d1", "3 - d0, d1", "(d0*8 + d1)//8, (d0*8 + d1) % 8", "(d0 + 1) % 4, 7 - d1"])
def test_maps_that_write_each_element(map_):
    with context():
        verify_file(ir.Module.parse(writing(map_)))


def writing(map_: str) -> str:
    body = kernel(f"{READ}\n{YIELD.replace('d0, d1', map_)}")
    return f"func.func @graph(%x: {X}) -> {X} {{\n{body}\n}}"
