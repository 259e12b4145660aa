"""Compiles a user's `@triton.jit` kernel for a call with known constants, as Triton does at a call in eager.

Integers that are known are specialized as Triton does it, and pointers are multiples of 16 bytes, which the launch checks. An integer that is a
symbol is an i64. Triton's own cache has what it compiles.
"""

from collections.abc import Mapping
from typing import Any

import torch

from mlirc.codegen.cuda.triton_compile import CompiledKernel
from mlirc.codegen.cuda.triton_worker import TritonError, check_parameters
from mlirc.dialects.interpreter.triton_kernels import configs_of, function_of, hook_of
from mlirc.dialects.lazy_dataclass import dataclass

POINTERS = {
    torch.bool: "i1", torch.uint8: "u8", torch.uint16: "u16", torch.uint32: "u32", torch.uint64: "u64",
    torch.int8: "i8", torch.int16: "i16", torch.int32: "i32", torch.int64: "i64",
    torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32", torch.float64: "fp64",
    torch.float8_e4m3fn: "fp8e4nv", torch.float8_e5m2: "fp8e5",
}  # fmt: skip
OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
ALIGNED = [["tt.divisibility", 16]]
INTEGERS = {"i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"}


class NotCompiled(Exception):
    """No native call is made of this kernel; the text says why."""


@dataclass(frozen=True)
class Symbol:
    """An argument whose value only a call knows: an integer, or a float."""

    kind: type


@dataclass(frozen=True)
class UserKernel:
    """A user's kernel, compiled for a call.

    compiled      the machine code
    parameters    the arguments that a launch passes, in order, each with its type and value: ("x", "*fp32", torch.float32), ("n", "i32", 8)
    """

    compiled: CompiledKernel
    parameters: tuple[tuple[str, str, Any], ...]


def compile_kernel(kernel: Any, arguments: Mapping[str, Any], capability: int) -> UserKernel:
    """The kernel for these arguments: torch.dtype for a tensor, Symbol for a number that may change, else the value. Raises NotCompiled."""
    function, configs = function_of(kernel), configs_of(kernel)
    config = only_config(kernel, configs)
    given = {**(config.all_kwargs() if config else {}), **arguments}
    if function.pre_run_hooks:
        raise NotCompiled("it has hooks of Python that run before it")
    signature: dict[str, str] = {}
    constants: dict[tuple[int, ...], Any] = {}
    attributes: dict[tuple[int, ...], Any] = {}
    for position, parameter in enumerate(function.params):
        if parameter.name in given:
            value = given[parameter.name]
        elif parameter.has_default:
            given[parameter.name] = value = parameter.default
        else:
            raise NotCompiled(f"its parameter {parameter.name} is given nothing")
        type_, aligned = type_of_argument(parameter, value)
        signature[parameter.name] = type_
        if type_ == "constexpr":
            constants[(position,)] = value
        elif aligned:
            attributes[(position,)] = ALIGNED
    options = {k: v for k, v in given.items() if k in OPTIONS or k not in signature}
    compiled = machine_code(function, signature, constants, attributes, options, capability)
    passed = tuple((name, type_, given[name]) for name, type_ in signature.items() if type_ != "constexpr")
    return UserKernel(compiled, passed)


def only_config(kernel: Any, configs: list[Any]) -> Any:
    """The configuration of an autotuner that has one to choose from, or None without an autotuner. Raises NotCompiled."""
    if function_of(kernel) is kernel:
        return None
    if kernel.fn is not function_of(kernel) or len(configs) != 1:
        raise NotCompiled(f"Triton's autotuner chooses among {len(configs)} configurations")
    if hook_of(configs[0]) or getattr(kernel, "reset_to_zero", None) or getattr(kernel, "restore_value", None):
        raise NotCompiled("its configuration has hooks of Python")
    return configs[0]


def type_of_argument(parameter: Any, value: Any) -> tuple[str, bool]:
    """The parameter's type in the signature, "constexpr" for one that is part of the code, and whether it is a multiple of 16."""
    if parameter.is_constexpr or value is None:
        return "constexpr", False
    if isinstance(value, torch.dtype):
        if value not in POINTERS:
            raise NotCompiled(f"a tensor is of {value}")
        return ("*k" if parameter.is_const else "*") + POINTERS[value], not parameter.do_not_specialize_on_alignment
    asked = parameter.annotation_type
    if isinstance(value, bool):
        return asked or "i1", False
    if isinstance(value, float) or value == Symbol(float):
        if asked and asked not in ("fp32", "fp64"):
            raise NotCompiled(f"a float is passed as {asked}")
        return asked or "fp32", False
    if not isinstance(value, int) and value != Symbol(int):
        raise NotCompiled(f"its parameter {parameter.name} is a {type(value).__name__}")
    if asked and asked not in INTEGERS:
        raise NotCompiled(f"an integer is passed as {asked}")
    if isinstance(value, Symbol):
        return asked or "i64", False
    if value == 1 and not parameter.do_not_specialize:
        return "constexpr", False
    if not -(2**63) <= value < 2**63:
        raise NotCompiled("an integer has more than 64 bits")
    kind = asked or ("i32" if -(2**31) <= value < 2**31 else "i64")
    return kind, value % 16 == 0 and not parameter.do_not_specialize and not parameter.do_not_specialize_on_alignment


def machine_code(
    function: Any, signature: dict, constants: dict, attributes: dict, options: dict, capability: int
) -> CompiledKernel:
    import triton
    from triton import knobs
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    try:
        source = ASTSource(function, signature, constants, attributes)
        options = {"debug": bool(function.debug) or knobs.runtime.debug, **options}
        made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    except Exception as error:
        raise NotCompiled(f"Triton does not compile it for all sizes: {type(error).__name__}") from error
    metadata = made.metadata
    odd = [name for name in ("global_scratch_size", "profile_scratch_size") if getattr(metadata, name, 0)]
    odd += [name for name in ("launch_cooperative_grid", "launch_pdl") if getattr(metadata, name, False)]
    if odd or getattr(metadata, "num_ctas", 1) != 1 or getattr(metadata, "tensordesc_meta", None):
        raise NotCompiled(f"its launch needs more than a grid ({', '.join(odd) or 'clusters or descriptors'})")
    try:
        check_parameters(made.asm["ptx"], sum(x != "constexpr" for x in signature.values()))
    except TritonError as error:
        raise NotCompiled(str(error)) from error
    return CompiledKernel(metadata.name, made.asm["cubin"], metadata.shared, metadata.num_warps)
