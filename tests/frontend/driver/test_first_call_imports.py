"""A first call loads what its graph needs: of a small MLP on a CPU nothing that is for other kinds of ops, or for GPUs."""

import os
from pathlib import Path

import pytest

from tests.forked_programs import python

SCRIPT = """
import sys
import torch
from torch import nn

model, x = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)), torch.randn(16, 64)
compiled = torch.compile(model, backend="mlirc", options={"fallback": "error"})
if sys.argv[1] == "training":
    compiled(x).sum().backward()
else:
    with torch.no_grad():
        compiled(x)
print(*sys.modules)
"""
OTHERS = (
    "codegen.aten.collective_call",
    "codegen.aten.dispatcher_call",
    "codegen.aten.scalar_call",
    "codegen.cuda",
    "codegen.host.aten",
    "codegen.libraries",
    "codegen.tuning",
    "frontend.capture.attention_masks",
    "frontend.capture.complex.pairs",
    "frontend.capture.complex.parts",
    "frontend.capture.flex_attention",
    "frontend.capture.shared_heads",
    "frontend.partition.image_regions",
    "lowering.cpu.attention",
    "lowering.cpu.convolution",
    "lowering.cpu.math.double",
    "lowering.cpu.math.sleef",
    "lowering.cpu.math.trig",
    "lowering.cpu.quantised",
    "lowering.fusion.flex_bodies",
    "lowering.gpu",
    "lowering.layout.channels_last",
    "lowering.layout.convolution_regions",
    "lowering.passes.fuse.select_attention",
    "lowering.passes.simplify.convolution_to_matmul",
    "lowering.passes.simplify.fold_convolutions",
    "lowering.passes.simplify.fuse_flex_attention",
    "lowering.passes.simplify.generate_convolutions",
    "lowering.passes.simplify.simplify_attention",
    "lowering.passes.simplify_gpu",
    "lowering.verify.call_sizes",
    "lowering.verify.flex_attention",
)
"""Modules, and folders with all that is in them."""
ONLY_TRAINING = (
    "frontend.partition.activation_compression",
    "frontend.partition.recomputation",
    "frontend.partition.repeated_places",
    "frontend.partition.saved_activation_layouts",
    "lowering.cpu.loops.function",  # an MLP's gradients have sums, which are no matmuls
)
ONLY_MISSES = ("frontend.capture.rewrites", "frontend.strides.traced", "lowering.pipeline.fusion_plan")


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_an_mlp_loads_nothing_of_other_ops(mode, tmp_path):
    environment = os.environ | {"MLIRC_CACHE_DIR": str(tmp_path)}
    for state in ("miss", "hit"):
        done = python("-c", SCRIPT, mode, env=environment, imported=("torch", "torch._dynamo"))
        assert done.returncode == 0, done.stderr
        others = (*OTHERS, *(ONLY_MISSES if state == "hit" else ()), *(ONLY_TRAINING if mode == "inference" else ()))
        names = {f"mlirc.{name}" for name in others}
        loaded = [m for m in done.stdout.split() if m in names or any(m.startswith(f"{name}.") for name in names)]
        assert not loaded, (state, loaded)


def test_there_are_such_modules():
    root = Path(__file__).parents[3]
    for name in (*OTHERS, *ONLY_MISSES, *ONLY_TRAINING):
        place = root / name.replace(".", "/")
        assert place.is_dir() or place.with_suffix(".py").is_file(), name
