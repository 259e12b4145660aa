"""OpInfo's samples as tensors on a GPU, without one: the graph and its gradients are imported, and the GPU's passes run."""

import zlib
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from mlirc.dialects.core.context import context
from mlirc.frontend.errors import UnsupportedGraph
from mlirc.frontend.importer.importer import import_graph
from mlirc.lowering.module.errors import UnsupportedByPass
from mlirc.lowering.pipeline.pass_manager import run_pipeline
from mlirc.lowering.pipeline.pipelines import pipeline
from tests.sampling import EVERYTHING

SHARDS = 8
ON_CPU = ("to_sparse", "masked.", "linalg.", "fft.", "signal.", "stft", "istft", "sparse", "jiterator", "_segment")
"""Operators of libraries, and those that ask their tensors' values: nothing of them is ours."""


@pytest.mark.parametrize("shard", [pytest.param(k, marks=() if k == 3 else pytest.mark.full) for k in range(SHARDS)])
@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.bfloat16, marks=pytest.mark.full)])
def test_samples(dtype, shard):
    wrong: list[str] = []
    tried = 0
    for op in op_db:
        if zlib.crc32(op.name.encode()) % SHARDS != shard or op.name.startswith(ON_CPU) or dtype not in op.dtypes:
            continue
        for sample in spread(list(op.sample_inputs("cpu", dtype)), 3 if EVERYTHING else 1):
            for gradients in (False, True) if op.supports_autograd and dtype in op.backward_dtypes else (False,):
                graph = traced(op.op, (sample.input, *sample.args), sample.kwargs, gradients)
                if graph is not None:
                    tried += 1
                    wrong += [f"{op.name}: {error}" for error in failures(graph)]
    assert not wrong, "\n".join(wrong)
    assert tried > 50


ACROSS = {
    "slice_scatter into it": lambda x, t, v, n: torch.slice_scatter(t, x, 0, -1, 3),
    "slice_scatter out of it": lambda x, t, v, n: torch.slice_scatter(x, torch.narrow(t, 0, 0, 2).double(), 0, 1),
    "diagonal_scatter": lambda x, t, v, n: torch.diagonal_scatter(x, v),
    "copy": lambda x, t, v, n: torch.ops.aten.copy(x, v),
    "index": lambda x, t, v, n: torch.ops.aten.index(x, [v.long()]),
    "index of two": lambda x, t, v, n: torch.ops.aten.index(x, [v.long(), torch.select(x, 1, 0).long()]),
    "index_put": lambda x, t, v, n: torch.index_put(x, (v.long(),), n),
    "index_put of a mask": lambda x, t, v, n: torch.index_put(x, (t.bool().all(1),), n),
    "index_put accumulated": lambda x, t, v, n: torch.index_put(x, (v.long(),), x, True),
    "where": lambda x, t, v, n: torch.where(n > 0, x, n),
    "arithmetic": lambda x, t, v, n: torch.addcmul(x + n, n * x, torch.lerp(x, x, n)),
    "powers": lambda x, t, v, n: torch.div(n, x.pow(n), rounding_mode="floor"),
    "fill": lambda x, t, v, n: torch.fill(x.masked_fill(x > 0, n), n) + x.clamp(n, n),
    "bucketize": lambda x, t, v, n: torch.bucketize(n, torch.select(x, 0, 0)),
}
"""Of a matrix x on a GPU, and a matrix, a vector and a number on the CPU: eager takes them."""


@pytest.mark.parametrize("name", ACROSS)
def test_operands_on_the_cpu(name):
    with FakeTensorMode():
        there = [torch.empty(3, 3, device="cuda"), torch.empty(3, 3), torch.empty(3), torch.empty(())]
        if "into" in name:
            there[0] = torch.empty(1, 3, device="cuda")
        graph = make_fx(lambda *given: [ACROSS[name](*given)])(*there)
    assert failures(graph) == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_norm_in_evaluation_returns_the_statistics_that_it_used(dtype):
    """On a GPU; on a CPU they are empty."""
    with FakeTensorMode():
        x, w = torch.empty(4, 3, 5, device="cuda", dtype=dtype), torch.empty(3, device="cuda", dtype=dtype)
        call = torch.ops.aten._native_batch_norm_legit_no_training.default
        graph = make_fx(lambda x, w, m, v: call(x, w, w, m, v, 0.1, 1e-5))(x, w, w, w)
    with context():
        module = import_graph(graph).module
        text = str(module)
    assert "rsqrt" in text and "iota" not in text, text
    assert failures(graph) == []


def spread(samples: list[Any], count: int) -> list[Any]:
    """The first, the last, and some between."""
    count = min(count, len(samples))
    return [samples[k * (len(samples) - 1) // max(count - 1, 1)] for k in range(count)]


def traced(function: Any, args: tuple, kwargs: dict, gradients: bool) -> torch.fx.GraphModule | None:
    """Its graph on a GPU, with its gradients; None where PyTorch traces none."""
    leaves, spec = tree_flatten((args, kwargs))
    places = [k for k, x in enumerate(leaves) if isinstance(x, torch.Tensor)]

    def run(*tensors: torch.Tensor) -> list[torch.Tensor]:
        given = list(leaves)
        for k, x in zip(places, tensors, strict=True):
            given[k] = x.detach().requires_grad_(gradients and x.is_floating_point())
        args, kwargs = tree_unflatten(given, spec)
        results = [x for x in tree_leaves(function(*args, **kwargs)) if isinstance(x, torch.Tensor)]
        if not gradients:
            return results
        wanted = [given[k] for k in places if given[k].requires_grad]
        ends = [x for x in results if x.requires_grad]
        found = torch.autograd.grad(ends, wanted, [torch.ones_like(x) for x in ends], allow_unused=True)
        return [*results, *(x for x in found if x is not None)]

    tensors = [leaves[k].detach() for k in places]
    layouts = [(x.shape, x.stride(), x.dtype) for x in tensors]
    try:
        with FakeTensorMode() as mode:  # autograd itself takes no tensors on a GPU that is not there
            graph = make_fx(run)(*map(mode.from_tensor, tensors))
            there = [torch.empty_strided(shape, stride, dtype=dtype, device="cuda") for shape, stride, dtype in layouts]
            graph = make_fx(OnGpu(graph).run)(*there)
    except Exception:  # what has no meta kernel, what asks values
        return None
    targets = [n.target for n in graph.graph.nodes if isinstance(n.target, torch._ops.OpOverload)]
    return None if any(target._schema.is_mutable for target in targets) else graph  # AOTAutograd leaves none


class OnGpu(torch.fx.Interpreter):
    """Runs a graph that was traced on a CPU with tensors on a GPU."""

    def run_node(self, n: torch.fx.Node) -> Any:
        if n.kwargs.get("device") is not None:
            n.kwargs = {**n.kwargs, "device": torch.device("cuda")}
        return super().run_node(n)


def failures(graph: torch.fx.GraphModule) -> list[str]:
    with context():
        try:
            module = import_graph(graph).module
            run_pipeline(module, pipeline("gpu"))
        except (UnsupportedGraph, UnsupportedByPass):
            return []
        except Exception as error:
            return [" ".join(f"{type(error).__name__}: {error}".split())[:300]]
    return []
