"""The part of every key of the disk cache that all entries share: mlirc's sources, library versions, processor, settings."""

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import sys
from collections.abc import Iterable
from functools import cache
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import torch

import mlirc
from mlirc.codegen.llvm.processor import cpu_name_and_features
from mlirc.lowering.host import host_cpu

_PACKAGES = ("dialects", "lowering", "codegen", "frontend")  # whose sources are part of the key


class ChangedSources(Exception):
    """A source file was modified after this process may have read it: its content may not be the code that runs here."""


def key(*parts: Any) -> str:
    """The key of what is made of `parts` (JSON values) in this environment: SHA-256, as 64 hexadecimal digits."""
    text = json.dumps([environment(), *parts])
    return hashlib.sha256(text.encode()).hexdigest()


def key_or_none(*parts: Any) -> str | None:
    """As `key`; None if a source file was modified: then nothing is looked up, and nothing kept."""
    try:
        return key(*parts)
    except ChangedSources:
        return None


def environment() -> str:
    """A digest of everything here that decides what a graph becomes. Raises ChangedSources."""
    settings = sorted(item for item in os.environ.items() if _decides(item[0]))
    processor = [repr(host_cpu()), *cpu_name_and_features(host_cpu())]
    current = [settings, *processor, torch.backends.mkldnn.enabled, _compute_capabilities()]
    return hashlib.sha256(json.dumps([_build_identity(), current]).encode()).hexdigest()


def build() -> str:
    """A digest of what code is made by and for: sources, library versions, processor. Raises ChangedSources."""
    processor = [repr(host_cpu()), *cpu_name_and_features(host_cpu())]
    return hashlib.sha256(json.dumps([_build_identity(), processor]).encode()).hexdigest()


def _decides(variable: str) -> bool:
    """Whether it may affect code: all MLIRC_* variables do but for the cache's folder, limits of size, and MLIRC_DUMP."""
    ours = variable.startswith("MLIRC_") and variable != "MLIRC_DUMP"
    return ours and "_CACHE" not in variable and not variable.endswith("_MB")


def _compute_capabilities() -> list[Any]:
    """The compute capability of each GPU; empty before CUDA is initialized, which this does not do."""
    if not torch.cuda.is_initialized():
        return []
    return [torch.cuda.get_device_capability(device) for device in range(torch.cuda.device_count())]


@cache
def gpu_models() -> list[Any]:
    """Name and compute capability of each GPU: a part of the key of graphs with tensors on GPUs."""
    return [
        [torch.cuda.get_device_name(k), *torch.cuda.get_device_capability(k)] for k in range(torch.cuda.device_count())
    ]


@cache
def _build_identity() -> list[Any]:
    """Sources and versions, which stay as they are while the process runs."""
    return [
        sources_digest(path for package in _PACKAGES for folder in _folders(package) for path in python_files(folder)),
        [torch.__version__, torch.version.git_version, torch.__config__.show()],
        [llvmlite.__version__, llvm.llvm_version_info],
        [_version(name) for name in ("mlir-python-bindings", "torch-mlir", "triton")],
        [sys.version, sys.platform],
    ]


@cache
def codegen_digest() -> str:
    """A digest of codegen's sources, which decide what machine code and its callers agree on."""
    return sources_digest(path for folder in _folders("codegen") for path in python_files(folder))


def mlirc_version() -> str:
    return _version("mlirc") or "of a checkout"


def _folders(package: str) -> Iterable[str]:
    spec = importlib.util.find_spec(f"mlirc.{package}")  # it imports nothing: `mlirc opt` does not need them all
    assert spec is not None
    return spec.submodule_search_locations or ()


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def python_files(folder: str) -> Iterable[str]:
    """All .py files below a folder. By os.walk: pathlib would take as long as reading the files."""
    for path, _, names in os.walk(folder):
        yield from (os.path.join(path, name) for name in names if name.endswith(".py"))


def sources_digest(paths: Iterable[str]) -> str:
    """SHA-256 of the files' base names and contents, in the order of their paths.

    Raises ChangedSources for one that is newer than this process.
    """
    digest = hashlib.sha256()
    for path in sorted(paths):
        with open(path, "rb", buffering=0) as file:
            if os.fstat(file.fileno()).st_mtime > mlirc.IMPORTED_AT:
                raise ChangedSources(f"{path} was changed after this process started")
            content = file.read()
        digest.update(f"{os.path.basename(path)} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()
