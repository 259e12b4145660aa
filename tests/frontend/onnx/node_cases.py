"""ONNX's own node tests, run through mlirc.compile: passed, failed or unsupported, one operator a row.

python -m tests.frontend.onnx.node_cases [--op Resize] [--part 0/8] [--eager] [--failures]
"""

import argparse
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import torch

import mlirc
from mlirc.frontend.onnx_import.graph_module import OnnxError


@cache
def cases() -> list[Any]:
    """All of them whose operator set is one that mlirc takes, in the order of their names."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.model import collect_testcases as models
        from onnx.backend.test.case.node import collect_testcases

        found = {case.name: case for case in [*collect_testcases(None), *models()]}
    return [found[name] for name in sorted(found) if found[name].model is not None and version(found[name]) >= 13]


def version(case: Any) -> int:
    return max((s.version for s in case.model.opset_import if s.domain in ("", "ai.onnx")), default=0)


def operator(case: Any) -> str:
    """The operator that a case is of."""
    if case.kind != "node":
        return f"({case.kind})"
    names = [node.op_type for node in case.model.graph.node]
    return names[0] if len(names) == 1 else max(names, key=lambda name: name.lower() in case.name.replace("_", ""))


def run(case: Any, eager: bool = False) -> str:
    """ "passed", "unsupported: why" or "failed: why"."""
    for inputs, expected in case.data_sets:
        given = [value(x) for x in inputs]
        if any(x is None for x in (*given, *map(value, expected))):
            return "unsupported: a value that is no tensor of numbers"
        try:
            if eager:
                from mlirc.frontend.package.from_onnx import onnx_module

                module, args, _ = onnx_module(case.model, tuple(given), {})
                results = module(*args)
            else:
                results = mlirc.compile(case.model, tuple(given))(*given)
        except OnnxError as error:
            return f"unsupported: {error}"
        except Exception as error:
            return f"failed: {type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
        results = results if isinstance(results, tuple | list) else [results]
        for found, wanted in zip(results, map(value, expected), strict=True):
            if why := difference(found, wanted, case):
                return f"failed: {why}"
    return "passed"


def value(x: Any) -> np.ndarray | None:
    """An array of numbers, or None."""
    if hasattr(x, "SerializeToString"):
        from onnx import TensorProto, numpy_helper

        if not isinstance(x, TensorProto):
            return None
        x = numpy_helper.to_array(x)
    if isinstance(x, np.ndarray | np.generic):
        x = np.asarray(x)
        return None if x.dtype.kind in "OSU" else x
    return np.asarray(x) if isinstance(x, int | float | bool) else None


def difference(found: torch.Tensor, wanted: np.ndarray, case: Any) -> str:
    """What is wrong with a result, or ""."""
    if tuple(found.shape) != wanted.shape:
        return f"sizes {tuple(found.shape)}, not {wanted.shape}"
    wide = found.to(torch.float64) if not found.dtype.is_complex else found
    mine, theirs = wide.numpy(), wanted.astype(np.complex128 if found.dtype.is_complex else np.float64)
    narrow = any(kind in str(wanted.dtype) for kind in ("int4", "int2"))
    if str(wanted.dtype) != str(found.dtype).removeprefix("torch.") and not narrow:
        return f"{found.dtype}, not {wanted.dtype}"
    if "bernoulli" in case.name:  # drawn
        return ""
    rtol = 4 * torch.finfo(found.dtype).eps if found.dtype in (torch.float16, torch.bfloat16) else case.rtol or 1e-3
    largest = float(np.abs(theirs[np.isfinite(theirs)]).max(initial=0.0)) if found.dtype is torch.float32 else 0.0
    atol = max(
        case.atol or 1e-7, 2 * torch.finfo(torch.float32).eps * largest
    )  # a sum of large numbers that is nearly 0
    if np.allclose(mine, theirs, rtol, atol, equal_nan=True):
        return ""
    return f"{np.nanmax(np.abs(mine - theirs))} from {case.name}"


def results(names: str = "", eager: bool = False, part: str = "0/1") -> Iterator[tuple[Any, str]]:
    """Of some operators, or of every n-th case."""
    first, step = map(int, part.split("/"))
    for case in cases()[first::step]:
        if not names or operator(case) in names.split(","):
            torch._dynamo.reset()
            yield case, run(case, eager)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--op", default="")
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--failures", action="store_true")
    given = parser.parse_args()
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for case, found in results(given.op, given.eager, given.part):
        counts[operator(case)][found.partition(":")[0]] += 1
        if given.failures and found != "passed":
            print(f"{case.name}: {found}")
        sys.stdout.flush()
    for name, row in sorted(counts.items()):
        print(f"{name:32}" + "".join(f"{kind} {row[kind]:4}  " for kind in ("passed", "failed", "unsupported")))
    total = sum(counts.values(), Counter())
    print("all", dict(total))


if __name__ == "__main__":
    main()
