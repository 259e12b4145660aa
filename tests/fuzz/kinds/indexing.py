"""Reading and writing at positions that are data."""

from tests.fuzz.writer import Writer, filled, is_float, is_real, kind, rank


def _index(w: Writer, shape: list[int] | tuple[int, ...], size: int) -> str:
    return f"index({tuple(shape)}, {size}, {w.rng.randrange(99)})"


@kind(2)
def indexed(w: Writer) -> None:
    x = w.tensor(rank(1), filled)
    sizes = w.value(x).shape
    way = w.rng.randrange(8)
    d = w.dim(x)
    if way == 0:
        w.emit(f"{x}[{_index(w, [w.rng.randint(0, 4)], sizes[0])}]")
    elif way == 1 and len(sizes) >= 2:
        n = w.rng.randint(1, 4)
        w.emit(f"{x}[{_index(w, [n], sizes[0])}, {_index(w, [n], sizes[1])}]")
    elif way == 2 and len(sizes) >= 2:
        w.emit(f"{x}[:, {_index(w, [2, 2], sizes[1])}]")
    elif way == 3:
        w.emit(f"torch.index_select({x}, {d}, {_index(w, [w.rng.randint(0, 4)], sizes[d])})")
    elif way == 4:
        w.emit(f"torch.gather({x}, {d}, {_index(w, sizes, sizes[d])})")
    elif way == 5:
        w.emit(f"torch.take({x}, {_index(w, [3], w.value(x).numel())})")
    elif way == 6:
        w.emit(f"torch.take_along_dim({x}, {_index(w, sizes, sizes[d])}, {d})")
    else:
        w.emit(f"{x}[-{_index(w, [3], sizes[0])}]")


@kind(1)
def embedded(w: Writer) -> None:
    x = w.tensor(rank(2, 2), is_float, filled)
    rows = w.value(x).size(0)
    padding = w.choice("", f", padding_idx={w.rng.randrange(rows)}")
    i = _index(w, [w.rng.randint(1, 4), w.rng.randint(1, 3)], rows)
    if w.chance(0.2):
        w.emit(f"F.embedding_bag({i}, {x}, mode={w.choice('sum', 'mean')!r})")
    else:
        w.emit(f"F.embedding({i}, {x}{padding})")


@kind(1.5)
def scattered(w: Writer) -> None:
    """Without accumulation each position is written once, or with one number (exclusions.py)."""
    x = w.tensor(rank(1, 3), filled)
    sizes = list(w.value(x).shape)
    d = w.rng.randrange(len(sizes))
    way = w.rng.randrange(6)
    if way == 0:
        w.emit(f"torch.scatter_add({x}, {d}, {_index(w, sizes, sizes[d])}, {x}.sin().to({x}.dtype))")
    elif way == 1:
        w.emit(f"torch.scatter({x}, {d}, {_index(w, sizes, sizes[d])}, {w.number()})")
    elif way == 2:
        w.emit(
            f"torch.scatter_reduce({x}, {d}, {_index(w, sizes, sizes[d])}, {x}.clone(), {w.choice('sum', 'amax', 'amin', 'mean', 'prod')!r})"
        )
    elif way == 3:
        w.emit(f"torch.index_add({x}, {d}, {_index(w, [sizes[d]], sizes[d])}, {x}.clone())")
    elif way == 4:
        w.emit(f"torch.index_copy({x}, {d}, permutation({sizes[d]}, {w.rng.randrange(99)}), {w.tensor()})")
    else:
        w.emit(f"torch.index_fill({x}, {d}, {_index(w, [2], sizes[d])}, {w.number()})")


@kind(0.6)
def written_parts(w: Writer) -> None:
    x = w.tensor(rank(1), filled)
    d = w.dim(x)
    y = w.tensor()
    w.emit(
        w.choice(
            f"torch.select_scatter({x}, {y}, {d}, 0)",
            f"torch.slice_scatter({x}, {y}, {d}, 0, {w.size(1, 3)})",
            f"torch.diagonal_scatter({x}, {y})",
            f"torch.masked_scatter({x}, {x} > 0, {y})",
        )
    )


@kind(0.7)
def searched(w: Writer) -> None:
    x = w.tensor(is_real, filled, rank(1))
    w.emit(
        w.choice(
            f"torch.bucketize({x}, tensor((4,), torch.float32, 1).sort().values)",
            f"torch.searchsorted({x}.sort(stable=True).values, {w.choice(x, w.number())})",
            f"torch.isin({x}, {w.tensor(is_real)})",
            f"F.one_hot({x}.long().abs().clamp_max(5), 6)",
            f"torch.bincount({x}.flatten().long().abs().clamp_max(5), minlength={w.size(0, 8)})",
            f"torch.nonzero({x})",
            f"{x}[{x} > 0]",
            f"torch.masked_select({x}, {x} > 0)",
        )
    )
