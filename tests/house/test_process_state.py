"""Nothing that the process shares is changed: by importing mlirc, during a first call, after it, an error, or Ctrl-C.

What is changed all the same is in docs/compat.md, "What changes in the process", and ALLOWED here.
"""

import subprocess
import sys

PROGRAM = """
import os, signal, sys, threading, time
import llvmlite.binding, numpy, sympy, torch, torch._inductor.config
from torch import nn
from tests import process_state

def programs(backend, number):
    torch._dynamo.reset()
    model = nn.Sequential(nn.Linear(8, 8 + number), nn.GELU(), nn.LayerNorm(8 + number), nn.Dropout(0.1))
    x = torch.randn(5, 8)
    run = torch.compile(model, backend=backend)
    run(x).pow(2).sum().backward()
    with torch.no_grad():
        torch.compile(model.eval(), backend=backend)(x)
        sized = torch.compile(lambda x, n: (x * n).cumsum(0) + x.shape[0], backend=backend, dynamic=True)
        sized(x, 3), sized(torch.randn(7, 8), -2)

def fails(backend):
    torch._dynamo.reset()
    table = torch.randn(4, 3)
    try:
        torch.compile(lambda x: table[x].sum(), backend=backend)(torch.tensor([1, 9]))
    except IndexError:
        return
    raise AssertionError("no error")

def interrupted(backend, number):
    def ring(*_):
        raise KeyboardInterrupt
    was = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05 + 0.07 * number)
        programs(backend, number)
    except KeyboardInterrupt:
        pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, was)

def told(when, before, after):
    for line in process_state.differences(before, after):
        print(f"{when}: {line}")

def put_back():
    torch.manual_seed(0)

threading.stack_size(16 << 20)
programs("aot_eager", 0)  # what PyTorch does once
fails("aot_eager")
put_back()
before = process_state.full()
import mlirc, mlirc.frontend.entry.backend
told("import", before, process_state.full())

def watched(backend, number):
    '''What another thread sees change meanwhile.'''
    stop, seen = threading.Event(), {}

    def watches():
        first = process_state.quick()
        while not stop.wait(0.003):
            for line in process_state.differences(first, process_state.quick()):
                seen.setdefault(line.partition(" -> ")[0] if line.startswith(("torch", "warnings")) else line)
    thread = threading.Thread(target=watches)
    thread.start()
    programs(backend, number)
    stop.set()
    thread.join()
    return [line for line in seen if not line.startswith("random")]

of_pytorch = watched("aot_eager", 9)
for line in watched("mlirc", 0):
    if line not in of_pytorch:
        print(f"during: {line}")
put_back()
told("after", before, process_state.full())
fails("mlirc")
put_back()
told("error", before, process_state.full())
for number in (1, 3):
    interrupted("mlirc", number)
put_back()
told("interrupt", before, process_state.full())
"""

ALLOWED: tuple[str, ...] = (
    "functions: torch.library.Library.impl",
    "functions: torch.library.Library._destroy",
    "functions: torch._dynamo.eval_frame.OptimizedModule._initialize",
    "functions: torch.nested._internal.ops.jagged_scaled_dot_product_attention",
)


def test_what_the_process_shares_stays_as_it_is(tmp_path):
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    changed = [line for line in done.stdout.splitlines() if not any(allowed in line for allowed in ALLOWED)]
    assert not changed, "\n".join(changed)
