"""A compiled model as an object file and a header, for C programs that have neither Python nor PyTorch."""

import os
import re
import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch

from mlirc.codegen.process.limits import with_room
from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Int
from mlirc.frontend.package import c_header
from mlirc.frontend.package.c_header import CArgument, CModel, CWeight
from mlirc.frontend.package.exported import Functional
from mlirc.frontend.package.packaged_graph import PackageError
from mlirc.frontend.package.signature import FixedArgument, Signature, SizeArgument, TensorArgument, symbols_told, told
from mlirc.frontend.package.targets import targets_of
from mlirc.lowering.target import CpuTarget, Target

ALIGNMENT = 64
MOST_BYTES = 2**31 - 2**24  # of weights: code reaches them by 32 bits
ALWAYS = ("generate-matmuls", "generate-matmuls{always=true}")


def export_c(
    found: Functional, weights: dict[str, torch.Tensor], folder: str | os.PathLike, name: str, targets: Sequence[str]
) -> None:
    """Writes NAME.o and NAME.h into the folder, each whole or not at all. Raises PackageError, OSError."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
        raise PackageError(f"'{name}' is no name for functions of C")
    kinds = targets_of(targets)
    if not kinds:
        raise PackageError("a model for C needs a target, such as 'avx2'")
    object_, header = with_room(made, found, weights, name, kinds)
    folder = os.fspath(folder)
    os.makedirs(folder, exist_ok=True)
    write(os.path.join(folder, f"{name}.o"), object_)
    write(os.path.join(folder, f"{name}.h"), header.encode())


def made(
    found: Functional, weights: dict[str, torch.Tensor], name: str, targets: Sequence[tuple[str, CpuTarget]]
) -> tuple[bytes, str]:
    """The object file, and the text of the header."""
    from mlirc.codegen.standalone.object_file import kind_of, object_file
    from mlirc.codegen.standalone.program import NeedsLibrary
    from mlirc.codegen.standalone.shapes import bind_text, describe_text
    from mlirc.dialects.core.context import context

    signature = found.signature
    arguments = [a for a in signature.arguments if not isinstance(a, FixedArgument)]
    names = sorted(symbols_told(arguments))
    check(arguments, found)
    try:
        with context():
            kinds = []
            for kind, target in targets:
                imported = lowered(found, target)
                kinds.append(kind_of(kind.replace("-", "_"), target, imported.module, names))
    except NeedsLibrary as error:
        raise PackageError(f"the model cannot be compiled for C: {error}") from error
    for place, (what, value) in enumerate(imported.outputs):
        if what == "value" and value is not None:
            raise PackageError(f"the model cannot be compiled for C: result {place} is {value!r}, which is no tensor")
    parts, described = layout({**weights, **constants(imported.constants)})
    program = kinds[0].program
    model = CModel(
        name,
        [c_argument(a) for a in arguments],
        program.results,
        described,
        places(found, imported, arguments, described),
        {symbol: signature.ranges.get(symbol, (None, None)) for symbol in names},
        [told(condition) for condition in signature.conditions],
        kinds,
    )
    texts = [
        bind_text(sizes_of(arguments), names),
        describe_text(numbers_of(arguments, model, signature), names),
    ]
    written = bool(found.written)
    return object_file(name, kinds, texts, parts, written), c_header.header(model)


def check(arguments: Sequence[Any], found: Functional) -> None:
    """Raises PackageError for what C's functions do not take."""
    tensors = [(a.name, a.dtype, len(a.shape), a.device) for a in arguments if isinstance(a, TensorArgument)]
    tensors += [(name, x.dtype, x.dim(), str(x.device)) for name, (_, x) in found.state.items()]
    for name, dtype, rank, device in tensors:
        if dtype not in c_header.DTYPES or rank > c_header.MOST_RANK or device != "cpu":
            raise PackageError(
                f"the model cannot be compiled for C: '{name}' is {dtype} of {rank} dimensions on {device}"
            )


def lowered(found: Functional, target: CpuTarget) -> Any:
    """The graph in the dialect, down to its kernels, in which no matmul is a library's; weights may change between calls."""
    from mlirc.frontend.importer.importer import import_graph
    from mlirc.lowering.module.target_attribute import set_target
    from mlirc.lowering.pipeline.pass_manager import run_pipeline
    from mlirc.lowering.pipeline.pipelines import pipeline

    imported = import_graph(found.gm)
    set_target(imported.module, Target(target))
    run_pipeline(imported.module, pipeline("cpu").replace(*ALWAYS))
    return imported


def constants(tensors: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tensors of the graph itself, as weights."""
    return {f"constant.{k}": x for k, x in enumerate(tensors)}


def layout(weights: dict[str, torch.Tensor]) -> tuple[list[bytes], list[CWeight]]:
    """The bytes of all weights, one after another, and where each one is. Raises PackageError for too many."""
    parts: list[bytes] = []
    described, size = [], 0
    for name, x in weights.items():
        extent = 1 + sum((n - 1) * step for n, step in zip(x.shape, x.stride(), strict=True)) if x.numel() else 0
        memory: Any = x.detach().as_strided((extent,), (1,)).contiguous().view(torch.uint8).numpy()
        data = memory.tobytes()
        described.append(CWeight(name, x, size))
        parts += [data, bytes(-len(data) % ALIGNMENT)]
        size += len(data) + len(parts[-1])
    if size > MOST_BYTES:
        raise PackageError(
            f"the model cannot be compiled for C: its weights have {size} bytes, at most {MOST_BYTES} fit"
        )
    return parts, described


def places(
    found: Functional, imported: Any, arguments: Sequence[Any], weights: Sequence[CWeight]
) -> list[tuple[str, int]]:
    """Where each argument of @graph comes from."""
    position = {w.name: k for k, w in enumerate(weights)}
    of_place = {place: ("weight", position[name]) for name, (place, _) in found.state.items()}
    given = {id(a): k for k, a in enumerate(arguments)}
    for a, place in zip(found.signature.arguments, found.arguments, strict=True):
        if id(a) in given:
            of_place[place] = "number" if isinstance(a, SizeArgument) else "argument", given[id(a)]
    rest = [("weight", position[f"constant.{k}"]) for k in range(len(imported.constants))]
    return [of_place[place] for place in imported.inputs] + rest


def c_argument(a: TensorArgument | SizeArgument) -> CArgument:
    if isinstance(a, SizeArgument):
        return CArgument(a.name, torch.int64, 0, integer=True)
    return CArgument(a.name, a.dtype, len(a.shape), a.written)


def sizes_of(arguments: Sequence[Any]) -> list[Int]:
    """What @bind reads."""
    return [n for a in arguments for n in ([symbols.parse(a.symbol)] if isinstance(a, SizeArgument) else a.shape)]


def numbers_of(arguments: Sequence[Any], model: CModel, signature: Signature) -> list[Any]:
    """What @describe writes, in the order in which NAME__numbers reads it (c_functions.py)."""
    numbers: list[Any] = []
    for a in arguments:
        numbers += [symbols.parse(a.symbol)] if isinstance(a, SizeArgument) else [*a.shape, *a.stride]
    for x in model.results:
        numbers += [] if x is None else [*x.shape, *x.stride]
    return [*numbers, *signature.conditions, *(kind.program.arena for kind in model.kinds)]


def write(path: str, data: bytes) -> None:
    part = f"{path}.{uuid.uuid4().hex}.part"
    try:
        with open(part, "wb") as file:
            file.write(data)
        os.replace(part, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(part)
        raise
