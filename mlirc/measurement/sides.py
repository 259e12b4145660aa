"""What `mlirc compare` is told to compare: a pipeline with passes inserted, passes, or another backend of torch.compile.

cpu                                              a standard pipeline
cpu + join-rotary after simplify-attention       with passes inserted; any number of times, `before` too
decompose,to-kernels,fuse-elementwise            passes, as `mlirc opt -p` takes them
eager, aot_eager, inductor                       not ours
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

BACKENDS = ("eager", "aot_eager", "inductor")
INSERTED = re.compile(r"(?P<passes>.+\S)\s+(?P<side>after|before)\s+(?P<anchor>\S+)")


class SideError(ValueError):
    """Text that names nothing to compare: what is wrong, and what would be right."""


@dataclass(frozen=True)
class Side:
    """One side of a comparison. `backend` is mlirc, or one of BACKENDS.

    pipeline     a name, or passes as text
    insertions   (side, anchor, passes), as the option `insert` is kept
    """

    text: str
    backend: str = "mlirc"
    pipeline: str = "auto"
    insertions: tuple[tuple[str, str, str], ...] = ()

    @property
    def options(self) -> dict[str, Any]:
        """The options of torch.compile(..., backend="mlirc"): no disk cache, and a failure is an error."""
        insert: dict[str, str] = {}
        for side, anchor, passes in self.insertions:
            place = f"{side} {anchor}"
            insert[place] = f"{insert[place]},{passes}" if place in insert else passes
        return {"fallback": "error", "cache": False, "pipeline": self.pipeline, "insert": insert}

    def compiled(self, function: Callable, **arguments: Any) -> Callable:
        """`function` under this side, apart from what any other side compiles of it."""
        import torch

        if self.backend == "eager":
            return function
        if self.backend != "mlirc":
            return torch.compile(function, backend=self.backend, **arguments)
        from mlirc.frontend.driver.backend import mlirc

        options = self.options

        def backend(
            graph: Any, inputs: Any, **_: Any
        ) -> Callable:  # Dynamo keeps what it compiled by the backend's identity
            return mlirc(graph, inputs, options=options)

        return torch.compile(function, backend=backend, **arguments)

    def passes(self, on_gpu: bool = False) -> str:
        """All of them as text, for a file. Raises SideError where this is not mlirc, and PipelineError."""
        from mlirc.frontend.options import read_options

        if self.backend != "mlirc":
            raise SideError(f"'{self.text}' compiles functions; a file of IR goes through passes of mlirc's")
        return ",".join(filter(None, read_options(self.options).stages(on_gpu).values()))


def read_side(text: str) -> Side:
    """Raises SideError."""
    from mlirc.frontend.errors import OptionError
    from mlirc.frontend.options import read_options
    from mlirc.lowering.module.nearest import nearest
    from mlirc.lowering.pipeline.pipelines import PIPELINES

    base, *parts = [part.strip() for part in re.split(r"\s\+\s", text)]
    if not base:
        raise SideError(f"'{text}': it begins with a pipeline, as in: cpu + my-pass after fuse-elementwise")
    if base in BACKENDS:
        if parts:
            raise SideError(f"'{text}': passes are inserted into a pipeline of mlirc's, and {base} has none")
        return Side(text, base)
    insertions = []
    for part in parts:
        found = INSERTED.fullmatch(part)
        if found is None:
            raise SideError(f"'{text}': after a + come passes and their place: cpu + my-pass after fuse-elementwise")
        insertions.append((found["side"], found["anchor"], found["passes"]))
    side = Side(text, "mlirc", base, tuple(insertions))
    try:
        read_options(side.options)
    except OptionError as error:
        known = (*PIPELINES, "auto", *BACKENDS)
        if re.fullmatch(r"[\w-]+", base) and "'pipeline'" in str(error):
            raise SideError(
                f"'{base}' is no pipeline, pass or backend{nearest(base, known) or ';'} there are {', '.join(known)}"
            ) from error
        raise SideError(f"'{text}': {str(error).removeprefix('mlirc option ')}") from error
    return side
