"""`mlirc run --repeat` and `mlirc bisect --slower-than` wait until the GPU has done its part of a call."""

import re
import subprocess
import sys

from tests.debugger.planted.pass_files import PASSES

X = 'tensor<4096x4096xf32, {device = "cuda:0"}>'
PRODUCT = f"""
func.func @graph(%x: {X}, %y: {X}) -> {X} attributes {{mlirc.results = ["g0"]}} {{
  %0 = "mlirc.matmul"(%x, %y) : ({X}, {X}) -> {X}
  return %0 : {X}
}}"""
NEGATED = PRODUCT.replace('"mlirc.matmul"(%x, %y) : (' + X + ", " + X + ")", f'"mlirc.neg"(%x) : ({X})')
LEAST = 2 * 4096**3 / 1e15  # seconds at a rate that no GPU has in float32


def mlirc(*arguments):
    return subprocess.run([sys.executable, "-m", "mlirc", *map(str, arguments)], capture_output=True, text=True)


def test_a_call_ends_when_the_gpu_has_done_its_part(tmp_path):
    (tmp_path / "product.mlir").write_text(PRODUCT)
    done = mlirc("run", tmp_path / "product.mlir", "--pipeline", "gpu", "--repeat", "5")
    assert done.returncode == 0, done.stderr
    assert float(re.search(r"([\d.]+) us, the median of 5 calls", done.stderr)[1]) > 1e6 * LEAST, done.stderr


def test_a_slow_down_on_a_gpu(tmp_path):
    (tmp_path / "my_passes.py").write_text(PASSES["slow-down"])
    (tmp_path / "negated.mlir").write_text(NEGATED)
    given = [tmp_path / "negated.mlir", "--pipeline", "gpu", "--passes-after", "decompose=slow-down"]
    given += ["--import", tmp_path / "my_passes.py", "--slower-than", "2000", "--no-reduce"]
    done = mlirc("bisect", *given, "-o", tmp_path / "small.mlir")
    assert done.returncode == 0 and done.stdout.startswith("A call is slow"), done.stderr
    assert "The pass is 'slow-down'" in done.stdout and "number 0 of 1: mlirc.neg" in done.stdout, done.stdout
