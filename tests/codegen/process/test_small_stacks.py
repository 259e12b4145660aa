"""Compiled functions called by threads whose stacks are small, the user's and libgomp's: each family
of kernels. MLIR's library, which a first call may load there."""

import os
import resource
import subprocess
import sys
from functools import partial

import pytest

PROGRAM = """
import sys, threading, warnings, torch
from torch import nn
from torch.nn import functional as F
from mlirc.frontend import statistics

kilobytes, every = map(int, sys.argv[1:])
torch.manual_seed(0)
torch.set_num_threads(2)

def bf16(module):
    return module.to(torch.bfloat16)

def attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)

def rows(x):
    return F.layer_norm(torch.softmax(x, -1), (x.shape[-1],)), x.exp().sum(0), x.t().contiguous().cumsum(0), x.var(0), x.sum()

images = torch.randn(2, 32, 28, 28).to(memory_format=torch.channels_last)
heads = [torch.randn(2, 4, 256, 64) for _ in range(3)]
mlp = lambda: nn.Sequential(nn.Linear(512, 1024), nn.GELU(), nn.Linear(1024, 512))
convolutions = lambda *a, **k: nn.Sequential(nn.Conv2d(32, 64, 3, *a, **k), nn.ReLU()).to(memory_format=torch.channels_last)
chosen = {
    "product": (mlp(), [torch.randn(64, 512)]),
    "one_row": (mlp(), [torch.randn(1, 512)]),
    "product_training": (mlp(), [torch.randn(64, 512, requires_grad=True)]),
    "batched": (lambda x, y: torch.relu(x @ y), [torch.randn(8, 128, 256), torch.randn(8, 256, 128)]),
    "transposed": (lambda x, y: (x.t() @ y).sigmoid(), [torch.randn(512, 700), torch.randn(512, 300)]),
    "bf16": (bf16(mlp()), [torch.randn(64, 512, dtype=torch.bfloat16)]),
    "attention": (attention, heads),
    "attention_backward": (attention, [x.clone().requires_grad_() for x in heads]),
    "decode": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v), [heads[0][:, :, :1], heads[1], heads[2]]),
    "convolution": (convolutions(stride=2), [images]),
    "winograd": (convolutions(padding=1), [images]),
    "convolution_training": (convolutions(padding=1), [images.detach().requires_grad_()]),
    "depthwise": (nn.Conv2d(32, 32, 3, padding=1, groups=32).to(memory_format=torch.channels_last), [images]),
    "depthwise_training": (
        nn.Conv2d(32, 32, 3, padding=1, groups=32).to(memory_format=torch.channels_last), [images.detach().requires_grad_()]),
    "rows": (rows, [torch.randn(3000, 4096)]),
    "long_rows": (rows, [torch.randn(5, 100_000)]),
    "columns": (lambda x: (x.sum(0), x.amax(0), x.mean(0), x.std(0)), [torch.randn(20_000, 700)]),
}

def leaves(fn, inputs):
    return [x for x in [*inputs, *(fn.parameters() if isinstance(fn, nn.Module) else ())] if x.requires_grad]

def run(f, fn, inputs, grad):
    with torch.set_grad_enabled(grad):
        made = f(*inputs)
        made = list(made) if isinstance(made, tuple) else [made]
        if grad:
            weights = torch.cos(torch.arange(made[0].numel(), dtype=torch.float32)).view(made[0].shape)
            made += torch.autograd.grad((made[0].float() * weights).sum(), leaves(fn, inputs))
        return made

def small(work, *args):
    got = []
    thread = threading.Thread(target=lambda: got.append(work(*args)))
    threading.stack_size(kilobytes << 10)
    thread.start()
    thread.join()
    threading.stack_size(0)
    assert got, "the thread raised"
    return got[0]

for family, (fn, inputs) in list(chosen.items())[::every]:
    print(family, flush=True)
    if family in ("winograd", "convolution", "depthwise"):
        fn.eval()
    grad = any(x.requires_grad for x in inputs)
    compiled = torch.compile(fn, backend="mlirc")
    want = run(fn, fn, inputs, grad)
    run(compiled, fn, inputs, grad)  # compiles on the large stack
    rough = dict(rtol=5e-2, atol=5e-2) if family == "bf16" else dict(rtol=2e-3, atol=2e-3)
    for _ in range(2):
        torch.testing.assert_close(small(run, compiled, fn, inputs, grad), want, **rough)
    torch._dynamo.reset()
assert not statistics.fallbacks, statistics.fallbacks
print("end")
"""


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.full)])
def test_calls_in_threads_with_small_stacks_give_eagers_results(every):
    """Of every so many-th family of kernels."""
    environment = {**os.environ, "OMP_STACKSIZE": "64k"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "128", str(every)], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.stdout.endswith("end\n"), (
        f"exit code {done.returncode} in {done.stdout.split()[-1:]}\n{done.stderr[-3000:]}"
    )


LOADS = """
import sys, threading

def load():
    from mlirc.dialects.core.bindings import ir
    print(ir.Context.__name__)

size = threading.stack_size(int(sys.argv[1]))
thread = threading.Thread(target=load)
thread.start()
thread.join()
print(threading.stack_size())
"""


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    ("size", "limit"),
    [(64 << 10, None), (256 << 10, None), (64 << 20, None), (0, 256 << 10), (96 << 10, 512 << 10)],
)
def test_mlirs_library_is_loaded_from_any_stack(size, limit):
    """It takes more than 256 KiB. The size of new threads stays the user's; `limit` is `ulimit -s`, which holds where they set none."""
    hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
    limited = limit and partial(resource.setrlimit, resource.RLIMIT_STACK, (limit, hard))
    done = subprocess.run(
        [sys.executable, "-c", LOADS, str(size)], preexec_fn=limited, capture_output=True, text=True, timeout=100
    )
    assert done.stdout.split() == ["Context", str(size)], (done.returncode, done.stderr[-2000:])
