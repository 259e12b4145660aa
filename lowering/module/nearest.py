"""Finds the name that was probably meant."""

from collections.abc import Iterable
from difflib import get_close_matches

MOST = 12  # names in a line


def nearest(name: str, known: Iterable[str]) -> str:
    """ "; did you mean 'to-kernels'?", or "" where no known name is close."""
    found = get_close_matches(name[:100], list(known), n=1, cutoff=0.6)
    return f"; did you mean '{found[0]}'?" if found else ""


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """ "no stage 'fus'; did you mean 'fuse'? there are simplify, fuse"."""
    return f"no {what} '{name[:100]}'{nearest_of(name, known, 'there are')}"


def nearest_of(name: str, names: Iterable[str], there_are: str, near: Iterable[str] = ()) -> str:
    """ "; did you mean 'fuse'? there are simplify, fuse". Of more than MOST names the nearest stands alone, where one is close. `near`
    are names that may be meant too, and are not listed."""
    listed = list(names)
    close = nearest(name, [*listed, *near])
    if close and len(listed) > MOST:
        return close
    return f"{close or ';'} {there_are} {', '.join(listed)}"
