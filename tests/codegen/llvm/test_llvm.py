"""codegen/llvm/machine_code.py: what it compiles runs, what it refuses gives an error and no crash."""

import ctypes
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import llvmlite.binding as llvm
import pytest

from mlirc.codegen.llvm.machine_code import assembly, compile_ir, compile_to_object, load_object, mlir_to_llvm
from mlirc.codegen.llvm.processor import tuning

TRIPLE = "define i64 @triple(i64 %x) {\n  %y = mul i64 %x, 3\n  ret i64 %y\n}\n"


def run(code, name, x):
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(code.address(name))(x)


@pytest.mark.parametrize("opt_level", [0, 1, 2, 3])
def test_compiled_code_runs(opt_level):
    assert run(compile_ir(TRIPLE, opt_level), "triple", 14) == 42


def test_object_bytes_load_again():
    object_bytes = compile_to_object(TRIPLE)
    first, second = load_object(object_bytes), load_object(object_bytes)
    assert first.address("triple") != second.address("triple")
    address = second.address("triple")
    del first
    assert second.address("triple") == address and run(second, "triple", 5) == 15


def test_objects_of_another_process_load():
    """What a cache on disk does."""
    script = (
        "import sys; from mlirc.codegen.llvm.machine_code import compile_to_object; "
        f"sys.stdout.buffer.write(compile_to_object({TRIPLE!r}))"
    )
    made = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout
    assert made == compile_to_object(TRIPLE)
    assert run(load_object(made), "triple", 7) == 21


def test_threads_compile_at_once():
    def work(k):
        text = TRIPLE.replace("3\n", f"{k}\n")
        return run(compile_ir(text), "triple", 10)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(32))) == [10 * k for k in range(32)]


def test_calls_reach_torch():
    text = "declare i32 @omp_get_max_threads()\ndefine i64 @threads(i64 %x) {\n"
    text += "  %n = call i32 @omp_get_max_threads()\n  %w = sext i32 %n to i64\n  ret i64 %w\n}\n"
    assert run(compile_ir(text), "threads", 0) >= 1


def test_mlir_becomes_machine_code():
    source = """
    func.func @sum_to(%n: i64) -> i64 {
      %zero = arith.constant 0 : i64
      %one = arith.constant 1 : i64
      %sum = scf.for %i = %zero to %n step %one iter_args(%s = %zero) -> (i64) : i64 {
        %t = arith.addi %s, %i : i64
        scf.yield %t : i64
      }
      return %sum : i64
    }"""
    text = mlir_to_llvm(source)
    assert run(compile_ir(text), "sum_to", 10) == 45
    assert "sum_to:" in assembly(text)


@pytest.mark.parametrize(
    "body, message",
    [
        ("%y = math.erf %x : f32\nreturn %y : f32", r"no lowering to LLVM: .*math\.erf"),
        ("return %z : f32", r"no lowering to LLVM: .*undeclared"),
        ("%y = arith.addf %x, %x : f32\nreturn %x, %y : f32, f32", r"no lowering to LLVM: .*operands"),
    ],
)
def test_what_has_no_lowering_is_named(body, message):
    with pytest.raises(ValueError, match=message):
        mlir_to_llvm(f"func.func @f(%x: f32) -> f32 {{\n{body} }}")


def test_threads_translate_beside_each_other():
    """Each waits for nobody: Python goes on meanwhile, and what is wrong in one module is said of it alone."""
    good = [f"func.func @f{k}(%x: f32) -> f32 {{\n%y = arith.addf %x, %x : f32\nreturn %y : f32 }}" for k in range(40)]
    bad = "func.func @f(%x: f32) -> f32 { return %z : f32 }"

    def translated(source: str) -> str:
        try:
            return mlir_to_llvm(source)
        except ValueError as error:
            return str(error)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(translated, [*good, bad] * 3))
    assert all(f"define float @f{k}(" in found[k] for k in range(40))
    assert "undeclared" in found[40] and found[:41] == found[41:82] == found[82:]


def test_bad_ir_and_unknown_names_are_errors():
    with pytest.raises(ValueError, match="LLVM does not accept this IR"):
        compile_ir("define i64 @f() { ret i32 0 }")
    with pytest.raises(ValueError, match="generated code calls no_such_function, which no library"):
        compile_ir(
            "declare void @no_such_function()\ndefine void @f() {\n  call void @no_such_function()\n  ret void\n}\n"
        )
    with pytest.raises(KeyError, match="nothing"):
        compile_ir(TRIPLE).address("nothing")


def test_modules_of_failed_compilations_end_before_their_contexts():
    """Exceptions hold them in cycles, which Python frees in any order."""
    script = """
import gc
from mlirc.codegen.llvm.machine_code import compile_ir
kept = []
for text in ("declare void @absent()", "define i32 @f() { ret i64 0 }", "define i32 @f() { ret i32 %x }") * 7:
    try:
        compile_ir(text)
    except ValueError as error:
        kept.append(error)
        error.cycle = error
    kept.clear()
    gc.collect()
"""
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize("processor, gathers", [("znver4", False), ("sapphirerapids", True)])
def test_zen_gathers_by_loads(processor, gathers):
    if not llvm.get_default_triple().startswith("x86_64"):
        pytest.skip("x86 only")
    text = """
declare <8 x float> @llvm.masked.gather.v8f32.v8p0(<8 x ptr>, i32, <8 x i1>, <8 x float>)
define <8 x float> @f(ptr %x, <8 x i64> %i) {
  %p = getelementptr float, ptr %x, <8 x i64> %i
  %y = call <8 x float> @llvm.masked.gather.v8f32.v8p0(<8 x ptr> %p, i32 4, <8 x i1> splat (i1 true), <8 x float> zeroinitializer)
  ret <8 x float> %y
}
"""
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=processor, features="+avx512f" + tuning(processor)
    )
    module = llvm.parse_assembly(text)
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    llvm.create_pass_builder(machine, options).getModulePassManager().run(
        module, llvm.create_pass_builder(machine, options)
    )
    assert ("vgather" in machine.emit_assembly(module)) == gathers
