"""Views of all kinds."""

from tests.fuzz.writer import NoLine, Writer, filled, kind, rank


def slice_text(w: Writer, size: int) -> str:
    """One index of a slice: bounds may be negative, beyond the end, or arguments."""
    bounds = ["", "", "1", "-1", "2", "-2", str(size), str(size + 3), "0"] + w.ints[:3]
    text = f"{w.rng.choice(bounds)}:{w.rng.choice(bounds)}"
    if w.chance(0.3):
        text += f":{w.choice('1', '2', '3')}"
    return text


@kind(3)
def slices(w: Writer) -> None:
    x = w.tensor(rank(1))
    parts = []
    for size in w.value(x).shape:
        way = w.rng.random()
        if way < 0.35:
            parts.append(":")
        elif way < 0.75:
            parts.append(slice_text(w, size))
        elif way < 0.85 and size:
            parts.append(w.choice("0", "-1", *w.ints[:2]))
        elif way < 0.92:
            parts.append("None")
        else:
            parts.append("...")
            break
    w.emit(f"{x}[{', '.join(parts)}]")


@kind(3)
def rearranged(w: Writer) -> None:
    x = w.tensor(rank(1))
    value = w.value(x)
    r = value.dim()
    order = list(range(r))
    w.rng.shuffle(order)
    way = w.rng.randrange(9)
    if way == 0:
        w.emit(f"{x}.permute({', '.join(map(str, order))})")
    elif way == 1:
        w.emit(f"{x}.transpose({w.dim(x)}, {w.dim(x)})")
    elif way == 2:
        w.emit(f"{x}.t()")
    elif way == 3:
        w.emit(f"{x}.movedim({w.dim(x)}, {w.dim(x)})")
    elif way == 4:
        w.emit(f"{x}.flip({w.dim(x)})")
    elif way == 5:
        w.emit(f"{x}.{w.choice('mT', 'mH', 'H', 'T') if r == 2 else 'mT'}")
    elif way == 6:
        w.emit(f"torch.rot90({x}, {w.choice('1', '-1', '2', w.integer())})")
    elif way == 7:
        w.emit(f"{x}.roll({w.integer()}, {w.dim(x)})")
    else:
        w.emit(f"{x}.swapaxes({w.dim(x)}, {w.dim(x)})")


@kind(2.5)
def shaped(w: Writer) -> None:
    x = w.tensor()
    sizes = list(w.value(x).shape)
    way = w.rng.randrange(8)
    if way == 0:
        w.emit(f"{x}.{w.choice('reshape', 'view')}(-1)")
    elif way == 1:
        k = w.rng.randrange(len(sizes) + 1)
        w.emit(f"{x}.unsqueeze({k})")
    elif way == 2:
        w.emit(f"{x}.squeeze({w.choice('', str(w.dim(x)))})")
    elif way == 3 and len(sizes) >= 2:
        k = w.rng.randrange(len(sizes) - 1)
        w.emit(f"{x}.flatten({k}, {k + 1})")
    elif way == 4 and sizes:
        k = w.rng.randrange(len(sizes))
        options = [d for d in (1, 2, 3) if sizes[k] % d == 0]
        d = w.rng.choice(options)
        w.emit(f"{x}.unflatten({k}, ({d}, -1))")
    elif way == 5 and sizes:
        w.emit(f"{x}.reshape({x}.shape[::-1])")
    elif way == 6:
        w.emit(f"{x}.{w.choice('reshape', 'view')}({w.size()}, -1)")
    else:
        w.emit(f"{x}.view_as({w.tensor()})")


@kind(1.5)
def expanded(w: Writer) -> None:
    x = w.tensor()
    sizes = w.value(x).shape
    way = w.rng.randrange(4)
    if way == 0:
        parts = [w.size() if size == 1 else "-1" for size in sizes]
        w.emit(f"{x}.expand({', '.join([w.size(), *parts] if w.chance(0.5) else parts)})")
    elif way == 1:
        w.emit(f"{x}.expand_as({w.tensor()})")
    elif way == 2:
        w.emit(f"{x}.broadcast_to({w.tensor()}.shape)")
    else:
        w.emit(f"torch.broadcast_tensors({x}, {w.tensor()})")


@kind(1.5)
def parts(w: Writer) -> None:
    x = w.tensor(rank(1), filled)
    d = w.dim(x)
    way = w.rng.randrange(7)
    if way == 0:
        w.emit(f"{x}.unbind({d})[{w.choice(0, -1)}]")
    elif way == 1:
        w.emit(f"{x}.split({w.size()}, {d})")
    elif way == 2:
        w.emit(f"{x}.chunk({w.size(1, 3)}, {d})")
    elif way == 3:
        w.emit(f"torch.tensor_split({x}, {w.size(1, 3)}, {d})")
    elif way == 4:
        w.emit(f"{x}.narrow({d}, {w.choice('0', '1')}, {w.size(0, 3)})")
    elif way == 5:
        w.emit(f"{x}.select({d}, {w.choice('0', '-1', '1')})")
    else:
        w.emit(f"{x}.unfold({d}, {w.size(1, 3)}, {w.size(1, 3)})")


@kind(1)
def joined_and_parted(w: Writer) -> None:
    """Results that share a copy: gradients of some of them are undefined."""
    x = w.tensor(rank(1), filled)
    d = w.dim(x)
    way = w.rng.randrange(6)
    if way == 0:
        w.emit(f"torch.stack([{x}, {w.tensor()}]).unbind(0)")
    elif way == 1:
        w.emit(f"torch.stack([{x}.sin(), {x}, {w.tensor()}], {d}).unbind({d})")
    elif way == 2:
        w.emit(f"torch.cat([{x}, {w.tensor()}], {d}).split({w.size()}, {d})")
    elif way == 3:
        w.emit(f"torch.cat([{x}, {w.tensor()}, {x}], {d}).tensor_split({w.size(2, 3)}, {d})")
    elif way == 4:
        w.emit(f"torch.cat([{x}, {w.tensor()}], {d}).mul({w.number()}).chunk(2, {d})")
    else:
        w.emit(f"torch.stack(torch.broadcast_tensors({x}, {w.tensor()}), -1).movedim(-1, 0).unbind(0)")


@kind(1)
def diagonals(w: Writer) -> None:
    x = w.tensor(rank(1))
    way = w.rng.randrange(5)
    if way == 0:
        w.emit(f"{x}.diagonal({w.integer()})")
    elif way == 1:
        w.emit(f"torch.tril({x}, {w.integer()})")
    elif way == 2:
        w.emit(f"torch.triu({x}, {w.integer()})")
    elif way == 3:
        w.emit(f"torch.diag({x}, {w.choice('0', '1', '-1')})")
    else:
        w.emit(f"torch.diag_embed({x})")


@kind(0.7)
def strided(w: Writer) -> None:
    x = w.tensor(filled)
    value = w.value(x)
    shape = [w.rng.randint(0, 3) for _ in range(w.rng.randint(1, 3))]
    strides = [w.rng.randint(0, 3) for _ in shape]
    offset = w.choice(0, 0, value.storage_offset())
    largest = offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if n)
    try:
        smallest = min(eval(x, env).untyped_storage().nbytes() // value.element_size() for env in w.envs)
    except IndexError:  # another call's tuple is shorter
        raise NoLine from None
    if largest >= smallest:
        raise NoLine
    w.emit(f"{x}.as_strided({tuple(shape)}, {tuple(strides)}, {offset})")


@kind(1.5)
def copied(w: Writer) -> None:
    x = w.tensor()
    d = w.dim(x)
    way = w.rng.randrange(8)
    if way == 0:
        w.emit(f"torch.cat([{x}, {w.tensor()}], {d})")
    elif way == 1:
        w.emit(f"torch.stack([{x}, {w.choice(x, w.tensor())}], {d})")
    elif way == 2:
        w.emit(f"{x}.repeat({', '.join(w.size(0, 2) for _ in w.value(x).shape) or '2'})")
    elif way == 3:
        w.emit(f"{x}.repeat_interleave({w.size(0, 3)}, {d})")
    elif way == 4:
        w.emit(f"{x}.contiguous()")
    elif way == 5:
        w.emit(f"{x}.clone()")
    elif way == 6:
        w.emit(f"{x}.contiguous(memory_format=torch.channels_last)")
    else:
        w.emit(f"torch.{w.choice('hstack', 'vstack', 'dstack')}([{x}, {w.tensor()}])")
