"""OpInfo's samples with operands in other layouts: each operator that they call, in forward and backward passes, has eager's strides."""

from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from tests.frontend.strides.layouts import LAYOUTS, wrong

LAPACK = (
    "linalg.",
    "fft.",
    "sparse",
    "signal.",
    "ormqr",
    "cholesky",
    "lu",
    "svd",
    "pca_",
    "geqrf",
    "triangular",
    "lobpcg",
)
NOT_ASKED = (*LAPACK, "jiterator", "_segment", "masked_select", "nn.functional.ctc", "nn.functional.embedding_bag")
# the last: its second result is offsets for its gradient, with a size of its own
SHARDS = 40  # of about a minute each


class Calls(TorchDispatchMode):
    """Compares each operator that is called with what tracing makes of it."""

    def __init__(self, dynamic: bool):
        super().__init__()
        self.dynamic = dynamic
        self.seen: set[str] = set()
        self.wrong: list[str] = []
        self.passed_over: set[str] = set()  # operators of which fake tensors refuse a call that eager answers

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        drawn = torch.Tag.nondeterministic_seeded in func.tags
        key = f"{func} {tree_map(_shown, (args, kwargs))}"
        if not (func.is_view or func._schema.is_mutable or drawn or key in self.seen):
            self.seen.add(key)
            found = wrong(func, args, kwargs, self.dynamic)
            self.wrong += found or []
            result = func(*args, **kwargs)
            self.passed_over |= {str(func)} if found is None else set()
            return result
        return func(*args, **kwargs)


def _shown(x: Any) -> Any:
    return (x.dtype, x.shape, x.stride()) if isinstance(x, torch.Tensor) else x


def raised(x: Any) -> Any:
    """A tensor of rank 1 to 3 as one of rank 4, which may be channels-last."""
    if not isinstance(x, torch.Tensor) or x.layout is not torch.strided:
        return x
    y = x.detach()
    while 0 < y.dim() < 4:
        y = torch.stack([y, y])
    return y.requires_grad_(x.requires_grad)


def laid_out(layout: str, x: Any) -> Any:
    if not isinstance(x, torch.Tensor) or x.layout is not torch.strided:
        return x
    return LAYOUTS[layout](x.detach()).requires_grad_(x.requires_grad)


@pytest.mark.full
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.int64, torch.bool, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_samples(shard, dtype, dynamic):
    calls = Calls(dynamic)
    for op in op_db[shard::SHARDS]:
        if dtype not in op.dtypes or op.name.startswith(NOT_ASKED):
            continue
        differentiable = op.supports_autograd and dtype in op.backward_dtypes and dtype.is_floating_point
        samples = op.sample_inputs("cpu", dtype, requires_grad=differentiable)
        for sample, layout in ((s, n) for _, s in zip(range(3), samples, strict=False) for n in LAYOUTS):
            try:
                given = tree_map(lambda x, n=layout: laid_out(n, x), (sample.input, sample.args, sample.kwargs))
                with calls:
                    differentiate(op(given[0], *given[1], **given[2]), given)
            except (RuntimeError, ValueError, TypeError, NotImplementedError, IndexError):
                pass  # of a layout that the operator refuses
    assert calls.seen and not calls.wrong, "\n".join(calls.wrong[:40])
    assert len(calls.passed_over) <= len(calls.seen) // 50, f"fake tensors refuse calls of {sorted(calls.passed_over)}"


@pytest.mark.full
@pytest.mark.parametrize("shard", range(SHARDS))
def test_samples_of_rank_4(shard):
    """Most samples have fewer dimensions than images have; operators that refuse such arguments are passed over."""
    calls = Calls(False)
    for op in op_db[shard::SHARDS]:
        if torch.float32 not in op.dtypes or op.name.startswith(NOT_ASKED) or not op.supports_autograd:
            continue
        samples = op.sample_inputs("cpu", torch.float32, requires_grad=True)
        layouts = ("row-major", "channels-last")
        for sample, layout in ((s, n) for _, s in zip(range(4), samples, strict=False) for n in layouts):
            given = tree_map(raised, (sample.input, sample.args, sample.kwargs))
            given = tree_map(lambda x, n=layout: laid_out(n, x), given)
            try:
                with calls:
                    differentiate(op(given[0], *given[1], **given[2]), given)
            except (RuntimeError, ValueError, TypeError, NotImplementedError, IndexError, AssertionError):
                pass
    assert calls.seen and not calls.wrong, "\n".join(calls.wrong[:40])


def differentiate(results: Any, given: Any) -> None:
    outputs = [x for x in tree_leaves(results) if isinstance(x, torch.Tensor) and x.requires_grad]
    inputs = [x for x in tree_leaves(given) if isinstance(x, torch.Tensor) and x.requires_grad]
    if outputs and inputs:
        gradients = [laid_out("transposed", torch.ones_like(x).detach()) for x in outputs]
        torch.autograd.grad(outputs, inputs, gradients, allow_unused=True)
