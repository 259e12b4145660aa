"""Finds the name that was probably meant."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, known: Iterable[str]) -> str:
    """ "; did you mean 'to-kernels'?", or "" where no known name is close."""
    found = get_close_matches(name[:100], list(known), n=1, cutoff=0.6)
    return f"; did you mean '{found[0]}'?" if found else ""


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """ "no stage 'fus'; did you mean 'fuse'? there are simplify, fuse"."""
    names = list(known)
    close = nearest(name, names)
    return f"no {what} '{name[:100]}'{close or ';'} there are {', '.join(names)}"
