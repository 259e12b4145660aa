"""Machine code of fixed LLVM texts of mlirc: compiled once, then loaded from disk in every process."""

from collections.abc import Callable, Iterable

from mlirc.codegen.cache import environment
from mlirc.codegen.cache.entry import UNREADABLE, CacheEntry
from mlirc.codegen.cache.folder import folder
from mlirc.codegen.llvm.machine_code import Code, compile_ir, load_object
from mlirc.codegen.process.limits import with_room
from mlirc.codegen.process.signal_handlers import raise_of_handler
from mlirc.dialects.core.fork_locks import fork_lock

KIND = "runtime"  # of an entry: no data, and the object file


def runtime_code(text: str) -> Code:
    """The code of LLVM IR text. Raises ValueError as compile_ir does."""
    return with_room(_runtime_code, text)


def _runtime_code(text: str) -> Code:
    found = folder()
    key = environment.key_or_none(KIND, text) if found is not None else None
    if found is None or key is None:
        return compile_ir(text, opt_level=1)
    entry = found.get(KIND, key)
    if entry is not None:
        try:
            return load_object(entry.blobs[0])
        except UNREADABLE as error:
            raise_of_handler(error)
            found.forget(KIND, key, f"its code cannot be loaded: {error}")
    code = compile_ir(text, opt_level=1)
    found.put(KIND, [key], CacheEntry({}, [code.object_bytes]))
    return code


class Functions:
    """functions() gives the address of each of `names`. Their code, which `make` gives, is made once, when they are first asked for."""

    def __init__(self, names: Iterable[str], make: Callable[[], Code]):
        self.names, self.make = list(names), make
        self._addresses: dict[str, int] = {}
        self._code: Code | None = None
        self._lock = fork_lock()

    def __call__(self) -> dict[str, int]:
        with self._lock:
            if self._code is None:
                code = self.make()
                self._addresses = {name: code.address(name) for name in self.names}
                self._code = code
            return dict(self._addresses)
