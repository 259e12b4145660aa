"""Executes the Triton code of a lowered module without a GPU: Triton interprets it, in a process of its own."""

import os
import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from typing import Any

import numpy
import torch

from mlirc.dialects.control_flow.region_ops import module_body
from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.index_errors import index_text

GLUON = "@gluon.jit"


class TritonFailed(RuntimeError):
    """Triton does not interpret a kernel."""


class TritonCode:
    """The Triton kernels of modules, to be given to `interpret`. A context manager: the process ends with it.

    ran    names of kernels whose code was executed
    left   names of kernels that Triton cannot interpret, which are written in Gluon: their bodies are executed
    """

    def __init__(self) -> None:
        self.ran: set[str] = set()
        self.left: set[str] = set()
        self.process: subprocess.Popen[bytes] | None = None
        self.parent = 0  # of that process

    def __enter__(self) -> "TritonCode":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Starts the process, which forks of this one may ask as well, one at a time."""
        if self.process is None:
            environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            command = [sys.executable, "-m", "mlirc.execution.triton_interpreter"]
            pipe = subprocess.PIPE
            self.parent = os.getpid()
            self.process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=environment
            )

    def start_again(self) -> None:
        """Starts the process where it is not there yet, or a kernel has ended it. Only its parent is told that: a fork goes on with it."""
        if self.process is not None and self.parent == os.getpid() and self.process.poll() is not None:
            self.stop()
        self.start()

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None

    def __call__(self, op: Any, operands: Sequence[torch.Tensor], values: Mapping[str, int]) -> bool:
        """Runs the code of a `mlircx.run`; False where it is to be interpreted by its body. Raises TritonFailed, and
        IndexError for a bad index."""
        kernel = kernel_of(op)
        if kernel is None:
            return False
        name, source = (attribute_value(kernel.attributes[key]) for key in ("sym_name", "source"))
        constants = {x.name: attribute_value(x.attr) for x in ir.DictAttr(kernel.attributes["constants"])}
        messages = attribute_value(op.attributes["messages"])
        if GLUON in source:
            self.left.add(name)
            return False
        grid = [symbols.evaluate(symbols.parse(n), values) for n in attribute_value(kernel.attributes["grid"])]
        memory, arguments = memory_of(operands)
        arguments += [values[s.strip()] for s in attribute_value(op.attributes["symbols"]).split(",") if s.strip()]
        if messages:
            arguments.append((len(memory), 0, "int64"))
            memory.append(numpy.zeros(24, numpy.uint8))
        self.ran.add(name)
        after = self.ask(source, name, constants, grid, memory, arguments)
        for x, (place, *_) in zip(operands, arguments, strict=False):
            if x.untyped_storage().nbytes():
                bytes_of(x).copy_(torch.from_numpy(after[place]))
        if messages:
            number, index, size = after[-1].view(numpy.int64).tolist()
            if number:
                raise IndexError(index_text(messages[number - 1], index, size))
        return True

    def ask(self, *arguments: Any) -> list[numpy.ndarray]:
        """Raises TritonFailed."""
        self.start()
        assert self.process is not None and self.process.stdin is not None and self.process.stdout is not None
        try:
            pickle.dump(arguments, self.process.stdin)
            self.process.stdin.flush()
            answer = pickle.load(self.process.stdout)  # of this process's own child
        except (EOFError, OSError) as error:
            raise TritonFailed(f"Triton's interpreter crashes in {arguments[1]}") from error
        if isinstance(answer, str):
            raise TritonFailed(f"Triton's interpreter, in {arguments[1]}: {answer}")
        return answer


def kernel_of(op: Any) -> Any | None:
    """The `mlirc.triton` of a `mlircx.run`, or None where its code is for a CPU."""
    name = attribute_value(op.attributes["kernel"])
    found = (x for x in module_body(op).operations if x.operation.name == "mlirc.triton")
    return next((x for x in found if attribute_value(x.attributes["sym_name"]) == name), None)


def memory_of(tensors: Sequence[torch.Tensor]) -> tuple[list[numpy.ndarray], list[Any]]:
    """The bytes of the tensors' storages, each once, and for each tensor which of them, the first byte, and its dtype."""
    memory: list[numpy.ndarray] = []
    places: dict[int, int] = {}
    arguments: list[Any] = []
    for x in tensors:
        storage = x.untyped_storage()
        if storage.data_ptr() not in places or not storage.nbytes():
            places[storage.data_ptr()] = len(memory)
            memory.append(bytes_of(x).numpy() if storage.nbytes() else numpy.zeros(64, numpy.uint8))
        first = x.storage_offset() * x.element_size() if storage.nbytes() else 0
        arguments.append((places[storage.data_ptr()], first, str(x.dtype).removeprefix("torch.")))
    return memory, arguments


def bytes_of(x: torch.Tensor) -> torch.Tensor:
    """All of the memory that a tensor is a part of."""
    return torch.empty(0, dtype=torch.uint8).set_(x.untyped_storage())


def triton_code() -> AbstractContextManager["TritonCode | None"]:
    """None where Triton is not installed."""
    return TritonCode() if find_spec("triton") else nullcontext()
