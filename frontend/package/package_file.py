"""The file of a compiled model: a safetensors file, whose metadata say what its tensors are. Nothing in it is unpickled.

    "weight:linear.weight"   a weight that is contiguous
    "memory:conv.weight"     the memory of one that is not; metadata["weights"] has its sizes and strides
    "code:0"                 bytes: an object file, as in an entry of the disk cache
    metadata["mlirc"]        json: what it was made for, the signature, the graph (frontend/cache/compiled.py) for each target, hashes

Weights are mapped into memory: processes share those that none has written to. Code is run as it is: load files from whom you would
load a shared library. A package is of one version, and of one processor, or of several kinds of processors, of which the best that this one
is runs; `read` says what is another one here.
"""

import hashlib
import json
import os
import platform
import sys
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch

from mlirc.codegen.cache.entry import UNREADABLE
from mlirc.codegen.cache.environment import codegen_digest, mlirc_version
from mlirc.codegen.llvm.processor import cpu_name_and_features, why_not_here
from mlirc.frontend.cache.compiled import from_data, to_data
from mlirc.frontend.driver.boxed_call import wrap
from mlirc.frontend.package import signature as signatures
from mlirc.frontend.package.packaged_graph import PackagedGraph, PackageError
from mlirc.frontend.package.signature import Signature
from mlirc.lowering.host import host_cpu
from mlirc.lowering.target import parse_target

FORMAT = 2
FEATURES = "the processor's features"


def write(
    path: str | os.PathLike,
    program: PackagedGraph,
    signature: Signature,
    weights: Mapping[str, torch.Tensor],
    graphs: Sequence[tuple[str, dict[str, Any]]] = (),
    blobs: Sequence[bytes] = (),
) -> None:
    """Writes a model that has code of its own. Raises PackageError for what has no text, OSError.

    graphs  what it is for other processors than this one: a target, and the graph as data, whose code is in `blobs` (targets.py)
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    assert program.compiled is not None
    blobs = list(blobs)
    try:
        graphs = list(graphs) or [(program.target, to_data(program.compiled, blobs))]
        takes = signatures.to_data(signature)
    except ValueError as error:
        raise PackageError(f"the model cannot be saved: {error}") from error
    tensors: dict[str, torch.Tensor] = {}
    kept: dict[str, Any] = {}
    known: dict[Any, str] = {}
    for name, x in weights.items():
        place = x.data_ptr(), x.dtype, x.shape, x.stride()
        kept[name] = _keep(name, x.detach(), tensors) if place not in known or not x.numel() else kept[known[place]]
        known.setdefault(place, name)
    for number, blob in enumerate(blobs):
        tensors[f"code:{number}"] = torch.frombuffer(bytearray(blob), dtype=torch.uint8)
    data = {
        "format": FORMAT,
        "made for": made_for(portable=all(target for target, _ in graphs)),
        "signature": takes,
        "graphs": [{"target": target, **graph} for target, graph in graphs],
        "freeze": program.compiled.frozen is not None and program.compiled.frozen.freeze,
        "weights": kept,
        "written": program.written,
        "placeholders": program.size,
        "state": program.state,
        "arguments": program.arguments,
        "views": program.views,
        "code": [hashlib.sha256(blob).hexdigest() for blob in blobs],
    }
    text = json.dumps(data, allow_nan=False)
    path = os.fspath(path)
    part = f"{path}.{uuid.uuid4().hex}.part"
    try:
        save_file(tensors, part, {"mlirc": text, "hash": hashlib.sha256(text.encode()).hexdigest()})
        os.replace(part, path)
    except BaseException as error:
        with suppress(FileNotFoundError):
            os.unlink(part)
        if isinstance(error, (KeyError, SafetensorError)):
            raise PackageError(f"{path} cannot be written: {error}") from error
        raise


def read(path: str | os.PathLike, check: bool) -> tuple[PackagedGraph, Signature, dict[str, torch.Tensor]]:
    """The graph, what it takes and gives, and its weights, which `check` compares with their hashes. Raises PackageError, OSError."""
    from safetensors import SafetensorError, safe_open

    path = os.fspath(path)
    with open(path, "rb"):
        pass  # an OSError with the file's name
    try:
        with safe_open(path, "pt") as file:
            told = file.metadata() or {}
            if "mlirc" not in told:
                raise PackageError(f"{path} is not a model that mlirc has saved")
            data = _data(path, told)
            graph = _graph_for_here(data["graphs"], path)
            blobs = _code(file, data["code"], path)
            weights = _weights(file, data["weights"], check, path)
        signature = signatures.from_data(data["signature"])
        _check_places(data, graph, len(signature.arguments))
        compiled = from_data(graph, blobs, data["freeze"])
        run = wrap(compiled, data["placeholders"], [], compiled.program.native)
        program = PackagedGraph(
            run, compiled, "", data["placeholders"], data["state"], data["arguments"], data["written"], data["views"]
        )
        program.target = graph["target"]
    except SafetensorError as error:
        raise PackageError(f"{path} is not a model that mlirc has saved, or is damaged: {error}") from error
    except (*UNREADABLE, AssertionError) as error:
        if isinstance(error, PackageError):
            raise
        said = str(error).partition("\n")[0]
        raise PackageError(f"{path} is damaged: {type(error).__name__}: {said}") from error
    return program, signature, weights


def made_for(portable: bool = False) -> dict[str, str]:
    """What a package's code relies on, by the name that a message has for it; `portable`: but for this processor's features."""
    features = {} if portable else {FEATURES: cpu_name_and_features(host_cpu())[1]}
    return {
        "mlirc": f"{mlirc_version()} ({codegen_digest()[:12]})",
        "torch": torch.__version__,
        "Python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "the kind of processor": platform.machine(),
        **features,
    }


def _data(path: str, told: Mapping[str, str]) -> dict[str, Any]:
    """What the metadata say. Raises PackageError where they are damaged, or for another version or machine."""
    if hashlib.sha256(told["mlirc"].encode()).hexdigest() != told.get("hash"):
        raise PackageError(f"{path} is damaged: its description does not have the hash that it was written with")
    data = json.loads(told["mlirc"])
    if data.get("format") != FORMAT:
        raise PackageError(f"{path} is a model in format {data.get('format')}; this mlirc reads format {FORMAT}")
    check_made_for(path, data["made for"], portable=all(graph["target"] for graph in data["graphs"]))
    return data


def check_made_for(path: str, told: Mapping[str, str], portable: bool = False) -> None:
    """Raises PackageError where code was made for other versions, or for a processor with more instructions."""
    here = made_for()
    if not told.keys() >= made_for(portable).keys():
        raise PackageError(f"{path} is damaged: it does not say what it was made for")
    for what, made in told.items():
        if what == FEATURES:
            missing = [x[1:] for x in made.split(",") if x.startswith("+") and x not in here[what].split(",")]
            if missing:
                raise PackageError(f"{path} was made for a processor with {', '.join(missing)}, which this one lacks")
        elif made != here.get(what):
            raise PackageError(f"{path} was made for {what} {made}; here it is {here.get(what)}: save the model again")


def _graph_for_here(graphs: Sequence[Mapping[str, Any]], path: str) -> Mapping[str, Any]:
    """The graph for the best target that this processor is, of those that a file has, the best last. Raises PackageError."""
    for graph in reversed(graphs):
        if not graph["target"] or not why_not_here(parse_target(graph["target"]).cpu):
            return graph
    made = "; ".join(graph["target"] for graph in graphs)
    raise PackageError(f"{path} was made for {made}, none of which this processor is: {host_cpu()}")


def _code(file: Any, hashes: Sequence[str], path: str) -> list[bytes]:
    """The blobs. Raises PackageError where they are damaged."""
    blobs = [bytes(_bytes(file.get_tensor(f"code:{k}"))) for k in range(len(hashes))]
    if [hashlib.sha256(blob).hexdigest() for blob in blobs] != list(hashes):
        raise PackageError(f"{path} is damaged: its code does not have the hash that it was written with")
    return blobs


def _check_places(data: Mapping[str, Any], graph: Mapping[str, Any], given: int) -> None:
    """Raises ValueError where a weight or an argument has no place among the placeholders, or not one of its own."""
    size, state = data["placeholders"], data["state"]
    places = [*state.values(), *data["arguments"]]
    taken = [*graph["inputs"], *(place for _, place in data["views"])]
    if (
        set(state) != set(data["weights"])
        or not set(data["written"]) <= set(state)
        or len(data["arguments"]) != given
        or sorted(places) != list(range(size))
        or not all(type(k) is int and 0 <= k < size for k in taken)
    ):
        raise ValueError("its weights and arguments do not fit its graph")


def _keep(name: str, x: torch.Tensor, tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Puts a weight among the tensors of a file, and says how it is read back."""
    if x.is_contiguous():
        key, flat = f"weight:{name}", x
    else:
        key = f"memory:{name}"
        extent = 1 + sum((n - 1) * step for n, step in zip(x.shape, x.stride(), strict=True)) if x.numel() else 0
        flat = x.as_strided((extent,), (1,))
    memory = {y.untyped_storage().data_ptr() for y in tensors.values()}
    storage = flat.untyped_storage()
    shared = storage.data_ptr() in memory or storage.nbytes() != flat.numel() * flat.element_size()
    tensors[key] = flat.clone() if shared else flat
    strided = {} if x.is_contiguous() else {"shape": list(x.shape), "stride": list(x.stride())}
    return {"key": key, "hash": _hash(flat), **strided}


def _hash(x: torch.Tensor) -> str:
    return hashlib.sha256(_bytes(x)).hexdigest()


def _bytes(x: torch.Tensor) -> Any:
    """The memory of a contiguous tensor."""
    numbers: Any = x.reshape(-1).view(torch.uint8).numpy()
    return memoryview(numbers) if x.numel() else b""


def _weights(file: Any, kept: Mapping[str, Any], check: bool, path: str) -> dict[str, torch.Tensor]:
    """The weights by name; those that were one tensor are one."""
    made: dict[str, torch.Tensor] = {}
    found = {}
    for name, how in kept.items():
        text = json.dumps(how)
        if text not in made:
            x = file.get_tensor(how["key"])
            if check and _hash(x) != how["hash"]:
                raise PackageError(f"{path} is damaged: '{name}' does not have the hash that it was written with")
            made[text] = x.as_strided(how["shape"], how["stride"]) if "stride" in how else x
        found[name] = made[text]
    return found
