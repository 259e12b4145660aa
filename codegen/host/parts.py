"""The parts of a host program as plain data, so that a program from the disk cache runs without MLIR."""

from dataclasses import dataclass, field

from mlirc.codegen.aten.python_call import AtenCall
from mlirc.codegen.libraries.cublas_problem import CublasMatmul
from mlirc.codegen.libraries.cudnn import CudnnConvolution

FAILURES = "failures"  # the name of the link to the words in which checks note what failed
# of a launch: number of the check that failed (from 1; 0: none), the bad index, the size that it was for
FAILURE_WORDS = 3
MATMULS = "matmuls"  # the name of the link to a word for each product that cuBLASLt computes (cublas_plans.CublasPlans)
PLANS_OF_MATMULS = 2  # where in a host program's `self` tuple what makes such plans is
CONVOLUTIONS, PLANS_OF_CONVOLUTIONS = "convolutions", 3  # the same for what cuDNN convolves (cudnn.CudnnPlans)


@dataclass(frozen=True)
class FailureSite:
    """Where a call can fail: the op, the user's source line, and for a kernel's check_index its message."""

    op: str
    location: str
    message: str = ""


@dataclass(frozen=True)
class HostCall:
    """An ATen call of a program: operator, the user's source line, why Python makes it ("": native code does)."""

    op: str
    location: str
    python: AtenCall
    why: str


@dataclass(frozen=True)
class Launched:
    """A kernel that a host program launches, by the name of its `mlirc.triton`, and the GPU that it runs on."""

    kernel: str
    device: int

    @property
    def link(self) -> str:
        """What the loader knows its record by (cuda_driver.Record)."""
        return f"{self.kernel}@{self.device}"


@dataclass(frozen=True)
class HostProgram:
    """links      the functions whose addresses belong into the module's array @links: of native_runtime and cuda_runtime, and
               kernels; and FAILURES, the address of FAILURE_WORDS words for each of `checks` (cuda/launch.py), and
               MATMULS and CONVOLUTIONS
    uses_gpu   whether any of its tensors is on a GPU
    launched   kernels that it launches there
    products   that cuBLASLt computes there
    convolutions   that cuDNN computes there
    """

    text: str
    inputs: int
    calls: list[HostCall]
    sites: list[FailureSite]
    links: list[str]
    uses_gpu: bool = False
    launched: list[Launched] = field(default_factory=list)
    checks: int = 0
    matmuls: list[CublasMatmul] = field(default_factory=list)
    convolutions: list[CudnnConvolution] = field(default_factory=list)
