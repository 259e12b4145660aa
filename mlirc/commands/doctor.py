"""`mlirc doctor`: what a report of a problem needs to say of the machine, and whether what mlirc relies on works here."""

import importlib
import logging
import os
import pkgutil
import platform
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import click

from mlirc.commands.failure import HELP
from mlirc.lowering.module.counted import counted

OF_GPUS = ("cuda-generator", "raw-stream")  # reaches that nothing asks for without one
PACKAGES = ("mlirc", "torch", "torch-mlir", "llvmlite", "triton", "numpy", "safetensors", "transformers")


@click.command(context_settings=HELP)
def doctor() -> None:
    """Tell versions, processor, GPU and cache, and try what mlirc relies on. To be pasted into a report.

    Exits with 1 where graphs cannot be compiled here.
    """
    broken = False
    logging.getLogger("mlirc").setLevel(logging.ERROR)  # what it would warn of stands in the report
    for title, part in (
        ("versions", _versions),
        ("processor", _processor),
        ("GPUs", _gpus),
        ("cache", _cache),
        ("settings", _settings),
        ("private parts of PyTorch", _reaches),
        ("compiling", _compiling),
    ):
        click.echo(title)
        try:
            for good, line in part():
                broken |= not good
                click.echo(f"  {line}")
        except Exception as error:  # of whatever is broken: that is what is asked
            broken = True
            click.echo(f"  FAILS: {type(error).__name__}: {' '.join(str(error).split())[:500]}")
    click.echo("something is wrong: see the lines that say FAILS" if broken else "all is well")
    if broken:
        sys.exit(1)


Lines = Iterator[tuple[bool, str]]


def _versions() -> Lines:
    yield True, f"Python {platform.python_version()}, {platform.system()} {platform.release()}, {platform.machine()}"
    for name in PACKAGES:
        try:
            yield True, f"{name} {version(name)}"
        except PackageNotFoundError:
            yield True, f"{name}: not installed"


def _processor() -> Lines:
    import torch

    from mlirc.codegen.llvm.processor import cpu_name_and_features
    from mlirc.lowering.host import host_target

    target = host_target(False).cpu
    name, _ = cpu_name_and_features(target)
    bits = 8 * target.vector_bytes
    yield True, f"{name}, {target.arch}, vectors of {bits} bits; PyTorch says {torch.backends.cpu.get_cpu_capability()}"
    yield True, f"{counted(os.cpu_count() or 1, 'core')}, {counted(torch.get_num_threads(), 'thread')}"


def _gpus() -> Lines:
    import torch

    if not torch.cuda.is_available():
        yield True, "none that PyTorch finds"
        return
    for k in range(torch.cuda.device_count()):
        found = torch.cuda.get_device_properties(k)
        yield True, f"{k}: {found.name}, {found.major}.{found.minor}, {found.total_memory >> 20} MB"
    yield True, f"CUDA {torch.version.cuda}"


def _cache() -> Lines:
    from mlirc.codegen.cache.folder import VARIABLE, folder

    found = folder()
    if found is None:
        yield True, f"none ({VARIABLE} names a folder)"
        return
    count, size = found.size()
    yield (
        True,
        f"{found.path}: {counted(count, 'entry', 'entries')}, {size / 1e6:.1f} MB of at most {found.limit / 1e6:.0f} MB",
    )


def _settings() -> Lines:
    names = sorted(n for n in os.environ if n.startswith(("MLIRC_", "TORCH_", "OMP_", "MKL_", "CUDA_VISIBLE")))
    for name in names:
        yield True, f"{name}={os.environ[name][:200]}"
    if not names:
        yield True, "no MLIRC_, TORCH_, OMP_ or MKL_ variable is set"


def _reaches() -> Lines:
    """Every reach is found and tried; one that is not there is done without, or nothing can be compiled."""
    import torch

    from mlirc import codegen, frontend
    from mlirc.codegen.abi import reach
    from mlirc.codegen.llvm.machine_code import load_libraries

    for package, folder in ((codegen, "abi"), (frontend, "torch_compat")):
        found = importlib.import_module(f"{package.__name__}.{folder}")
        for module in pkgutil.walk_packages(found.__path__, f"{found.__name__}."):
            try:
                importlib.import_module(module.name)
            except reach.Missing as why:
                yield False, f"FAILS: {why}"
    importlib.import_module("mlirc.codegen.runtime.native_runtime")  # has one, too
    load_libraries()  # which those that ask LLVM find ready
    tried = [found for name, found in reach.reaches.items() if torch.cuda.is_available() or name not in OF_GPUS]
    missing = [found for found in tried if found() is None]
    yield True, f"{len(tried) - len(missing)} of {len(tried)} work"
    for found in missing:
        yield True, found.why or f"without {found.name}, {found.instead}"


def _compiling() -> Lines:
    """A graph forward and backward, without the cache, compared with eager."""
    import torch

    def function(x: Any, w: Any) -> Any:
        return torch.nn.functional.gelu(x @ w).softmax(-1).square().sum()

    options = {"fallback": "error", "cache": False}
    for device in ("cpu", *(["cuda"] if torch.cuda.is_available() else [])):
        x = torch.linspace(-1, 1, 64 * 48, device=device).reshape(64, 48)
        w = torch.linspace(-1, 1, 48 * 32, device=device).reshape(48, 32).requires_grad_()
        compiled: Callable = torch.compile(function, backend="mlirc", options=options)
        mine, theirs = compiled(x, w), function(x, w)
        grads = [torch.autograd.grad(y, w)[0] for y in (mine, theirs)]
        torch.testing.assert_close([mine, grads[0]], [theirs, grads[1]])
        yield True, f"{device}: a graph and its gradient give what eager gives"
