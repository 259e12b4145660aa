"""Results of operators of several dtypes have the dtype of eager's kernel, whatever PyTorch's meta function promises."""

import itertools
import random

import pytest
import torch

from mlirc.frontend.strides.kernel_dtypes import UNTAGGED

aten = torch.ops.aten
DTYPES = torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.bool, torch.int64
NUMBERS = {"reduction": 0, "beta": 1.0, "delta": 1.0, "scale": 2.0, "training": True}
COMPOSITE = (aten.mish_backward.default,)  # AOTAutograd takes it apart before any fake tensor sees it


def operators():
    """All elementwise operators on two or three tensors and perhaps numbers."""
    found = [x for x in UNTAGGED if x not in COMPOSITE]
    for full_name in torch._C._dispatch_get_all_op_names():
        name, _, overload = full_name.removeprefix("aten::").partition(".")
        if full_name.startswith("aten::") and not name.startswith("_"):
            operator = getattr(getattr(aten, name), overload or "default")
            gives_tensors = all(isinstance(r.type, torch.TensorType) for r in operator._schema.returns)
            if torch.Tag.pointwise in operator.tags and gives_tensors:
                found.append(operator)
    return sorted(set(found), key=str)


def arguments(operator, dtypes, ranks):
    """Operands of these dtypes and ranks, and a number for each other argument that has no default; None for another operator."""
    needed = [a for a in operator._schema.arguments if not a.has_default_value()]
    tensors = [a for a in needed if isinstance(a.type, torch.TensorType)]
    others = {"number", "int", "float", "bool", "Scalar"}
    if len(tensors) != len(dtypes) or operator._schema.is_mutable or any(a.kwarg_only for a in needed):
        return None
    if any(str(a.type) not in others for a in needed if a not in tensors):
        return None
    operands = iter([torch.arange(1, 1 + 3**r).reshape((3,) * r).to(d) for d, r in zip(dtypes, ranks, strict=True)])
    return [next(operands) if a in tensors else NUMBERS.get(a.name, 1) for a in needed]


def dtypes_of(results):
    return [x.dtype for x in (results if isinstance(results, tuple | list) else (results,))]


def members():
    """Calls whose meta function promises another dtype than the kernel gives, and as many others."""
    lying, honest, draw = {}, [], random.Random(0)
    for operator, count in itertools.product(operators(), (2, 3)):
        if arguments(operator, DTYPES[:count], (0,) * count) is None:
            continue
        kinds = itertools.product(itertools.product(DTYPES, repeat=count), itertools.product((0, 1), repeat=count))
        for dtypes, ranks in draw.sample(list(kinds), 12):
            args = arguments(operator, dtypes, ranks)
            if len(set(dtypes)) == 1:
                continue
            try:
                found = dtypes_of(operator(*args))
                promised = dtypes_of(operator(*[x.to("meta") if isinstance(x, torch.Tensor) else x for x in args]))
            except (RuntimeError, NotImplementedError):
                continue
            if found != promised:
                lying.setdefault(operator, []).append((operator, args))
            else:
                honest.append((operator, args))
    chosen = [call for calls in lying.values() for call in draw.sample(calls, min(2, len(calls)))]
    return chosen + draw.sample(honest, len(chosen)), lying


@pytest.mark.filterwarnings("ignore")
def test_results_have_the_dtype_of_eager():
    calls, lying = members()
    assert len(lying) >= 5

    def all_of_them(arguments):
        return [operator(*args) for (operator, _), args in zip(calls, arguments, strict=True)]

    operands = [args for _, args in calls]
    torch._dynamo.reset()
    found = torch.compile(all_of_them, backend="mlirc", options={"fallback": "error"})(operands)
    for (operator, args), one, other in zip(calls, all_of_them(operands), found, strict=True):
        what = str(operator), [(x.dtype, x.dim()) for x in args if isinstance(x, torch.Tensor)]
        for x, y in zip(*[r if isinstance(r, tuple | list) else (r,) for r in (one, other)], strict=True):
            assert (x.dtype, x.shape) == (y.dtype, y.shape), what
            torch.testing.assert_close(y, x, equal_nan=True, rtol=0.02, atol=0.02, msg=str(what))
