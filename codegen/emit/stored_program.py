"""Converts a Program to data and bytes for the disk cache, and back.

    {"inputs": 2, "calls": [...], "sites": [[op, line, message], ...], "links": ["read_inputs", "kernel_0", ...],
     "code": 0, "kernels": {"kernel_0": [1, key, name in the object]},
     "uses_gpu": true, "checks": 0, "matmuls": [[[operand, ...], [symbol, ...], tuned, gelu], ...],
     "convolutions": [[[operand, ...], stride, padding, dilation, adds, shifts, relu, kind], ...],
     "gpu_kernels": {"kernel_1@0": [2, name in the cubin, shared bytes, warps, waits, GPU]}}

`code` is the number of a blob: an object file, which holds no address of a process.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from mlirc.codegen.aten.python_call import AtenCall
from mlirc.codegen.frame.failures import FailureSite
from mlirc.codegen.frame.gpu_calls import CublasMatmul, CudnnConvolution
from mlirc.codegen.host.parts import HostCall, HostProgram
from mlirc.codegen.host.program import Program
from mlirc.codegen.llvm.machine_code import load_object
from mlirc.codegen.runtime import shared_kernels
from mlirc.codegen.runtime.shared_kernels import CachedKernel
from mlirc.dialects.core import symbols
from mlirc.dialects.core.tensor_info import TensorInfo


def to_data(program: Program, blobs: list[bytes]) -> dict[str, Any]:
    """The program as what json takes; its code is appended to `blobs`. All arguments of its ATen calls have a text (aten_arguments.py)."""
    kernels = {
        name: (kernel.loaded.code.object_bytes, kernel.key, kernel.loaded.names[kernel.key])
        for name, kernel in program.kernels.items()
    }
    data = code_to_data(program.host, program.code.object_bytes, kernels, blobs)
    data["gpu_kernels"] = {
        link: [_blob(c.cubin, blobs), c.name, c.shared, c.num_warps, c.waits, k.device]
        for link, k in program.gpu_kernels.items()
        for c in (k.compiled,)
    }
    return data


def code_to_data(
    host: HostProgram, code: bytes, kernels: Mapping[str, tuple[bytes, str, str]], blobs: list[bytes]
) -> dict[str, Any]:
    """A host program and its kernels as data. `code` is the host program's object file; kernels: link name -> (object file, key, name
    in that file). Object files are appended to `blobs`."""
    return {
        "inputs": host.inputs,
        "calls": [_call_to_data(call) for call in host.calls],
        "sites": [[site.op, site.location, site.message] for site in host.sites],
        "links": host.links,
        "code": _blob(code, blobs),
        "kernels": {name: [_blob(one, blobs), key, inner] for name, (one, key, inner) in kernels.items()},
        "uses_gpu": host.uses_gpu,
        "checks": host.checks,
        "matmuls": [
            [[_info_to_data(info) for info in p.operands], list(p.symbols), p.tuned, p.gelu] for p in host.matmuls
        ],
        "convolutions": list(map(_convolution_to_data, host.convolutions)),
        "gpu_kernels": {},
    }


def _blob(code: bytes, blobs: list[bytes]) -> int:
    """The number of these bytes, which are appended where they are new."""
    for number, known in enumerate(blobs):
        if known is code:
            return number
    blobs.append(code)
    return len(blobs) - 1


def from_data(data: Mapping[str, Any], blobs: Sequence[bytes]) -> Program:
    """The program again. Raises KeyError, RuntimeError or ValueError where this process cannot load it."""
    sites = [FailureSite(*site) for site in data["sites"]]
    calls = [_call_from_data(call) for call in data["calls"]]
    uses_gpu, checks = data["uses_gpu"], data["checks"]
    matmuls = [
        CublasMatmul(tuple(map(_info_from_data, infos)), tuple(names), *more) for infos, names, *more in data["matmuls"]
    ]
    convolutions = list(map(_convolution_from_data, data["convolutions"]))
    host = HostProgram(
        "",
        data["inputs"],
        calls,
        sites,
        data["links"],
        uses_gpu=uses_gpu,
        checks=checks,
        matmuls=matmuls,
        convolutions=convolutions,
    )
    gpu_kernels = _gpu_kernels(data["gpu_kernels"], blobs) if data["gpu_kernels"] else {}
    return Program(host, load_object(blobs[data["code"]]), _kernels(data["kernels"], blobs), gpu_kernels)


def _gpu_kernels(data: Mapping[str, Any], blobs: Sequence[bytes]) -> dict[str, Any]:
    from mlirc.codegen.cuda.kernels import load
    from mlirc.codegen.cuda.triton_compile import CompiledKernel

    return {
        link: load(CompiledKernel(name, blobs[blob], shared, warps, waits), device)
        for link, (blob, name, shared, warps, waits, device) in data.items()
    }


def _kernels(data: Mapping[str, tuple[int, str, str]], blobs: Sequence[bytes]) -> dict[str, CachedKernel]:
    kernels = {key: kernel for _, key, _ in data.values() if (kernel := shared_kernels.find(key))}
    absent: dict[int, dict[str, str]] = {}
    for blob, key, name in data.values():
        if key not in kernels:
            absent.setdefault(blob, {})[key] = name
    for blob, names in absent.items():
        kernels |= shared_kernels.add(shared_kernels.load(blobs[blob]), names)
    return {name: kernels[key] for name, (_, key, _) in data.items()}


def _call_to_data(call: HostCall) -> dict[str, Any]:
    python = call.python
    return {
        "op": call.op,
        "location": call.location,
        "why": call.why,
        "text": python.text,
        "results": [info and _info_to_data(info) for info in python.results],
        "aliases": list(python.aliases),
        "operands": python.operands,
        "bound": list(python.bound),
    }


def _call_from_data(data: Mapping[str, Any]) -> HostCall:
    call = AtenCall(
        op=data["op"],
        text=data["text"],
        objects=(),
        results=[info and _info_from_data(info) for info in data["results"]],
        aliases=data["aliases"],
        operands=data["operands"],
        bound=data["bound"],
        location=data["location"],
    )
    return HostCall(data["op"], data["location"], call, data["why"])


def _convolution_to_data(c: CudnnConvolution) -> list[Any]:
    infos = [_info_to_data(info) for info in c.operands]
    return [infos, list(c.stride), list(c.padding), list(c.dilation), c.adds, c.shifts, c.relu, c.kind]


def _convolution_from_data(data: Sequence[Any]) -> CudnnConvolution:
    infos, stride, padding, dilation, *flags = data
    return CudnnConvolution(tuple(map(_info_from_data, infos)), tuple(stride), tuple(padding), tuple(dilation), *flags)


def _info_to_data(info: TensorInfo) -> list[str]:
    dtype = str(info.dtype).removeprefix("torch.")
    return [dtype, symbols.print_list(info.shape), symbols.print_list(info.stride), info.device, info.layout]


def _info_from_data(data: Sequence[str]) -> TensorInfo:
    dtype, shape, stride, device, layout = data
    return TensorInfo(
        getattr(torch, dtype), tuple(symbols.parse_list(shape)), tuple(symbols.parse_list(stride)), device, layout
    )
