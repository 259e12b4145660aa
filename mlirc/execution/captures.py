"""Reads the graphs of a capture, made by `mlirc capture`, MLIRC_DUMP or the option `dump` (frontend/report/capture_folder.py).

    capture = read_capture("captured")
    for graph in capture.graphs:
        graph.stages["import"], graph.inputs, graph.record["report"]["kernels"]

docs/debugging.md lists the files and the fields of their records.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlirc.lowering.module.counted import counted

FORMAT = 1
MOST = 1 << 28  # bytes of a record
RUN = "capture.json"
FILES = ("aten", "inputs", "results", "constants", "fusion")  # a record's fields that name one
OF_A_GRAPH = re.compile(r"(\d{3,9})_(?:inference|forward|backward)_")


class CaptureError(ValueError):
    """A folder that is no capture, or a record that cannot be read. The message is one line with the file."""


@dataclass(frozen=True, repr=False)
class DumpedGraph:
    """One ATen graph. `record` is its JSON. A file that was not written is None, or absent from `stages`.

    kind     "inference", "forward" or "backward"
    stages   the IR after each stage by its name, in order: import, simplify, fuse, plan, lower
    inputs   arg0, arg1, ... of its first call, as `mlirc run --inputs` takes them
    results  result0, ... of that call, and the new values of arguments that the graph writes
    dynamo   the number of Dynamo's graph that it comes from
    """

    folder: Path
    record: Mapping[str, Any]

    @property
    def number(self) -> int:
        return self.record["number"]

    @property
    def kind(self) -> str:
        return self.record["kind"]

    @property
    def name(self) -> str:
        """The beginning of its files' names: 003_forward."""
        return f"{self.number:03d}_{self.kind}"

    @property
    def dynamo(self) -> int | None:
        return self.record.get("dynamo")

    @property
    def stages(self) -> dict[str, Path]:
        named = self.record.get("stages") or {}
        return {stage: path for stage, name in named.items() if (path := _file(self.folder, name)) is not None}

    @property
    def inputs(self) -> Path | None:
        return _file(self.folder, self.record.get("inputs"))

    @property
    def results(self) -> Path | None:
        return _file(self.folder, self.record.get("results"))

    @property
    def fusion(self) -> Path | None:
        """Each pair of kernels that a fusion pass looked at, as JSON lines (docs/debugging.md)."""
        return _file(self.folder, self.record.get("fusion"))

    @property
    def aten(self) -> Path | None:
        """The FX graph as Python."""
        return _file(self.folder, self.record.get("aten"))

    @property
    def missing(self) -> list[str]:
        """Files that the record names, and that are not there. What is no name of a file stands as its JSON."""
        stages = self.record.get("stages") or {}
        names = [*stages.values(), *(self.record.get(key) for key in FILES)]
        return [_shown(name) for name in names if name and _file(self.folder, name) is None]

    def stage(self, name: str) -> Any:
        """The IR after a stage, as a notebook displays it; `.diff(another)`, `.text`. Raises CaptureError."""
        from mlirc.report.notebook import StageView

        return StageView(self, name)

    def kernel(self, name: str) -> Any:
        """A kernel, as a notebook displays it. Raises CaptureError."""
        from mlirc.report.notebook import kernel_view

        return kernel_view(self, name)

    def __repr__(self) -> str:
        report = self.record.get("report") or {}
        return f"<graph {self.name} of {self.folder}: {counted(len(report.get('kernels') or ()), 'kernel')}, stages {', '.join(self.stages)}>"

    def _repr_html_(self) -> str:
        from mlirc.report.notebook import graph_html

        return graph_html(self)


@dataclass(frozen=True, repr=False)
class DumpedFrame:
    """One graph of Dynamo's: a function, or the rest of a function after a graph break."""

    folder: Path
    record: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"<graph {self.number} of Dynamo's in {self.folder}>"

    @property
    def number(self) -> int:
        return self.record["number"]

    @property
    def graph(self) -> Path | None:
        """The FX graph as Python."""
        return _file(self.folder, self.record.get("graph"))

    @property
    def guards(self) -> Path | None:
        return _file(self.folder, self.record.get("guards"))


@dataclass(frozen=True, repr=False)
class Captured:
    """The graphs of a folder. `run` is what `mlirc capture` wrote about the script; empty for MLIRC_DUMP and the option `dump`. `missing` are
    files that belong to it, and are not there: records of graphs that have files, and files that records name."""

    folder: Path
    graphs: list[DumpedGraph]
    frames: list[DumpedFrame]
    run: Mapping[str, Any]
    missing: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<capture {self.folder}: {', '.join(graph.name for graph in self.graphs) or 'no graph'}>"


def read_capture(folder: str | Path) -> Captured:
    """Reads the graphs of a folder, in order of their numbers. Raises CaptureError."""
    path = Path(folder)
    try:
        names = sorted(p.name for p in path.iterdir())
    except (OSError, ValueError) as error:
        raise CaptureError(f"{folder}: {getattr(error, 'strerror', None) or error}") from error
    graphs = [DumpedGraph(path, record) for record in _records(path, names, r"(\d{3,9})\.json", ("kind",))]
    frames = [DumpedFrame(path, record) for record in _records(path, names, r"dynamo_(\d{3,9})\.json", ())]
    run = _read(path / RUN) if RUN in names else {}
    if not graphs and not frames and not run:
        raise CaptureError(f"{folder}: no capture; `mlirc capture SCRIPT.py --out DIR` and MLIRC_DUMP=DIR make one")
    records = dict.fromkeys(f"{match[1]}.json" for name in names if (match := OF_A_GRAPH.match(name)))
    missing = [name for name in records if name not in names]
    return Captured(path, graphs, frames, run, (*missing, *(name for graph in graphs for name in graph.missing)))


def _records(folder: Path, names: list[str], pattern: str, needed: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """The records of a folder. An empty one, of a graph that could not be written, is left out."""
    found = sorted((int(match[1]), name) for name in names if (match := re.fullmatch(pattern, name)))
    for number, name in found:
        if (folder / name).stat().st_size == 0:
            continue
        record = _read(folder / name)
        if record.get("number") != number or any(not isinstance(record.get(key), str) for key in needed):
            raise CaptureError(f"{folder / name}: no record of a graph")
        if not isinstance(record.get("stages") or {}, dict):
            raise CaptureError(f"{folder / name}: 'stages' is no object")
        yield record


def _read(path: Path) -> dict[str, Any]:
    try:
        if not path.is_file() or path.stat().st_size > MOST:
            raise CaptureError(f"{path}: no regular file of at most {MOST} bytes")
        record = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, CaptureError):
            raise
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise CaptureError(f"{path}: {reason}") from error
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        version = record.get("format") if isinstance(record, dict) else None
        raise CaptureError(f"{path}: a record of format {version!r}; this mlirc reads format {FORMAT}")
    return record


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and re.fullmatch(r"[\w.-]+", name) is not None and not name.startswith(".")


def _shown(name: Any) -> str:
    return name if _is_name(name) else json.dumps(name)


def _file(folder: Path, name: Any) -> Path | None:
    """A file beside the record."""
    if not _is_name(name):
        return None
    path = folder / name
    return path if path.is_file() else None
