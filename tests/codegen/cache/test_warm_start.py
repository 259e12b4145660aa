"""A graph out of the disk cache loads what running needs, and none of the compiler."""

import os

from tests.forked_programs import python

SCRIPT = """
import sys
import torch
from torch import nn
from mlirc.frontend import statistics

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x):
        q, k, v = self.inner(x).view(2, 7, 3, 2, 8).permute(2, 0, 3, 1, 4)
        mask = torch.arange(7)[None, :] <= torch.arange(7)[:, None]
        y = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.outer(y.transpose(1, 2).reshape(2, 7, 16)).sort(-1)[0]

torch.manual_seed(0)
block, x = Block(), torch.randn(2, 7, 16)
compiled = torch.compile(block, backend="mlirc", options={"fallback": "error"})
with torch.no_grad():
    torch.testing.assert_close(compiled(x), block(x))
results = [torch.autograd.grad(f(x).sin().sum(), block.parameters()) for f in (compiled, block)]
torch.testing.assert_close(*results)
last = torch.compile(lambda x: (x + x.shape[0]).relu(), backend="mlirc", options={"fallback": "error"}, dynamic=True)
torch.testing.assert_close(last(x), (x + 2).relu())
print(*(graph.cache for graph in statistics.graphs))
print(*sys.modules)
"""
COMPILERS = {"torch_mlir", "mlir", "rich", "click"}
OURS = (
    "bindings",
    "dialect",
    "importer.importer",
    "driver.steps",
    "driver.observers",
    "emit.emit",
    "core.context",
    "host_program",
    "pass_manager",
    "triton_compile",
)


def test_a_warm_start_imports_no_compiler(tmp_path):
    environment = os.environ | {"MLIRC_CACHE_DIR": str(tmp_path)}
    for state in ("miss", "hit"):
        done = python("-c", SCRIPT, env=environment, imported=("torch", "torch._dynamo"))
        assert done.returncode == 0, done.stderr
        states, modules = (line.split() for line in done.stdout.splitlines())
        assert states == [state] * 4
        loaded = COMPILERS & set(modules) | {m for m in modules if m.startswith("mlirc.") and m.endswith(OURS)}
        assert bool(loaded) == (state == "miss"), loaded
