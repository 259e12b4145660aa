"""codegen/llvm/shared_parts.py: a function that many kernels have alike is compiled once, and lives as long as one of them."""

import ctypes
import gc
import re

import pytest
import torch

from mlirc.codegen.llvm import shared_parts
from mlirc.codegen.llvm.machine_code import compile_to_object, joined, load_object, mlir_to_llvm
from mlirc.codegen.llvm.shared_parts import LEAST, PREFIX, module_of, take_parts
from mlirc.codegen.process import background
from mlirc.codegen.runtime import shared_kernels

OPTIONS = {"cache": False, "fallback": "error"}


def two_products(x, v, w):
    return (x @ v).relu() + 1, (x @ w).tanh() * 2


def inputs():
    """Two kernels with the same tiles, of sizes that no other test has."""
    return torch.randn(311, 417), torch.randn(417, 240), torch.randn(417, 384)


@pytest.fixture
def compiled(monkeypatch):
    """The LLVM IR texts of kernels that are compiled."""
    texts: list[str] = []

    def listening(text, *args, **options):
        texts.append(text)
        return compile_to_object(text, *args, **options)

    monkeypatch.setattr(shared_kernels, "compile_to_object", listening)
    return texts


def defined(texts):
    return [name for text in texts for name in re.findall(rf"^define [^@]*@({PREFIX}[0-9a-f]{{32}})\(", text, re.M)]


def test_what_two_kernels_have_alike_is_compiled_once(compiled):
    call, (x, v, w) = torch.compile(two_products, backend="mlirc", options=OPTIONS), inputs()
    with torch.no_grad():
        results = call(x, v, w)
    for result, exact in zip(results, two_products(x.double(), v.double(), w.double()), strict=True):
        torch.testing.assert_close(result, exact.float(), rtol=1e-4, atol=1e-4)
    names = defined(compiled)
    assert names and len(set(names)) == len(names)
    used = [text for text in compiled if not defined([text])]
    assert any(sum(name in text for text in used) > 1 for name in names), "some part has two users"

    compiled.clear()
    again = torch.compile(lambda x, v: (x @ v).sigmoid() - 3, backend="mlirc", options=OPTIONS)
    with torch.no_grad():
        torch.testing.assert_close(again(x, v), (x @ v).sigmoid() - 3, rtol=1e-4, atol=1e-4)
    assert compiled and not defined(compiled), "and by kernels of later graphs"
    assert set(names) <= set(shared_parts._made)
    del call, again
    torch._dynamo.reset()
    gc.collect()
    assert not set(names) & set(shared_parts._made)


def test_a_part_that_cannot_be_compiled_fails_for_each_kernel(monkeypatch):
    def broken(text, *args, **options):
        if defined([text]):
            raise ValueError("no such part")
        return compile_to_object(text, *args, **options)

    monkeypatch.setattr(shared_kernels, "compile_to_object", broken)
    x, v, _ = inputs()
    for fn in (lambda x, v: (x @ v).exp() - 5, lambda x, v: (x @ v).cos() - 7):
        with pytest.raises(Exception, match=r"emit failed.*no such part"), torch.no_grad():
            torch.compile(fn, backend="mlirc", options=OPTIONS)(x, v)
    background.wait_for_all()
    assert not shared_parts._coming


LONG = "%y = llvm.add %x, %x : i64\n" + "".join(
    f"%c{k} = llvm.mlir.constant({k} : i64) : i64\n" for k in range(LEAST // 20)
)


def kernel(name: str, callees: str) -> str:
    """One with a large function, which calls a small one, and with a small one of its own."""
    return f"""func.func @{name}(%args: !llvm.ptr) -> i64 {{
%x = llvm.load %args : !llvm.ptr -> i64
%r = llvm.call @{name}_body(%x) : (i64) -> i64
return %r : i64
}}
llvm.func internal @{name}_body(%x: i64) -> i64 {{
{callees}
llvm.return %r : i64
}}
llvm.func internal @{name}_large(%x: i64) -> i64 {{
{LONG}%z = llvm.call @{name}_small(%y) : (i64) -> i64
llvm.return %z : i64
}}
llvm.func internal @{name}_small(%x: i64) -> i64 {{
%three = llvm.mlir.constant(3 : i64) : i64
%y = llvm.mul %x, %three : i64
llvm.return %y : i64
}}"""


@pytest.mark.parametrize(
    ("callees", "result"),
    [
        ("%r = llvm.call @K_large(%x) : (i64) -> i64", 42),
        ("%t = llvm.call @K_large(%x) : (i64) -> i64\n%r = llvm.call @K_small(%t) : (i64) -> i64", 126),
    ],
)
def test_a_part_takes_along_what_it_calls(callees, result):
    first, second = (
        take_parts(kernel(name, callees.replace("K", name)), name, []) for name in ("kernel_4", "kernel_41")
    )
    assert first[1] == second[1] and len(first[1]) == 1
    (part,) = first[1]
    assert f"llvm.func @{part}(i64) -> i64" in first[0] and "_large" not in first[0][-1]
    objects = [
        compile_to_object(mlir_to_llvm(module_of([first[0], second[0]])), elsewhere=[part]),
        compile_to_object(mlir_to_llvm(module_of(first[1].values()))),
    ]
    code = load_object(joined(objects))
    for name in ("kernel_4", "kernel_41"):
        word = ctypes.c_int64(7)
        assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(code.address(name))(ctypes.addressof(word)) == result
    assert load_object(code.object_bytes).address("kernel_4")


def test_parts_whose_maker_was_interrupted_are_told_and_made_by_another():
    """Nobody waits for ever, and the name is free again."""
    name = f"{PREFIX}nobody_else_has_this"
    _, making, mine = shared_parts.claim([name])
    found, _, others = shared_parts.claim([name])
    assert mine == [name] and others == []
    shared_parts.abandon(making, mine)
    with pytest.raises(RuntimeError, match="ended before it was done"):
        found[name].result(timeout=1)
    _, making, mine = shared_parts.claim([name])
    assert mine == [name]
    shared_parts.publish(making, mine, RuntimeError())
    shared_parts.abandon(making, mine)  # once it has a result, nothing more is told


def test_kernels_that_no_thread_was_given_leave_no_promise(monkeypatch):
    def refused(*_):
        raise MemoryError

    monkeypatch.setattr(background, "compute", refused)
    name = f"{PREFIX}nor_this"
    with pytest.raises(MemoryError):
        shared_kernels.begin([], {name: [""]}, 1, {"key": "kernel_0"})
    assert name not in shared_parts._coming and "key" not in shared_kernels._coming
