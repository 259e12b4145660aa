"""The part of every cache key besides the graph: mlirc's sources, library versions, processor, settings."""

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

_PARTS = ("dialects", "lowering", "codegen", "frontend")  # of this package, that decide what code comes out


class ChangedSources(Exception):
    """A file was changed after this process may have read it: what it holds is not what runs here."""


def key(*parts: Any) -> str:
    """A name for what is made of `parts` (what json takes) in this environment: 64 hexadecimal digits."""
    text = json.dumps([environment(), *parts])
    return hashlib.sha256(text.encode()).hexdigest()


def key_or_none(*parts: Any) -> str | None:
    """None where a file of ours was changed: then nothing is looked up, and nothing kept."""
    try:
        return key(*parts)
    except ChangedSources:
        return None


def environment() -> str:
    """A digest of everything here that decides what a graph becomes. Raises ChangedSources."""
    # any setting of ours may, but for where the cache is, and how large something may become
    ours = (item for item in os.environ.items() if item[0].startswith("MLIRC_"))
    decide = (item for item in ours if item[0] != "MLIRC_DUMP" and "_CACHE" not in item[0])
    settings = sorted(item for item in decide if not item[0].endswith("_MB"))
    now = [settings, repr(host_cpu()), *cpu_name_and_features(host_cpu()), torch.backends.mkldnn.enabled, _gpus()]
    return hashlib.sha256(json.dumps([_installed(), now]).encode()).hexdigest()


def _gpus() -> list[Any]:
    """The compute capability of each GPU, once the process uses any."""
    if not torch.cuda.is_initialized():
        return []
    return [torch.cuda.get_device_capability(device) for device in range(torch.cuda.device_count())]


@cache
def gpus() -> list[Any]:
    """What graphs with tensors on GPUs depend on: the GPUs here, by number, and what they can do."""
    return [
        [torch.cuda.get_device_name(k), *torch.cuda.get_device_capability(k)] for k in range(torch.cuda.device_count())
    ]


@cache
def _installed() -> list[Any]:
    return [
        sources(path for part in _PARTS for folder in _folders(part) for path in python_files(folder)),
        [torch.__version__, torch.version.git_version, torch.__config__.show()],
        [llvmlite.__version__, llvm.llvm_version_info],
        [_version(name) for name in ("mlir-python-bindings", "torch-mlir", "triton")],
        [sys.version, sys.platform],
    ]


def _folders(part: str) -> Iterable[str]:
    spec = importlib.util.find_spec(f"mlirc.{part}")  # `mlirc opt` does not load all of them
    assert spec is not None
    return spec.submodule_search_locations or ()


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def python_files(folder: str) -> Iterable[str]:
    """Every file of Python text in a folder, and in those within. Three hundred files: pathlib would take as long as reading them."""
    for path, _, names in os.walk(folder):
        yield from (os.path.join(path, name) for name in names if name.endswith(".py"))


def sources(paths: Iterable[str]) -> str:
    """A digest of the files' names and contents. Raises ChangedSources for one that is newer than this process."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        with open(path, "rb", buffering=0) as file:
            if os.fstat(file.fileno()).st_mtime > mlirc.IMPORTED_AT:
                raise ChangedSources(f"{path} was changed after this process started")
            content = file.read()
        digest.update(f"{os.path.basename(path)} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()
