"""A Triton kernel as the attributes of a `mlirc.triton` op (dialects/core/memory_ops.py)."""

from typing import Any

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import make_attribute
from mlirc.dialects.core.memory_ops import SCRATCH
from mlirc.lowering.gpu.kernel import TritonKernel


def attributes(name: str, kernel: TritonKernel) -> dict[str, Any]:
    constants = {key: make_attribute(value) for key, value in kernel.constants.items()}
    return {
        "sym_name": name,
        "source": kernel.source,
        "signature": kernel.signature,
        "constants": ir.DictAttr.get(constants),
        "grid": [str(size) for size in kernel.grid],
        "divisible": kernel.divisible,
        "num_warps": kernel.num_warps,
        "num_stages": kernel.num_stages,
    } | ({SCRATCH: kernel.scratch} if kernel.scratch else {})
