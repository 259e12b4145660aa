"""Changes in place: of inputs, of views of them, of buffers, of what is returned."""

import torch

from tests.fuzz.writer import NoLine, Writer, kind, rank, words

UNARY = words(
    """
    neg_ abs_ exp_ sin_ relu_ sigmoid_ tanh_ sqrt_ square_ zero_ floor_ round_ reciprocal_ sign_ erf_ clamp_(-1,1)
    """
)


def target(w: Writer, *tests) -> str:
    """A tensor that may be written: no two of its elements share memory (exclusions.py)."""
    x = w.tensor(lambda x: not is_leaf_of_gradients(x), *tests)
    if any(map(overlaps, w.values(x))):
        raise NoLine
    return x


def is_leaf_of_gradients(x: torch.Tensor) -> bool:
    try:
        return x.requires_grad and x.is_leaf
    except RuntimeError:  # one of several views of a tensor that was written to: asked for its history, it raises
        return False


def overlaps(x: torch.Tensor) -> bool:
    """Whether two elements lie at one address, as far as sizes and strides tell."""
    extent = 1
    for stride, size in sorted(zip(x.stride(), x.shape, strict=True)):
        if size > 1:
            if stride < extent:
                return True
            extent = stride * (size - 1) + extent
    return False


def share(w: Writer, a: str, b: str) -> bool:
    """Whether two tensors that are not the same share memory in a call."""
    pairs = zip(w.values(a), w.values(b), strict=True)
    return any(x.untyped_storage()._cdata == y.untyped_storage()._cdata and x is not y for x, y in pairs)


def source(w: Writer, x: str) -> str:
    """An operand of a change of x that does not share its memory, or is x itself (exclusions.py)."""
    y = w.tensor()
    return f"{y}.clone()" if share(w, x, y) else y


@kind(2)
def unary_in_place(w: Writer) -> None:
    name = w.choice(*UNARY)
    w.do(f"{target(w)}.{name}" + ("" if "(" in name else "()"))


@kind(3)
def binary_in_place(w: Writer) -> None:
    x = target(w)
    y = source(w, x) if w.chance(0.6) else w.number()
    w.do(f"{x}.{w.choice('add_', 'add_', 'sub_', 'mul_', 'mul_', 'copy_')}({y})")


@kind(1.5)
def assigned(w: Writer) -> None:
    x = target(w, rank(1))
    y = source(w, x) if w.chance(0.5) else w.number()
    where = w.choice("0", "-1", "1:", ":-1", "::2", "...", ":, 0", "..., -1", "None", *w.ints[:2])
    if w.chance(0.2):
        where = f"{x} > {w.number()}"
        y = w.number()
    w.do(f"{x}[{where}] {w.choice('=', '=', '+=', '*=')} {y}")


@kind(1)
def filled_in_place(w: Writer) -> None:
    x = target(w)
    way = w.rng.randrange(5)
    if way == 0:
        w.do(f"{x}.fill_({w.number()})")
    elif way == 1:
        w.do(f"{x}.masked_fill_({source(w, x)} > 0, {w.number()})")
    elif way == 2:
        w.do(f"{x}.clamp_(min={w.number()})")
    elif way == 3:
        w.do(f"{x}.{w.choice('t_()', 'squeeze_()', 'unsqueeze_(0)', 'transpose_(0, -1)')}")
    else:
        a, b = source(w, x), source(w, x)
        w.do(f"{x}.addcmul_({a}, {b})")


@kind(0.7)
def indexed_in_place(w: Writer) -> None:
    x = target(w, rank(1, 3))
    size = w.value(x).size(0)
    if not size:
        raise NoLine
    seed = w.rng.randrange(99)
    way = w.rng.randrange(5)
    if way == 0:
        w.do(f"{x}[index(({w.rng.randint(1, 4)},), {size}, {seed})] = {w.number()}")
    elif way == 1:
        w.do(f"{x}.index_fill_(0, index((2,), {size}, {seed}), {w.number()})")
    elif way == 2:
        k = w.rng.randint(1, size)
        w.do(f"{x}.index_copy_(0, permutation({size}, {seed})[:{k}], {source(w, x)}[:{k}])")
    elif way == 3:
        k = w.rng.randint(1, 5)
        w.do(f"{x}.index_add_(0, index(({k},), {size}, {seed}), {source(w, x)}[:{k}])")
    else:
        w.do(f"{x}.index_put_((index((3,), {size}, {seed}),), {source(w, x)}[0], accumulate=True)")


@kind(0.6)
def out_variant(w: Writer) -> None:
    x = target(w)
    y = source(w, x)
    w.do(f"torch.{w.choice('sin', 'neg', 'abs', 'exp')}({y}, out={x})")
