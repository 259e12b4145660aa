"""A first call loads what its graph needs: neither kernels for GPUs, nor attention, nor convolutions, where there are none."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import sys, torch
from torch.nn import functional as F
x, w = torch.rand(1, 8, 8, 8), torch.rand(8, 8, 3, 3)
f = {"linear": lambda: torch.relu(x @ x), "attention": lambda: F.scaled_dot_product_attention(x, x, x) + 1}[sys.argv[1]]
torch.compile(f, backend="mlirc", options={"fallback": "error"})()
print(*(name for name in sys.modules if name.startswith("mlirc.lowering.")))
"""
FEW = {
    "mlirc.lowering.gpu.kernel",
    "mlirc.lowering.fusion.flex_bodies",
    "mlirc.lowering.cpu.attention.flex",
    "mlirc.lowering.cpu.attention.backward",
    "mlirc.lowering.cpu.convolution.direct",
    "mlirc.lowering.cpu.convolution.forward",
    "mlirc.lowering.cpu.convolution.winograd",
    "mlirc.lowering.cpu.convolution.weight_gradient",
}
ATTENTION = "mlirc.lowering.cpu.attention.function"


@pytest.mark.parametrize("what", ["linear", "attention"])
def test_loaded_modules(what, tmp_path):
    environment = os.environ | {"MLIRC_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, what], capture_output=True, text=True, timeout=300, env=environment, check=True
    )
    loaded = set(done.stdout.split())
    assert "mlirc.lowering.passes.lower.lower_kernels" in loaded
    assert not FEW & loaded
    assert (ATTENTION in loaded) == (what == "attention")
