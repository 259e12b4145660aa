"""Calls of a user's `@triton.jit` kernels: the operator `higher_order.triton_kernel`, functional as AOTAutograd's is.

    triton_kernel(kernel="add_kernel:5f1c", grid=[[4, 1, 1]], constants={"B": 32}, numbers={"n": 100}, tensors={"x": %0, "o": %1}, written=["o"])

gives a copy of each tensor in `written`, as the kernel leaves it. A kernel is named by its function and a digest of what determines its
code; `known` has the kernels that this process has met. Kernels run on the GPU by Triton, and on a CPU by Triton's interpreter.
"""

import hashlib
import types
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._ops import HigherOrderOperator

known: dict[str, Any] = {}
"""Kernels by name: `triton.JITFunction`s, or `Autotuner`s of them."""


def name_of(kernel: Any) -> str:
    """The kernel's name, by which `known` has it from here on."""
    function = function_of(kernel)
    text = code_text(kernel) or f"object {id(kernel)}"
    name = f"{function.__name__}:{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    known[name] = kernel
    return name


def function_of(kernel: Any) -> Any:
    """The `JITFunction` within autotuners and heuristics."""
    while not hasattr(kernel, "cache_key") and hasattr(kernel, "fn"):
        kernel = kernel.fn
    return kernel


def configs_of(kernel: Any) -> list[Any]:
    """The configurations that an autotuner chooses from."""
    return list(getattr(kernel, "configs", ()))


def code_text(kernel: Any) -> str:
    """What determines the kernel's code beside its arguments; "" where that cannot be told by text: hooks, and functions that choose."""
    function = function_of(kernel)
    parts = [type(kernel).__name__]
    if kernel is not function:
        if kernel.fn is not function or getattr(kernel, "perf_model", None) or any(map(hook_of, configs_of(kernel))):
            return ""
        parts += [str(config) for config in configs_of(kernel)]
        parts += [str(getattr(kernel, part, None)) for part in ("keys", "reset_to_zero", "restore_value")]
    return "\n".join([*parts, function.cache_key, str(options_of(function))])


def options_of(function: Any) -> dict[str, Any]:
    """What `@triton.jit` was given that bears on its code."""
    given = {"do_not_specialize": [], "do_not_specialize_on_alignment": [], "debug": None, "noinline": None}
    return {key: getattr(function, key, None) for key in given}


def hook_of(config: Any) -> Any:
    return getattr(config, "pre_hook", None)


class TritonKernelCall(HigherOrderOperator):
    """The operator: gives the tensors in `written`, in that order."""

    def __init__(self) -> None:
        super().__init__("triton_kernel")

    def __call__(self, **given: Any) -> list[torch.Tensor]:
        return call(**given)


triton_kernel = TritonKernelCall()


def call(
    kernel: str,
    grid: Sequence[Sequence[int]],
    constants: Mapping[str, Any],
    numbers: Mapping[str, Any],
    tensors: Mapping[str, torch.Tensor],
    written: Sequence[str],
    descriptors: Any = None,
) -> list[torch.Tensor]:
    """Runs the kernel on copies of what it writes. `grid` has a grid for each configuration of an autotuner."""
    copies = {name: copied(x) if name in written else x for name, x in tensors.items()}
    values = {**constants, **{name: number(x) for name, x in numbers.items()}}
    if any(x.device.type == "cpu" for x in copies.values()):
        interpret(known[kernel], grid[0], {**values, **copies})
    else:
        launch(known[kernel], grid, values, copies, descriptors)
    return [copies[name] for name in written]


def copied(x: torch.Tensor) -> torch.Tensor:
    """A copy with the strides of `x`, gaps included."""
    needed = sum((n - 1) * stride for n, stride in zip(x.shape, x.stride(), strict=True)) + 1 if x.numel() else 0
    memory = x.as_strided((needed,), (1,)).clone()
    return memory.as_strided(x.shape, x.stride(), 0)


def number(x: Any) -> Any:
    return x.item() if isinstance(x, torch.Tensor) else x


def launch(kernel: Any, grids: Sequence, values: dict[str, Any], tensors: dict[str, Any], descriptors: Any) -> None:
    """Launches a user's Triton kernel as eager does: Triton chooses a configuration, which decides the grid."""
    given = {**values, **tensors}
    for name, (_, (block_shape,)) in (descriptors or {}).items():
        from triton.tools.tensor_descriptor import TensorDescriptor

        given[name] = TensorDescriptor.from_tensor(tensors[name], block_shape)
    positional = []
    for name in kernel.arg_names:  # by position as far as they go, which is how hooks expect them
        if name not in given:
            break
        positional.append(given.pop(name))
    kernel[lambda meta: chosen_grid(kernel, grids, meta)](*positional, **given)


def chosen_grid(kernel: Any, grids: Sequence, meta: Mapping[str, Any]) -> tuple[int, ...]:
    """The grid of the configuration that Triton has chosen."""
    if len(grids) == 1:
        return tuple(grids[0])
    for config, sizes in zip(configs_of(kernel), grids, strict=True):
        if all(meta.get(name) == value for name, value in config.kwargs.items()):
            return tuple(sizes)
    raise RuntimeError(f"Triton chose no configuration of {function_of(kernel).__name__} that was traced")


# ---- on a CPU


def interpret(kernel: Any, grid: Sequence[int], arguments: dict[str, Any]) -> None:
    """Runs the kernel by Triton's interpreter, in its first configuration."""
    chosen = configs_of(kernel)[0].kwargs if configs_of(kernel) else {}
    function = interpreted(function_of(kernel), {})
    names = function.arg_names
    given = {name: x for name, x in {**chosen, **arguments}.items() if name in names}
    function.run(grid=tuple(grid), warmup=False, **given)


def interpreted(function: Any, within: dict[int, Any]) -> Any:
    """A copy of a `JITFunction` that Triton interprets; functions of Triton that it calls are such copies too."""
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import JITFunction

    if id(function) in within:
        return within[id(function)]
    original = function.fn
    namespace = dict(original.__globals__)
    copy = types.FunctionType(
        original.__code__, namespace, original.__name__, original.__defaults__, original.__closure__
    )
    copy.__dict__.update(original.__dict__)
    copy.__annotations__ = original.__annotations__
    copy.__kwdefaults__, copy.__module__, copy.__qualname__ = (
        original.__kwdefaults__,
        original.__module__,
        original.__qualname__,
    )
    made = within[id(function)] = InterpretedFunction(copy)
    for name in original.__code__.co_names:
        if isinstance(namespace.get(name), JITFunction):
            namespace[name] = interpreted(namespace[name], within)
    return made
