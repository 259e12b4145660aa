"""The machine that code is made for, as passes read it, and its text.

    cpu{arch=x86_64 vector-bytes=64 bf16-pairs=true bf16-tiles=false onednn=bfloat16}
    cpu{arch=x86_64 vector-bytes=32 ...},gpu{arch=sm_90 multiprocessors=132}

The text is the attribute `mlirc.target` of a module (module/target_attribute.py), and what `mlirc opt --target` takes; there a
name of NAMED, or a GPU's architecture ("gpu sm_90", "sm_90"), may stand for a part. A `gpu` each for cuda:0, cuda:1, ...: the
last one stands for those that follow, too.
"""

import re
from dataclasses import fields
from functools import cache
from typing import Any, ClassVar

import torch

from mlirc.dialects.lazy_dataclass import dataclass


class TargetError(ValueError):
    """The text of a target is wrong, or lacks a part that is needed: one line, with what would be right."""


SCRATCH_FUNCTION = "mlirc_scratch"  # of the process that runs kernels, which they call (emitter/scratch.py)


@dataclass(frozen=True)
class CpuTarget:
    """A processor, and what oneDNN does on it.

    arch          "x86_64" or "aarch64"
    vector_bytes  the width of a vector register: 64, 32 or 16
    bf16_pairs    whether it has AVX-512's multiplications of pairs of bfloat16
    bf16_tiles    whether it has AMX's matmuls of bfloat16 tiles, which only libraries use here
    onednn        what oneDNN convolves fast: "none", where PyTorch does not use it, "float32", or "bfloat16" as well
    cores         a kernel runs on at most so many threads; 0: on as many as the process has when it runs
    """

    arch: str = "x86_64"
    vector_bytes: int = 16
    bf16_pairs: bool = False
    bf16_tiles: bool = False
    onednn: str = "float32"
    cores: int = 0

    CHOICES: ClassVar[dict[str, tuple[Any, ...]]] = {
        "arch": ("x86_64", "aarch64"),
        "vector-bytes": (64, 32, 16),
        "onednn": ("none", "float32", "bfloat16"),
    }

    def __post_init__(self) -> None:
        if self.cores > 4096:
            raise TargetError(f"cpu: cores is 0 to 4096, not {self.cores}")
        if self.arch == "aarch64" and (self.vector_bytes != 16 or self.bf16_pairs or self.bf16_tiles):
            raise TargetError("cpu{arch=aarch64} has vector-bytes=16, no bf16-pairs and no bf16-tiles")
        if self.bf16_pairs and self.vector_bytes != 64:
            raise TargetError("cpu{bf16-pairs=true} is of AVX-512: vector-bytes=64")

    def lanes(self, dtype: torch.dtype) -> int:
        """How many elements of `dtype` one register holds."""
        return self.vector_bytes // dtype.itemsize

    @property
    def has_avx2(self) -> bool:
        return self.arch == "x86_64" and self.vector_bytes >= 32

    @property
    def has_avx512(self) -> bool:
        return self.arch == "x86_64" and self.vector_bytes == 64

    def __str__(self) -> str:
        return text_of_part("cpu", self)


@dataclass(frozen=True)
class GpuTarget:
    """An NVIDIA GPU: its architecture, "sm_90" for compute capability 9.0, and how many multiprocessors it has."""

    arch: str = "sm_90"
    multiprocessors: int = 132

    CHOICES: ClassVar[dict[str, tuple[Any, ...]]] = {}

    def __post_init__(self) -> None:
        if not re.fullmatch(r"sm_\d{2,3}", self.arch):
            raise TargetError(f"gpu: arch is sm_90 or the like, not '{self.arch}'")
        if not 0 < self.multiprocessors <= 10_000:
            raise TargetError(f"gpu: multiprocessors is 1 to 10000, not {self.multiprocessors}")

    @property
    def capability(self) -> int:
        """90 for compute capability 9.0."""
        return int(self.arch.removeprefix("sm_"))

    @property
    def is_hopper(self) -> bool:
        return self.capability // 10 == 9

    def __str__(self) -> str:
        return text_of_part("gpu", self)


@dataclass(frozen=True)
class Target:
    """A processor and the GPUs beside it, by number: the last one stands for all that follow."""

    cpu: CpuTarget
    gpus: tuple[GpuTarget, ...] = ()

    def gpu(self, device: str) -> GpuTarget:
        """The GPU that a tensor type names: "cuda", "cuda:1". Raises TargetError where the target has none."""
        if not self.gpus:
            how = 'mlirc opt FILE -p "" --target gpu-h100 -o FILE writes one into it'
            raise TargetError(f"a tensor is on {device}, and the target {self} has no gpu; {how}")
        number = int(device.partition(":")[2] or 0)
        return self.gpus[min(number, len(self.gpus) - 1)]

    def __str__(self) -> str:
        return ",".join(map(str, (self.cpu, *self.gpus)))


NAMED: dict[str, CpuTarget | GpuTarget] = {
    "cpu-sse4": CpuTarget(),
    "cpu-avx2": CpuTarget(vector_bytes=32),
    "cpu-avx512": CpuTarget(vector_bytes=64, onednn="bfloat16"),
    "cpu-avx512-bf16": CpuTarget(vector_bytes=64, bf16_pairs=True, onednn="bfloat16"),
    "cpu-amx": CpuTarget(vector_bytes=64, bf16_pairs=True, bf16_tiles=True, onednn="bfloat16"),
    "cpu-neon": CpuTarget(arch="aarch64"),
    "gpu-a100": GpuTarget("sm_80", 108),
    "gpu-h100": GpuTarget("sm_90", 132),
    "gpu-h200": GpuTarget("sm_90", 132),
}
PARTS: dict[str, type[CpuTarget] | type[GpuTarget]] = {"cpu": CpuTarget, "gpu": GpuTarget}
_PART = re.compile(r"\s*((?:gpu[ -])?sm_\d+|[\w-]+)\s*(?:\{([^{}]*)\})?\s*(,|$)")
_ARCHITECTURE = re.compile(r"(?:gpu[ -])?(sm_\d+)")


def _of_architecture(arch: str) -> GpuTarget:
    """ "gpu sm_90", "sm_90": the first in NAMED that has it. Raises TargetError."""
    known = (x for x in NAMED.values() if isinstance(x, GpuTarget) and x.arch == arch)
    return next(known, None) or GpuTarget(arch)


@cache
def parse_parts(text: str) -> tuple[CpuTarget | GpuTarget, ...]:
    """The parts of a target's text, in order. Raises TargetError."""
    found, at = [], 0
    while at < len(text) or not found:
        match = _PART.match(text, at)
        if match is None:
            example = "cpu{arch=x86_64 vector-bytes=32},gpu{arch=sm_90}"
            raise TargetError(f"'{text[at:][:100]}' is no part of a target, which is like {example}")
        name, options, comma = match.groups()
        if name in NAMED and options is None:
            found.append(NAMED[name])
        elif options is None and (architecture := _ARCHITECTURE.fullmatch(name)):
            found.append(_of_architecture(architecture[1]))
        elif name in PARTS:
            found.append(_part(name, options or ""))
        else:
            raise TargetError(f"no target '{name[:100]}'; there are cpu{{...}}, gpu{{...}}, {', '.join(NAMED)}")
        at = match.end()
        if comma and at == len(text):
            raise TargetError(f"nothing follows the last comma of '{text[:100]}'")
    if sum(isinstance(part, CpuTarget) for part in found) > 1:
        raise TargetError(f"a target has one cpu, and '{text[:100]}' has more")
    return tuple(found)


@cache
def parse_target(text: str) -> Target:
    """The target of a text with a cpu in it. Raises TargetError."""
    parts = parse_parts(text)
    cpus = [part for part in parts if isinstance(part, CpuTarget)]
    if not cpus:
        raise TargetError(f"the target '{text[:100]}' has no cpu; add cpu{{arch=x86_64 vector-bytes=32}}")
    return Target(cpus[0], gpus_of(parts))


def gpus_of(parts: tuple[CpuTarget | GpuTarget, ...]) -> tuple[GpuTarget, ...]:
    return tuple(part for part in parts if isinstance(part, GpuTarget))


def _part(name: str, options: str) -> CpuTarget | GpuTarget:
    cls = PARTS[name]
    kinds = {field.name.replace("_", "-"): type(field.default) for field in fields(cls)}
    values: dict[str, Any] = {}
    for word in options.split():
        key, equals, value = word.partition("=")
        if not equals or key not in kinds or key.replace("-", "_") in values:
            raise TargetError(f"'{word[:100]}' is no option of {name}, whose options are {', '.join(kinds)}, each once")
        values[key.replace("-", "_")] = _value(f"{name}: {key}", value, kinds[key], cls.CHOICES.get(key))
    return cls(**values)


def _value(what: str, text: str, kind: type, choices: tuple[Any, ...] | None) -> Any:
    if kind is bool:
        choices = ("true", "false")
    value = int(text) if kind is int and re.fullmatch(r"\d{1,9}", text) else text
    if (choices and value not in choices) or (kind is int and not isinstance(value, int)):
        wanted = " or ".join(map(str, choices)) if choices else "a number"
        raise TargetError(f"{what} is {wanted}, not '{text[:100]}'")
    return text == "true" if kind is bool else value


def text_of_part(name: str, part: CpuTarget | GpuTarget) -> str:
    """Every option, so that the text means the same wherever it is read. Of cores, 0 goes without saying."""
    values = [(field.name.replace("_", "-"), getattr(part, field.name)) for field in fields(part)]
    values = [(key, x) for key, x in values if (key, x) != ("cores", 0)]
    return f"{name}{{{' '.join(f'{key}={str(x).lower() if isinstance(x, bool) else x}' for key, x in values)}}}"
