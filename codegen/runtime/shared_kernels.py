"""Machine code of kernels, keyed by content: shared by all graphs of a process, and by processes on disk."""

import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
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

KIND = "kernels"  # of an entry: {"names": as in LoadedKernels}, and the object file

_lock = fork_lock()
_loaded: "WeakValueDictionary[str, LoadedKernels]" = WeakValueDictionary()  # by the key of each of its kernels
_coming: "dict[str, Future[dict[str, CachedKernel]]]" = {}  # what is being compiled, by the key of each kernel


class LoadedKernels:
    """Machine code of several kernels. It lives as long as a program that uses one of them.

    names   the name in `code` of each kernel, by its key
    parts   the object files of functions that it shares with other kernels
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
    """A kernel's key: a digest of its text, in which a placeholder stands for its name."""
    return hashlib.sha256(text.encode()).hexdigest()


def load(object_bytes: bytes) -> Code:
    """Machine code of kernels. Raises as load_object does."""
    return load_object(object_bytes, IMPORTS)


def find(key: str, folder: CacheFolder | None = None) -> CachedKernel | None:
    """The kernel of that key, if this process or the folder has it."""
    with _lock:
        loaded = _loaded.get(key) or (None if folder is None else _read(folder, key))
        return None if loaded is None else CachedKernel(loaded, key)


def add(
    code: Code, names: Mapping[str, str], folder: CacheFolder | None = None, parts: Sequence[Parts] = ()
) -> dict[str, CachedKernel]:
    """Makes kernels known to `find`, and keeps them in the folder, if one is given. Gives them by their keys."""
    with _lock:
        loaded = LoadedKernels(code, names, parts)
        kernels = {key: CachedKernel(_loaded.setdefault(key, loaded), key) for key in names}
    if folder is not None:
        entry = CacheEntry({"names": dict(names)}, [code.object_bytes])
        folder.put(KIND, [_name_on_disk(key) for key in names], entry)
    return kernels


def find_or_await(key: str, folder: CacheFolder | None = None) -> CachedKernel | Future[dict[str, CachedKernel]] | None:
    """The kernel, or, while it is compiled, the future of the kernels that it is compiled with; None where it is unknown."""
    with _lock:
        return find(key) or _coming.get(key) or find(key, folder)


def begin(
    sources: Sequence[FunctionTexts],
    parts: Mapping[str, FunctionTexts],
    opt_level: int,
    names: Mapping[str, str],
    folder: CacheFolder | None = None,
) -> Future[dict[str, CachedKernel]]:
    """Compiles kernels of these names on another thread, and adds them. `parts` are what they may share with others."""

    def compile_and_add() -> dict[str, CachedKernel]:
        try:
            used = _make_parts({name: parts[name] for name in mine}, opt_level, making)
            own = compile_to_object(mlir_to_llvm(module_of(sources)), opt_level, elsewhere=[*parts, *IMPORTS])
            # the threads that compile these began before, and wait for no other thread
            used += [x if isinstance(x, Parts) else x.result() for x in dict.fromkeys(found.values())]
            code = load(joined([own, *(x.object_bytes for x in dict.fromkeys(used))]))
            return add(code, names, folder, used)
        finally:
            abandon(making, mine)  # where it did not come so far: an interrupt, in a thread that does another's work
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
    """What `claim` left to this thread."""
    if not parts:
        return []
    try:
        made = Parts(compile_to_object(mlir_to_llvm(module_of(parts.values())), opt_level, elsewhere=IMPORTS))
    except BaseException as error:  # of whatever kind: others wait for it
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
