"""mlirc: `torch.compile(model, backend="mlirc")`, a compiler on MLIR, LLVM and Triton.

    explain(fn)(*args)    what the compiler did with fn, as text and as data

torch.compile finds the backend by itself; nothing has to be imported.
"""

import time
from typing import TYPE_CHECKING, Any

IMPORTED_AT = time.time()  # a file of ours that was changed later is not what runs in this process

if TYPE_CHECKING:
    from mlirc.frontend.explain import explain

__all__ = ["explain"]


def __getattr__(name: str) -> Any:
    # torch is slow to import, and `mlirc opt` does not need the front end
    if name == "explain":
        from mlirc.frontend.explain import explain

        return explain
    raise AttributeError(f"module 'mlirc' has no attribute '{name}'")
