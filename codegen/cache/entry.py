"""The file format of the disk cache: a JSON header and blobs of bytes, behind a hash of both.

    magic | SHA-256 of what follows | bytes of the header, 8, little-endian | header | blobs

Reading a file gives text, numbers and bytes, and runs no code, as a pickle would. A blob is machine code or other bytes; the header says
what each is for.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from mlirc.dialects.lazy_dataclass import dataclass

MAGIC = b"mlirc cache entry 1\n"  # the number changes with this format
_DIGEST = 32
_START = len(MAGIC) + _DIGEST + 8


# The errors of reading an entry whose hash is right and that `pack` did not make: keys or types differ, or its code cannot be loaded.
UNREADABLE = (ArithmeticError, AttributeError, ImportError, LookupError, RuntimeError, TypeError, ValueError)


class DamagedEntry(ValueError):
    """The bytes are no entry of this cache for this key. The message says what is wrong with them."""


@dataclass(frozen=True)
class CacheEntry:
    """`data` is what json.dumps takes, and names a blob by its place in `blobs`."""

    data: dict[str, Any]
    blobs: Sequence[bytes] = ()


def pack(keys: Sequence[str], entry: CacheEntry) -> bytes:
    """The bytes of the file of an entry. `keys`: the keys under which the cache may look it up."""
    header = {"keys": list(keys), "blobs": [len(blob) for blob in entry.blobs], "data": entry.data}
    text = json.dumps(header, allow_nan=False, separators=(",", ":")).encode()
    rest = b"".join((len(text).to_bytes(8, "little"), text, *entry.blobs))
    return MAGIC + hashlib.sha256(rest).digest() + rest


def unpack(content: bytes, key: str) -> CacheEntry:
    """The entry in a file that was found under `key`. Raises DamagedEntry."""
    keys, entry = unpack_any(content)
    if key not in keys:
        raise DamagedEntry("it was written under another name")
    return entry


def unpack_any(content: bytes) -> tuple[list[str], CacheEntry]:
    """The keys under which the cache may look the entry up, and the entry. Raises DamagedEntry."""
    if not content.startswith(MAGIC):
        raise DamagedEntry("it was not written by this cache" if len(content) >= len(MAGIC) else "it is cut short")
    if len(content) < _START:
        raise DamagedEntry("it is cut short")
    rest = memoryview(content)[len(MAGIC) + _DIGEST :]
    if hashlib.sha256(rest).digest() != content[len(MAGIC) : len(MAGIC) + _DIGEST]:
        raise DamagedEntry("its content does not have the hash that it was written with")
    end = _START + int.from_bytes(content[_START - 8 : _START], "little")
    blobs = []
    try:
        header = json.loads(content[_START:end])
        for length in header["blobs"]:
            blobs.append(content[end : end + length])
            end += length
        keys, data = header["keys"], header["data"]
    except UNREADABLE as error:  # the hash is right, but `pack` did not make the rest
        raise DamagedEntry("it was not written by this cache") from error
    if end != len(content) or not isinstance(keys, list):
        raise DamagedEntry("it was not written by this cache")
    return keys, CacheEntry(data, blobs)
