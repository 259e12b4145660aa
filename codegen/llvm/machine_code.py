"""Compiles MLIR's LLVM dialect to machine code in this process, through LLVM IR text; the only module that uses llvmlite's compiler.

    text = mlir_to_llvm(source)        MLIR text: scf, arith, math, vector, func, ... or already llvm
    code = compile_ir(text)            Code: .address("kernel_0"), .object_bytes
    code = load_object(object_bytes)   the same machine code again, without compiling

Every function here may be called from several threads.
"""

import ctypes
import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path

import llvmlite.binding as llvm
import torch

from mlirc.codegen.abi.llvmlite_lock import llvmlite_lock
from mlirc.codegen.abi.unlocked_emission import emit_object
from mlirc.codegen.llvm.float_literals import older_literals
from mlirc.codegen.llvm.processor import cpu_name_and_features, llvm_target, tuning
from mlirc.codegen.process.limits import with_room
from mlirc.dialects.core.fork_locks import adopt, fork_lock
from mlirc.lowering.host import host_cpu
from mlirc.lowering.target import CpuTarget

# LLVM's passes that code with final loops and vectors still gains by.
SHORT_PASSES = ("sroa", "instruction_combine", "simplify_cfg")

# in torch's folder; libgomp's file name ends in a version, and a torch for CPUs has no libtorch_cuda
_LIBRARIES = ("libc10.so", "libtorch_cpu.so", "libtorch_cuda.so", "libgomp")

_JOINED = b"mlirc: object files\0"  # no object file begins so
_DECLARED = re.compile(r'^declare [^@]*@"?([^"(]+)', re.MULTILINE)

_PORTABLE = "x86_64-unknown-linux-gnu"

Imports = Mapping[str, Callable[[], int]]
"""Functions that code calls and no library of this process has: what gives the address of each, asked where code calls it."""
NOTHING: Imports = {}

_keep = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_IncRef", ctypes.pythonapi))
_lock = fork_lock()
_count = count()
_found: set[str] = set()  # functions of this process's libraries that generated code calls


def mlir_to_llvm(source: str) -> str:
    """LLVM IR text of a module of MLIR text. Raises ValueError for text that is wrong, or an op that has no lowering to LLVM."""
    from mlirc.codegen.llvm.translation import translate  # loading machine code needs no MLIR

    return older_literals(translate(source))


class Code:
    """Machine code that is loaded in this process, for as long as this object lives."""

    def __init__(self, object_bytes: bytes, imports: Imports = NOTHING):
        self.object_bytes = object_bytes
        self._library = f"library_{next(_count)}"
        builder = llvm.JITLibraryBuilder().add_current_process()
        for name, address in imports.items():
            if name.encode() in object_bytes:
                builder.import_symbol(name, address())
        for one in _parted(object_bytes):
            builder.add_object_img(one)
        with _lock:
            self._functions = {"": builder.link(_linker(), self._library)}  # dropping any of these unloads the library

    def keep_loaded(self) -> None:
        """Keeps the code until the process has ended, after Python too."""
        for needed in (self, _linker()):
            _keep(needed)

    def address(self, name: str) -> int:
        """The address of function `name`. Raises KeyError if there is none."""
        with _lock:
            if name not in self._functions:
                try:
                    self._functions[name] = with_room(_linker().lookup, self._library, name)
                except RuntimeError as error:
                    raise KeyError(f"{name}: {str(error).strip()}") from error
            return self._functions[name][name]


def compile_ir(text: str, opt_level: int = 1, imports: Imports = NOTHING) -> Code:
    """Compiles LLVM IR for this machine and loads it. `imports` are functions that no library of this process has.

    opt_level 0 is for code that runs once, 2 and 3 are LLVM's own. 1 is for code that comes optimized, as kernels do:
    a few passes, a third of the time of 2, and the same speed. It has no LICM, inlining, or unrolling.
    Raises ValueError where the text does not parse or verify, or calls a function that this process does not have.
    """
    return load_object(compile_to_object(text, opt_level, imports), imports)


def load_object(object_bytes: bytes, imports: Imports = NOTHING) -> Code:
    """Loads what `compile_to_object` or `joined` gave, in this process or an earlier one with the same machine and torch."""
    return Code(object_bytes, imports)


def joined(objects: Sequence[bytes]) -> bytes:
    """Object files that call each other's functions, as one string of bytes."""
    if len(objects) == 1:
        return objects[0]
    return b"".join([_JOINED, *(part for one in objects for part in (len(one).to_bytes(8, "little"), one))])


def _parted(data: bytes) -> list[bytes]:
    """The object files again."""
    if not data.startswith(_JOINED):
        return [data]
    found, place = [], len(_JOINED)
    while place < len(data):
        start = place + 8
        place = start + int.from_bytes(data[place:start], "little")
        found.append(data[start:place])
    return found


def compile_to_object(text: str, opt_level: int = 1, elsewhere: Collection[str] = ()) -> bytes:
    """The object file of LLVM IR text; see compile_ir. `elsewhere` are functions of other object files."""
    load_libraries()
    machine = _machine(host_cpu(), opt_level)
    try:
        with parsed(text) as module:
            module.verify()
            _check_externals(text, elsewhere)
            _optimize(module, machine, opt_level)
            return emit_object(machine, module)
    except RuntimeError as error:
        raise ValueError(f"LLVM does not accept this IR: {error}") from error


def relocatable_object(texts: Sequence[str]) -> bytes:
    """The object file, for a linker, of modules of LLVM IR text: for x86-64, but for functions that say what processor they are for.

    Raises ValueError where a text does not parse or verify.
    """
    load_libraries()
    llvm.initialize_native_asmparser()  # for data that modules have as assembly
    machine = llvm.Target.from_triple(_PORTABLE).create_target_machine(
        cpu="x86-64", opt=2, reloc="pic", codemodel="small"
    )
    context = llvm.create_context()
    module, *others = (llvm.parse_assembly(text, context) for text in texts)
    try:
        module.triple = machine.triple
        for other in others:
            other.triple = machine.triple
            module.link_in(other)
        module.verify()
        _optimize(module, machine, 1)
        return machine.emit_object(module)
    except RuntimeError as error:
        raise ValueError(f"LLVM does not accept this IR: {error}") from error
    finally:
        module.close()


@contextmanager
def parsed(text: str) -> Iterator[llvm.ModuleRef]:
    """The module, closed at the exit. Otherwise an exception's traceback may hold both, Python may free its context first, and LLVM crashes."""
    context = llvm.create_context()
    module = llvm.parse_assembly(text, context)
    try:
        yield module
    finally:
        module.close()


def assembly(text: str, opt_level: int = 1, target: CpuTarget | None = None) -> str:
    """The assembly text of LLVM IR text, for people to read; for the host, or a `target` that need not be here."""
    load_libraries()
    machine = _machine(target or host_cpu(), opt_level)
    with parsed(text) as module:
        module.triple = machine.triple
        _optimize(module, machine, opt_level)
        return machine.emit_assembly(module)


def _optimize(module: llvm.ModuleRef, machine: llvm.TargetMachine, opt_level: int) -> None:
    options = llvm.create_pipeline_tuning_options(speed_level=opt_level)
    options.loop_vectorization = False  # kernels come as vectors
    options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    if opt_level == 1:
        passes = llvm.create_new_module_pass_manager()
        for name in SHORT_PASSES:
            getattr(passes, f"add_{name}_pass")()
    else:
        passes = builder.getModulePassManager()
    passes.run(module, builder)


def _check_externals(text: str, elsewhere: Collection[str]) -> None:
    """Raises ValueError that names the functions that are nowhere; the linker would not name them. Searches the text, because each call
    of LLVM's gives up the GIL and waits to have it back."""
    process = ctypes.CDLL(None)  # address_of_symbol does not see the executable's own: Python's, where that is static
    names = {name for name in _DECLARED.findall(text) if not name.startswith("llvm.")}
    names -= _found.union(elsewhere)
    missing = [name for name in sorted(names) if not llvm.address_of_symbol(name) and not hasattr(process, name)]
    if missing:
        raise ValueError(f"generated code calls {', '.join(missing)}, which no library of this process has")
    _found.update(names)


def load_library(name: str) -> None:
    """Lets generated code call what the library `name` exports."""
    llvm.load_library_permanently(name)


@cache
def load_libraries() -> None:
    """Makes LLVM ready, and lets generated code call what torch's libraries export: the C shim, SLEEF, MKL, libgomp."""
    lock = llvmlite_lock()
    if lock is not None:
        adopt(lock)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    folder = Path(torch.__file__).parent / "lib"
    for prefix in _LIBRARIES:
        for path in sorted(folder.glob(f"{prefix}*")) or sorted(folder.parent.parent.glob(f"torch.libs/{prefix}*")):
            llvm.load_library_permanently(str(path))


def _new_machine(target: CpuTarget, opt_level: int) -> llvm.TargetMachine:
    load_libraries()
    cpu, features = cpu_name_and_features(target)
    # "small" is right in 64 bits too: the linker keeps one library's code and constants together, and makes stubs for
    # calls that leave it
    return llvm_target(target).create_target_machine(
        cpu=cpu,
        features=features + tuning(cpu),
        opt=max(opt_level, 2) if opt_level else 0,
        reloc="pic",
        codemodel="small",
        jit=True,
    )


class _Machines(threading.local):
    """A thread's machines, by target and level."""

    def __init__(self):
        self.made: dict[tuple[CpuTarget, int], llvm.TargetMachine] = {}


_machines = _Machines()


def _machine(target: CpuTarget, opt_level: int) -> llvm.TargetMachine:
    key = (target, opt_level)
    if key not in _machines.made:
        _machines.made[key] = _new_machine(target, opt_level)
    return _machines.made[key]


@cache
def _linker() -> llvm.LLJIT:
    """The process's one linker; each Code is a library of its own in it."""
    return llvm.create_lljit_compiler(_new_machine(host_cpu(), 2), use_jit_link=True, suppress_errors=True)
