"""Emits and loads a lowered module as a Program. Equal kernels of a process share machine code."""

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from mlirc.codegen.cache.folder import CacheFolder
from mlirc.codegen.host.host_program import host_program
from mlirc.codegen.host.parts import HostProgram
from mlirc.codegen.host.program import Program
from mlirc.codegen.llvm.machine_code import Code, compile_ir
from mlirc.codegen.llvm.processor import why_not_here
from mlirc.codegen.llvm.shared_parts import FunctionTexts, take_parts
from mlirc.codegen.process import background
from mlirc.codegen.runtime import shared_kernels
from mlirc.codegen.runtime.shared_kernels import CachedKernel
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.cpu.loops.frame import KernelText
from mlirc.lowering.module.errors import EmitError, emit_error
from mlirc.lowering.module.target_attribute import ATTRIBUTE, target_of

if TYPE_CHECKING:
    from mlirc.codegen.cuda.kernels import Begun

T = TypeVar("T")

KERNEL_OPT_LEVEL = 1
WORTH_A_THREAD = 20_000  # characters of a kernel's text, for which LLVM takes 10 ms
HOST_OPT_LEVEL = 0  # straight-line calls: there is nothing to optimise


@dataclass(frozen=True)
class Unlinked:
    """A module whose code is being made: what is left to do needs no MLIR.

    host     the host program
    code     its machine code
    kernels  by name: a kernel that was compiled before, or those that are compiled together with it, by their keys
    keys     the key of each kernel, by name
    """

    host: HostProgram
    code: Future[Code]
    kernels: Mapping[str, CachedKernel | Future[dict[str, CachedKernel]]]
    keys: Mapping[str, str]
    gpu_kernels: "Mapping[str, Begun]"

    def link(self) -> Program:
        """The program. Waits for the code; any thread may do so. Raises ValueError for what LLVM does not accept, TritonError
        and CudaError for a kernel on a GPU."""
        kernels = {
            name: found if isinstance(found, CachedKernel) else found.result()[self.keys[name]]
            for name, found in self.kernels.items()
        }
        convolutions = None
        if self.host.convolutions:
            from mlirc.codegen.libraries.cudnn import CudnnPlans

            convolutions = CudnnPlans(self.host.convolutions)
            convolutions.make_all()
        gpu_kernels = {link: begun.load() for link, begun in self.gpu_kernels.items()}
        return Program(self.host, self.code.result(), kernels, gpu_kernels, convolutions)


def compile_module(
    module: ir.Module,
    objects: Sequence[Any] = (),
    entry: str = "graph",
    consume: bool = False,
    folder: CacheFolder | None = None,
    profile: bool = False,
) -> Program:
    """The program of the module's function `entry`, which is at the memory level with its kernels lowered.

    objects   what its ATen calls refer to (aten_arguments.py)
    consume   the program empties the list of inputs that it is called with, and frees each tensor after its last use
              unless somebody else holds it: what a backward graph does with what was saved for it
    folder    where kernels are looked up, and kept
    profile   its ops are timed (codegen/host/ranges.py)

    Raises EmitError for a module of which no code can be made.
    """
    return begin_module(module, objects, entry, consume, folder, profile=profile).link()


def begin_module(
    module: ir.Module,
    objects: Sequence[Any] = (),
    entry: str = "graph",
    consume: bool = False,
    folder: CacheFolder | None = None,
    early: "EarlyKernels | None" = None,
    profile: bool = False,
) -> Unlinked:
    """Does as compile_module, up to where LLVM works in threads. `early` was the listener of lower-kernels, and no pass has run since."""
    with context():
        try:
            return _begin(module, objects, entry, consume, early or EarlyKernels(folder), folder, profile)
        except Exception as error:
            raise emit_error(error) from error


def _begin(
    module: ir.Module,
    objects: Sequence[Any],
    entry: str,
    consume: bool,
    early: "EarlyKernels",
    folder: CacheFolder | None,
    profile: bool,
) -> Unlinked:
    named = {attribute_value(op.attributes["sym_name"]): op for op in module.body.operations}
    functions = {name: op for name, op in named.items() if op.operation.name in ("func.func", "llvm.func")}
    if entry not in functions:
        raise ValueError(f"the module has no function @{entry} to emit")
    target = target_of(module) if ATTRIBUTE in module.operation.attributes else None
    if target is not None and (why := why_not_here(target.cpu)):
        raise EmitError(why, None)
    host = host_program(functions[entry], objects, consume, profile)
    keys, kernels = early.all_of(functions, [name for name in host.links if name in functions])
    gpu_kernels: dict[str, Begun] = {}
    if host.launched:
        from mlirc.codegen.cuda.kernels import begin  # what generates for GPUs takes a while to load

        gpu_kernels = begin(named, host.launched, folder, target)
    if host.ready:
        from mlirc.codegen.cuda.kernels import ready

        gpu_kernels |= ready(host.ready)
    return Unlinked(host, background.compute(compile_ir, host.text, HOST_OPT_LEVEL), kernels, keys, gpu_kernels)


class EarlyKernels:
    """Begins to compile kernels while others are being lowered (the `listener` of lower-kernels), some at a time.

    New ones are compiled on as many threads as PyTorch computes on.
    """

    def __init__(self, folder: CacheFolder | None):
        self.folder = folder
        self.keys: dict[str, str] = {}  # by name
        self.found: dict[str, CachedKernel | Future[dict[str, CachedKernel]]] = {}  # by key
        self._heard: dict[str, KernelText] = {}  # by name
        self._waiting: dict[str, Waiting] = {}  # by key
        self._parts: set[str] = set()  # of kernels that were taken

    def __call__(self, name: str, kernel: KernelText) -> None:
        self._heard[name] = kernel
        self._take(name, kernel.functions, kernel.declarations)
        if sum(waiting.size for waiting in self._waiting.values()) >= WORTH_A_THREAD:
            self._begin(self._waiting)
            self._waiting = {}

    def all_of(
        self, functions: Mapping[str, Any], names: Sequence[str]
    ) -> tuple[dict[str, str], dict[str, CachedKernel | Future[dict[str, CachedKernel]]]]:
        """The key of each named kernel, and its code, as in Unlinked."""
        declarations = [
            text_of(op) for op in functions.values() if op.operation.name == "llvm.func" and not op.regions[0].blocks
        ]
        for name in names:
            if name not in self.keys:
                self._take(name, "\n".join(map(text_of, functions_of_kernel(functions, name))), declarations)
        for part in split(self._waiting, lambda key: self._waiting[key].size):
            self._begin(part)
        self._waiting = {}
        return {name: self.keys[name] for name in names}, {name: self.found[self.keys[name]] for name in names}

    def with_kernels(self, text: str) -> str:
        """The text of a module whose kernels were heard of, with their functions in place of their declarations."""
        declared: set[str] = set()

        def functions(match: re.Match) -> str:
            kernel = self._heard[match[1]]
            new = [line for line in kernel.declarations if line not in declared]
            declared.update(new)
            return "\n".join([*dict.fromkeys(new), kernel.functions])

        names = "|".join(self._heard)
        return re.sub(rf"^ *func\.func private @({names})\(.*$", functions, text, flags=re.M) if names else text

    def _take(self, name: str, functions: str, declarations: list[str]) -> None:
        key = self.keys[name] = shared_kernels.key_of(nameless(functions, name))
        if key not in self.found and key not in self._waiting:
            if known := shared_kernels.find_or_await(key, self.folder):
                self.found[key] = known
            else:
                source, parts = take_parts(functions, name, declarations)
                new = [texts for part, texts in parts.items() if part not in self._parts]
                self._parts.update(parts)
                self._waiting[key] = Waiting(name, source, parts, sum(len(texts[-1]) for texts in [source, *new]))

    def _begin(self, kernels: "Mapping[str, Waiting]") -> None:
        parts = {part: texts for waiting in kernels.values() for part, texts in waiting.parts.items()}
        names = {key: waiting.name for key, waiting in kernels.items()}
        sources = [waiting.source for waiting in kernels.values()]
        made = shared_kernels.begin(sources, parts, KERNEL_OPT_LEVEL, names, self.folder)
        self.found |= dict.fromkeys(kernels, made)


@dataclass(frozen=True)
class Waiting:
    """A kernel that is new: its name, its source, and parts that it may share with others; the characters of these that no
    kernel before it has."""

    name: str
    source: FunctionTexts
    parts: Mapping[str, FunctionTexts]
    size: int


def split(kernels: Mapping[str, T], size: Callable[[str], int]) -> list[dict[str, T]]:
    """The kernels in parts of about equal size, one for each thread that it is worth starting."""
    total = sum(map(size, kernels))
    parts: list[dict[str, T]] = [{} for _ in range(min(torch.get_num_threads(), 1 + total // WORTH_A_THREAD))]
    sizes = [0] * len(parts)
    for key in sorted(kernels, key=size, reverse=True):
        least = sizes.index(min(sizes))
        parts[least][key] = kernels[key]
        sizes[least] += size(key)
    return [part for part in parts if part]


NAME = "@KERNEL"  # stands for the kernel's own name in its text


def functions_of_kernel(functions: Mapping[str, Any], name: str) -> list[Any]:
    """The kernel's function and those that only it calls, by their names: kernel_0, kernel_0_body, ..."""
    return [op for other, op in functions.items() if re.fullmatch(rf"{name}(_.*)?", other) and op.regions[0].blocks]


def nameless(text: str, name: str) -> str:
    """The text of a kernel with NAME for its own name: equal kernels have equal texts, whatever their numbers."""
    first, *parts = text.split(f"@{name}")  # a pattern would have to be compiled for each kernel
    return first + "".join([f"@{name}{part}" if part[:1].isdecimal() else f"{NAME}{part}" for part in parts])


def text_of(function: Any) -> str:
    """A function's text. Local scope spares MLIR a walk through the whole module, which would number values that the text does not show."""
    return function.operation.get_asm(use_local_scope=True)
