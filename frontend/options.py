"""The options of torch.compile(model, backend="mlirc", options={...})."""

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlirc.frontend.errors import OptionError
from mlirc.lowering.pipeline.parser import PipelineError
from mlirc.lowering.pipeline.pipelines import PIPELINES

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
CUDA_GRAPH_MODES = ("reduce-overhead", "max-autotune")
TUNED_MODES = ("max-autotune", "max-autotune-no-cudagraphs")
WITHOUT_CUDA_GRAPHS = {"reduce-overhead": "default", "max-autotune": "max-autotune-no-cudagraphs"}


@dataclass(frozen=True)
class Options:
    """What a user can choose.

    fallback   "eager": a graph that fails to compile runs in eager, with one warning; "error": the error is raised
    pipeline   a pipeline's name ("cpu", "gpu", "strict"; "auto" is "gpu" where a tensor is on one, else "cpu"), or passes as
               `mlirc opt -p` takes them; what they leave out of the way
               to machine code is done as in "strict", with no fusion
    dump       a folder that gets each graph's IR after every stage, or None
    cache      whether compiled graphs are looked up and kept on disk, in MLIRC_CACHE_DIR or the user's cache folder
    mode       torch.compile's `mode`; "reduce-overhead" and "max-autotune" record CUDA graphs (recordings.py); "max-autotune"
               and "max-autotune-no-cudagraphs" measure how each kernel is written best (autotune.py); on CPU all modes
               mean the same
    freeze     the user's promise that nobody changes parameters and buffers but through PyTorch's operators: what is kept of
               them is then kept until an address or a version counter changes; otherwise until any byte of them does,
               and on a GPU nothing is
    tune_seconds  how long measuring may take, for each graph; what is not measured by then stays as the cost model chose
    """

    fallback: str = dataclasses.field(default="eager", metadata={"allowed": ("eager", "error")})
    pipeline: str = "auto"
    dump: str | None = None
    cache: bool = True
    mode: str = dataclasses.field(default="default", metadata={"allowed": MODES})
    freeze: bool = False
    tune_seconds: float = 60.0


def read_options(options: dict[str, Any] | None, mode: str | None = None) -> Options:
    """Options from torch.compile's arguments. Raises OptionError that names the option, its value, and what is allowed."""
    if options is not None and not isinstance(options, Mapping):
        raise OptionError(f"mlirc takes options={{'name': value}}, not {options!r} ({type(options).__name__})")
    given = dict(options or {})
    if mode is not None:
        given["mode"] = mode
    fields = {field.name: field for field in dataclasses.fields(Options)}
    for name, value in given.items():
        if name not in fields:
            raise OptionError(f"mlirc has no option '{name}'; its options are {', '.join(fields)}")
        if name == "dump" and isinstance(value, os.PathLike):
            given[name] = value = os.fspath(value)
        if fields[name].type is bool:
            if not isinstance(value, bool):
                raise OptionError(f"mlirc option '{name}' takes True or False, not {value!r} ({type(value).__name__})")
        elif fields[name].type is float:
            if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
                raise OptionError(f"mlirc option '{name}' takes a number of at least 0, not {value!r}")
        elif not isinstance(value, str) and not (name == "dump" and value is None):
            raise OptionError(f"mlirc option '{name}' takes text, not {value!r} ({type(value).__name__})")
        allowed = fields[name].metadata.get("allowed")
        if allowed and value not in allowed:
            raise OptionError(f"mlirc option '{name}' is {value!r}; it can be {', '.join(map(repr, allowed))}")
    made = Options(**given)
    if made.pipeline != "auto" and made.pipeline not in PIPELINES:
        from mlirc.lowering.pipeline.pass_manager import runners

        try:
            runners(made.pipeline)
        except PipelineError as error:
            names = ", ".join(map(repr, ("auto", *PIPELINES)))
            raise OptionError(
                f"mlirc option 'pipeline' is {made.pipeline!r}; it can be {names}, or passes separated by commas: {error}"
            ) from error
    return made
