"""The first call of a backend on a GPU, in a fresh process with empty caches: what a user waits for.

Imports of PyTorch, Dynamo and the model's code are over, and the model lies on the GPU, where nothing has run yet: neither
backend is charged with what the other one left behind, and each loads its compiler and its libraries itself.

Prints one line of JSON: python -m benchmarks.on_gpu.first_call bert inference mlirc
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "MLIRC_CACHE_DIR")
UNSET = ("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "PYTHONDONTWRITEBYTECODE")
WAYS = ("inference", "training")


def in_fresh_process(model: str, way: str, backend: str, bytecode: Path, timeout: float = 300) -> float:
    """Seconds of `first_call` in a new Python with empty caches, but for `bytecode`, a folder for that of Python's modules: an
    installation has it, where it was not left out. Raises RuntimeError with its last lines when that fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        environment = {k: v for k, v in os.environ.items() if k not in UNSET}
        environment |= {name: str(Path(folder, name)) for name in CACHES}
        environment["PYTHONPYCACHEPREFIX"] = str(bytecode)
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.on_gpu.first_call", model, way, backend]
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=timeout)
    if done.returncode:
        last = "\n".join(done.stderr.strip().splitlines()[-5:])
        raise RuntimeError(f"{model} {way} under {backend} failed:\n{last}")
    return json.loads(done.stdout.strip().splitlines()[-1])["first_s"]


def first_call(model: str, way: str, backend: str) -> float:
    """Seconds of torch.compile and the first call, in training with its backward pass. "inductor mask-free" is Inductor with
    a model that makes no trivial masks."""
    import torch
    import torch._dynamo  # its import is not part of the first call

    from benchmarks.on_gpu.models import MODELS, without_masks

    described = MODELS[model]()
    module = described.build(way == "training")
    inputs = described.inputs(described.batch, way == "training")
    torch.cuda.synchronize()
    name, _, masks = backend.partition(" ")
    start = time.perf_counter()
    options: Any = {"fallback": "error"} if name == "mlirc" else None
    call = module if name == "eager" else torch.compile(module, backend=name, options=options)
    with without_masks() if masks else contextlib.nullcontext(), torch.set_grad_enabled(way == "training"):
        output = call(**inputs)
        if way == "training":
            output.loss.backward()
    torch.cuda.synchronize()
    return time.perf_counter() - start


if __name__ == "__main__":
    print(json.dumps({"first_s": first_call(*sys.argv[1:4])}))
