"""What a host program asks of a GPU, as data: its kernels, matmuls of cuBLASLt, convolutions of cuDNN."""

import torch

from mlirc.dialects.core.tensor_info import TensorInfo
from mlirc.dialects.lazy_dataclass import dataclass

MATMULS = "matmuls"  # the name of the link to a field for each matmul of cuBLASLt's (cublas_plans.CublasPlans)
CONVOLUTIONS = "convolutions"  # the same for each convolution of cuDNN's (cudnn.CudnnPlans)
# kinds of convolutions by their operands, the result last: images x, filters w, results y (in DATA and FILTER: its gradient)
FORWARD, DATA, FILTER = "xwy", "ywx", "xyw"


@dataclass(frozen=True)
class Launched:
    """A kernel that a host program launches, by the name of its `mlirc.triton`, and the GPU that it runs on."""

    kernel: str
    device: int

    @property
    def link(self) -> str:
        """The name by which the host program links its record (cuda/driver.py)."""
        return f"{self.kernel}@{self.device}"


@dataclass(frozen=True)
class CublasMatmul:
    """A matmul that a host program asks cuBLASLt for: out = a @ b, or addend + a @ b.

    operands   (a, b, out) or (addend, a, b, out): [M, K], [K, N], [M, N], or three dimensions, the first a batch. All of
               one dtype, on one GPU. The addend is [N], or [M, N] as `out` is
    symbols    what their sizes depend on
    tuned      the fastest algorithm is to be found by measuring (libraries/cublas_tuning.py)
    gelu       GELU by tanh is applied to it; there is an addend [N]
    """

    operands: tuple[TensorInfo, ...]
    symbols: tuple[str, ...]
    tuned: bool = False
    gelu: bool = False

    @property
    def device(self) -> int:
        return torch.device(self.operands[-1].device).index or 0


@dataclass(frozen=True)
class CudnnConvolution:
    """A convolution that a host program asks cuDNN for. Sizes are numbers, x, w, z and y of one half type and four dimensions.

    operands   those of `kind`, then an image z to add if `adds`, and a bias b if `shifts`
    kind       FORWARD, DATA (the gradient by x) or FILTER (the gradient by w)
    """

    operands: tuple[TensorInfo, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    adds: bool
    shifts: bool
    relu: bool
    kind: str = FORWARD

    @property
    def names(self) -> str:
        return self.kind + "z" * self.adds + "b" * self.shifts

    @property
    def device(self) -> int:
        return torch.device(self.operands[0].device).index or 0
