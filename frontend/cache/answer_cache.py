"""Answer cache: the result of an analysis of a part of a graph, on disk, keyed by that part's text."""

from collections.abc import Callable
from typing import Any

from mlirc.codegen.cache import environment
from mlirc.codegen.cache.entry import CacheEntry
from mlirc.codegen.cache.folder import folder


def cached_answer(kind: str, text: str, find_out: Callable[[], Any]) -> Any:
    """What `find_out` returns, which json can hold. It is called once for each `kind` and `text`, or each time where there is no disk cache.

    The answer must depend on `kind` and `text` alone, and on nothing else that `find_out` may read.
    """
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
