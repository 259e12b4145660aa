"""A model's compiled graph with the places of its weights and arguments: what is called, and what a file keeps."""

from dataclasses import field

from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.frontend.cache.compiled import Compiled
from mlirc.frontend.driver.boxed_call import Boxed


class PackageError(RuntimeError):
    """A model that cannot be written to a file, or a file that is none of these, is damaged, or was made for another machine or
    version: says which."""


@dataclass
class PackagedGraph:
    """A compiled graph, and what its placeholders are.

    run        takes all placeholders in a list
    compiled   what is written to a file; None with a reason in `why`
    size       how many placeholders there are
    state      name of a weight -> its position
    arguments  positions of what a call gives, in the order of the signature
    written    names of weights that a call writes to
    views      results that are views of an argument or a weight: their positions and the placeholder's
    target     the kind of processor that its code is for, as text; "" for the one that it was compiled on
    """

    run: Boxed
    compiled: Compiled | None
    why: str
    size: int
    state: dict[str, int]
    arguments: list[int]
    written: list[str] = field(default_factory=list)
    views: list[tuple[int, int]] = field(default_factory=list)
    target: str = ""
