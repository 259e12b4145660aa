"""Translates kernels from MLIR text to LLVM IR text by MLIR's C interface, which, unlike the Python bindings, does not hold the GIL.

Threads that work at once have a context each, beside the process's one (dialects/core/bindings.py).
"""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

# Order: scf gives cf; some vector ops give others before they give llvm; convert-to-llvm takes all that is left in one
# walk; casts between both type systems cancel once all is converted.
PIPELINE = b"builtin.module(convert-scf-to-cf,convert-vector-to-llvm,convert-to-llvm,reconcile-unrealized-casts)"


class Text(ctypes.Structure):
    """MlirStringRef."""

    _fields_ = [("data", ctypes.c_void_p), ("length", ctypes.c_size_t)]


_Receiver = ctypes.CFUNCTYPE(None, Text, ctypes.c_void_p)
_Handler = ctypes.CFUNCTYPE(ctypes.c_int8, ctypes.c_void_p, ctypes.c_void_p)

# name -> what it gives, what it takes. A handle of MLIR's is a struct of one pointer, which is passed as that pointer.
_P = ctypes.c_void_p
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "mlirDialectRegistryCreate": (_P,),
    "mlirRegisterAllDialects": (None, _P),
    "mlirContextCreateWithRegistry": (_P, _P, ctypes.c_bool),
    "mlirRegisterAllLLVMTranslations": (None, _P),
    "mlirContextAttachDiagnosticHandler": (ctypes.c_uint64, _P, _Handler, _P, _P),
    "mlirContextDetachDiagnosticHandler": (None, _P, ctypes.c_uint64),
    "mlirDiagnosticPrint": (None, _P, _Receiver, _P),
    "mlirModuleCreateParse": (_P, _P, Text),
    "mlirModuleDestroy": (None, _P),
    "mlirModuleGetOperation": (_P, _P),
    "mlirPassManagerCreate": (_P, _P),
    "mlirPassManagerDestroy": (None, _P),
    "mlirPassManagerEnableVerifier": (None, _P, ctypes.c_bool),
    "mlirPassManagerGetAsOpPassManager": (_P, _P),
    "mlirParsePassPipeline": (ctypes.c_int8, _P, Text, _Receiver, _P),
    "mlirPassManagerRunOnOp": (ctypes.c_int8, _P, _P),
    "mlirTranslateModuleToLLVMIR": (_P, _P, _P),
    "LLVMContextCreate": (_P,),
    "LLVMContextDispose": (None, _P),
    "LLVMPrintModuleToString": (_P, _P),
    "LLVMDisposeMessage": (None, _P),
    "LLVMDisposeModule": (None, _P),
}

_idle: list[int] = []  # contexts; a forked child uses its parent's, whose threads it has not


def translate(source: str) -> str:
    """LLVM IR text of a module in scf, arith, math, vector, func, llvm, as MLIR text. Any thread may call this.

    Raises ValueError, with what MLIR says, for text that does not parse or verify, or an op that has no lowering to LLVM.
    """
    mlir, text = _library(), source.encode()
    with _context(mlir) as (context, said), ExitStack() as stack:

        def made(handle: int | None, destroy: Callable) -> int:
            if not handle:
                raise refusal(said)
            stack.callback(destroy, handle)
            return handle

        module = made(mlir.mlirModuleCreateParse(context, _as_text(text)), mlir.mlirModuleDestroy)
        operation = mlir.mlirModuleGetOperation(module)
        passes = made(mlir.mlirPassManagerCreate(context), mlir.mlirPassManagerDestroy)
        # half the time; the parser verified what comes in, and LLVM verifies what comes out
        mlir.mlirPassManagerEnableVerifier(passes, False)
        into = mlir.mlirPassManagerGetAsOpPassManager(passes)
        parsed = mlir.mlirParsePassPipeline(into, _as_text(PIPELINE), _receiver(said), None)
        if not parsed or not mlir.mlirPassManagerRunOnOp(passes, operation):
            raise refusal(said)
        llvm = made(mlir.LLVMContextCreate(), mlir.LLVMContextDispose)
        translated = made(mlir.mlirTranslateModuleToLLVMIR(operation, llvm), mlir.LLVMDisposeModule)
        printed = made(mlir.LLVMPrintModuleToString(translated), mlir.LLVMDisposeMessage)
        return ctypes.string_at(printed).decode()


def refusal(said: list[str]) -> ValueError:
    return ValueError(f"no lowering to LLVM: {'; '.join(said) or 'MLIR gives no reason'}")


@contextmanager
def _context(mlir: ctypes.CDLL) -> Iterator[tuple[int, list[str]]]:
    """A context that no other thread uses, and a list to which its errors are added."""
    try:
        context = _idle.pop()
    except IndexError:
        context = mlir.mlirContextCreateWithRegistry(_registry(), False)
        mlir.mlirRegisterAllLLVMTranslations(context)
    said: list[str] = []

    def heard(diagnostic: int, _: int) -> int:
        parts: list[str] = []
        mlir.mlirDiagnosticPrint(diagnostic, _receiver(parts), None)
        said.append("".join(parts))
        return 1

    handler = _Handler(heard)
    attached = mlir.mlirContextAttachDiagnosticHandler(context, handler, None, None)
    try:
        yield context, said
    finally:
        mlir.mlirContextDetachDiagnosticHandler(context, attached)
        _idle.append(context)


def _receiver(parts: list[str]) -> Any:
    return _Receiver(lambda text, _: parts.append(ctypes.string_at(text.data, text.length).decode()))


def _as_text(source: bytes) -> Text:
    """`source` must outlive it."""
    return Text(ctypes.cast(ctypes.c_char_p(source), ctypes.c_void_p), len(source))


@cache
def _registry() -> int:
    mlir = _library()
    made = mlir.mlirDialectRegistryCreate()
    mlir.mlirRegisterAllDialects(made)
    return made


@cache
def _library() -> ctypes.CDLL:
    """The library under Python's bindings, which register MLIR's passes when they are imported."""
    from mlirc.dialects.core.bindings import llvm_dialect

    library = ctypes.CDLL(llvm_dialect.__file__)
    for name, (gives, *takes) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = gives, takes
    return library
