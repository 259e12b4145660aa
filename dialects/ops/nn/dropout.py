"""Dropout. On an NVIDIA GPU kernels draw the random bits that eager draws. On a CPU the call goes to ATen."""

import torch

from mlirc.dialects.core import random_state
from mlirc.dialects.core.dialect import create, imports, make_attribute
from mlirc.dialects.core.graph_builder import GraphBuilder, NotOurs
from mlirc.dialects.core.import_arguments import need_floats
from mlirc.dialects.core.symbols import Int, symbol
from mlirc.dialects.core.tensor_types import TensorInfo, opmath, type_of
from mlirc.dialects.ops.nn.random import PhiloxUniform

aten = torch.ops.aten


@imports(aten.native_dropout.default)
def native_dropout(g, x, p, train=None):
    """(x / (1 - p) where the element's random number is below 1 - p, else x * 0; the mask of the former)."""
    need_floats(x)
    info = g.info(x)
    if train is False or p == 1:
        raise NotOurs("dropout that draws no random numbers")
    draw = uniform_like(g, info)
    share = rounded(1.0 - p)
    survives = g.lt(draw, share)
    scale = rounded(1.0 / share)
    wide = opmath(info.dtype)
    return g.cast(g.mul(g.mul(g.cast(x, wide), g.cast(survives, wide)), scale), info.dtype), survives


def rounded(x: float) -> float:
    return torch.tensor(x, dtype=torch.float32).item()


def uniform_like(g: GraphBuilder, info: TensorInfo):
    """A float32 in (0, 1] for each element: the numbers that dropout of such a tensor draws in eager."""
    if not info.device.startswith("cuda"):
        raise NotOurs("random numbers of a CPU, which come one after another")
    if not all(isinstance(n, int) for n in (*info.shape, *info.stride)) or not is_dense(info):
        raise NotOurs("random numbers for sizes that are not known, or for elements with gaps between them")
    if not random_state.is_native():
        raise NotOurs("this PyTorch's generator is not one that is known")
    assert isinstance(info.numel, int)
    launch = random_state.dropout_launch(info.numel, info.dtype.itemsize, info.device)
    if launch is None:
        raise NotOurs("random numbers that ATen draws for fewer than 4 elements at a time")
    index = torch.device(info.device).index or 0
    pair = TensorInfo(torch.int64, (2,), (1,), f"cuda:{index}")
    attributes = {"op": random_state.OPERATOR, "args": f"[{index}, {launch.increment}]", "aliases": "-1"}
    state = create("aten_effect", [], [type_of(pair)], attributes).operation.results[0]
    seed, counter = (g.view(state, (), (), (k,), k) for k in range(2))
    place = sum((symbol(f"d{d}") * n for d, n in enumerate(info.stride)), start=0)
    made = TensorInfo(torch.float32, info.shape, info.stride, info.device)
    return create(
        PhiloxUniform.mnemonic,
        [seed, counter, g.iota(info.shape, place)],
        [type_of(made)],
        {"width": make_attribute(launch.width), "threads": make_attribute(launch.threads)},
    ).out


def is_dense(info: TensorInfo) -> bool:
    """Whether the elements fill their memory without gaps, in any order of dimensions."""
    reach: Int = 1
    dims = {stride: n for n, stride in zip(info.shape, info.stride, strict=True) if n != 1}
    while reach in dims:
        reach = reach * dims.pop(reach)
    return not dims and reach == info.numel


@imports(aten.native_dropout_backward.default)
def native_dropout_backward(g, grad, mask, scale):
    need_floats(grad)
    wide = opmath(g.promote(grad, mask))
    return g.mul(g.mul(g.cast(grad, wide), g.cast(mask, wide)), scale)
