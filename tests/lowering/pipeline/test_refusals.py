"""A refusal in the ledger has the numbers that its rule compares. A new rule has some, or stands below with those that compare none."""

import re

import pytest
import torch

from benchmarks.models import MODELS
from benchmarks.step import take_step
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.execution.captures import read_capture
from mlirc.lowering.module.target_attribute import set_target
from mlirc.lowering.pipeline.pass_manager import run_pipeline
from mlirc.lowering.pipeline.pipelines import pipeline
from mlirc.lowering.target import parse_target
from tests.compare_stages import prepare

WITHOUT = {  # rules about what an op is, reads or is read by
    "ALIGNED",
    "ALWAYS SEEN",
    "BY ROWS",
    "CONTIGUOUS WEIGHTS",
    "CPU",
    "DTYPE",
    "FLOAT IMAGES",
    "FLOAT32 MATRIX",
    "FLOAT32 OR BFLOAT16",
    "LAST USE",
    "NOT KNOWN",
    "ONE OF A ROW",
    "ONE READER",
    "PARAMETER",
    "PATCHES",
    "REPEATED",
    "REWRITES",
    "ROWS SIDE BY SIDE",
    "SAME ROWS",
    "STATIC HEADS",
    "STATIC IMAGES",
    "STATIC K",
    "STATIC N",
    "STATIC SIZES",
    "STATIC WEIGHTS",
    "SUMS AND EXTREMA",
    "WRITTEN",
}
GPU = "cpu{arch=x86_64 vector-bytes=32},gpu{arch=sm_90}"


def refusals(text, on_gpu):
    """The entries of refusals without numbers, and with, that compiling a module leaves in the ledger."""
    with context():
        if on_gpu:
            text = on_a_gpu(text)
        module = ir.Module.parse(text)
        if on_gpu:
            set_target(module, parse_target(GPU))
        entries = run_pipeline(module, pipeline("gpu" if on_gpu else "cpu"), verify=False).ledger.entries
    refused = [e for e in entries if not e.taken]
    bare = [e for e in refused if not e.numbers and e.rule not in WITHOUT and not e.rule.startswith("TO INPUT: ")]
    return bare, [e for e in refused if e.numbers]


def on_a_gpu(text):
    """The module with its tensors on a GPU."""
    text = re.sub(r"mlirc\.target = \"[^\"]*\"", "", text)
    text = re.sub(r"(tensor<[^<>{}]*), \{", r'\1, {device = "cuda:0", ', text)
    return re.sub(r"(tensor<[^<>{},]*)>", r'\1, {device = "cuda:0"}>', text)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("on_gpu", [False, True])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", [n if n == "mlp" else pytest.param(n, marks=pytest.mark.full) for n in MODELS])
def test_refusals_of_the_models_have_numbers(name, training, on_gpu, tmp_path):
    model = MODELS[name](small=True)
    dtype = torch.float32
    module, inputs = model.build(dtype, training), model.inputs(2, dtype, training)
    options = {"fallback": "error", "dump": tmp_path / "kept", "cache": False}
    take_step(model, module, torch.compile(module, backend="mlirc", options=options), inputs, training)
    for graph in read_capture(tmp_path / "kept").graphs:
        bare, _ = refusals(graph.stages["import"].read_text(), on_gpu)
        assert not bare, bare


def half(*shape):
    return torch.randn(*shape, dtype=torch.bfloat16)


CONVOLUTION = lambda x, w: torch.nn.functional.conv2d(x, w, stride=2)
CASES = {  # what is refused, with which numbers
    "PACKING PAYS": (torch.mm, (torch.randn(4, 64), torch.randn(64, 64)), False, {"rows": 4, "least_rows": 48}),
    "FOLLOWED": (torch.mm, (torch.randn(512, 8), torch.randn(8, 512)), False, {"steps": 8, "results": 512 * 512}),
    "TOO SMALL": (torch.mm, (half(2048, 33), half(33, 64)), True, {"least_operations_per_byte": 130}),
    "FEW ROWS": (lambda x: x.sum(1), (torch.randn(4096, 64),), True, {"rows": 4096, "row_length": 64, "parts": 1}),
    "FEW CHANNELS": (CONVOLUTION, (half(2, 64, 8, 8), half(8, 64, 2, 2)), True, {"channels": 256, "most_channels": 16}),
    "CHANNELS LAST": (CONVOLUTION, (torch.randn(1, 64, 96, 96), torch.randn(8, 64, 2, 2)), False, {"gain"}),
}


@pytest.mark.parametrize("rule", CASES)
def test_what_a_rule_compares(rule):
    function, inputs, on_gpu, numbers = CASES[rule]
    with context():
        _, imported = prepare(function, *inputs)
        text = imported.module.operation.get_asm(enable_debug_info=True)
    bare, refused = refusals(text, on_gpu)
    assert not bare, bare
    (entry,) = (e for e in refused if e.rule == rule)
    if isinstance(numbers, set):
        assert numbers <= entry.numbers.keys(), entry
    else:
        assert entry.numbers.items() >= numbers.items(), entry
