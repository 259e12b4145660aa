"""Answer cache: the result of an analysis of a part of a graph, on disk, keyed by that part's text."""

from collections.abc import Callable
from typing import Any

from mlirc.codegen.cache import environment
from mlirc.codegen.cache.entry import CacheEntry
from mlirc.codegen.cache.folder import folder


def cached_answer(kind: str, text: str, find_out: Callable[[], Any]) -> Any:
    """The answer to the question that `kind` and `text` say all of, as json takes it. Without a disk cache it is found
    out each time."""
    place = folder()
    key = environment.key_or_none(kind, text) if place is not None else None
    if place is None or key is None:
        return find_out()
    entry = place.get(kind, key)
    if entry is not None and set(entry.data) != {"answer"}:
        place.forget(kind, key, "it is no answer")
        entry = None
    if entry is None:
        entry = CacheEntry({"answer": find_out()})
        place.put(kind, [key], entry)
    return entry.data["answer"]
