"""Kernels to machine code for sm_90, which takes no GPU; each is compiled once."""

import os
import re
import subprocess
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
import triton.backends.nvidia

from mlirc.codegen.cache.folder import CacheFolder
from mlirc.codegen.cuda import triton_compile, triton_processes, triton_worker
from mlirc.codegen.cuda.triton_compile import KernelSource, compile_kernels
from mlirc.dialects.core.symbols import symbol
from tests.kernel_runner import info
from tests.lowering.cpu.emitter.test_emitter import layer_norm, softmax
from tests.triton.runner import TritonKernel

f32 = torch.float32


def source_of(kernel: TritonKernel) -> KernelSource:
    made = kernel.made
    constants = tuple(sorted(made.constants.items()))
    divisible = tuple(range(len(kernel.launch.operands)))
    return KernelSource(
        "kernel_0", made.source, tuple(made.signature), constants, divisible, made.num_warps, made.num_stages
    )


def softmax_of(columns: int) -> KernelSource:
    return source_of(TritonKernel([info(f32, f"300, {columns}")], "300", str(columns), softmax))


@pytest.fixture
def compiled(monkeypatch):
    """The names of what Triton compiles, in this process with nothing compiled yet."""
    monkeypatch.setattr(triton_compile, "_known", {})
    names = []
    compile_kernel = triton_processes.compile_kernel

    def counted(kernel, capability):
        names.append(kernel["name"])
        return compile_kernel(kernel, capability)

    monkeypatch.setattr(triton_processes, "compile_kernel", counted)
    return names


def test_cubins():
    wide = info(f32, "64, 9000")
    kernels = [
        softmax_of(700),
        source_of(TritonKernel([info(f32, "s0, s1")], "s0", "s1", softmax)),
        source_of(TritonKernel([wide, info(f32, "9000"), info(f32, "9000")], "64", "9000", layer_norm)),
    ]
    for kernel, made in zip(kernels, compile_kernels(kernels), strict=True):
        assert made.cubin.startswith(b"\x7fELF") and made.name == "kernel_0" and made.num_warps == kernel.num_warps
        assert made.waits  # and may be launched early


STEPS = """import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def kernel_0(p0, p1, XBLOCK: tl.constexpr):
    x = tl.arange(0, XBLOCK)
    a = tl.load(p0 + x)
    b = tl.load(p1 + x)
    tl.store(p1 + x, {})
"""


def machine_code(expression: str) -> str:
    kernel = KernelSource("kernel_0", STEPS.format(expression), ("*fp32", "*fp32"), (("XBLOCK", 128),), (), 4, 1)
    made = triton_worker.triton_code(asdict(kernel), 90)
    disassemble = Path(triton.backends.nvidia.__file__).parent / "bin" / "nvdisasm"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        return subprocess.run([disassemble, "-c", file.name], capture_output=True, text=True, check=True).stdout


def test_a_product_is_rounded_before_it_is_added():
    """Contracted, a * a - b * b is not 0 where a is b."""
    assert "FFMA" not in machine_code("a * a - b * b") and "FMUL" in machine_code("a * a - b * b")
    assert "FFMA" in machine_code("tl.fma(a, a, -b)")  # where the kernel says so


@pytest.mark.thinned(2)
@pytest.mark.parametrize("function", ["log", "log1p", "rsqrt"])
def test_a_function_keeps_subnormal_numbers(function):
    assert ".FTZ" not in machine_code(f"libdevice.{function}(a)")


@pytest.mark.parametrize(
    "line",
    ["ld.global.b32 {%r1}, [%rd1];", "@%p3 st.global.b32 [%rd1], {%r1};", "mbarrier.init.shared::cta.b64 [%r1], 1;"],
)
def test_a_kernel_waits_before_it_touches_memory(line):
    wait, parameter = "griddepcontrol.wait; // dummy %r1", "\tld.param.b64 %rd1, [kernel_0_param_0];"
    good, bad = (f"{parameter}\n\t{first}\n\t{second}\n" for first, second in ((wait, line), (line, wait)))
    assert triton_worker.waits_first(good) and not triton_worker.waits_first(bad)
    assert not triton_worker.waits_first(line)


def test_workers_make_the_same():
    fields = [triton_compile.asdict(softmax_of(n)) for n in (40, 41)]
    here = [triton_worker.compile_one(k, 90) for k in fields]
    assert here == [triton_processes.compile_kernel(k, 90) for k in fields]


def test_compiled_once(compiled, tmp_path):
    kernel, other = softmax_of(50), softmax_of(51)
    first = compile_kernels([kernel, kernel, other], folder=CacheFolder(tmp_path / "cache"))
    assert len(compiled) == 2 and first[0] is first[1]
    assert compile_kernels([other, kernel]) == [first[2], first[0]] and len(compiled) == 2


def test_kept_on_disk(compiled, tmp_path, monkeypatch):
    kernel = softmax_of(52)
    first = compile_kernels([kernel], folder=CacheFolder(tmp_path / "cache"))
    monkeypatch.setattr(triton_compile, "_known", {})
    assert compile_kernels([kernel], folder=CacheFolder(tmp_path / "cache")) == first
    assert len(compiled) == 1
    compile_kernels([kernel], capability=80, folder=CacheFolder(tmp_path / "cache"))
    assert len(compiled) == 2


@pytest.mark.parametrize("compile", [triton_worker.compile_one, triton_processes.compile_kernel])
def test_what_triton_does_not_take(compile):
    kernel = triton_compile.asdict(softmax_of(60))
    kernel["source"] = kernel["source"].replace("tl.reduce", "tl.reducce")
    with pytest.raises(triton_worker.TritonError, match="does not compile kernel_0 for sm_90"):
        compile(kernel, 90)


def test_processes_that_ended_are_replaced():
    kernel = triton_compile.asdict(softmax_of(61))
    made = triton_processes.compile_kernel(kernel, 90)
    server = triton_processes._children[-1]
    server.kill()
    server.wait()
    assert triton_processes.compile_kernel(kernel, 90) == made  # by the worker, which lives on
    triton_processes._idle.clear()
    assert triton_processes.compile_kernel(kernel, 90) == made and triton_processes._children[-1] is not server


def test_a_forked_child_has_processes_of_its_own():
    kernel = triton_compile.asdict(softmax_of(62))
    triton_processes.compile_kernel(kernel, 90)
    children = len(triton_processes._children)
    child = os.fork()
    if child == 0:
        made = triton_processes.compile_kernel(kernel, 90)
        os._exit(0 if made["cubin"] and len(triton_processes._children) == children + 1 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert triton_processes.compile_kernel(kernel, 90)["cubin"]


def embedding(k, table, index):
    row = k.check_index(k.read(index, k.dims[:1]), 50257, False, "index {index} of {size}")
    return [(k.read(table, (symbol("i0"), k.dims[1]), [row]), k.dims, info(f32, "64, 768"))]


def test_a_bad_index_ends_the_kernel():
    operands = [info(f32, "50257, 768"), info(torch.int64, "64")]
    made = TritonKernel(operands, "64, 768", "", embedding)
    (cubin,) = [x.cubin for x in compile_kernels([source_of(made)])]
    without = replace(source_of(made), constants=tuple((k, v * (k != "TRAP")) for k, v in source_of(made).constants))
    (plain,) = [x.cubin for x in compile_kernels([without])]
    assert made.made.constants["TRAP"] == 1 and cubin != plain


@pytest.mark.parametrize("size", [2**31 - 5, 2**31 + 77, 2**32 + 77])
def test_a_loop_counts_as_far_as_its_row(size):
    """Triton takes a number from 2^31 to 2^32 for uint32, and widens and compares it as an int32."""
    total = lambda k, x: [(k.reduce("max", k.read(x, k.dims)), k.dims[:1], info(torch.int8, "1"))]
    source = source_of(TritonKernel([info(torch.int8, f"1, {size}")], "1", str(size), total))
    text = triton_worker.triton_code(triton_compile.asdict(source), 90).asm["ttir"]
    loops = re.findall(r"scf\.for .*", text)
    assert loops and all(": i64 " in loop for loop in loops), loops
    block = source.constants[0][1]
    assert f"arith.constant {size // block * block} : i64" in text
