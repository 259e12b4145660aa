"""A compiled graph, and the same as data and bytes: what the disk cache and packages keep."""

from collections.abc import Mapping, Sequence
from typing import Any

from mlirc.codegen.emit import stored_program
from mlirc.codegen.host.program import Program
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.frontend.cache.frozen_parameters import FrozenParameters


@dataclass(frozen=True)
class Compiled:
    """A graph's programs. `inputs` and `outputs` are Imported's: which placeholders the program takes, what the graph gives."""

    program: Program
    frozen: FrozenParameters | None
    inputs: list[int]
    outputs: list[tuple[str, Any]]


def to_data(compiled: Compiled, blobs: list[bytes]) -> dict[str, Any]:
    """The graph as what json takes; its code is appended to `blobs`."""
    data: dict[str, Any] = {
        "inputs": compiled.inputs,
        "outputs": compiled.outputs,
        "graph": stored_program.to_data(compiled.program, blobs),
        "prepare": None,
    }
    if (frozen := compiled.frozen) is not None:
        assert isinstance(frozen.prepare, Program)
        data["prepare"] = stored_program.to_data(frozen.prepare, blobs) | {"parameters": frozen.positions}
    return data


def from_data(data: Mapping[str, Any], blobs: Sequence[bytes], freeze: bool) -> Compiled:
    """The graph again; `freeze` is the option. Raises one of codegen.cache.entry.UNREADABLE where this process cannot load it."""
    program, frozen = stored_program.from_data(data["graph"], blobs), None
    if data["prepare"] is not None:
        prepare = stored_program.from_data(data["prepare"], blobs)
        frozen = FrozenParameters(prepare, data["prepare"]["parameters"], freeze)
    return Compiled(program, frozen, data["inputs"], [(kind, x) for kind, x in data["outputs"]])
