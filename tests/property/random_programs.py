"""Random PyTorch programs of elementwise ops, reductions, scans, views and data movement, for tests of passes.

A program is a list of steps; each applies an op to values made before. Sizes are small, dimensions often alike (so that
spaces can be confused), and values stay small numbers, in float64 or int64: float results are compared closely.
"""

from collections.abc import Callable
from random import Random

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

Step = Callable[[list[torch.Tensor]], torch.Tensor]
LARGEST = 256  # elements of a value


def random_program(rng: Random, steps: int) -> tuple[Callable, list[torch.Tensor]]:
    """A function of tensors that returns a list of tensors, and inputs for it."""
    is_float = rng.random() < 0.6
    inputs = random_inputs(rng, (1, 2, 3, 4), is_float)
    values = list(inputs)
    made: list[Step] = []
    while len(made) < steps:
        step = random_step(rng, values)
        if step is None:
            continue
        result = step(values)
        if result.numel() <= LARGEST and result.dim() <= 4:
            made.append(step)
            values.append(result)
    picked = {len(values) - 1, *(rng.randrange(len(inputs), len(values)) for _ in range(2))}
    outputs = [k for k in sorted(picked) if not any(values[k] is x for x in inputs)]

    def program(*inputs: torch.Tensor) -> list[torch.Tensor]:
        values = list(inputs)
        for step in made:
            values.append(step(values))
        return [values[k] for k in outputs]

    return program, inputs


def random_inputs(rng: Random, sizes: tuple[int, ...], is_float: bool) -> list[torch.Tensor]:
    """Indices, then tensors of three sizes out of `sizes`."""
    a, b, c = (rng.choice(sizes) for _ in range(3))
    shapes = [(a, b, c), (c,), (a, 1, c), (a * b, c), (a, b, 1)]
    return [torch.tensor([0, 7, 5])] + [random_tensor(rng, shape, is_float) for shape in shapes]


def as_promised(program: Callable, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """What the program gives in eager, laid out as PyTorch promises a compiler: with the strides of its fake tensors.

    Those of an elementwise op can be others than in eager, where an operand has fewer dimensions and the first one
    of the result has size 1: [1, 2, 2] with strides (1, 0, 1) plus [2, 1] is (1, 1, 2) in eager, (4, 2, 1) in a graph.
    """
    mode = FakeTensorMode()
    with mode:
        promised = [x.stride() for x in program(*map(mode.from_tensor, inputs))]
    return [
        x if x.stride() == stride else torch.empty_strided(x.shape, stride, dtype=x.dtype).copy_(x)
        for x, stride in zip(program(*inputs), promised, strict=True)
    ]


def random_tensor(rng: Random, shape: tuple[int, ...], is_float: bool) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rng.randrange(1 << 30))
    if is_float:
        return torch.randn(shape, generator=generator, dtype=torch.float64)
    return torch.randint(-4, 5, shape, generator=generator)


def random_step(rng: Random, values: list[torch.Tensor]) -> Step | None:
    """A step on some of `values`, or None where it does not fit them. Late ones are picked more often."""
    position = max(rng.randrange(len(values)) for _ in range(2))
    return rng.choice(KINDS)(rng, values, position)


def unary(rng, values, k):
    scale = rng.choice((2, 3))
    ops = [torch.neg, torch.abs, torch.relu, lambda x: x * scale, lambda x: scale - x]
    if values[k].is_floating_point():
        # those that must not be computed twice come up more often
        ops += [lambda x: torch.exp(-x.abs()), torch.tanh, torch.sigmoid, torch.cos] * 2
        ops += [lambda x: x.float().double(), lambda x: x.to(torch.bfloat16).to(torch.float64)]
    op = rng.choice(ops)
    return lambda v: op(v[k])


def binary(rng, values, k):
    others = [i for i, x in enumerate(values) if broadcast(values[k], x) and x.dtype == values[k].dtype]
    other = rng.choice(others)
    op = rng.choice((torch.add, torch.sub, torch.maximum, lambda x, y: torch.where(x > y, x, y), torch.mul))
    return lambda v: shrunk(op(v[k], v[other]))


def broadcast(x: torch.Tensor, y: torch.Tensor) -> bool:
    return all(a == b or 1 in (a, b) for a, b in zip(reversed(x.shape), reversed(y.shape), strict=False))


def shrunk(x: torch.Tensor) -> torch.Tensor:
    """So that products of products stay small."""
    return torch.clamp(x, -8, 8)


def reduction(rng, values, k):
    x = values[k]
    if x.dim() == 0:
        return None
    dims = rng.sample(range(x.dim()), rng.randint(1, x.dim()))
    keepdim = rng.random() < 0.6
    kind = rng.choice(("sum", "amax", "amin", "mean", "argmax", "centre", "softmax"))
    if kind == "argmax":
        # ties and rounding must not decide: the index of a value that is an input, or exact
        return None if x.is_floating_point() else lambda v: v[k].argmax(dims[0], keepdim=keepdim)
    if kind in ("mean", "softmax") and not x.is_floating_point():
        kind = "sum"
    if kind == "softmax":
        return lambda v: torch.softmax(v[k], dims[0])
    if kind == "centre":
        return lambda v: shrunk(v[k] - v[k].amax(dims, keepdim=True))
    return lambda v: shrunk(getattr(v[k], kind)(dims, keepdim=keepdim))


def scan(rng, values, k):
    if values[k].dim() == 0:
        return None
    dim = rng.randrange(values[k].dim())
    kind = rng.choice(("cumsum", "cumsum", "cummax", "cummin"))
    if kind == "cumsum":
        return lambda v: shrunk(v[k].cumsum(dim))
    return lambda v: getattr(v[k], kind)(dim).values


def view(rng, values, k):
    x = values[k]
    if x.dim() == 0:
        return lambda v: v[k].reshape(1)
    dim = rng.randrange(x.dim())
    order = rng.sample(range(x.dim()), x.dim())
    size = x.shape[dim]
    start = rng.randrange(size)
    divisor = rng.choice([d for d in range(1, size + 1) if size % d == 0])
    return rng.choice(
        (
            lambda v: v[k].permute(order),
            lambda v: v[k].unsqueeze(dim),
            lambda v: v[k].flatten(max(dim - 1, 0), dim),
            lambda v: v[k].unflatten(dim, (divisor, -1)),
            lambda v: v[k].unsqueeze(dim).expand(*x.shape[:dim], 2, *x.shape[dim:]),
            lambda v: v[k].narrow(dim, start, size - start),
            lambda v: v[k].select(dim, start),
        )
    )


def movement(rng, values, k):
    x = values[k]
    if x.dim() == 0:
        return None
    dim = rng.randrange(x.dim())
    same = [i for i, y in enumerate(values) if y.shape == x.shape and y.dtype == x.dtype]
    other = rng.choice(same)
    return rng.choice(
        (
            lambda v: torch.cat([v[k], v[other]], dim),
            lambda v: torch.nn.functional.pad(v[k], (1, 2)),
            lambda v: v[k].flip(dim),
            lambda v: v[k].clone(memory_format=torch.contiguous_format),
            lambda v: v[k].index_select(dim, v[0] % x.shape[dim]),
            lambda v: torch.stack([v[k], v[other]], dim),
        )
    )


def barrier(rng, values, k):
    """What no kernel takes in."""
    if values[k].dim() == 0:
        return None
    return lambda v: torch.sort(v[k], -1).values


KINDS = (unary,) * 4 + (binary,) * 5 + (reduction,) * 4 + (view,) * 3 + (movement,) * 2 + (scan, barrier)
