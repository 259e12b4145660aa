"""The parts of a host program as plain data, so that a program from the disk cache runs without MLIR."""

from collections import deque
from dataclasses import field
from typing import Any

from mlirc.codegen.aten.python_call import AtenCall
from mlirc.codegen.frame.failures import FailureSite
from mlirc.codegen.frame.gpu_calls import CublasMatmul, CudnnConvolution, Launched
from mlirc.dialects.lazy_dataclass import dataclass


@dataclass(frozen=True)
class HostCall:
    """An ATen call of a program: the operator, the user's source line, and why Python makes the call ("" where native code does)."""

    op: str
    location: str
    python: AtenCall
    why: str


MOST_SAMPLES = 1000  # times that a range keeps: the last ones


@dataclass
class HostRange:
    """A timed op of a program (ranges.py), with the seconds that it took in each call of the program that executed it.

    kind    kernel, library, ATen, copy or allocation
    lines   the user's source lines
    device  of what it writes, without an index: "cpu", "cuda"
    gpu     number of the GPU by whose clock it is timed, in a program that uses any
    read, written, flops   bytes and floating-point operations of one execution (lowering/analysis/work.py)
    executions             how often the last such call executed it: in a loop, once for each step
    work                   read, written and flops of all executions of that call, at its sizes; a sum that is not known is None
    """

    kind: str
    label: str
    lines: list[str]
    dtype: str
    read: str
    written: str
    flops: str
    device: str = "cpu"
    gpu: int = 0
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=MOST_SAMPLES))
    executions: int = 1
    work: list[int | None] = field(default_factory=lambda: [None, None, None])


@dataclass(frozen=True)
class HostProgram:
    """A host program as LLVM IR, with what it links, calls and launches.

    links      the functions whose addresses belong into the module's array @links: of native_runtime and cuda_runtime, and
               kernels; and FAILURES, the address of FAILURE_FIELDS fields for each of `checks` (cuda/launch.py), and
               MATMULS and CONVOLUTIONS
    uses_gpu   whether any of its tensors is on a GPU
    launched   kernels that it launches there
    ready      the user's kernels that it launches there: the code and the GPU, by their links
    matmuls    that cuBLASLt computes there
    convolutions   that cuDNN computes there
    ranges     ops that are timed, with the option `profile`; else none
    """

    text: str
    inputs: int
    calls: list[HostCall]
    sites: list[FailureSite]
    links: list[str]
    uses_gpu: bool = False
    launched: list[Launched] = field(default_factory=list)
    ready: dict[str, tuple[Any, int]] = field(default_factory=dict)
    checks: int = 0
    matmuls: list[CublasMatmul] = field(default_factory=list)
    convolutions: list[CudnnConvolution] = field(default_factory=list)
    ranges: list[HostRange] = field(default_factory=list)
