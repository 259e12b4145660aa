"""Imports MLIR's Python bindings for everybody: upstream's `mlir` where it is installed, else torch-mlir's copy."""

import sys
import threading
from contextlib import suppress
from importlib import import_module
from types import ModuleType


def _load() -> None:
    """Loads them whole: a dialect of MLIR's that is interrupted while it is imported cannot be imported again."""
    for package in ("mlir", "torch_mlir"):
        with suppress(ImportError):
            for name in (
                "ir",
                "rewrite",
                "_mlir_libs._mlirDialectsLLVM",
                "dialects.ext",
                "dialects.func",
                "passmanager",
            ):
                import_module(f"{package}.{name}")
            return


_STACK = 8 << 20  # bytes, more than a thread of the user's may have, and than MLIR's library takes when it is loaded
try:
    _loader = threading.Thread(target=_load, name="mlirc-bindings", daemon=True)
    _size = threading.stack_size(_STACK)  # the user's, which holds again for the next thread
    try:
        if _size > _STACK:
            threading.stack_size(_size)
        _loader.start()  # signal handlers, which may raise, run in the main thread
    finally:
        threading.stack_size(_size)
except RuntimeError:  # no thread to be had
    _load()
else:
    _loader.join()

try:
    from mlir import ir, rewrite
    from mlir._mlir_libs import _mlirDialectsLLVM as llvm_dialect
    from mlir.dialects import ext, func
    from mlir.dialects._ods_common import _cext
    from mlir.passmanager import PassManager
except ImportError:
    from torch_mlir import ir, rewrite
    from torch_mlir._mlir_libs import _mlirDialectsLLVM as llvm_dialect
    from torch_mlir.dialects import ext, func
    from torch_mlir.dialects._ods_common import _cext
    from torch_mlir.passmanager import PassManager

__all__ = ["PassManager", "ext", "func", "ir", "llvm_dialect", "register_list_ops", "rewrite"]


def _need_no_module(dialect: str) -> None:
    """Whenever MLIR makes the Python object of an op, it looks for a module of the op's dialect, and searches the disk
    again each time that it found none: 18 us instead of 0.4. Once it has found an empty one, it asks no more."""
    name = f"{ir.__name__.rpartition('.')[0]}.dialects.{dialect}"
    if name not in sys.modules:
        sys.modules[name] = ModuleType(name)
        _cext.globals._check_dialect_module_loaded(dialect)
        del sys.modules[name]


for _dialect in ("mlirc", "mlircx"):  # `ext` registers the classes of their ops
    _need_no_module(_dialect)
_need_no_module(
    "llvm"
)  # its thousands of classes take 140 ms to import; we look at names and attributes of its ops only


def register_list_ops(dialect: type, classes: list[type]) -> None:
    """Make the bindings hand out `classes` for the unregistered ops of their names."""
    _cext.globals._register_dialect_impl(dialect.DIALECT_NAMESPACE, dialect, replace=True)
    for cls in classes:
        _cext.register_operation(dialect, replace=True)(cls)
