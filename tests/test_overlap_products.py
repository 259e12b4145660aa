"""Products in a GPU's second stream, as far as a machine without a GPU can tell: which, until when, in what memory."""

import re

import llvmlite.binding as llvm
import pytest
import torch

from mlirc.codegen.host_program import host_program, last_uses
from mlirc.codegen.llvm import load_libraries
from mlirc.dialects import interpreter
from mlirc.dialects.bindings import context, ir
from mlirc.lowering import asides
from mlirc.lowering.pass_manager import run_pipeline
from mlirc.lowering.plan_checker import PlanError, check_plan

T, W = "tensor<64x32xf32>", "tensor<32x32xf32>"
TURNED = 'tensor<32x64xf32, {stride = "1, 32"}>'
KERNEL = """ "mlircx.kernel"(%in) ({
^bb0(%of: T):
  %read = "mlirc.read"(%of) {map = "d0, d1", masked = false} : (T) -> f32
  %neg = "mlirc.neg"(%read) : (f32) -> f32
  "mlircx.yield"(%neg) {maps = ["d0, d1"]} : (f32) -> ()
}) {parallel = "64, 32", inner = "", label = "neg"} : (T) -> T
"""
CLONE = '"mlircx.aten"(%in) {op = "aten.clone.default", args = "[{\\22$\\22: 0}]", aliases = "-1"} : (T) -> T\n'


def kernel(name: str, x: str) -> str:
    return f"%{name} =" + KERNEL.replace("%in", f"%{x}")


def product(name: str, x: str, y: str, types: str = "(T, W) -> T") -> str:
    return f'%{name} = "mlirc.matmul"(%{x}, %{y}) : {types}\n'


def turned(name: str, x: str) -> str:
    return f'%{name} = "mlirc.view"(%{x}) {{map = "d1, d0", offset = "0"}} : (T) -> V\n'


def text(body: str, results: str, attributes: str = "mlirc.consumes") -> str:
    types = ", ".join({"w": "W", "d": "W"}.get(name[0], "T") for name in results.split(", "))
    made = f"func.func @graph(%dy: T, %x: T, %w: W) -> ({types}) attributes {{{attributes}}} {{\n{body}"
    made += f"return {', '.join(f'%{r}' for r in results.split(', '))} : {types}\n}}"
    for name, type_ in (("T", T), ("V", TURNED), ("W", W)):
        made = re.sub(rf"\b{name}\b", type_, made)
    made = re.sub(r"(tensor<(?:\d+x)*f32), \{", r'\1, {device = "cuda:0", ', made)
    return re.sub(r"(tensor<(?:\d+x)*f32)>", r'\1, {device = "cuda:0"}>', made)


def backward(layers: int, kernels: bool = True) -> str:
    """Products of a net's backward graph: of a weight's gradient, d0, d1, ..., and of the next layer's, g0, g1, ..."""
    body, dy = "", "dy"
    for k in range(layers):
        body += product(f"g{k}", dy, "w") + turned(f"t{k}", dy) + product(f"d{k}", f"t{k}", "x", "(V, T) -> W")
        body += kernel(f"y{k}", f"g{k}") if kernels else f"%y{k} = {CLONE.replace('%in', f'%g{k}')}"
        dy = f"y{k}"
    return body


def peak(count: int) -> tuple[str, str]:
    """Results that are there together at the end: ops, and their names."""
    names = [f"z{k}" for k in range(count)]
    return "".join(kernel(name, "x") for name in names), ", ".join(names)


def names(module: ir.Module) -> list[str]:
    """The ops of @graph but views and what places memory: products aside as "aside"."""
    found = []
    for op in module.body.operations[0].regions[0].blocks[0].operations:
        name = op.operation.name.rpartition(".")[2]
        if name not in ("view", "slot", "allocate", "release", "return"):
            found.append("aside" if asides.ASIDE in op.attributes else name)
    return found


def made(source: str, passes: str = "overlap-products{least=0}") -> ir.Module:
    module = ir.Module.parse(source)
    run_pipeline(module, passes)
    return module


def results_of(module: ir.Module, inputs: list[torch.Tensor]) -> list:
    """By the interpreter, on the CPU."""
    on_cpu = ir.Module.parse(re.sub(r', \{device = "cuda:0"\}', "", str(module).replace('device = "cuda:0", ', "")))
    return interpreter.run(on_cpu.body.operations[0], inputs)


def test_gradients_of_weights_run_beside_what_follows_them():
    more, results = peak(4)
    source = text(backward(3) + more, f"y2, d0, d1, d2, {results}")
    inputs = [torch.randn(64, 32), torch.randn(64, 32), torch.randn(32, 32)]
    with context():
        module = made(source)
        assert names(module) == [*["aside", "matmul", "kernel", "join"] * 2, "aside", "matmul", "join", *["kernel"] * 5]
        before, after = (results_of(m, inputs) for m in (ir.Module.parse(source), module))
        torch.testing.assert_close(after, before, rtol=0, atol=0)
        run_pipeline(module, "plan-memory")
        check_plan(module.body.operations[0], {})
        assert names(module)[:8] == [*["aside", "call", "launch", "join"] * 2]


def test_products_that_are_read_are_waited_for():
    """The one that is read first stays; the others are joined before their first reader."""
    body = product("a", "x", "w") + product("b", "dy", "w") + kernel("c", "b") + kernel("e", "a")
    more, results = peak(2)
    with context():
        module = made(text(body + more, f"c, e, {results}", ""))
        assert names(module)[:5] == ["aside", "matmul", "kernel", "join", "kernel"]
        first = next(op for op in module.body.operations[0].regions[0].blocks[0].operations)
        assert first.operands[0] == module.body.operations[0].arguments[1]


@pytest.mark.parametrize("body", [
    product("a", "x", "w") + product("b", "a", "w"),  # one needs the other
    product("a", "x", "w") + kernel("c", "x") + product("b", "c", "w"),  # not next to each other
])  # fmt: skip
def test_what_stays(body):
    with context():
        assert "aside" not in names(made(text(body, "a, b")))


def test_small_products_and_unknown_sizes_stay():
    source = text(backward(1), "y0, d0")
    symbolic = re.sub(r"tensor<64x32xf32, \{", 'tensor<?x32xf32, {size = "s0, 32", ', source)
    symbolic = re.sub(r"tensor<32x64xf32, \{", 'tensor<32x?xf32, {size = "32, s0", ', symbolic).replace(
        '"64, 32"', '"s0, 32"'
    )
    with context():
        assert "aside" not in names(made(source, "overlap-products"))
        assert "aside" not in names(made(symbolic))


def test_memory_until_the_join():
    """dy would be kept for the weight's gradient: as long as that is no more than at the peak, for the group, not at all."""
    results = "y1, d0, d1"
    with context():
        small = names(made(text(backward(2), results)))
        more, others = peak(2)
        large = names(made(text(backward(2) + more, f"{results}, {others}")))
    assert small[:4] == ["aside", "matmul", "join", "kernel"]
    assert large[:4] == ["aside", "matmul", "kernel", "join"]


@pytest.mark.parametrize("consumes", [True, False])
def test_what_runs_aside_keeps_its_memory(consumes):
    more, results = peak(4)
    source = text(backward(3) + more, f"y2, d0, d1, d2, {results}", "mlirc.consumes" if consumes else "")
    with context():
        module = made(source, "overlap-products{least=0},plan-memory")
        function = module.body.operations[0]
        check_plan(function, {})
        block = function.regions[0].blocks[0]
        uses = last_uses(block)
        last = {argument: op.name for op, found in uses.items() if op for argument in found}
        assert last[block.arguments[0]] == asides.JOIN  # dy: its last reader in the first stream is before
        wrong = ir.Module.parse(str(module).replace('"mlirc.join"() : () -> ()', "", 1))
        joined = [
            op for op in wrong.body.operations[0].regions[0].blocks[0].operations if op.operation.name == asides.JOIN
        ]
        for op in joined[:-1]:
            op.operation.erase()
        with pytest.raises(PlanError, match="second stream"):
            check_plan(wrong.body.operations[0], {})


def test_what_may_not_run_aside():
    """plan-memory takes it back: a result that is read early, an argument that is overwritten; and joins at the end."""
    early = product("a", "x", "w") + kernel("c", "a")
    overwritten = product("a", "x", "w") + kernel("c", "dy") + '"mlirc.assign"(%x, %c) : (T, T) -> ()\n'
    fine = product("a", "x", "w") + kernel("c", "dy")
    for body, want in (
        (early, ["call", "launch"]),
        (overwritten, ["call", "launch"]),
        (fine, ["aside", "launch", "join"]),
    ):
        source = text(body, "a, c" if body is not overwritten else "a", "")
        source = re.sub(r'("mlirc.matmul"\([^)]*\))', r"\1 {mlirc.aside}", source)
        with context():
            module = made(source, "plan-memory")
            assert names(module) == want


def test_the_program_waits_on_every_way():
    load_libraries()
    with context():
        module = made(text(backward(2, kernels=False), "y1, d0, d1"), "overlap-products{least=0},plan-memory")
        program = host_program(module.body.operations[0], consume=True)
    llvm.parse_assembly(program.text).verify()
    calls = {name: f"@links, i64 {program.links.index(name)})" for name in ("second", "wait_for", "multiply")}
    main, failed = program.text.split("failed:")
    assert main.count(calls["second"]) == 1
    aside, joins = names(module).count("aside"), names(module).count("join")
    assert len(re.findall(r"ptr %second_0, ptr %stream_0, ptr %\w+, ptr %\w+\)", main)) == aside > 0
    assert len(re.findall(r"call i32 %\w+\(ptr %stream_0, ptr %second_0\)", main)) == joins > 0
    assert calls["wait_for"] in failed
