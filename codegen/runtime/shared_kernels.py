"""Machine code of kernels, keyed by content: shared by all graphs of a process, and by processes on disk."""

import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from weakref import WeakValueDictionary

from mlirc.codegen.cache import environment
from mlirc.codegen.cache.entry import UNREADABLE, CacheEntry
from mlirc.codegen.cache.folder import CacheFolder
from mlirc.codegen.llvm.machine_code import Code, compile_to_object, joined, load_object, mlir_to_llvm
from mlirc.codegen.llvm.shared_parts import FunctionTexts, Parts, abandon, claim, module_of, publish
from mlirc.codegen.process import background
from mlirc.codegen.process.signal_handlers import raise_of_handler
from mlirc.codegen.runtime.thread_scratch import IMPORTS
from mlirc.dialects.core.fork_locks import fork_lock
from mlirc.dialects.lazy_dataclass import dataclass

KIND = "kernels"  # of an entry: {"names": as in LoadedKernels}, and the object file

_lock = fork_lock()
_loaded: "WeakValueDictionary[str, LoadedKernels]" = WeakValueDictionary()  # key of a kernel -> the code that has it
_coming: "dict[str, Future[dict[str, CachedKernel]]]" = {}  # key -> the compilation that will give it


class LoadedKernels:
    """Machine code of several kernels. Programs that use one of them keep it alive.

    names   key of a kernel -> its name in `code`
    parts   object files of functions that these kernels share with others, kept alive with them
    """

    def __init__(self, code: Code, names: Mapping[str, str], parts: Sequence[Parts] = ()):
        self.code, self.names, self.parts = code, dict(names), parts


@dataclass(frozen=True)
class CachedKernel:
    """A kernel of a program: the code that it is part of, and its key."""

    loaded: LoadedKernels
    key: str

    @property
    def address(self) -> int:
        return self.loaded.code.address(self.loaded.names[self.key])


def key_of(text: str) -> str:
    """A kernel's key: a SHA-256 digest of its MLIR text, in which a placeholder stands for its name."""
    return hashlib.sha256(text.encode()).hexdigest()


def load(object_bytes: bytes) -> Code:
    """Loads an object file of kernels. Raises as load_object does."""
    return load_object(object_bytes, IMPORTS)


def find(key: str, folder: CacheFolder | None = None) -> CachedKernel | None:
    """The kernel of that key, from this process or the folder on disk; None if neither has it."""
    with _lock:
        loaded = _loaded.get(key) or (None if folder is None else _read(folder, key))
        return None if loaded is None else CachedKernel(loaded, key)


def add(
    code: Code, names: Mapping[str, str], folder: CacheFolder | None = None, parts: Sequence[Parts] = ()
) -> dict[str, CachedKernel]:
    """Registers kernels for `find`, and writes them to the folder, if one is given. Returns key -> kernel. `names` are as in
    LoadedKernels."""
    with _lock:
        loaded = LoadedKernels(code, names, parts)
        kernels = {key: CachedKernel(_loaded.setdefault(key, loaded), key) for key in names}
    if folder is not None:
        entry = CacheEntry({"names": dict(names)}, [code.object_bytes])
        folder.put(KIND, [_name_on_disk(key) for key in names], entry)
    return kernels


def find_or_await(key: str, folder: CacheFolder | None = None) -> CachedKernel | Future[dict[str, CachedKernel]] | None:
    """The kernel; while it is being compiled, the future of all kernels of that compilation; None where it is unknown."""
    with _lock:
        return find(key) or _coming.get(key) or find(key, folder)


def begin(
    sources: Sequence[FunctionTexts],
    parts: Mapping[str, FunctionTexts],
    opt_level: int,
    names: Mapping[str, str],
    folder: CacheFolder | None = None,
) -> Future[dict[str, CachedKernel]]:
    """Starts to compile kernels on another thread, which then adds them. Returns the future of key -> kernel.

    sources    the kernels' functions
    parts      functions by name that other kernels may share: those that another thread compiles already are awaited
    names      as in LoadedKernels
    """

    def compile_and_add() -> dict[str, CachedKernel]:
        try:
            used = _make_parts({name: parts[name] for name in mine}, opt_level, making)
            own = compile_to_object(mlir_to_llvm(module_of(sources)), opt_level, elsewhere=[*parts, *IMPORTS])
            # no deadlock: the threads that compile these started earlier, and wait for no other thread
            used += [x if isinstance(x, Parts) else x.result() for x in dict.fromkeys(found.values())]
            code = load(joined([own, *(x.object_bytes for x in dict.fromkeys(used))]))
            return add(code, names, folder, used)
        finally:
            abandon(making, mine)  # without effect once published; else an interrupt came in between
            with _lock:
                for key in names:
                    _coming.pop(key, None)

    with _lock:
        found, making, mine = claim(parts)
        try:
            made = background.compute(compile_and_add)
        except BaseException:
            abandon(making, mine)
            raise
        _coming.update(dict.fromkeys(names, made))
        return made


def _make_parts(parts: Mapping[str, FunctionTexts], opt_level: int, making: Future[Parts]) -> list[Parts]:
    """Compiles the shared functions that `claim` assigned to this thread, and publishes them or the error."""
    if not parts:
        return []
    try:
        made = Parts(compile_to_object(mlir_to_llvm(module_of(parts.values())), opt_level, elsewhere=IMPORTS))
    except BaseException as error:  # of any kind, because other threads wait for the parts
        publish(making, parts, error)
        raise
    publish(making, parts, made)
    return [made]


def _read(folder: CacheFolder, key: str) -> LoadedKernels | None:
    entry = folder.get(KIND, _name_on_disk(key))
    if entry is None:
        return None
    try:
        code, names = load(entry.blobs[0]), entry.data["names"]
        for name in names.values():
            code.address(name)
    except UNREADABLE as error:
        raise_of_handler(error)
        folder.forget(KIND, _name_on_disk(key), f"its code cannot be loaded: {error}")
        return None
    return add(code, names)[key].loaded


def _name_on_disk(key: str) -> str:
    return environment.key(KIND, key)
