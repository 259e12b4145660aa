"""Entries of the disk cache in `torch.compiler.save_cache_artifacts()`, and back in another machine's folder.

    key       "<key of the entry>.<kind>"
    content   magic | digest of what the entry was made by and for (environment.build), 64 | the entry's file (entry.py)

An artifact has code of the processor: load artifacts from whom you would load a shared library. Reading one makes text, numbers
and bytes, and nothing more.
"""

from mlirc.codegen.cache import environment
from mlirc.codegen.cache.entry import DamagedEntry
from mlirc.codegen.cache.environment import ChangedSources
from mlirc.codegen.cache.folder import CacheFolder, folder, warn
from mlirc.dialects.core.fork_locks import fork_lock
from mlirc.frontend.torch_compat.cache_artifacts import registry

TYPE = "mlirc"
MAGIC = b"mlirc cache artifact 1\n"  # the number changes with this format
_lock = fork_lock()


def register() -> None:
    """Makes PyTorch know our artifacts, once. Entries that the cache folder finds or writes from now on are recorded."""
    with _lock:
        if CacheFolder.used is not None or (known := registry()) is None:
            return
        record = known(TYPE, take)

        def used(kind: str, key: str, content: bytes) -> None:
            with _lock:  # entries are written by several threads
                record(f"{key}.{kind}", MAGIC + environment.build().encode() + content)

        CacheFolder.used = used


def take(name: str, content: bytes) -> None:
    """Puts a loaded artifact into the folder. What is damaged or of another version is warned of, and left out."""
    place = folder()
    try:
        if place is None:
            raise DamagedEntry("there is no disk cache to put it into")
        if not content.startswith(MAGIC):
            raise DamagedEntry("it is no entry of this cache")
        start = len(MAGIC) + 64
        if content[len(MAGIC) : start] != environment.build().encode():
            raise DamagedEntry("it was made by another version of mlirc, PyTorch or Python, or for another processor")
        key, _, kind = name.partition(".")
        place.add(kind, key, content[start:])
    except (DamagedEntry, ChangedSources) as reason:
        warn(f"mlirc ignores an artifact of the cache: {reason}")
