"""Native calls of index_add, which takes a Scalar that the dispatcher's stack has no form for, as scatter_add.

before:  index_add(%x: [8, 4], 0, %index: [3], %source: [3, 4], alpha=1)
after:   scatter_add(%x, 0, %index seen as [3, 4] with strides [1, 0], %source)

Both add the rows one after another, and ATen's scatter_add knows such an index. Where it fails, index_add itself is called from Python and raises.
"""

from collections.abc import Sequence
from typing import Any

import torch

from mlirc.codegen.aten.dispatcher_call import owned_tensor, with_slots
from mlirc.codegen.aten.overridden_kernels import computes_otherwise
from mlirc.codegen.aten.shim_call import NativeCall, NotNative, check, given_arguments, operand_of
from mlirc.codegen.frame.frame import Frame, HostBuffer, Number
from mlirc.dialects.core.tensor_types import KERNEL_DTYPES, TensorInfo

aten = torch.ops.aten
SCATTERS = {aten.index_add.default: aten.scatter_add.default, aten.index_add_.default: aten.scatter_add_.default}


def index_add_call(frame: Frame, op: Any, function: Any, operands: Sequence[HostBuffer | Number]) -> NativeCall:
    """The call on a CPU. Writes nothing yet; raises NotNative."""
    if function not in SCATTERS:
        raise NotNative("another operator")
    kinds = check(function, op)
    given = {argument.name: value for argument, value in given_arguments(function, op)}
    x, index, source = (operand_of(given[name], operands) for name in ("self", "index", "source"))
    if not all(isinstance(y, HostBuffer) and y.root.kind != "number" for y in (x, index, source)):
        raise NotNative("a number stands for a tensor")
    dim = given["dim"]
    if type(given["alpha"]) is not int or given["alpha"] != 1 or type(dim) is not int:
        raise NotNative("argument alpha is of type number")
    need_alike(x.info, index.info, source.info, dim)
    if computes_otherwise(SCATTERS[function]):
        raise NotNative("scatter_add, in whose place it is called, has a kernel that is not PyTorch's")
    strides = tuple([index.info.stride[0] if d == dim % x.info.rank else 0 for d in range(x.info.rank)])
    spread = TensorInfo(index.info.dtype, source.info.shape, strides)
    steps = [
        owned_tensor(frame, {"$": 0}, [y])
        for y in (x, HostBuffer(spread, index.root, index.offset, whole=False), source)
    ]
    return with_slots(frame, SCATTERS[function], [steps[0], lambda: [str(dim)], *steps[1:]], kinds)


def need_alike(x: TensorInfo, index: TensorInfo, source: TensorInfo, dim: int) -> None:
    """Raises NotNative where scatter_add takes what index_add may refuse."""
    if {x.device, index.device, source.device} != {"cpu"}:
        raise NotNative("its tensors are not all on the CPU")
    if index.dtype != torch.int64 or index.rank != 1 or source.rank != x.rank or not -x.rank <= dim < x.rank:
        raise NotNative("an index of another kind, or rows of another rank")
    if x.dtype != source.dtype or x.dtype not in KERNEL_DTYPES or x.dtype == torch.bool:
        raise NotNative(f"sums of {x.dtype}")
    wanted = [index.shape[0] if d == dim % x.rank else n for d, n in enumerate(x.shape)]
    if list(source.shape) != wanted:
        raise NotNative("its rows have other sizes than the tensor's")
