"""Calls @graph of a module: interpreted in any form, or as machine code where it is lowered. @prepare runs first, where there is one."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.graph_signature import result_groups
from mlirc.dialects.core.tensor_types import info_of
from mlirc.dialects.interpreter import interpreter
from mlirc.execution.random_state import begin
from mlirc.lowering.module.target_attribute import is_on_gpu
from mlirc.lowering.pipeline.pass_manager import functions
from mlirc.lowering.pipeline.standard_steps import form_of_module

SMALL = 32768
"""Elements of a tensor that PyTorch's own loops divide no further among threads."""


class NoGraph(ValueError):
    """A module without a function to call."""


@dataclass(frozen=True)
class Outcome:
    """What a call left: the results, and the arguments after it, some of which it may have written. `shared` says which of them lie in the same
    memory and must not; it is looked for where the module says what memory is."""

    results: list[Any]
    arguments: list[Any]
    shared: str = ""

    def written(self, inputs: Sequence[Any]) -> dict[str, Any]:
        """Arguments that the call changed, by name: those whose bits are not those of the inputs."""
        pairs = enumerate(zip(inputs, self.arguments, strict=True))
        return {f"arg{k}": left for k, (given, left) in pairs if not same_bits(given, left)}


def graph_of(module: ir.Module) -> Any:
    """The function to call: @graph, or the only one. Raises NoGraph."""
    found = {function.name.value: function for function in functions(module)}
    if "graph" in found:
        return found["graph"]
    if len(found) == 1:
        return next(iter(found.values()))
    there = f"; it has {', '.join(found)}" if found else ", nor any other"
    raise NoGraph(f"the module has no function @graph{there}")


def prepare_of(module: ir.Module) -> tuple[Any, list[int]] | None:
    """The function that computes arguments of @graph from others, and which these are."""
    for function in functions(module):
        if function.name.value == "prepare" and "mlirc.parameters" in function.attributes:
            given = symbols.parse_list(attribute_value(function.attributes["mlirc.parameters"]))
            return function, [int(str(k)) for k in given]
    return None


def given_arguments(module: ir.Module) -> list[Any]:
    """Arguments of @graph that a caller gives: all but those that @prepare makes."""
    arguments = list(graph_of(module).regions[0].blocks[0].arguments)
    prepare = prepare_of(module)
    if prepare is None:
        return arguments
    made = len(prepare[0].regions[0].blocks[0].operations[len(prepare[0].regions[0].blocks[0].operations) - 1].operands)
    return arguments[: len(arguments) - made]


class NoGPU(ValueError):
    """A module with tensors on a GPU, where PyTorch finds none."""


def placed(module: ir.Module, inputs: Sequence[Any]) -> list[Any]:
    """Copies of the inputs with the same strides, on the devices that the module's arguments are on. Needs an entered context."""
    pairs = zip(given_arguments(module), inputs, strict=True)
    return [copied(x, info_of(argument).device) if isinstance(x, torch.Tensor) else x for argument, x in pairs]


def interpret(
    module: ir.Module,
    inputs: Sequence[Any],
    observer: interpreter.ValueObserver | None = None,
    code: interpreter.RunsCode | None = None,
) -> Outcome:
    """With `code`, kernels of a lowered module may be run by their code (triton_code.py). Raises what the interpreter raises."""

    def call(function: Any) -> Callable[[list[Any]], list[Any]]:
        return lambda given: interpreter.run(function, given, observer=observer, code=code)

    with one_thread_if_small(inputs):
        return _called(module, inputs, call)


@contextmanager
def one_thread_if_small(inputs: Sequence[Any]) -> Iterator[None]:
    """PyTorch computes with one thread, within, where all inputs are small.

    Some operators use all threads for tensors of any size. Thousands of them then wait for threads, long where other processes compute.
    """
    threads = torch.get_num_threads()
    if max((x.numel() for x in inputs if isinstance(x, torch.Tensor)), default=0) <= SMALL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def waiter() -> Callable[[], None]:
    """What waits for the GPUs on which this process has memory by now, whichever is current."""
    devices = [k for k in range(torch.cuda.device_count()) if torch.cuda.memory_reserved(k)]

    def wait() -> None:
        for device in devices:
            torch.cuda.synchronize(device)

    return wait


class MachineCode:
    """A lowered module, verified, compiled and called with checked inputs, which are first brought to the module's devices; with `profile` its
    ops are timed. Raises what these raise, and NoGPU."""

    def __init__(self, module: ir.Module, profile: bool = False):
        from mlirc.codegen.emit.checked_program import CheckedProgram

        self.module, self.on_gpu = module, is_on_gpu(module)
        if self.on_gpu and not torch.cuda.is_available():
            raise NoGPU("its tensors are on a GPU, and PyTorch finds none here")
        self.programs = {f.name.value: CheckedProgram(module, f.name.value, profile) for f in functions(module)}

    def __call__(self, inputs: Sequence[Any]) -> Outcome:
        return _called(self.module, inputs, lambda function: self.programs[function.name.value], place=True)

    def seconds(self, inputs: Sequence[Any], times: int) -> list[float]:
        """Seconds of each of `times` calls of @graph alone, on the same memory, after three calls that are not counted. A call ends when GPUs
        have done their part."""
        step, wait, taken = self.step(inputs), waiter(), []
        for _ in range(times + 3):
            start = time.perf_counter()
            step()
            if self.on_gpu:
                wait()
            taken.append(time.perf_counter() - start)
        return taken[3:]

    def step(self, inputs: Sequence[Any]) -> Callable[[], Any]:
        """A call of @graph alone, on memory that stays. Inputs are checked here, once."""
        with context():
            given, prepare = placed(self.module, inputs), prepare_of(self.module)
            if prepare is not None:
                given += self.programs["prepare"]([given[k] for k in prepare[1]])
            checked = self.programs[graph_of(self.module).name.value]
            checked.check(given)
        program = checked.program

        def step() -> Any:
            with torch.no_grad():
                return program(list(given))

        return step


def _called(
    module: ir.Module,
    inputs: Sequence[Any],
    callable_of: Callable[[Any], Callable[[list[Any]], list[Any]]],
    place: bool = False,
) -> Outcome:
    begin(inputs)
    with context(), torch.no_grad():
        given = placed(module, inputs) if place else copies(inputs)
        graph, prepare = graph_of(module), prepare_of(module)
        made = [] if prepare is None else callable_of(prepare[0])([given[k] for k in prepare[1]])
        results = callable_of(graph)([*given, *made])
        has_memory = form_of_module(module) in ("memory", "lowered")
        shared = shared_memory(results, given, result_groups(graph, len(results))) if has_memory else ""
    return Outcome(copies(results), given, shared)


def shared_memory(results: Sequence[Any], arguments: Sequence[Any], groups: Sequence[str]) -> str:
    """The first result that lies in memory of another group's result or of an argument, or not in that of its own argument; "" for none."""
    places = [extent(x) for x in results]
    for k, (place, group) in enumerate(zip(places, groups, strict=True)):
        if place is None:
            continue
        for j, argument in enumerate(arguments):
            if (other := extent(argument)) is not None and overlap(place, other) != (group == f"arg{j}"):
                said = "lies in the memory of" if group != f"arg{j}" else "does not lie in the memory of"
                return f"result {k} {said} argument {j}"
        for j in range(k):
            if groups[j] != group and (other := places[j]) is not None and overlap(place, other):
                return f"result {k} lies in the memory of result {j}"
    return ""


def extent(x: Any) -> tuple[int, int] | None:
    """The addresses from the first to behind the last element of a tensor; None where it has none, or packs them."""
    if not isinstance(x, torch.Tensor) or x.layout != torch.strided or not x.numel():
        return None
    last = sum((n - 1) * step for n, step in zip(x.shape, x.stride(), strict=True))
    return x.data_ptr(), x.data_ptr() + (last + 1) * x.element_size()


def overlap(first: tuple[int, int], second: tuple[int, int]) -> bool:
    return first[0] < second[1] and second[0] < first[1]


def copies(values: Sequence[Any]) -> list[Any]:
    """Copies of the tensors with the same strides. Elements of an expanded tensor still share memory."""
    return [copied(x) if isinstance(x, torch.Tensor) else x for x in values]


def same_bits(x: Any, y: Any) -> bool:
    """Whether two values are the same, or two tensors have elements of the same bits. Packed weights, which nothing writes to, are."""
    if not isinstance(x, torch.Tensor) or x.layout != torch.strided:
        return True
    first, second = (v.cpu().reshape(-1).contiguous().view(torch.uint8) for v in (x, y))
    return torch.equal(first, second)


def copied(x: torch.Tensor, device: str | None = None) -> torch.Tensor:
    """A copy with the same strides, on the same or another device."""
    if x.layout != torch.strided:  # packed weights, which nothing writes to
        return x
    if x.numel() == 0:
        return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=device or x.device)
    extent = 1 + sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True))
    made = x.as_strided((extent,), (1,)).to(device or x.device, copy=True)
    return made.as_strided(x.shape, x.stride(), 0)
