"""Layers of a module, its buffers, flags and numbers."""

from tests.fuzz.writer import NoLine, Writer, is_real, kind


@kind(4)
def layers(w: Writer) -> None:
    layer = w.choice(*w.attributes)
    x = w.tensor()
    module = eval(layer, w.envs[0])
    name = type(module).__name__
    if name == "MultiheadAttention":
        w.emit(f"{layer}({x}, {x}, {x})")
    elif name == "Bilinear":
        w.emit(f"{layer}({x}, {w.tensor()})")
    elif name == "Embedding":
        w.emit(
            f"{layer}({x}.long().abs() % {module.num_embeddings})"
            if w.chance(0.3)
            else f"{layer}(index((2, 3), {module.num_embeddings}, 4))"
        )
    else:
        w.emit(f"{layer}({x})")


@kind(4)
def layers_that_fit(w: Writer) -> None:
    """A layer of an input that is made to fit: by a new tensor, or by slices of one."""
    layer = w.choice(*w.attributes)
    module = eval(layer, w.envs[0])
    first = next(m for m in module.modules() if not list(m.children())) if name_of(module) == "Sequential" else module
    size = next(
        (
            getattr(first, a)
            for a in ("in_features", "in_channels", "num_features", "num_channels", "embed_dim")
            if hasattr(first, a)
        ),
        None,
    )
    if size is None:
        raise NoLine
    name = name_of(first)
    rank = {"Conv1d": 3, "Conv2d": 4, "BatchNorm2d": 4, "ConvTranspose1d": 3, "MultiheadAttention": 3}.get(
        name, w.choice(2, 3)
    )
    shape = [w.rng.randint(1, 4) for _ in range(rank)]
    shape[-1 if name in ("Linear", "LayerNorm", "RMSNorm") else 1] = size
    if name == "MultiheadAttention":
        shape[1:] = [3, size]
    x = w.tensor(is_real)
    seed = w.rng.randrange(99)
    made = f"tensor({tuple(shape)}, torch.float32, {seed}) + {x}.float().mean()"
    y = w.emit(made)
    w.emit(f"{layer}({y}, {y}, {y})" if name == "MultiheadAttention" else f"{layer}({y})")


def name_of(module) -> str:
    return type(module).__name__


@kind(1)
def buffers(w: Writer) -> None:
    names = [n for n in w.names if n.startswith("self.b")]
    if not names:
        raise NoLine
    b = w.rng.choice(names)
    x = w.tensor(is_real)
    w.do(
        w.choice(
            f"{b}.add_(1)", f"{b}.copy_({x}.sum())", f"{b}.mul_(2)", f"{b} = {b} + 1", f"{b} += 1", f"{b}.data.add_(1)"
        )
    )


@kind(0.7)
def state(w: Writer) -> None:
    module = w.envs[0]["self"]
    x, name = w.tensor(), w.fresh()
    if hasattr(module, "flag"):
        w.do(f"{name} = {x} * 2 if self.flag else {x} + 1", (name,))
    elif hasattr(module, "number"):
        w.emit(f"{x} + self.number")
    else:
        w.do(f"{name} = {x} * 2 if self.training else {x} + 1", (name,))
