"""What a measurement is of: a model, inference or training, a dtype; and the call that each backend makes of it."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from benchmarks.models import MODELS, Model
from benchmarks.peers import PEERS, Peer, installed_peers

WAYS = ("inference", "training")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
BACKENDS = ("eager", "aot_eager", "inductor", "mlirc")


@dataclass(frozen=True)
class Setting:
    """One row of the table, for each backend. `batch` 0 stands for the model's own."""

    model: str
    way: str
    dtype: str
    small: bool = False
    batch: int = 0

    def __str__(self) -> str:
        size = f" batch {self.batch}" if self.batch else ""
        return f"{self.model}{' (small)' if self.small else ''}{size} {self.way} {self.dtype}"

    @property
    def training(self) -> bool:
        return self.way == "training"

    def takes(self, backend: str) -> bool:
        """Whether it can be measured under a backend: OpenVINO and ONNX Runtime have no training, and are measured in float32."""
        return backend not in PEERS or (not self.training and self.dtype == "float32")

    def build(self) -> tuple[Model, nn.Module, dict[str, torch.Tensor]]:
        """The model, its module, and keyword arguments for a call."""
        model, dtype = MODELS[self.model](self.small), DTYPES[self.dtype]
        module = model.build(dtype, self.training)
        return model, module, model.inputs(self.batch or model.batch, dtype, self.training)


def available_backends(peers: bool = False) -> list[str]:
    """Inductor is left out where there is no C++ compiler for it. `peers`: with OpenVINO and ONNX Runtime, where they are installed."""
    has_compiler = shutil.which("g++") or shutil.which("clang++")
    found = [backend for backend in BACKENDS if backend != "inductor" or has_compiler]
    return [*found[:-1], *installed_peers(), found[-1]] if peers else found


def compiled(module: nn.Module, backend: str) -> Callable:
    """`module` under a backend; a graph that mlirc cannot compile is an error here, not a measurement of eager."""
    if backend == "eager":
        return module
    if backend in PEERS:
        return Peer(module, PEERS[backend])
    options = {"fallback": "error"} if backend == "mlirc" else None
    return torch.compile(module, backend=backend, options=options)


def caller(
    model: Model, module: nn.Module, call: Callable, inputs: dict[str, Any], training: bool
) -> Callable[[], None]:
    """What is timed: a forward call without gradients, or a training step up to the gradients."""

    def infer() -> None:
        with torch.no_grad():
            call(**inputs)

    def train() -> None:
        module.zero_grad(set_to_none=True)
        model.loss(call(**inputs)).backward()

    return train if training else infer
