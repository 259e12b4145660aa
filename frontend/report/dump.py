"""options={"dump": DIR}: a graph's IR after every stage, as files that `mlirc opt` runs on from."""

import itertools
import os
import stat
from functools import lru_cache
from io import BytesIO
from typing import Any

import torch

from mlirc.dialects.core.bindings import ir
from mlirc.frontend.driver.aten_graph import AtenGraph
from mlirc.frontend.driver.observer import Observer
from mlirc.frontend.fallback import fallback
from mlirc.frontend.importer.importer import Imported
from mlirc.lowering.pipeline.pipelines import STAGES
from mlirc.lowering.pipeline.standard_steps import set_stage

_numbers = itertools.count()
FLAGS = (
    os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
)  # which waits for no reader


class Dump(Observer):
    """Writes DIR/003_forward_2_fuse.mlir and so on: the number of the graph, its kind, the number and name of the stage.

    The first lines of a file say how to run the stages that are left, and what else the graph needs. Tensors of the graph
    module are arguments of @graph; their values go to 003_forward_constants.pt, in the order of the arguments. Where
    anything fails, a warning says so, and the graph has no more files.
    """

    def __init__(self, folder: str, graph: AtenGraph):
        self.folder: str | None = folder
        self.kind, self.rest = graph.kind, dict(graph.stages)
        self.prefix = ""
        self.count = 0
        self.notes: list[str] = []

    def on_step(self, step: str, made: Any, seconds: float) -> None:
        if step == "import":
            self.begin(made.imported)
        elif self.rest.pop(step, None) is None:
            return
        self.write(step, made.module)

    def begin(self, imported: Imported) -> None:
        self.prefix = f"{next(_numbers):03d}_{self.kind}"
        if self.folder is None:
            return
        try:
            self.notes += [f"object {k}, not in this file: {describe(x)}" for k, x in enumerate(imported.objects)]
            os.makedirs(self.folder, exist_ok=True)
            if imported.constants:
                constants = f"{self.prefix}_constants.pt"
                self.notes.append(f"arguments {{mlirc.constant}}: {constants}")
                content = BytesIO()
                torch.save(imported.constants, content)
                write_file(os.path.join(self.folder, constants), content.getbuffer())
        except Exception as error:
            self._give_up(error)

    def write(self, stage: str, module: ir.Module) -> None:
        """The module as it is after `stage`, with the passes of those that follow."""
        if self.folder is None:
            return
        name = f"{self.prefix}_{self.count}_{stage}.mlir"
        self.count += 1
        try:
            rest = ",".join(self.rest.values())
            header = "".join(f"// {line}\n" for line in (f'mlirc opt {name} -p "{rest}"', *self.notes))
            set_stage(module, stage if stage in STAGES else None)
            try:
                text = header + module.operation.get_asm(enable_debug_info=True)
            finally:
                set_stage(module, None)
            write_file(os.path.join(self.folder, name), text.encode(errors="backslashreplace"))
        except Exception as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        reason = (isinstance(error, OSError) and error.strerror) or " ".join(str(error).split()) or type(error).__name__
        tell(f"mlirc option 'dump' is {self.folder!r}, and no file can be written there: {reason}")
        self.folder = None


def write_file(path: str, content: bytes | memoryview) -> None:
    """Writes a file, or over one; nothing else that has its name. Raises OSError."""
    with open(os.open(path, FLAGS, 0o666), "wb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(0, "what has its name is no file")
        file.write(content)


@lru_cache(maxsize=256)
def tell(text: str) -> None:
    """Warns of each thing once a process."""
    fallback.warn(text)


def describe(x: Any) -> str:
    """What an object of an ATen call is, in one line: it has no text from which it could be made again."""
    if isinstance(x, torch.fx.GraphModule):
        return "a subgraph: " + " ".join(x.code.split())
    return " ".join(f"{type(x).__name__} {x}".split())
