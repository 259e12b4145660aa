"""OpInfo beyond its sample inputs: layouts, `out=`, in-place variants, errors, vmap, forward and second gradients, sparse samples."""

import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import torch
import torch.utils._pytree as pytree
from torch.testing._internal.opinfo.core import OpInfo

from tests.databases.case import SEED, DatabaseCase, fresh, spread, tensors_of
from tests.fuzz.calls import gradients
from tests.opinfo import sweep

LAYOUTS = ("non-contiguous", "negated", "conjugated", "expanded", "reversed")
RESULTS = ("exact", "non-contiguous", "empty", "another shape", "another dtype", "integers")
SPARSE = ("coo", "csr", "csc", "bsr", "bsc")
KINDS = (
    *LAYOUTS,
    "reference",
    "other dtypes",
    "out",
    "in place",
    "errors",
    "vmap",
    "jvp",
    "second gradients",
    "grad of grad",
    "sparse",
)
# What of `sweep.EVERY_DTYPE` is left out there.
OTHER_DTYPES = (torch.int8, torch.int16, torch.uint16, torch.uint32, torch.uint64, torch.complex128, torch.complex32)


def cases(kind: str, count: int = 1, device: str = "cpu", shard: int = 0, shards: int = 1) -> Iterator[DatabaseCase]:
    """`count` samples of each operator of one shard."""
    for op in sweep.operators(shard, shards, device):
        if op.name not in sweep.UNDEFINED_VALUES:
            for name, drive in _drives(op, kind, count, device):
                yield DatabaseCase(f"{sweep.key(op)}, {kind}, {name}", drive)


def plain_drives(op: OpInfo, count: int, device: str) -> Iterator[tuple[str, Callable]]:
    """Of an operator that is in no `op_db`: calls, gradients, transforms."""
    for kind in ("calls", "vmap", "jvp", "second gradients", "grad of grad"):
        yield from ((f"{kind} {name}", drive) for name, drive in _drives(op, kind, count, device))


def _drives(op: OpInfo, kind: str, count: int, device: str) -> Iterator[tuple[str, Callable]]:
    dtype, backward = sweep.dtype_of(op, device=device), sweep.dtype_of(op, "backward", device)
    plain = lambda which="sample_inputs", dtype=dtype: _samples(op, which, count, device, dtype, False)
    differentiable = lambda which="sample_inputs": (
        _samples(op, which, count, device, backward, True) if backward else []
    )
    if dtype is None:
        return
    if kind in LAYOUTS or kind == "calls":
        if kind == "conjugated":
            supported = torch.complex64 in op.supported_dtypes(device)
            yield from ((f"{k}", _call(op, s, kind)) for k, s in (plain(dtype=torch.complex64) if supported else []))
            return
        yield from ((f"{k}", _call(op, s, kind)) for k, s in plain())
        yield from ((f"{k} with gradients", _call(op, s, kind, True)) for k, s in differentiable())
    elif kind == "reference" and op.reference_inputs_func is not None:
        yield from ((f"{k}", _call(op, s)) for k, s in plain("reference_inputs"))
        yield from ((f"{k} with gradients", _call(op, s, "plain", True)) for k, s in differentiable("reference_inputs"))
    elif kind == "other dtypes":
        for other in OTHER_DTYPES:
            if other in op.supported_dtypes(device):
                yield from ((f"{other} {k}", _call(op, s)) for k, s in plain(dtype=other))
    elif kind == "out" and op.supports_out:
        yield from ((f"{k} {how}", _out(op, s, how)) for k, s in plain() for how in RESULTS)
    elif kind == "in place" and op.inplace_variant is not None:
        yield from ((f"{k} {how}", _in_place(op, s, how)) for k, s in plain() for how in ("plain", "non-contiguous"))
        yield from ((f"{k} with gradients", _in_place_with_gradients(op, s)) for k, s in differentiable())
    elif kind == "errors" and op.error_inputs_func is not None:
        yield from ((f"{k}", _error(op, s)) for k, s in spread(op.error_inputs(device), 10 * count))
    elif kind == "vmap":
        yield from ((f"{k} {dim}", _vmap(op, s, dim)) for k, s in plain() for dim in (0, 1))
    elif kind == "jvp" and op.supports_forward_ad:
        yield from ((f"{k}", _jvp(op, s)) for k, s in differentiable())
    elif kind == "second gradients" and op.supports_gradgrad:
        yield from ((f"{k}", _second_gradients(op, s)) for k, s in differentiable())
    elif kind == "grad of grad" and op.supports_gradgrad:
        yield from ((f"{k}", _grad_of_grad(op, s)) for k, s in differentiable())
    elif kind == "sparse":
        for layout in SPARSE:
            if getattr(op, f"sample_inputs_sparse_{layout}_func", None) is not None:
                which = f"sample_inputs_sparse_{layout}"
                yield from ((f"{layout} {k}", _call(op, s)) for k, s in plain(which))
                yield from (
                    (f"{layout} {k} with gradients", _call(op, s, "plain", True)) for k, s in differentiable(which)
                )


def _samples(op: OpInfo, which: str, count: int, device: str, dtype: Any, grad: bool) -> list[tuple[int, Any]]:
    """None where the operator cannot make them: PyTorch's tests skip it then."""
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return spread(getattr(op, which)(device, dtype, requires_grad=grad), count)
    except Exception:
        return []


def as_function(operator: Callable, sample: Any) -> tuple[Callable, list[torch.Tensor]]:
    """The operator as a function of the sample's tensors, and these: what is left (sizes, flags) is a constant of the graph."""
    leaves, structure = pytree.tree_flatten(((sample.input, *sample.args), sample.kwargs))
    places = [k for k, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    constants = [None if k in places else leaf for k, leaf in enumerate(leaves)]

    def call(*tensors, **more):
        filled = list(constants)
        for place, tensor in zip(places, tensors, strict=True):
            filled[place] = tensor
        args, kwargs = pytree.tree_unflatten(filled, structure)
        return operator(*args, **kwargs, **more)

    return call, [leaves[k] for k in places]


def _call(op: OpInfo, sample: Any, layout: str = "plain", grad: bool = False) -> Callable:
    call, tensors = as_function(op.op, sample)

    def drive(compiled, see):
        inputs = [fresh(x, layout, grad) for x in tensors]
        torch.manual_seed(SEED)
        with torch.set_grad_enabled(grad):
            results = compiled(call)(*inputs)
        see(results, inputs)
        if wanted := [x for x in inputs if x.requires_grad]:
            see(gradients(results, wanted))

    return drive


def _out(op: OpInfo, sample: Any, how: str) -> Callable:
    call, tensors = as_function(op.op, sample)

    def given(x):
        made = torch.full_like(x, 1)
        if how == "non-contiguous":
            return fresh(made, how)
        if how == "empty":
            return x.new_empty(0)
        if how == "another shape":
            return made.expand(3, *x.shape).clone()
        if how == "another dtype":
            return made.to(torch.float64 if x.dtype == torch.float32 else torch.float32)
        return made.to(torch.int64) if how == "integers" else made

    def drive(compiled, see):
        torch.manual_seed(SEED)
        with torch.no_grad():
            out = pytree.tree_map(given, call(*(fresh(x, grad=False) for x in tensors)))
            out = tuple(out) if isinstance(out, tuple | list) else out
            inputs = [fresh(x, grad=False) for x in tensors]
            torch.manual_seed(SEED)
            results = compiled(lambda out, *given: call(*given, out=out))(out, *inputs)
        see(results, out, inputs)

    return drive


def _in_place(op: OpInfo, sample: Any, layout: str) -> Callable:
    call, tensors = as_function(op.inplace_variant, sample)

    def drive(compiled, see):
        inputs = [fresh(x, layout, False) for x in tensors]
        torch.manual_seed(SEED)
        with torch.no_grad():
            see(compiled(lambda *given: call(*given))(*inputs), inputs, inputs[0]._version)

    return drive


def _in_place_with_gradients(op: OpInfo, sample: Any) -> Callable:
    call, tensors = as_function(op.inplace_variant, sample)

    def of_copy(first, *others):
        copy = first.clone()
        return call(copy, *others), copy

    def drive(compiled, see):
        inputs = [fresh(x) for x in tensors]
        torch.manual_seed(SEED)
        results = compiled(of_copy)(*inputs)
        see(results, inputs)
        see(gradients(results, [x for x in inputs if x.requires_grad]))

    return drive


def _error(op: OpInfo, error: Any) -> Callable:
    call, tensors = as_function(op.op, error.sample_input)

    def drive(compiled, see):
        inputs = [fresh(x) if x.device.type != "meta" else x for x in tensors]
        torch.manual_seed(SEED)
        see(compiled(lambda *given: call(*given))(*inputs), inputs)

    return drive


def _vmap(op: OpInfo, sample: Any, dim: int) -> Callable:
    call, tensors = as_function(op.op, sample)

    def drive(compiled, see):
        places = tuple(min(dim, x.dim()) for x in tensors)
        inputs = [torch.stack([x.detach()] * 3, k) for x, k in zip(tensors, places, strict=True)]
        mapped = lambda *given: torch.func.vmap(call, in_dims=places, randomness="different")(*given)
        torch.manual_seed(SEED)
        with torch.no_grad():
            see(compiled(mapped)(*inputs) if inputs else None, inputs)

    return drive


def _jvp(op: OpInfo, sample: Any) -> Callable:
    call, tensors = as_function(op.op, sample)
    wanted = [k for k, x in enumerate(tensors) if x.requires_grad]

    def along(tangents, *inputs):
        def of(*some):
            every = list(inputs)
            for k, x in zip(wanted, some, strict=True):
                every[k] = x
            return call(*every)

        return torch.func.jvp(of, tuple(inputs[k] for k in wanted), tuple(tangents))

    def drive(compiled, see):
        inputs = [fresh(x, grad=False) for x in tensors]
        torch.manual_seed(SEED)
        tangents = [torch.randn_like(inputs[k]) for k in wanted]
        see(compiled(along)(tangents, *inputs) if wanted else None, inputs)

    return drive


def _second_gradients(op: OpInfo, sample: Any) -> Callable:
    call, tensors = as_function(op.op, sample)

    def drive(compiled, see):
        inputs = [fresh(x) for x in tensors]
        torch.manual_seed(SEED)
        results = compiled(lambda *given: call(*given))(*inputs)
        if wanted := [x for x in inputs if x.requires_grad]:
            first = gradients(results, wanted, create_graph=True)
            see(results, first)
            see(gradients(first, wanted))

    return drive


def _grad_of_grad(op: OpInfo, sample: Any) -> Callable:
    call, tensors = as_function(op.op, sample)
    wanted = tuple(k for k, x in enumerate(tensors) if x.requires_grad)

    def squares(tree):
        parts = [x for x in tensors_of(tree) if x.is_floating_point() or x.is_complex()]
        return sum((torch.view_as_real(x) if x.is_complex() else x).square().sum() for x in parts)

    def second(*inputs):
        first = torch.func.grad(lambda *given: squares(call(*given)), argnums=wanted)
        return torch.func.grad(lambda *given: squares(first(*given)), argnums=wanted)(*inputs)

    def drive(compiled, see):
        inputs = [fresh(x, grad=False) for x in tensors]
        torch.manual_seed(SEED)
        see(compiled(second)(*inputs) if wanted else None)

    return drive
