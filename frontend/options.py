"""The options of torch.compile(model, backend="mlirc", options={...})."""

import dataclasses
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.frontend.errors import OptionError
from mlirc.lowering.module.nearest import nearest
from mlirc.lowering.pipeline.parser import PipelineError
from mlirc.lowering.pipeline.pipelines import PIPELINES, chosen, stages

if TYPE_CHECKING:
    from mlirc.lowering.pipeline.fusion_plan import FusionPlan

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
CUDA_GRAPH_MODES = ("reduce-overhead", "max-autotune")
TUNED_MODES = ("max-autotune", "max-autotune-no-cudagraphs")
WITHOUT_CUDA_GRAPHS = {"reduce-overhead": "default", "max-autotune": "max-autotune-no-cudagraphs"}


def option(help: str, default: Any = dataclasses.MISSING, **how: Any) -> Any:
    """A field of Options. mlirc.options() tells `help`, `takes` (its values, where these are not its type), `allowed` (all of them), and
    `given`, the default as a user would write it, where it is kept in another form. `changes_code` says that compiled code depends on the
    option beside the passes: its value is then in the key of the disk cache."""
    made = {key: how.pop(key) for key in ("allowed", "takes", "given", "changes_code") if key in how}
    return dataclasses.field(default=default, metadata={"help": help, **made}, **how)


@dataclass(frozen=True)
class Options:
    """What a user can choose; `insert` is kept as (side, anchor, passes), `omit` as names, `fusion_plan` with its content.

    The option `passes`, a list of pass classes that these names mean, is not kept: reading it registers them.
    """

    fallback: str = option(
        "'eager': a graph that fails to compile runs in eager, with one warning; 'error': the error is raised",
        "eager",
        allowed=("eager", "error"),
    )
    pipeline: str = option(
        "a pipeline's name, or passes as `mlirc opt -p` takes them; 'auto' is 'gpu' where a tensor is on one, else 'cpu'. What "
        "passes leave out of the way to machine code is done as in 'strict', with no fusion",
        "auto",
        takes=f"{', '.join(map(repr, ('auto', *PIPELINES)))}, or passes",
    )
    dump: str | None = option(
        "a folder that keeps each graph (docs/debugging.md); without the option, what MLIRC_DUMP says",
        default_factory=lambda: os.environ.get("MLIRC_DUMP") or None,
        takes="a folder",
    )
    cache: bool = option(
        "whether compiled graphs are looked up and kept on disk, in MLIRC_CACHE_DIR or the user's cache folder", True
    )
    mode: str = option(
        "torch.compile's `mode`, which PyTorch does not take beside `options`. 'reduce-overhead' and 'max-autotune' record CUDA "
        "graphs; 'max-autotune' and 'max-autotune-no-cudagraphs' measure how each kernel is written best; on a CPU all mean the same",
        "default",
        allowed=MODES,
    )
    freeze: bool = option(
        "your promise that parameters and buffers change through PyTorch's operators alone: what is kept of them is then kept until "
        "an address or a version counter changes; otherwise until any byte of them does, and on a GPU nothing is kept",
        False,
        changes_code=True,
    )
    tune_seconds: float = option(
        "how long measuring may take, for each graph; what is not measured by then stays as the cost model chose", 60.0
    )
    compile_seconds: float | None = option(
        "a budget for compiling: how long the first call may wait for it, after tracing. What is not compiled by then runs ATen's "
        "operators, until the best code is there, which a thread makes between calls; without the option a first call waits for that. "
        "mlirc.finish_compiling() waits too",
        None,
        takes="a number, or None",
    )
    insert: tuple[tuple[str, str, str], ...] = option(
        "passes to put into the pipeline; a place is a stage, a pass that runs once, or one of several runs ('cse#2')",
        (),
        takes="{'after fuse-elementwise': 'my-pass{k=2}', 'before plan': 'cse'}",
        given={},
    )
    omit: tuple[str, ...] = option(
        "passes to leave out of the pipeline, each in all of its runs, but for those that `insert` put there; a pass that every graph needs "
        "is an error",
        (),
        takes="'hoist-gathers,fuse-horizontally'",
        given="",
    )
    profile: bool = option(
        "each kernel and call is timed, and has its label in torch.profiler's traces and in NVTX (docs/debugging.md)",
        False,
    )
    candidates: bool = option(
        "each pair of kernels that a fusion pass looks at is recorded, for mlirc.explain (docs/debugging.md)", False
    )
    fusion_plan: "FusionPlan | None" = dataclasses.field(
        default=None,
        metadata={
            "help": "a file that says which pairs of kernels become one (docs/debugging.md)",
            "takes": "a file",
        },
    )
    progress: bool = option(
        "a compilation that takes more than 3 s says so on standard error, if that is a terminal; MLIRC_PROGRESS=off does without "
        "for the whole process",
        True,
    )

    def in_code(self) -> list[Any]:
        """The values of the options on which compiled code depends beside the passes, for the key of the disk cache."""
        return [getattr(self, f.name) for f in dataclasses.fields(self) if f.metadata.get("changes_code")]

    def stages(self, on_gpu: bool = False) -> dict[str, str]:
        """The pipeline's passes, by the name of the stage. Raises PipelineError that names the option `insert` or `omit` for a place or
        a pass that the pipeline does not have."""
        found = stages(self.pipeline, on_gpu, self.freeze)
        if not self.insert and not self.omit:
            return found
        from mlirc.lowering.pipeline.standard_steps import changed

        option = "insert"
        try:
            changed(found, self.insert, ())
            option = "omit"
            return changed(found, self.insert, self.omit)
        except PipelineError as error:
            name = chosen(self.pipeline, on_gpu, self.freeze)
            raise PipelineError(f"mlirc option '{option}', in the pipeline '{name}': {error}") from error


def read_options(options: dict[str, Any] | None, mode: str | None = None) -> Options:
    """Options from torch.compile's arguments. Raises OptionError that names the option, its value, and what is allowed."""
    if options is not None and not isinstance(options, Mapping):
        raise OptionError(f"mlirc takes options={{'name': value}}, not {options!r} ({type(options).__name__})")
    given = dict(options or {})
    if mode is not None:
        given["mode"] = mode
    _register(given.pop("passes", ()))
    if given.get("fusion_plan") is not None:
        given["fusion_plan"] = _plan(given["fusion_plan"])
    if "insert" in given:
        given["insert"] = _insertions(given["insert"])
    if "omit" in given:
        given["omit"] = _omitted(given["omit"])
    fields = {field.name: field for field in dataclasses.fields(Options)}
    for name, value in given.items():
        if name not in fields:
            names = (*fields, "passes")
            raise OptionError(
                f"mlirc has no option '{name}'{nearest(str(name), names) or ';'} its options are {', '.join(names)}"
            )
        if name == "dump" and isinstance(value, os.PathLike):
            given[name] = value = os.fspath(value)
        if fields[name].type is bool:
            if not isinstance(value, bool):
                raise OptionError(f"mlirc option '{name}' takes True or False, not {value!r} ({type(value).__name__})")
        elif name == "compile_seconds" and value is None:
            continue
        elif fields[name].type in (float, float | None):
            if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
                raise OptionError(f"mlirc option '{name}' takes a number of at least 0, not {value!r}")
        elif fields[name].type is int:
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise OptionError(f"mlirc option '{name}' takes a whole number of at least 0, not {value!r}")
        elif (
            name not in ("insert", "omit", "fusion_plan")
            and not isinstance(value, str)
            and not (name == "dump" and value is None)
        ):
            raise OptionError(f"mlirc option '{name}' takes text, not {value!r} ({type(value).__name__})")
        allowed = fields[name].metadata.get("allowed")
        if allowed and value not in allowed:
            close = nearest(str(value), allowed) or ";"
            raise OptionError(f"mlirc option '{name}' is {value!r}{close} it can be {', '.join(map(repr, allowed))}")
    made = Options(**given)
    if made.pipeline != "auto" and made.pipeline not in PIPELINES:
        _need_passes("pipeline", made.pipeline)
    for _, _, text in made.insert:
        _need_passes("insert", text)
    if made.insert or made.omit:
        _need_places(made)
    return made


def _plan(path: Any) -> "FusionPlan":
    """Raises OptionError, whatever is in the file."""
    from mlirc.lowering.pipeline.fusion_plan import FusionPlanError, read_plan

    if not isinstance(path, str | os.PathLike):
        raise OptionError(f"mlirc option 'fusion_plan' takes the name of a file, not {path!r} ({type(path).__name__})")
    try:
        return read_plan(path)
    except FusionPlanError as error:
        raise OptionError(f"mlirc option 'fusion_plan': {error}") from error


def _need_passes(option: str, text: str) -> None:
    """Raises OptionError for text that names no passes."""
    from mlirc.lowering.pipeline.pass_manager import runners

    try:
        runners(text)
    except PipelineError as error:
        names = f"{', '.join(map(repr, ('auto', *PIPELINES)))}, or " if option == "pipeline" else ""
        raise OptionError(
            f"mlirc option '{option}' is {text!r}; it can be {names}passes separated by commas: {error}"
        ) from error


def _insertions(given: Any) -> tuple[tuple[str, str, str], ...]:
    """The option `insert` as (side, anchor, passes)."""
    wrong = "mlirc option 'insert' takes {'after PLACE': 'passes', 'before PLACE': 'passes'}, not "
    if not isinstance(given, Mapping):
        raise OptionError(f"{wrong}{given!r}")
    found = []
    for place, text in given.items():
        side, _, anchor = place.partition(" ") if isinstance(place, str) else ("", "", "")
        if side not in ("after", "before") or not anchor.strip() or not isinstance(text, str) or not text.strip():
            raise OptionError(f"{wrong}{ {place: text}!r}")
        found.append((side, anchor.strip(), text))
    return tuple(found)


def _omitted(given: Any) -> tuple[str, ...]:
    """The option `omit` as names."""
    names = tuple(name.strip() for name in given.split(",")) if isinstance(given, str) else ()
    if not isinstance(given, str) or (given.strip() and not all(names)):
        raise OptionError(
            f"mlirc option 'omit' takes names of passes, 'hoist-gathers,fuse-horizontally', not {given!r}"
        )
    return names if given.strip() else ()


def _need_places(options: Options) -> None:
    """Raises OptionError for a place or a pass that is in no pipeline which the option `pipeline` can mean; of "auto" it lists those for a CPU."""
    why: PipelineError | None = None
    for on_gpu in (False, True) if options.pipeline == "auto" else (False,):
        try:
            options.stages(on_gpu)
            return
        except PipelineError as error:
            why = why or error
    raise OptionError(str(why)) from why


def _register(classes: Any) -> None:
    """The option `passes`: classes as mlirc.passes.register takes them. Raises OptionError."""
    if not isinstance(classes, list | tuple):
        raise OptionError(f"mlirc option 'passes' takes a list of pass classes, not {classes!r}")
    if not classes:
        return
    from mlirc.lowering.pipeline.pass_manager import passes, register

    for cls in classes:
        name = getattr(cls, "name", None)
        if not (
            isinstance(cls, type) and dataclasses.is_dataclass(cls) and isinstance(name, str) and hasattr(cls, "run")
        ):
            named = "; the options 'pipeline' and 'insert' take names" if isinstance(cls, str) else ""
            raise OptionError(
                f"mlirc option 'passes': {cls!r} is no pass: a frozen dataclass with a name and a method run{named}"
            )
        known = passes().get(name)
        if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise OptionError(
                f"mlirc option 'passes': {cls.__qualname__} is called '{name}', as {known.__module__}.{known.__qualname__} is"
            )
        register(cls)
