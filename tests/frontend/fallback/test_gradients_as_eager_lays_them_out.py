"""Second and batched gradients of a compiled call are eager's tensors: their strides, which of them are None, need a gradient, or are one object."""

from typing import Any

import pytest
import torch
from torch import nn

from tests.fuzz.calls import total

F = nn.functional


def ones(*sizes):
    return torch.linspace(-1, 1, torch.Size(sizes).numel()).reshape(sizes)


IMAGES = {
    "as it is": lambda x: x,
    "channels last": lambda x: x.to(memory_format=torch.channels_last),
    "transposed": lambda x: x.mT,
    "one image": lambda x: x[:1],
    "one channel": lambda x: x[:, :1].expand(-1, 3, -1, -1),
    "one column": lambda x: x[..., :1],
    "one column, channels last": lambda x: x[..., :1].to(memory_format=torch.channels_last),
    "every other": lambda x: x[..., ::2],
    "permuted": lambda x: x.permute(0, 1, 3, 2).contiguous().permute(0, 1, 3, 2),
}
ROWS = {
    "as they are": lambda x: x,
    "transposed": lambda x: x.mT.contiguous().mT,
    "swapped": lambda x: x.transpose(0, 1),
    "one row": lambda x: x[:1],
    "one in the middle": lambda x: x[:, :1],
    "expanded": lambda x: x[:1].expand(3, -1, -1),
    "a new dimension": lambda x: x[0][:, None].transpose(0, 1),
    "every other": lambda x: x[::2],
}
ON_IMAGES = {  # of (2, 3, 4, 5)
    "conv": lambda x, w: F.conv2d(x, w.reshape(3, 3, 2, 2), padding=1),
    "conv of channels last": lambda x, w: F.conv2d(
        x, w.reshape(3, 3, 2, 2).to(memory_format=torch.channels_last), padding=1
    ),
    "conv of a mean": lambda x, w: F.conv2d(ones(1, 3, 3, 1) + x.mean(), w.reshape(3, 3, 2, 2), padding=1),
    "grouped conv": lambda x, w: F.conv2d(x, w[:12].reshape(3, 1, 2, 2), padding=1, groups=3).relu(),
    "transposed conv": lambda x, w: F.conv_transpose2d(x, w.reshape(3, 3, 2, 2), w[:3], stride=2),
    "batch norm": lambda x, w: F.batch_norm(x, None, None, w[:3], w[3:6], training=True),
    "group norm": lambda x, w: F.group_norm(x, 3, w[:3], w[3:6]),
    "average pool": lambda x, w: F.avg_pool2d(x, 2, 1, 1) * w[0],
    "max pool": lambda x, w: F.max_pool2d(x.sin(), 2, 1, 1) * w[0],
    "resize": lambda x, w: F.interpolate(x * x, scale_factor=2, mode="bilinear"),
    "pad": lambda x, w: F.pad(x, (1, 0, 0, 2)) * w[1],
    "mean of images": lambda x, w: x.square().mean((2, 3), keepdim=True) * x,
    "channel attention": lambda x, w: x * F.linear(x.mean((2, 3)), w[:9].reshape(3, 3)).sigmoid()[:, :, None, None],
    "dropout": lambda x, w: F.dropout(x.sin(), 0.5) * w[2],
}
ON_ROWS = {  # of (3, 4, 4)
    "linear": lambda x, w: F.linear(x, w[:16].reshape(4, 4)).tanh(),
    "product": lambda x, w: x @ w[:12].reshape(4, 3).exp(),
    "batched product": lambda x, w: x @ x.mT,
    "attention": lambda x, w: F.scaled_dot_product_attention(x[None], x[None] * w[0], x[None]),
    "softmax": lambda x, w: x.softmax(-1) * x.log_softmax(0),
    "layer norm": lambda x, w: F.layer_norm(x, x.shape[-1:], w[: x.shape[-1]]),
    "sums": lambda x, w: (x.sum(0), x.square().mean(1, keepdim=True), x.exp().sum() * w),
    "norm": lambda x, w: x / x.norm(dim=-1, keepdim=True),
    "largest": lambda x, w: (x.amax(0), x.max(1).values, x.sort(-1).values),
    "scans": lambda x, w: (x.cumsum(1), x.cumprod(2)),
    "views": lambda x, w: (x.mT.reshape(-1), x.unsqueeze(1).square(), x[..., None].expand(*x.shape, 2) * 2),
    "parts": lambda x, w: (x.sin().chunk(2, 1)[0], x.unbind(0)[-1], x[:, 0]),
    "indexed": lambda x, w: (
        x[:, [0, 0]],
        x[:, torch.tensor([0, -1, 0])].square(),
        x.gather(1, torch.zeros_like(x).long()),
    ),
    "taken": lambda x, w: F.embedding(torch.tensor([[1], [0]]), w.reshape(-1, 4)) * x[0, 0, 0],
    "put": lambda x, w: x.index_add(0, torch.tensor([0]), x[:1].sin()),
    "written": lambda x, w: (lambda y: (y[:, :1].mul_(w[0]), y)[1])(x.clone()),
    "broadcast": lambda x, w: (x * w[:1], x[:, :1] + x[:1] * w[0], torch.broadcast_tensors(x, w[0])),
    "unread": lambda x, w: (x.floor(), x[3:3, None] % 2, w * 2),
    "nothing of one": lambda x, w: (w.square(), x.detach() * 3),
    "put together": lambda x, w: (torch.cat([x, x * w[0]], 1), torch.stack([x, x.exp()], -1)),
    "where": lambda x, w: torch.where(x > 0, x * x, w[0]),
    "einsum": lambda x, w: torch.einsum("abc,cd->dab", x, w[:20].reshape(4, 5)[: x.shape[-1]]),
    "of one element": lambda x, w: (x[:1, :1, :1] * w[:1], w[5].exp()),
    "passed on": lambda x, w: (x + w[:1], x - 0, x.view_as(x), x),
}
OPERATORS = {name: (f, (2, 3, 4, 5), IMAGES) for name, f in ON_IMAGES.items()}
OPERATORS |= {name: (f, (3, 4, 4), ROWS) for name, f in ON_ROWS.items()}


def gradients(results, tensors, **how):
    return torch.autograd.grad(total(results), tensors, allow_unused=True, retain_graph=True, **how)


def second(results, tensors):
    first = gradients(results, tensors, create_graph=True)
    again = gradients([*first, tensors[0].sum()], tensors, create_graph=True)
    return first, again, gradients([*again, tensors[0].sum()], tensors)


def batched(results, tensors):
    factors = torch.tensor([1.0, -2.0, 0.5])
    found = torch.autograd.grad(
        total(results), tensors, factors, allow_unused=True, is_grads_batched=True, retain_graph=True
    )
    kept = [x for x in torch.utils._pytree.tree_leaves(results) if x.requires_grad]
    laid_out = [torch.empty_strided((3, *x.shape), (x.numel(), *x.stride())).copy_(x.detach()[None]) for x in kept]
    given = [ones(3, *x.shape) for x in kept]
    of = lambda gradients: torch.autograd.grad(
        kept, tensors, gradients, allow_unused=True, is_grads_batched=True, retain_graph=True
    )
    return found, of(given), of(laid_out)


def batched_second(results, tensors):
    factors = torch.tensor([1.0, -2.0, 0.5])
    first = torch.autograd.grad(
        total(results), tensors, factors, allow_unused=True, is_grads_batched=True, create_graph=True
    )
    return first, gradients([*first, tensors[0].sum()], tensors)


WAYS = {"second": second, "batched": batched, "batched second": batched_second}


def described(found: Any) -> list[Any]:
    """What a tensor is beside its values; of one that has no element, its strides are any."""
    objects: dict[int, int] = {}
    memory: dict[int, int] = {}
    told: list[Any] = []
    for x in torch.utils._pytree.tree_leaves(found, is_leaf=lambda x: x is None):
        if x is None:
            told.append(None)
            continue
        place = memory.setdefault(x.untyped_storage()._cdata, len(memory)), objects.setdefault(id(x), len(objects))
        strides = x.stride() if x.numel() else ()
        told.append((x.dtype, tuple(x.shape), strides, x.requires_grad, place))
    return told


def run(function, shape, layout, way):
    torch.manual_seed(0)
    leaf, w = (ones(*shape) + 0.03).requires_grad_(), (ones(36) + 0.01).requires_grad_()
    x = layout(leaf)
    results = function(x, w)
    if x._base is leaf:
        del x  # it is taken again
    found = WAYS[way](results, [leaf, w])
    return described(found), [x for x in torch.utils._pytree.tree_leaves(found) if x is not None]


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.thinned(3)
def test_gradients_are_eagers_tensors(name):
    f, shape, layouts = OPERATORS[name]
    torch._dynamo.reset()
    compiled = torch.compile(f, backend="mlirc", dynamic=False)
    wrong = []
    for layout in layouts:
        for way in WAYS:
            expected, values = run(f, shape, layouts[layout], way)
            with torch._dynamo.config.patch(recompile_limit=64):
                found, got = run(compiled, shape, layouts[layout], way)
            if found != expected:
                wrong.append((layout, way, [(x, y) for x, y in zip(found, expected, strict=True) if x != y]))
            else:
                torch.testing.assert_close(got, values, rtol=1e-4, atol=1e-4)
    assert not wrong
