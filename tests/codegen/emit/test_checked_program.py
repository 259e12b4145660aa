"""Inputs of a module from a file that are not what its types promise: refused before anything runs."""

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from mlirc.codegen.emit.checked_program import CheckedProgram, InputError
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.lowering.pipeline.pass_manager import run_pipeline

X = "tensor<4x6xf32>"
PASSES = "decompose,select-attention,to-kernels,plan-memory,lower-kernels"


def program(signature: str, body: str) -> CheckedProgram:
    with context():
        module = ir.Module.parse(f"func.func @graph{signature} {{\n{body}\n}}")
        run_pipeline(module, PASSES)
        return CheckedProgram(module)


def refused(run: CheckedProgram, *inputs: Any) -> str:
    with pytest.raises(InputError) as error:
        run(list(inputs))
    assert "\n" not in str(error.value)
    return str(error.value)


def storage_gone() -> torch.Tensor:
    x = torch.ones(4, 6)
    x.untyped_storage().resize_(0)
    return x


def small_storage() -> torch.Tensor:
    x = torch.ones(4, 6)
    x.untyped_storage().resize_(92)
    return x


class Sub(torch.Tensor):
    pass


def fake() -> torch.Tensor:
    with FakeTensorMode():
        return torch.ones(4, 6)


LIES = {
    "no tensor": lambda: 3,
    "None": lambda: None,
    "text": lambda: "x",
    "list": lambda: [[0.0] * 6] * 4,
    "dtype": lambda: torch.ones(4, 6).double(),
    "as wide": lambda: torch.ones(4, 6).int(),
    "fewer rows": lambda: torch.ones(3, 6),
    "more rows": lambda: torch.ones(5, 6),
    "none": lambda: torch.ones(0, 6),
    "rank": lambda: torch.ones(24),
    "transposed": lambda: torch.ones(6, 4).t(),
    "expanded": lambda: torch.ones(1, 6).expand(4, 6),
    "far apart": lambda: torch.ones(4, 12)[:, ::2],
    "overlapping": lambda: torch.ones(24).as_strided((4, 6), (1, 1)),
    "meta": lambda: torch.ones(4, 6, device="meta"),
    "fake": fake,
    "subclass": lambda: Sub(torch.ones(4, 6)),
    "zeros without memory": lambda: torch._efficientzerotensor((4, 6)),
    "no storage": storage_gone,
    "a smaller storage": small_storage,
    "sparse": lambda: torch.ones(4, 6).to_sparse(),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(6), torch.ones(6)]),
    "negative": lambda: torch.ones(4, 6, dtype=torch.complex64).conj().imag,
    "of a vmap": lambda: torch._C._functorch._add_batch_dim(torch.ones(4, 6, 3), 2, 1),
}


@pytest.fixture(scope="module")
def sine() -> CheckedProgram:
    return program(f"(%x: {X}) -> {X}", f'%0 = "mlirc.sin"(%x) : ({X}) -> {X}\n return %0 : {X}')


@pytest.mark.parametrize("name", LIES)
def test_a_tensor_that_is_another(name: str, sine: CheckedProgram) -> None:
    if name == "of a vmap":
        torch._C._functorch._vmap_increment_nesting(3, "error")
    try:
        refused(sine, LIES[name]())
    finally:
        if name == "of a vmap":
            torch._C._functorch._vmap_decrement_nesting()


def test_what_fits(sine: CheckedProgram) -> None:
    x = torch.randn(4, 6)
    for given in (x, torch.nn.Parameter(x), torch.cat([x, x])[:4], torch.cat([x, x])[4:]):
        torch.testing.assert_close(sine([given])[0], given.detach().sin())
    refused(sine)
    refused(sine, x, x)


S, T = 'tensor<?xf32, {size = "s0"}>', 'tensor<?xf32, {size = "2*s0"}>'
SUM = f"""%0 = "mlirc.view"(%y) {{map = "d0 + s0", offset = "s0"}} : ({T}) -> {S}
  %1 = "mlirc.add"(%x, %0) : ({S}, {S}) -> {S}
  return %1 : {S}"""


def test_symbols_that_disagree() -> None:
    run = program(f'(%n: i64 {{mlirc.symbol = "s0"}}, %x: {S}, %y: {T}) -> {S}', SUM)
    x, y = torch.randn(4), torch.randn(8)
    torch.testing.assert_close(run([4, x, y])[0], x + y[4:])
    assert run([0, x[:0], y[:0]])[0].shape == (0,)
    for n, a, b in ((3, x, y), (4, x[:3], y), (4, x, y[:7]), (5, x, y), (-4, x, y), (4.0, x, y), (2**70, x, y)):
        refused(run, n, a, b)
    inferred = program(f"(%x: {S}, %y: {T}) -> {S}", SUM)
    for a, b in ((x, y[:7]), (x[:3], y), (x, y[:0]), (x[:0], y)):
        refused(inferred, a, b)


def test_a_compound_symbol() -> None:
    run = program(f'(%n: i64 {{mlirc.symbol = "2*s0"}}, %x: {S}) -> {S}', f"return %x : {S}")
    x = torch.randn(3)
    assert torch.equal(run([6, x])[0], x)
    for n in (5, 7, 3, 0, -6):
        refused(run, n, x)


def test_a_symbol_below_zero() -> None:
    """s0 is 0 or more in every proof; us0 is not."""
    type_ = 'tensor<?xf32, {size = "SYMBOL + 5"}>'
    for symbol, fits in (("s0", False), ("us0", True)):
        own = type_.replace("SYMBOL", symbol)
        run = program(f"(%x: {own}) -> {own}", f'%0 = "mlirc.neg"(%x) : ({own}) -> {own}\n return %0 : {own}')
        if fits:
            assert run([torch.ones(2)])[0].tolist() == [-1, -1]
        else:
            refused(run, torch.ones(2))


def test_sizes_that_overflow() -> None:
    """A slot or a result of 2**64 bytes has none, in 64 bits."""
    for times in (1, 4, 1 << 20):
        size = f"{times}*s0" if times > 1 else "s0"
        type_ = f'tensor<?xf32, {{size = "{size}"}}>'
        body = f"""%0 = "mlirc.iota"() {{expr = "d0"}} : () -> {type_.replace("f32", "i64")}
          %1 = "mlirc.cast"(%0) : ({type_.replace("f32", "i64")}) -> {type_}
          %2 = "mlirc.cumsum"(%1) {{dim = 0 : i64}} : ({type_}) -> {type_}
          return %2 : {type_}"""
        run = program(f'(%n: i64 {{mlirc.symbol = "s0"}}) -> {type_}', body)
        torch.testing.assert_close(run([2])[0], torch.arange(2.0 * times).cumsum(0), rtol=1e-4, atol=1)
        for n in (1 << 61, 1 << 60, 1 << 47, (1 << 62) // times, 1 << 62):
            refused(run, n)


WRITES = """"mlirc.assign"(%x, %y) : (tensor<4xf32>, tensor<4xf32>) -> ()
  %0 = "mlirc.neg"(%z) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>"""


def test_inputs_that_share_memory_where_one_is_written() -> None:
    types = ", ".join(f"%{name}: tensor<4xf32>" for name in "xyz")
    run = program(f"({types}) -> tensor<4xf32>", WRITES)
    x, y, z = torch.randn(3, 4)
    assert torch.equal(run([x, y, z])[0], -z) and torch.equal(x, y)
    run([x, y, y])  # which only reads
    memory = torch.randn(12)
    for a, b, c in (
        (x, x, z),
        (x, y, x),
        (memory[:4], memory[3:7], z),
        (memory[4:8], y, memory[1:5]),
        (memory[:4], y, memory[:4].detach()),
    ):
        refused(run, a, b, c)
    run([memory[:4], memory[4:8], memory[8:]])


def test_numbers_of_another_kind() -> None:
    number = program("(%n: i64) -> i64", "return %n : i64")
    assert number([3]) == [3] and number([-3]) == [-3]
    for n in (3.5, float("nan"), 2**63, -(2**64), torch.tensor(3), "3", None):
        refused(number, n)
    scalar = program(
        "(%x: tensor<4xf32>, %f: tensor<f64> {mlirc.scalar}) -> tensor<4xf32>",
        """%0 = "mlirc.cast"(%f) : (tensor<f64>) -> tensor<f32>
        %1 = "mlirc.mul"(%x, %0) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
        return %1 : tensor<4xf32>""",
    )
    assert scalar([torch.ones(4), 0.5])[0].tolist() == [0.5] * 4
    for f in (torch.tensor(0.5), "0.5", None, 1j):
        refused(scalar, torch.ones(4), f)
