"""The operands A and B of `mlirc compare`: a pipeline, possibly with passes inserted or left out; passes; or another backend of torch.compile.

cpu                                              a standard pipeline
cpu + join-rotary after simplify-attention       with passes inserted, `after` or `before` a pass; repeatable
cpu - hoist-gathers                              without a pass, in all of its runs; repeatable
decompose,to-kernels,fuse-elementwise            passes, as `mlirc opt -p` takes them
eager, aot_eager, inductor                       another backend of torch.compile
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

BACKENDS = ("eager", "aot_eager", "inductor")
INSERTED = re.compile(r"(?P<passes>.+\S)\s+(?P<position>after|before)\s+(?P<anchor>\S+)")


class SideError(ValueError):
    """An operand that does not parse. The message says what was expected."""


@dataclass(frozen=True)
class Side:
    """A or B of a comparison: a configuration to compile with. `backend` is mlirc, or one of BACKENDS.

    pipeline     a name (auto: that of the device), or passes separated by commas
    insertions   ("before" or "after", a pass of the pipeline, the passes to insert)
    omitted      passes of the pipeline that are left out
    """

    text: str
    backend: str = "mlirc"
    pipeline: str = "auto"
    insertions: tuple[tuple[str, str, str], ...] = ()
    omitted: tuple[str, ...] = ()

    @property
    def options(self) -> dict[str, Any]:
        """The options of torch.compile(..., backend="mlirc"): no disk cache, and a failure is an error."""
        insert: dict[str, str] = {}
        for position, anchor, passes in self.insertions:
            place = f"{position} {anchor}"
            insert[place] = f"{insert[place]},{passes}" if place in insert else passes
        omit = ",".join(self.omitted)
        return {"fallback": "error", "cache": False, "pipeline": self.pipeline, "insert": insert, "omit": omit}

    @property
    def inserted(self) -> list[str]:
        """The names of the passes that are inserted, each once."""
        from mlirc.lowering.pipeline.parser import parse

        return list(dict.fromkeys(step.name for *_, passes in self.insertions for step in parse(passes)))

    def compiled(self, function: Callable, **arguments: Any) -> Callable:
        """Compiles `function` with this configuration.

        Each call has a backend object of its own, because Dynamo keeps compiled code by the identity of the backend.
        """
        import torch

        if self.backend == "eager":
            return function
        if self.backend != "mlirc":
            return torch.compile(function, backend=self.backend, **arguments)
        from mlirc.frontend.entry.backend import mlirc

        options = self.options

        def backend(graph: Any, inputs: Any, **_: Any) -> Callable:
            return mlirc(graph, inputs, options=options)

        return torch.compile(function, backend=backend, **arguments)

    def pipeline_text(self, on_gpu: bool = False) -> str:
        """The whole pipeline as passes separated by commas, for a file of IR.

        Raises SideError for another backend, and PipelineError for an unknown pass.
        """
        from mlirc.frontend.options import read_options

        if self.backend != "mlirc":
            raise SideError(f"'{self.text}' cannot compile a captured graph: these run through passes of mlirc's")
        return ",".join(filter(None, read_options(self.options).stages(on_gpu).values()))


def read_side(text: str) -> Side:
    """Parses one operand. Raises SideError."""
    from mlirc.frontend.errors import OptionError
    from mlirc.frontend.options import read_options
    from mlirc.lowering.module.nearest import nearest
    from mlirc.lowering.pipeline.parser import PipelineError
    from mlirc.lowering.pipeline.pipelines import PIPELINES

    base, *rest = [part.strip() for part in re.split(r"\s([+-])\s", text)]
    parts = list(zip(rest[::2], rest[1::2], strict=True))
    if not base:
        raise SideError(f"'{text}': a pipeline comes before the first +, as in: cpu + my-pass after fuse-elementwise")
    if base in BACKENDS:
        if parts:
            raise SideError(f"'{text}': a pipeline of mlirc's takes + and -, and {base} has none")
        return Side(text, base)
    insertions, omitted = [], []
    for sign, part in parts:
        if sign == "-":
            omitted.append(part)
            continue
        found = INSERTED.fullmatch(part)
        if found is None:
            raise SideError(f"'{text}': after a + come passes and their place: cpu + my-pass after fuse-elementwise")
        insertions.append((found["position"], found["anchor"], found["passes"]))
    side = Side(text, "mlirc", base, tuple(insertions), tuple(omitted))
    try:
        read_options(side.options)
    except OptionError as error:
        known = (*PIPELINES, "auto", *BACKENDS)
        if re.fullmatch(r"[\w-]+", base) and "'pipeline'" in str(error):
            raise SideError(
                f"'{base}' is no pipeline, pass or backend{nearest(base, known) or ';'} there are {', '.join(known)}"
            ) from error
        if "'insert'" in str(error) and isinstance(error.__cause__, PipelineError):
            raise SideError(f"'{text}': {error.__cause__}; --import FILE.py adds passes") from error
        raise SideError(f"'{text}': {str(error).removeprefix('mlirc option ')}") from error
    return side
