"""Native ATen calls through routines of PyTorch's C shim.

The shim's header, which comes with torch, lists the routines; the C parameters follow from the operator's schema:

    aten::convolution(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, ...) -> Tensor
    aoti_torch_cpu_convolution(AtenTensorHandle input, AtenTensorHandle weight, AtenTensorHandle* bias,
                               const int64_t* stride, int64_t stride_len_, ..., AtenTensorHandle* ret0)

Each device has routines of its own. What changes or returns its operands is not called so. dispatcher_call.py has
operators without a routine.
"""

import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

from mlirc.codegen.abi import shim
from mlirc.codegen.abi.composites import is_composite
from mlirc.codegen.aten.stored_numbers import StoredNumber, beside, number_of
from mlirc.codegen.frame.frame import Frame, HostBuffer, Number
from mlirc.dialects.core import aten_arguments, symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.tensor_types import KERNEL_DTYPES, info_of
from mlirc.dialects.lazy_dataclass import dataclass

IN_MEMORY = {
    *("mm", "bmm", "addmm", "baddbmm", "sum", "mean", "cumsum", "cat", "clone", "index", "index_put", "gather"),
    *("zeros", "full", "roll", "complex", "polar", "view_as_complex", "constant_pad_nd", "slice_backward"),
}
"""Operators that give no lazy result: it need not be asked."""
OF_TENSORS = {"addmv", "addbmm"}
"""Routines whose Scalars do not decide about the result's dtype."""
STORAGE_READERS = {"as_strided_copy", "as_strided_scatter", "select_scatter", "slice_scatter", "diagonal_scatter"}
"""What they read or copy is the operand's storage: more than the memory of its elements. The dispatcher gets a tensor of that storage."""


class NotNative(Exception):
    """This call cannot be made from native code; the text says why."""


@cache
def routines(device: str = "cpu") -> dict[str, tuple[str, ...]]:
    """The C types of each routine's parameters, results included, by its name without the prefix "aoti_torch_cpu_"."""
    folder = Path(torch.__file__).parent / "include/torch/csrc/inductor/aoti_torch"
    headers = [folder / f"generated/c_shim_{device}.h", folder / f"c/shim_{device}.h"]  # written by a tool, and by hand
    text = "\n".join(path.read_text() for path in headers if path.exists())
    found = re.findall(rf"\baoti_torch_{device}_(\w+)\(([^;]*)\);", text)
    return {name: tuple(re.sub(r"\s*\w+$", "", p.strip()) for p in params.split(",")) for name, params in found}


WANTED, UNWANTED, NUMBER = "wanted", "unwanted", "number"


@dataclass(frozen=True)
class NativeCall:
    """A call that native code can make.

    kinds      for each result of the schema: WANTED, or what the graph leaves out: UNWANTED, a tensor, or a NUMBER
    write      writes the call, given a place in the frame for each result; its status, an i32
    take       writes, after a success, what brings the results' handles to those places
    """

    kinds: list[str]
    write: Callable[[list[str]], str]
    take: Callable[[list[str]], None] = lambda places: None


def routine_call(frame: Frame, op: Any, function: Any, operands: Sequence[HostBuffer | Number]) -> NativeCall:
    """The call by the shim's routine for `function`. Writes nothing yet; raises NotNative."""
    kinds = kinds_of(function, op)
    if reads_storage(function):
        raise NotNative("it reads all of its operand's storage")
    device = one_device(op)
    name = routine_name(function, device)
    types: list[str] = []
    steps: list[Step] = []
    inexact = gives_real_numbers(op) or name in OF_TENSORS
    for argument, given in given_arguments(function, op):
        c_types, convert = conversion_of(argument, CONVERSIONS)
        types += c_types
        steps.append((REAL.get(convert, convert) if inexact else convert)(frame, given, operands))
    types += ["int64_t*" if kind == NUMBER else "AtenTensorHandle*" for kind in kinds]
    if tuple(types) != routines(device)[name]:
        raise NotNative("the routine's parameters are not those of the schema")
    signature = f"i32 ({', '.join(map(llvm_type, types))})"

    def write(places: list[str]) -> str:
        arguments = [x for step in steps for x in step()]
        return frame.text.call(f"aoti_torch_{device}_{name}", signature, *arguments, *places)

    return NativeCall(kinds, write)


def gives_real_numbers(op: Any) -> bool:
    """Whether all results have a dtype of floating-point or complex numbers, which an operand has too: no integer Scalar decides about it."""
    given, made = (
        [info_of(x).dtype for x in values if isinstance(x.type, ir.RankedTensorType)]
        for values in (op.operands, op.results)
    )
    return bool(made) and all((dtype.is_floating_point or dtype.is_complex) and dtype in given for dtype in made)


def one_device(op: Any) -> str:
    """The type of the device that all tensors of the call are on."""
    devices = {info_of(x).device for x in (*op.operands, *op.results) if isinstance(x.type, ir.RankedTensorType)}
    if len(devices) > 1:
        raise NotNative(f"its tensors are on {' and '.join(sorted(devices))}")
    return torch.device(devices.pop()).type if devices else "cpu"


def routine_name(function: Any, device: str) -> str:
    overload = "" if function._overloadname == "default" else f"_{function._overloadname}"
    name = function._schema.name.removeprefix("aten::").replace("::", "_") + overload
    if name not in routines(device):
        raise NotNative("the C shim has no routine for it")
    return name


def kinds_of(function: Any, op: Any) -> list[str]:
    """The kinds of the results of the schema; raises NotNative if native code may not make this call."""
    if not isinstance(function, torch._ops.OpOverload):
        raise NotNative("only Python can call it")
    if function.namespace not in ("aten", "mkldnn"):
        raise NotNative(f"an operator of '{function.namespace}'; native code calls those of 'aten'")
    schema = function._schema
    types = [str(result.real_type) for result in schema.returns]
    returned = any(r.alias_info is not None for r in schema.returns)
    if gives_list(function) and not schema.is_mutable and not returned and not schema.name.startswith("aten::unsafe_"):
        return [WANTED] * len(op.results)
    if ((schema.is_mutable or returned) and not changes_first(schema)) or set(types) - {"Tensor", "int"}:
        raise NotNative("it changes or returns its operands, or gives something else than tensors")
    if is_composite(function):
        raise NotNative("it may return its operand")
    if function._schema.name == "aten::set_":
        raise NotNative("it keeps its operand's storage")
    if any(info_of(x).layout != "strided" for x in op.results if isinstance(x.type, ir.RankedTensorType)):
        raise NotNative("its result is in a layout of the library's own")
    if "present" in op.attributes:
        present = symbols.parse_numbers(attribute_value(op.attributes["present"]))
        left_out = [UNWANTED if type_ == "Tensor" else NUMBER for type_ in types]
        return [WANTED if k in present else kind for k, kind in enumerate(left_out)]
    if "int" in types:
        raise NotNative("it gives a number that depends on data")
    if len(op.results) == len(types):
        return [WANTED] * len(types)
    positional, _ = aten_arguments.parse(attribute_value(op.attributes["args"]))
    for argument, given in zip(schema.arguments, positional, strict=False):
        if argument.name == "output_mask" and given.count(True) == len(op.results):
            return [WANTED if wanted else UNWANTED for wanted in given]
    raise NotNative("some results are left out, and no output_mask says which")


def gives_resolved(function: Any) -> bool:
    """Whether a complex result is known to be no conjugated view, which linalg_lu_solve, say, gives of operands that are none."""
    name = function._schema.name.removeprefix("aten::")
    return torch.Tag.pointwise in function.tags or name.startswith("_fft_") or name in IN_MEMORY


def gives_list(function: Any) -> bool:
    """Whether its result is a list of tensors."""
    return [str(result.real_type) for result in function._schema.returns] == ["List[Tensor]"]


def reads_storage(function: Any) -> bool:
    return function._schema.name.removeprefix("aten::") in STORAGE_READERS


def changes_first(schema: Any) -> bool:
    """Whether the operator changes its first operand and returns it, and does neither with any other: add_, index_copy_."""
    if len(schema.returns) != 1 or schema.returns[0].alias_info is None or not schema.arguments:
        return False
    first, *others = [argument.alias_info for argument in schema.arguments]
    same = first is not None and first.is_write and first.before_set == schema.returns[0].alias_info.before_set
    return same and all(other is None for other in others)


def given_arguments(function: Any, op: Any) -> list[tuple[Any, Any]]:
    """The schema's arguments, each with its JSON."""
    positional, keywords = aten_arguments.parse(attribute_value(op.attributes["args"]))
    given = []
    for position, argument in enumerate(function._schema.arguments):
        if position < len(positional):
            given.append((argument, positional[position]))
        elif argument.name in keywords:
            given.append((argument, keywords[argument.name]))
        elif argument.has_default_value():
            given.append((argument, default_of(argument)))
        else:
            raise NotNative(f"argument {argument.name} is missing")
    return [(argument, stored_if_number(function, op, argument, x)) for argument, x in given]


def stored_if_number(function: Any, op: Any, argument: Any, given: Any) -> Any:
    """What is given for an argument; of a number in place of a tensor, one in memory."""
    value = number_of(given) if str(argument.real_type) == "Tensor" else None
    return given if value is None else number_in_memory(function, op, value)


def number_in_memory(function: Any, op: Any, value: complex) -> StoredNumber:
    """The number as a tensor of rank 0, for an elementwise operator."""
    if torch.Tag.pointwise not in function.tags:
        raise NotNative("a number stands for a tensor")
    if isinstance(value, bool) and function._schema.name in ("aten::sub", "aten::rsub"):
        raise NotNative("eager refuses to subtract booleans")
    try:
        return beside(value, [info_of(x) for x in op.operands if isinstance(x.type, ir.RankedTensorType)])
    except ValueError as reason:
        raise NotNative(str(reason)) from reason


def default_of(argument: Any) -> Any:
    """The JSON of an argument's default. That of a dtype is a number in the schema, the C shim's."""
    default = argument.default_value
    if default is None or "ScalarType" not in str(argument.real_type):
        return default
    return next(
        ({"dtype": str(d).removeprefix("torch.")} for d in KERNEL_DTYPES if shim.dtype_code(d) == default), default
    )


def conversion_of(argument: Any, conversions: dict[str, Any]) -> Any:
    kind = re.sub(r"\bSymInt\b", "int", str(argument.real_type))
    if kind not in conversions:
        raise NotNative(f"argument {argument.name} is of type {kind}")
    return conversions[kind]


# ---- arguments. A conversion reads the JSON of one argument, or raises NotNative; what it returns writes the C ones.

Step = Callable[[], list[str]]


def operand_of(given: Any, operands: Sequence[HostBuffer | Number]) -> Any:
    """The operand that the JSON refers to, or None."""
    return operands[given["$"]] if isinstance(given, dict) and "$" in given else None


def tensor(frame: Frame, given: Any, operands: Sequence[HostBuffer | Number]) -> Step:
    if isinstance(given, StoredNumber):
        return lambda: [frame.plain(given.buffer(frame))]
    x = operand_of(given, operands)
    if not isinstance(x, HostBuffer):
        raise NotNative("a number stands for a tensor")
    if x.root.kind == "number":
        return lambda: [frame.load("ptr", frame.of_number(x))]
    return lambda: [frame.plain(x)]


def integer(frame: Frame, given: Any, operands: Sequence[HostBuffer | Number]) -> Step:
    if type(given) is int:
        return lambda: [str(given)]
    if isinstance(given, dict) and "size" in given:
        expr = symbols.parse(given["size"])
        return lambda: [frame.sizes.of(expr)]
    x = operand_of(given, operands)
    if isinstance(x, Number) and x.letter == "i":
        return lambda: [x.value]
    raise NotNative(f"{given} is no integer")


def real(frame: Frame, given: Any, operands: Sequence[HostBuffer | Number]) -> Step:
    if type(given) in (int, float):
        return lambda: [shim.double_text(float(given))]
    if isinstance(given, dict) and "float" in given:
        return lambda: [shim.double_text(float(given["float"]))]
    x = operand_of(given, operands)
    if isinstance(x, Number) and x.letter == "f":
        return lambda: [x.value]
    if isinstance(x, HostBuffer) and (x.info.dtype, x.info.rank, x.info.device) == (torch.float64, 0, "cpu"):
        return lambda: [frame.load("double", frame.address(x))]  # a number that may change is such a tensor
    raise NotNative(f"{given} is no float")


def scalar(frame: Frame, given: Any, operands: Sequence[HostBuffer | Number]) -> Step:
    """The shim takes a double for a Scalar: an integer would turn into a float there, and change the dtype of an integer's result."""
    if type(given) is int or isinstance(given, bool):
        raise NotNative("an integer Scalar")
    return real(frame, given, operands)


def scalar_of_real(frame: Frame, given: Any, operands: Sequence[HostBuffer | Number]) -> Step:
    """A Scalar that an integer as a double gives the same results for, up to 2**53."""
    exact = type(given) is int and abs(given) <= 2**53
    return real(frame, given, operands) if exact else scalar(frame, given, operands)


def boolean(frame: Frame, given: Any, operands: Sequence[HostBuffer | Number]) -> Step:
    if not isinstance(given, bool):
        raise NotNative(f"{given} is no bool")
    return lambda: [str(int(given))]


def dtype(frame: Frame, given: Any, operands: Sequence[HostBuffer | Number]) -> Step:
    if not isinstance(given, dict) or "dtype" not in given:
        raise NotNative(f"{given} is no dtype")
    return lambda: [str(shim.dtype_code(getattr(torch, given["dtype"])))]


def string(frame: Frame, given: Any, operands: Sequence[HostBuffer | Number]) -> Step:
    if not isinstance(given, str):
        raise NotNative(f"{given} is no text")
    return lambda: [frame.text.string(given)]


def items(given: Any) -> list[Any]:
    if isinstance(given, dict) and "tuple" in given:
        return given["tuple"]
    if not isinstance(given, list):
        raise NotNative(f"{given} is no list")
    return given


def listed(convert: Callable, type_: str) -> Callable:
    """A list: the address of an array, and its length."""

    def step(frame: Frame, given: Any, operands: Sequence[HostBuffer | Number]) -> Step:
        steps = [convert(frame, x, operands) for x in items(given)]

        def write() -> list[str]:
            values = [x for step in steps for x in step()]
            return [array(frame, type_, values), str(len(values))]

        return write

    return step


def array(frame: Frame, type_: str, values: list[str]) -> str:
    if not values:
        return "null"
    whole = f"[{len(values)} x {type_}]"
    if not any(x.startswith("%") for x in values):
        return frame.text.constant(f"{whole} [{', '.join(f'{type_} {x}' for x in values)}]")
    at = frame.text.place(whole, "list")
    for k, x in enumerate(values):
        place = frame.text.value(f"getelementptr {type_}, ptr {at}, i64 {k}")
        frame.text.line(f"store {type_} {x}, ptr {place}")
    return at


def optional(convert: Callable, type_: str) -> Callable:
    """The address of the value, or null; a list's length stays beside it."""

    def step(frame: Frame, given: Any, operands: Sequence[HostBuffer | Number]) -> Step:
        if given is None:
            return lambda: ["null", "0"] if convert in LISTS else ["null"]
        inner = convert(frame, given, operands)

        def write() -> list[str]:
            value, *length = inner()
            at = frame.text.place(type_, "optional")
            frame.text.line(f"store {type_} {value}, ptr {at}")
            return [at, *length]

        return write

    return step


integers, booleans = listed(integer, "i64"), listed(boolean, "i32")
optional_scalar = optional(scalar, "double")
REAL = {scalar: scalar_of_real, optional_scalar: optional(scalar_of_real, "double")}
LISTS = (integers,)

# type in the schema -> C types, conversion
CONVERSIONS: dict[str, tuple[list[str], Callable]] = {
    "Tensor": (["AtenTensorHandle"], tensor),
    "int": (["int64_t"], integer),
    "float": (["double"], real),
    "number": (["double"], scalar),
    "bool": (["int32_t"], boolean),
    "ScalarType": (["int32_t"], dtype),
    "str": (["const char*"], string),
    "List[int]": (["const int64_t*", "int64_t"], integers),
    "List[bool]": (["const int32_t*", "int64_t"], booleans),
    "List[Tensor]": (["const AtenTensorHandle*", "int64_t"], listed(tensor, "ptr")),
    "List[Optional[number]]": (["const double**", "int64_t"], listed(optional(scalar, "double"), "ptr")),
    "Optional[Tensor]": (["AtenTensorHandle*"], optional(tensor, "ptr")),
    "Optional[int]": (["int64_t*"], optional(integer, "i64")),
    "Optional[float]": (["double*"], optional(real, "double")),
    "Optional[number]": (["double*"], optional_scalar),
    "Optional[str]": (["const char**"], optional(string, "ptr")),
    "Optional[bool]": (["int32_t*"], optional(boolean, "i32")),
    "Optional[ScalarType]": (["int32_t*"], optional(dtype, "i32")),
    "Optional[List[int]]": (["const int64_t**", "int64_t"], optional(integers, "ptr")),
}


def llvm_type(c_type: str) -> str:
    return {"int64_t": "i64", "int32_t": "i32", "double": "double"}.get(c_type, "ptr")
