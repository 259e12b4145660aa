"""The target: an attribute of the module that lowering reads, and nothing else of any machine."""

import itertools
import os
import platform
import re

import pytest
import torch
from click.testing import CliRunner
from torch import nn

from mlirc.codegen.emit.emit import compile_module
from mlirc.commands.opt import opt
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.lowering import host
from mlirc.lowering.files.file import verify_file
from mlirc.lowering.module.errors import EmitError
from mlirc.lowering.module.rules import StageError
from mlirc.lowering.module.target_attribute import is_on_gpu, set_target, target_of
from mlirc.lowering.pipeline.parser import PipelineError
from mlirc.lowering.pipeline.pass_manager import run_pipeline
from mlirc.lowering.pipeline.pipelines import pipeline
from mlirc.lowering.target import NAMED, CpuTarget, GpuTarget, Target, TargetError, parse_parts, parse_target

pytestmark = pytest.mark.thinned

X = "tensor<4x96xf32>"
SOFTMAX = f"""module {{
func.func @graph(%x: {X}) -> {X} attributes {{mlirc.results = ["g0"]}} {{
  %0 = "mlirc.softmax"(%x) {{dim = 1 : i64}} : ({X}) -> {X}
  return %0 : {X}
}}
}}"""
ON_GPU = 'device = "cuda:0"'
PRODUCT = """func.func @graph(%x: X, %w: W) -> X attributes {mlirc.results = ["g0"]} {
  %0 = "mlirc.matmul"(%x, %w) : (X, W) -> X
  %1 = "mlirc.silu"(%0) : (X) -> X
  return %1 : X
}""".replace("X", f"tensor<4096x4096xbf16, {{{ON_GPU}}}>").replace(
    "W", f'tensor<4096x4096xbf16, {{stride = "1, 4096", {ON_GPU}}}>'
)


def lowered(source: str, target: str, passes: str = pipeline("cpu")) -> str:
    with context():
        module = ir.Module.parse(source)
        set_target(module, parse_target(target))
        run_pipeline(module, passes)
        return str(module)


# ---- text


def cpus():
    for arch, width, pairs, tiles, onednn in itertools.product(
        ("x86_64", "aarch64"), (64, 32, 16), (False, True), (False, True), ("none", "float32", "bfloat16")
    ):
        try:
            yield CpuTarget(arch, width, pairs, tiles, onednn)
        except TargetError:
            assert (arch == "aarch64" and (width, pairs, tiles) != (16, False, False)) or (pairs and width != 64)


def test_each_target_is_read_as_it_is_printed():
    for cpu in cpus():
        for gpus in ((), (GpuTarget("sm_80", 108),), (GpuTarget(), GpuTarget("sm_100", 148))):
            assert parse_target(str(Target(cpu, gpus))) == Target(cpu, gpus)


@pytest.mark.parametrize("name", NAMED)
def test_names_stand_for_parts(name):
    assert parse_parts(f" {name} ") == (NAMED[name],)


@pytest.mark.parametrize("text", ["gpu-h100", "gpu sm_90", "gpu-sm_90", "sm_90", "gpu{arch=sm_90}"])
def test_an_architecture_stands_for_a_gpu(text):
    assert parse_parts(text) == (NAMED["gpu-h100"],)
    assert parse_parts(f"cpu-avx2, {text},sm_80") == (NAMED["cpu-avx2"], NAMED["gpu-h100"], NAMED["gpu-a100"])
    assert parse_parts("sm_100") == (GpuTarget("sm_100"),)


WRONG = [
    ("", "no part of a target"),
    ("avx2", "no target 'avx2'; there are cpu{...}, gpu{...}, cpu-sse4, cpu-avx2"),
    ("cpu{", "no part of a target"),
    ("cpu{vector-bytes=7}", "vector-bytes is 64 or 32 or 16, not '7'"),
    ("cpu{vector-bytes=-64}", "vector-bytes is 64 or 32 or 16, not '-64'"),
    ("cpu{vector-bytes=" + "9" * 5000 + "}", "vector-bytes is 64 or 32 or 16"),
    ("cpu{arch=riscv}", "arch is x86_64 or aarch64"),
    ("cpu{arch=aarch64 vector-bytes=64}", "has vector-bytes=16"),
    ("cpu{bf16-pairs=true}", "of AVX-512"),
    ("cpu{bf16-pairs=1}", "bf16-pairs is true or false, not '1'"),
    ("cpu{threads=4}", "'threads=4' is no option of cpu, whose options are arch, vector-bytes"),
    ("cpu{cores=5000}", "cores is 0 to 4096, not 5000"),
    ("cpu{arch=x86_64 arch=x86_64}", "each once"),
    ("cpu,cpu", "one cpu"),
    ("cpu,", "nothing follows"),
    ("gpu{arch=sm_90}", "has no cpu"),
    ("cpu,gpu{arch=90}", "arch is sm_90 or the like, not '90'"),
    ("cpu,gpu{multiprocessors=0}", "1 to 10000"),
    ("cpu,gpu{multiprocessors=many}", "a number, not 'many'"),
    ("cpu-avx2{arch=x86_64}", "no target 'cpu-avx2'"),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_a_wrong_target_is_refused_in_one_line(text, message):
    with pytest.raises(TargetError) as caught:
        parse_target(text)
    assert message in str(caught.value) and "\n" not in str(caught.value) and len(str(caught.value)) < 400
    with context():
        module = ir.Module.parse(f'module attributes {{mlirc.target = "{text}"}} {{}}')
        with pytest.raises(StageError, match=re.escape(message)):
            verify_file(module)
        with pytest.raises(PipelineError, match=re.escape(message)):
            run_pipeline(module, "cse")


def test_a_target_that_is_no_string_and_a_module_without_one():
    with context():
        with pytest.raises(TargetError, match="3 : i64 is no string"):
            target_of(ir.Module.parse("module attributes {mlirc.target = 3} {}"))
        with pytest.raises(TargetError, match="has no attribute mlirc"):
            target_of(ir.Module.parse("module {}"))


def test_the_last_gpu_stands_for_those_that_follow():
    first, last = GpuTarget("sm_80", 108), GpuTarget()
    target = Target(CpuTarget(), (first, last))
    assert [target.gpu(d) for d in ("cuda", "cuda:0", "cuda:1", "cuda:7")] == [first, first, last, last]
    with pytest.raises(TargetError, match=r"a tensor is on cuda:0, and the target cpu\{.*\} has no gpu"):
        Target(CpuTarget()).gpu("cuda:0")


# ---- what lowering makes of it


@pytest.mark.parametrize(("target", "lanes"), [("cpu-avx512", 16), ("cpu-avx2", 8), ("cpu-sse4", 4), ("cpu-neon", 4)])
def test_vectors_are_as_wide_as_the_target_has_them(target, lanes):
    text = lowered(SOFTMAX, target)
    assert f"vector<{lanes}xf32>" in text
    assert not [n for n in re.findall(r"vector<(\d+)xf32>", text) if int(n) > lanes]


@pytest.mark.parametrize(("cores", "threads"), [("", True), (" cores=3", True), (" cores=1", False)])
def test_code_for_one_core_starts_no_threads(tmp_path, cores, threads):
    (tmp_path / "exp.mlir").write_text(SOFTMAX.replace("4x96", "512x4096"))
    target = f"cpu{{vector-bytes=32{cores}}}"
    done = CliRunner().invoke(
        opt, [str(tmp_path / "exp.mlir"), "--pipeline", "cpu", "--target", target, "--emit", "asm"]
    )
    assert done.exit_code == 0, done.output
    assert ("GOMP_parallel" in done.output) == threads


class Net(nn.Module):
    """A convolution that a processor without AVX-512 computes in larger tiles, a product, attention, a norm."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 128, 3, padding=1), nn.Conv2d(128, 128, 3, padding=1)
        self.query, self.out, self.norm = nn.Linear(128, 128), nn.Linear(128, 10), nn.LayerNorm(128)

    def forward(self, x):
        x = self.norm(self.second(self.first(x).relu()).flatten(2).mT)
        return self.out(nn.functional.scaled_dot_product_attention(self.query(x), x, x)).softmax(-1)


@pytest.fixture(scope="module")
def net(tmp_path_factory) -> str:
    """The dump of the imported graph, without its target."""
    folder = tmp_path_factory.mktemp("dump")
    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(Net().eval(), backend="mlirc", options={"dump": folder})(torch.randn(1, 3, 12, 12))
    (file,) = folder.glob("*_0_import.mlir")
    attribute = f' attributes {{mlirc.target = "{host.host_cpu()}"}}'
    assert file.read_text().count(attribute) == 1
    return file.read_text().replace(attribute, "")


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", ["cpu-sse4", "cpu-avx2", "cpu-avx512", "cpu-avx512-bf16", "cpu-neon"])
def test_a_file_lowers_as_on_the_machine_that_it_names(net, name, monkeypatch):
    """What that machine makes of a graph without a target is what this one makes for its target."""
    here = lowered(net, name)
    with context():
        module = ir.Module.parse(net)
        monkeypatch.setattr(host, "_cpu", lambda *args: NAMED[name])
        run_pipeline(module, pipeline("cpu"))
        assert str(module) == here


def test_targets_differ(net):
    texts = {name: lowered(net, name) for name in ("cpu-sse4", "cpu-avx2", "cpu-avx512", "cpu-neon")}
    bodies = {text[text.index("func.func") :] for text in texts.values()}
    assert len(bodies) == len(texts)


def test_lowering_asks_no_machine(net, monkeypatch):
    """Neither does it verify by one."""

    def asked(*args, **options):
        raise AssertionError("lowering asked the machine that it runs on")

    sources = [(net, "cpu"), (net, "strict"), (PRODUCT, "gpu"), (PRODUCT, "gpu-frozen")]
    made = [lowered(source, "cpu-avx2,gpu-h200", pipeline(name)) for source, name in sources]
    for thing, name in (
        (host, "host_cpu"),
        (host, "host_gpus"),
        (host, "_cpu"),
        (os, "cpu_count"),
        (os, "sched_getaffinity"),
        (platform, "machine"),
        (torch, "get_num_threads"),
        (torch.cpu, "get_capabilities"),
        (torch.backends.cpu, "get_cpu_capability"),
        (torch.backends.mkldnn, "is_available"),
        (torch.cuda, "is_available"),
        (torch.cuda, "get_device_capability"),
        (torch.cuda, "get_device_properties"),
        (torch.cuda, "device_count"),
    ):
        monkeypatch.setattr(thing, name, asked)
    monkeypatch.setenv("MLIRC_VECTOR_BYTES", "16")
    assert made == [lowered(source, "cpu-avx2,gpu-h200", pipeline(name)) for source, name in sources]


@pytest.mark.parametrize(
    ("gpu", "kernels"),
    [("gpu-h200", 1), ("gpu-a100", 0), ("gpu{arch=sm_90 multiprocessors=2000}", 0)],
)
def test_a_product_on_a_gpu_is_a_kernel_where_the_target_has_matrix_units_for_it(gpu, kernels):
    text = lowered(PRODUCT, f"cpu-avx2,{gpu}", pipeline("gpu"))
    assert text.count("warpgroup_mma(") == text.count("gluon.jit") // 4 == kernels
    assert ('callee = "matmul"' in text) != bool(kernels)


# ---- the command


def run(*arguments: str, text: str = SOFTMAX):
    return CliRunner().invoke(opt, ["-", *arguments], input=text)


def test_opt_writes_the_host_into_a_module_that_has_no_target():
    done = run("-p", "")
    assert f'mlirc.target = "{host.host_cpu()}"' in done.stdout
    assert run("-p", "", text=done.stdout).stdout == done.stdout
    assert run("-p", "", "--target", "host").stdout == done.stdout


def test_opt_cross_compiles():
    passes = pipeline("cpu")
    made = {name: run("-p", passes, "--target", name).stdout for name in ("cpu-avx2", "cpu-neon")}
    assert made == {name: lowered(SOFTMAX, name) for name in made}
    dumped = run("-p", "", "--target", "cpu-neon").stdout
    assert run("-p", passes, text=dumped).stdout == made["cpu-neon"]


def test_parts_that_opt_is_not_told_are_the_hosts():
    assert f'"{host.host_cpu()},{NAMED["gpu-a100"]}"' in run("-p", "", "--target", "gpu-a100").stdout
    assert re.search(r'"cpu\{[^}]*=32 [^}]*\},gpu\{arch=', run("-p", "", "--target", "cpu-avx2", text=PRODUCT).stdout)


@pytest.mark.parametrize(("text", "message"), [case for case in WRONG if "has no cpu" not in case[1]])
def test_opt_says_in_one_line_what_is_wrong_with_a_target(text, message):
    done = run("-p", "", "--target", text)
    assert (done.exit_code, done.stdout) == (2, "") and message in done.stderr and done.stderr.count("\n") == 1


def test_kernels_are_not_given_another_target():
    done = run("--pipeline", "cpu", "--target", "cpu-avx2")
    again = run("-p", "", "--target", "cpu-avx512", text=done.stdout)
    assert again.exit_code == 1 and "kernels are written for cpu{arch=x86_64 vector-bytes=32" in again.stderr
    assert run("-p", "", "--target", "cpu-avx2", text=done.stdout).stdout == done.stdout
    said = done.stdout.replace("vector-bytes=32", "vector-bytes=16")
    assert "not the code that lowering makes for the module's target" in run("-p", "", text=said).stderr


@pytest.mark.parametrize(
    ("target", "instruction"),
    [("cpu-avx512", r"%zmm\d"), ("cpu-avx2", r"%ymm\d"), ("cpu-sse4", r"\bmulps\s.*%xmm"), ("cpu-neon", r"\bv\d+\.4s")],
)
def test_opt_emits_assembly_for_another_processor(target, instruction):
    done = run("--pipeline", "cpu", "--target", target, "--emit", "asm")
    assert done.exit_code == 0, done.stderr
    wider = {"cpu-avx512": "v0.4s", "cpu-avx2": "%zmm", "cpu-sse4": "%ymm", "cpu-neon": "%xmm"}[target]
    assert re.search(instruction, done.stdout) and wider not in done.stdout


def test_code_that_cannot_run_here_is_not_loaded(monkeypatch):
    monkeypatch.setenv("MLIRC_VECTOR_BYTES", "16")  # as on a lesser machine
    with context():
        for target in ("cpu-avx512", "cpu-neon" if host.host_cpu().arch == "x86_64" else "cpu-sse4"):
            module = ir.Module.parse(lowered(SOFTMAX, target))
            with pytest.raises(EmitError, match=r"kernels for .* have instructions that this processor lacks"):
                compile_module(module)


def test_code_for_a_gpu_is_refused_where_there_is_none():
    if not torch.cuda.is_available():
        with context(), pytest.raises(EmitError, match="the module runs kernels on a GPU, and there is none here"):
            compile_module(ir.Module.parse(lowered(PRODUCT, "cpu-sse4,gpu-h200", pipeline("gpu"))))


@pytest.mark.parametrize("width", [32, 16])
def test_code_for_a_lesser_processor_runs_here(width):
    if host.host_cpu().arch != "x86_64" or host.host_cpu().vector_bytes < width:
        pytest.skip("this processor has no such vectors")
    x = torch.randn(4, 96)
    with context():
        program = compile_module(ir.Module.parse(lowered(SOFTMAX, f"cpu{{vector-bytes={width}}}")))
    torch.testing.assert_close(program([x])[0], x.softmax(-1))


def test_a_function_without_a_body_is_on_no_gpu():
    with context():
        assert not is_on_gpu(ir.Module.parse("func.func private @f()"))
        assert not is_on_gpu(ir.Module.parse("module {}"))
