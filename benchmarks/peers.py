"""OpenVINO and ONNX Runtime beside Inductor, where their packages are installed: inference in float32, of what torch.export gives.

    pip install openvino onnxruntime onnxscript

Both make constants of the parameters, as they were at the first call; mlirc and Inductor let them change. Threads are PyTorch's.
"""

import importlib.util
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

# Seconds: ONNX Runtime's threads spin for 33 ms after a call, on all processors, and would slow down what is measured next.
SPINNING = 0.1

Run = Callable[[Sequence[torch.Tensor]], torch.Tensor]


class Logits(nn.Module):
    """A module's logits, of arguments by position: what these importers take."""

    def __init__(self, module: nn.Module, names: Sequence[str]):
        super().__init__()
        self.module, self.names = module, tuple(names)

    def forward(self, *values: torch.Tensor) -> torch.Tensor:
        return self.module(**dict(zip(self.names, values, strict=True))).logits


class Peer:
    """A module under `make`, which is called at the first call with each number of threads; its result has `.logits`."""

    def __init__(self, module: nn.Module, make: Callable[[nn.Module, Sequence[torch.Tensor]], Run]):
        self.module, self.make = module, make
        self.runs: dict[int, Run] = {}

    def __call__(self, **inputs: torch.Tensor) -> Any:
        values, threads = tuple(inputs.values()), torch.get_num_threads()
        if threads not in self.runs:
            self.runs[threads] = self.make(Logits(self.module, list(inputs)).eval(), values)
        return SimpleNamespace(logits=self.runs[threads](values))


def openvino(module: nn.Module, values: Sequence[torch.Tensor]) -> Run:
    """Compiled for latency, in float32."""
    import openvino as ov  # type: ignore[import-not-found]

    model = ov.convert_model(torch.export.export(module, tuple(values)), input=[list(x.shape) for x in values])
    hints = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    hints["INFERENCE_NUM_THREADS"] = str(torch.get_num_threads())
    request = ov.Core().compile_model(model, "CPU", hints).create_infer_request()

    def run(values: Sequence[torch.Tensor]) -> torch.Tensor:
        made = request.infer([x.numpy() for x in values], share_inputs=True, share_outputs=True)
        return torch.from_numpy(made[0])

    return run


def onnxruntime(module: nn.Module, values: Sequence[torch.Tensor]) -> Run:
    import onnxruntime as ort  # type: ignore[import-not-found]

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = torch.get_num_threads(), 1
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        program = torch.onnx.export(module, tuple(values), dynamo=True, verbose=False)
        assert program is not None
        program.save(path)
        session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [x.name for x in session.get_inputs()]

    def run(values: Sequence[torch.Tensor]) -> torch.Tensor:
        made = session.run(None, dict(zip(names, (x.numpy() for x in values), strict=True)))
        return torch.from_numpy(made[0])

    return run


PEERS = {"openvino": openvino, "onnxruntime": onnxruntime}


def pause_between(backends: Iterable[str]) -> float:
    """Seconds before a sample of one of these."""
    return SPINNING if PEERS.keys() & set(backends) else 0.0


def installed_peers() -> list[str]:
    return [name for name in PEERS if importlib.util.find_spec(name)]
