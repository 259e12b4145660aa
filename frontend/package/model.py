"""A compiled model: called like the module it was made of, with its weights; `mlirc.load`."""

import os
from collections.abc import Sequence
from typing import Any

import torch

from mlirc.frontend.importer.result_outputs import view
from mlirc.frontend.package import package_file
from mlirc.frontend.package.overlaps import check_overlaps
from mlirc.frontend.package.packaged_graph import PackagedGraph, PackageError
from mlirc.frontend.package.signature import Signature, TensorArgument
from mlirc.frontend.torch_compat.dynamo.trees import argument_trees


class CompiledModel:
    """model(*args, **kwargs): what the module that it was compiled from gives in inference, with no gradients.

    weights     its parameters, buffers and constants by name. They are those of the module that it was compiled from: a change of one
                is seen by the next call. Another tensor of the same sizes, strides and dtype may be put in a weight's place
    signature   what it takes and gives

    Arguments are checked against what the model was compiled for: ArgumentError says what is different. Any number of threads may
    call it.
    """

    def __init__(
        self, program: PackagedGraph, signature: Signature, weights: dict[str, torch.Tensor], exported: Any = None
    ):
        self._program, self.signature = program, signature
        self._exported = exported  # the graph that it was compiled from (exported.py)
        self.weights = Weights(weights)
        self._writes = bool(program.written) or any(
            isinstance(a, TensorArgument) and a.written for a in signature.arguments
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        program, signature = self._program, self.signature
        given = signature.checked(signature.flat(args, kwargs))
        if self._writes:
            check_overlaps(signature.arguments, given, [(name, self.weights[name]) for name in program.written])
        values: list[Any] = [None] * program.size
        for name, k in program.state.items():
            values[k] = self.weights[name]
        for k, x in zip(program.arguments, given, strict=True):
            values[k] = x
        bases = [(k, values[place]) for k, place in program.views]
        with torch.no_grad():
            results = program.run(values)
            for k, base in bases:
                results[k] = view(results[k], base, "view")
        return argument_trees().tree_unflatten(results, signature.gives)

    def save(self, path: str | os.PathLike, targets: Sequence[str] = ()) -> None:
        """Writes the model to a file that `mlirc.load` reads, whole or not at all.

        targets   kinds of x86-64 processors, "sse4", "avx2", "avx512", "avx512-bf16", of which the best that fits runs; this processor
                  where none is given

        Raises PackageError for a graph that needs Python to run, and for targets of a model that `mlirc.load` gave; OSError.
        """
        if self._program.compiled is None:
            raise PackageError(f"the model cannot be saved: {self._program.why}")
        graphs, blobs = [], []
        if targets:
            if self._exported is None:
                raise PackageError(
                    "a model that was loaded from a file has code for one target: name targets where it is compiled"
                )
            from mlirc.frontend.package.targets import graphs_for  # it imports the compiler

            graphs, blobs = graphs_for(self._exported, self._program, targets)
        package_file.write(path, self._program, self.signature, self.weights, graphs, blobs)

    def export_c(
        self, folder: str | os.PathLike, name: str = "model", targets: Sequence[str] = ("avx2", "avx512")
    ) -> None:
        """Writes NAME.o and NAME.h for C programs, which need neither Python nor PyTorch. NAME.h says how it is called.

        targets   kinds of x86-64 processors, of which the best that fits runs: "sse4", "avx2", "avx512", "avx512-bf16"

        Weights are as they are now. Raises PackageError for a graph that needs PyTorch (it names the calls), for more than 2 GiB of
        weights, and for a model that `mlirc.load` gave; OSError.
        """
        if self._exported is None:
            raise PackageError(
                "a model that was loaded from a file has code for Python alone: export it where it is compiled"
            )
        from mlirc.frontend.package.c_export import export_c  # it imports the compiler

        export_c(self._exported, dict(self.weights), folder, name, targets)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            "a compiled model is neither pickled nor copied: .save(path) keeps it, mlirc.load(path) gives another one"
        )

    def __repr__(self) -> str:
        count = sum(x.numel() for x in self.weights.values())
        names = ", ".join(argument.name for argument in self.signature.arguments)
        return f"<CompiledModel({names}) of {len(self.weights)} weights, {count:,} numbers>"


def load(path: str | os.PathLike, *, check: bool = True) -> CompiledModel:
    """The model of a file that CompiledModel.save has written: nothing is traced, and nothing compiled.

    check   whether the weights are read, to compare them with the hash that they were written with

    Raises PackageError, and OSError where there is no such file.
    """
    return CompiledModel(*package_file.read(path, check))


class Weights(dict[str, torch.Tensor]):
    """Tensors by name; one can be replaced by another of its sizes, strides and dtype, and none can be added or taken away."""

    def __setitem__(self, name: str, x: torch.Tensor) -> None:
        known = self.get(name)
        if known is None:
            raise KeyError(f"the model has no weight '{name}'")
        for what in ("dtype", "shape", "device"):
            if getattr(x, what) != getattr(known, what):
                raise ValueError(f"'{name}' has {what} {getattr(known, what)}, and the new tensor {getattr(x, what)}")
        if x.stride() != known.stride():
            x = torch.empty_strided(known.shape, known.stride(), dtype=x.dtype, device=x.device).copy_(x.detach())
        super().__setitem__(name, x)

    def update(self, *given: Any, **named: Any) -> None:
        for name, x in dict(*given, **named).items():
            self[name] = x

    def __delitem__(self, *_: Any) -> None:
        raise TypeError("a model's weights cannot be taken away")

    pop = popitem = clear = setdefault = __delitem__  # type: ignore[assignment]
