"""The header of a model for C: the tables that say what it takes and gives, around the text of c_functions.py."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from mlirc.codegen.frame.failures import FailureSite
from mlirc.codegen.standalone.object_file import Kind
from mlirc.dialects.core.tensor_info import TensorInfo
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.frontend.package.c_functions import FUNCTIONS
from mlirc.lowering.target import CpuTarget

DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
)
"""Dtypes by their numbers in C."""

MOST_RANK = 8

FEATURES = {
    64: ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx2", "fma", "bmi", "bmi2"),
    32: ("avx2", "fma", "bmi", "bmi2"),
    16: ("sse4.2", "popcnt"),
}
"""What C asks a processor for, by the bytes of a vector."""


@dataclass(frozen=True)
class CArgument:
    """What a call gives: a tensor, or an integer, which is a tensor of int64 without dimensions."""

    name: str
    dtype: torch.dtype
    rank: int
    written: bool = False
    integer: bool = False


@dataclass(frozen=True)
class CWeight:
    """A weight: its place in NAME_data, its type, and where it lies among the arguments of @graph."""

    name: str
    x: torch.Tensor
    offset: int


@dataclass(frozen=True)
class CModel:
    """What the header says.

    places   of each argument of @graph: ("weight", k), ("argument", k) or ("number", k)
    ranges   of each symbol: the least and the largest value
    conditions  as people write them
    """

    name: str
    arguments: Sequence[CArgument]
    results: Sequence[TensorInfo | None]
    weights: Sequence[CWeight]
    places: Sequence[tuple[str, int]]
    ranges: Mapping[str, tuple[int | None, int | None]]
    conditions: Sequence[str]
    kinds: Sequence[Kind]


def header(model: CModel) -> str:
    """The text of NAME.h."""
    text = FUNCTIONS.replace("@TABLES@", "\n".join(tables(model))).replace("@GUARD@", f"MLIRC_{model.name.upper()}_H")
    used = f"{model.name}_run takes {signature(model)}."
    return text.replace("@USE@", used).replace("NAME", model.name)


def signature(model: CModel) -> str:
    """What a call takes and gives, for people."""
    takes = ", ".join(f"{a.name}: {c_dtype(a.dtype)}[{a.rank} dimensions]" for a in model.arguments) or "nothing"
    gives = ", ".join("int64" if x is None else f"{c_dtype(x.dtype)}[{x.rank} dimensions]" for x in model.results)
    return f"({takes}) and gives ({gives})".replace("*/", "* /")


def tables(model: CModel) -> list[str]:
    arguments, results = model.arguments, model.results
    lines = [
        *(f"#define NAME_{c_dtype(dtype)} {k}" for k, dtype in enumerate(DTYPES)),
        *(f"#define {key} {value}" for key, value in {
            "NAME_INPUTS": len(arguments),
            "NAME_OUTPUTS": len(results),
            "NAME_WEIGHTS": len(model.weights),
            "NAME__SYMBOLS": len(model.ranges),
            "NAME__CONDITIONS": len(model.conditions),
            "NAME__PLACES": len(model.places),
            "NAME__KINDS": len(model.kinds),
            "NAME__SIZES": sum(1 if a.integer else a.rank for a in arguments),
            "NAME__NUMBERS": sum(1 if a.integer else 2 * a.rank for a in arguments) + 2 * sum(0 if x is None else x.rank for x in results)
            + len(model.conditions) + len(model.kinds),
        }.items()),
        "extern const unsigned char NAME_data[];",
        "extern void NAME_bind(const int64_t *, int64_t *);",
        "extern void NAME_describe(const int64_t *, int64_t *);",
    ]  # fmt: skip
    for kind in model.kinds:
        lines += [
            f"extern int64_t NAME_{kind.name}_graph(void **, void **, const int64_t *, void *, int64_t, int64_t *);",
            f"extern int32_t NAME_{kind.name}_ready(void);",
        ]
    lines += table("NAME__type NAME__inputs", [entry(a.name, a.dtype, a.rank, (), ()) for a in arguments])
    lines += table("int NAME__written", [str(int(a.written)) for a in arguments])
    lines += table("int NAME__integer", [str(int(a.integer)) for a in arguments])
    outputs = [(torch.int64, 0) if x is None else (x.dtype, x.rank) for x in results]
    lines += table("NAME__type NAME__outputs", [entry(f"result {k}", *x, (), ()) for k, x in enumerate(outputs)])
    weights = [entry(w.name, w.x.dtype, w.x.dim(), w.x.shape, w.x.stride()) for w in model.weights]
    lines += table("NAME__type NAME__weights", weights)
    lines += table("size_t NAME__offsets", [str(w.offset) for w in model.weights])
    codes = {"weight": 0, "argument": 1, "number": 2}
    lines += table("NAME__place NAME__places", [f"{{{codes[kind]}, {k}}}" for kind, k in model.places])
    limits = [
        f"{{{c_text(symbol)}, {number(low, 'INT64_MIN')}, {number(high, 'INT64_MAX')}}}"
        for symbol, (low, high) in model.ranges.items()
    ]
    lines += table("NAME__range NAME__ranges", limits)
    lines += table("char *const NAME__conditions", [c_text(x) for x in model.conditions])
    for kind in model.kinds:
        lines += table(f"char *const NAME__{kind.name}_sites", [c_text(said(x)) for x in kind.program.sites])
    kinds = [
        f"{{{c_text(kind.name)}, NAME_{kind.name}_graph, NAME_{kind.name}_ready, NAME__{kind.name}_sites}}"
        for kind in model.kinds
    ]
    lines += table("NAME__kind NAME__kinds", kinds)
    lines += ["static inline int NAME__has(int kind) {", "    __builtin_cpu_init();"]
    lines += [f"    if (kind == {k}) return {has(kind.target)};" for k, kind in enumerate(model.kinds)]
    return [*lines, "    return 0;", "}"]


def has(target: CpuTarget) -> str:
    """Whether the processor is of the target's kind, as an expression of C."""
    wanted = [*FEATURES[target.vector_bytes], *(["avx512bf16"] if target.bf16_pairs else [])]
    return " && ".join(f'__builtin_cpu_supports("{feature}")' for feature in wanted)


def table(what: str, entries: Sequence[str]) -> list[str]:
    """A constant array; C has none without elements."""
    return [f"static const {what}[] = {{{', '.join(entries) or ('{0}' if what.startswith('NAME') else '0')}}};"]


def entry(name: str, dtype: torch.dtype, rank: int, sizes: Sequence[int], strides: Sequence[int]) -> str:
    numbers = (f"{{{', '.join(map(str, x)) or '0'}}}" for x in (sizes, strides))
    return f"{{{c_text(name)}, {DTYPES.index(dtype)}, {dtype.itemsize}, {rank}, {', '.join(numbers)}}}"


def said(site: FailureSite) -> str:
    """What failed, and where in the user's source."""
    return f"{site.message or site.op} ({site.location})" if site.location else site.message or site.op


def number(n: int | None, otherwise: str) -> str:
    return otherwise if n is None else f"INT64_C({n})"


def c_dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def c_text(text: Any) -> str:
    """A string of C's."""
    safe = re.sub(r'["\\?]|[^ -~]', lambda m: "".join(f"\\{byte:03o}" for byte in m[0].encode()), str(text))
    return f'"{safe}"'
