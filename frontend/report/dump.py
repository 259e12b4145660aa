"""options={"dump": DIR}: a graph's IR after every stage, as files that `mlirc opt` runs on from."""

import itertools
import os
from typing import Any

import torch

from mlirc.frontend.capture import fallback
from mlirc.frontend.importer.importer import Imported

_numbers = itertools.count()


class Dump:
    """Writes DIR/003_forward_2_fuse.mlir and so on: the number of the graph, its kind, the number and name of the stage.

    The first lines of a file say how to run the stages that are left, and what else the graph needs. Tensors of the graph
    module are arguments of @graph; their values go to 003_forward_constants.pt, in the order of the arguments.
    """

    def __init__(self, folder: str | None, kind: str, imported: Imported):
        self.folder, self.count, self.module = folder, 0, imported.module
        if folder is None:
            return
        self.prefix = f"{next(_numbers):03d}_{kind}"
        self.notes = [f"object {k}, not in this file: {describe(x)}" for k, x in enumerate(imported.objects)]
        try:
            os.makedirs(folder, exist_ok=True)
            if imported.constants:
                constants = f"{self.prefix}_constants.pt"
                self.notes.append(f"arguments {{mlirc.constant}}: {constants}")
                with open(os.path.join(folder, constants), "wb") as file:
                    torch.save(imported.constants, file)
        except OSError as error:
            self._give_up(error)

    def write(self, stage: str, rest: str) -> None:
        """The module as it is after `stage`. `rest` are the passes of the stages that follow."""
        if self.folder is None:
            return
        name = f"{self.prefix}_{self.count}_{stage}.mlir"
        self.count += 1
        header = "".join(f"// {line}\n" for line in (f'mlirc opt {name} -p "{rest}"', *self.notes))
        try:
            with open(os.path.join(self.folder, name), "w") as file:
                file.write(header + self.module.operation.get_asm(enable_debug_info=True))
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        why = f"mlirc option 'dump' is {self.folder!r}, and no file can be written there: {error.strerror}"
        self.folder = None
        fallback.warn(why)


def describe(x: Any) -> str:
    """What an object of an ATen call is, in one line: it has no text from which it could be made again."""
    if isinstance(x, torch.fx.GraphModule):
        return "a subgraph: " + " ".join(x.code.split())
    return " ".join(f"{type(x).__name__} {x}".split())
