"""Kernels to machine code for sm_90, which takes no GPU; each is compiled once."""

import pytest
import torch

from mlirc.codegen import triton_compile, triton_worker
from mlirc.codegen.cache_folder import CacheFolder
from mlirc.codegen.triton_compile import KernelSource, compile_kernels
from tests.kernel_runner import info
from tests.test_kernel_emitter import layer_norm, softmax
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
    monkeypatch.setattr(triton_compile, "_compiled", {})
    names = []
    compile_all = triton_worker.compile_all

    def counted(kernels, capability):
        names.extend(k["name"] for k in kernels)
        return compile_all(kernels, capability)

    monkeypatch.setattr(triton_worker, "compile_all", counted)
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


def test_workers_make_the_same():
    fields = [triton_compile.asdict(softmax_of(n)) for n in (40, 41)]
    here = [triton_worker.compile_one(k, 90) for k in fields]
    assert here == [triton_worker._in_worker(k, 90) for k in fields]


def test_compiled_once(compiled, tmp_path):
    kernel, other = softmax_of(50), softmax_of(51)
    first = compile_kernels([kernel, kernel, other], folder=CacheFolder(tmp_path / "cache"))
    assert len(compiled) == 2 and first[0] is first[1]
    assert compile_kernels([other, kernel]) == [first[2], first[0]] and len(compiled) == 2


def test_kept_on_disk(compiled, tmp_path, monkeypatch):
    kernel = softmax_of(52)
    first = compile_kernels([kernel], folder=CacheFolder(tmp_path / "cache"))
    monkeypatch.setattr(triton_compile, "_compiled", {})
    assert compile_kernels([kernel], folder=CacheFolder(tmp_path / "cache")) == first
    assert len(compiled) == 1
    compile_kernels([kernel], capability=80, folder=CacheFolder(tmp_path / "cache"))
    assert len(compiled) == 2


@pytest.mark.parametrize("compile", [triton_worker.compile_one, triton_worker._in_worker])
def test_what_triton_does_not_take(compile):
    kernel = triton_compile.asdict(softmax_of(60))
    kernel["source"] = kernel["source"].replace("tl.reduce", "tl.reducce")
    with pytest.raises(triton_worker.TritonError, match="does not compile kernel_0 for sm_90"):
        compile(kernel, 90)
