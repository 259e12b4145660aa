"""Products, convolutions, pools, attention, losses."""

import torch

from tests.fuzz.writer import NoLine, Writer, filled, is_float, is_number, is_real, kind, rank


def _like(w: Writer, x: str, shape: tuple) -> str:
    """A new tensor of the dtype of x."""
    return f"tensor({tuple(shape)}, {w.value(x).dtype}, {w.rng.randrange(99)})"


@kind(3)
def products(w: Writer) -> None:
    x = w.tensor(rank(1, 4), is_number)
    shape = tuple(w.value(x).shape)
    way = w.rng.randrange(7)
    n = w.rng.randint(1, 9)
    if way == 0:
        w.emit(f"{x} @ {_like(w, x, (shape[-1], n))}")
    elif way == 1:
        w.emit(f"{x} @ {w.tensor(rank(1, 4))}")
    elif way == 2:
        w.emit(f"{x} @ {x}.mT")
    elif way == 3:
        bias = w.choice("", f", {_like(w, x, (n,))}")
        w.emit(f"F.linear({x}, {_like(w, x, (n, shape[-1]))}{bias})")
    elif way == 4 and len(shape) == 2:
        w.emit(f"torch.addmm({w.tensor()}, {x}, {_like(w, x, (shape[-1], n))}, beta={w.number()}, alpha={w.number()})")
    elif way == 5 and len(shape) == 3:
        other = _like(w, x, (shape[0], shape[2], n))
        w.emit(
            w.choice(
                f"torch.bmm({x}, {other})",
                f"torch.baddbmm({w.tensor()}, {x}, {other}, beta={w.number()})",
                f"torch.einsum('bij,bjk->bki', {x}, {other})",
            )
        )
    else:
        w.emit(
            w.choice(
                f"torch.einsum('...i,...i->...', {x}, {x})",
                f"torch.outer({x}, {w.tensor(rank(1, 1))})",
                f"torch.mv({w.tensor(rank(2, 2))}, {x})",
                f"torch.dot({x}, {w.tensor(rank(1, 1))})",
                f"torch.cdist({x}, {x}.flip(-2))",
                f"torch.kron({x}, {w.tensor()})",
                f"torch.tensordot({x}, {x}, 1)",
                f"torch.cross({x}, {w.tensor()}, dim=-1)",
            )
        )


@kind(1.5)
def convolutions(w: Writer) -> None:
    x = w.tensor(rank(3, 5), is_float, filled)
    shape = tuple(w.value(x).shape)
    d = len(shape) - 2
    channels, groups = shape[1], 1
    if channels % 2 == 0 and w.chance(0.3):
        groups = w.choice(2, channels)
    out = groups * w.rng.randint(1, 4)
    taps = tuple(w.rng.randint(1, 3) for _ in range(d))
    bias = w.choice("None", _like(w, x, (out,)))
    options = f"stride={w.rng.randint(1, 2)}, padding={w.choice('0', '1', repr('same'))}, dilation={w.choice(1, 1, 2)}, groups={groups}"
    if w.chance(0.3):
        weight = _like(w, x, (channels, max(out // groups, 1), *taps))
        w.emit(
            f"F.conv_transpose{d}d({x}, {weight}, stride={w.rng.randint(1, 2)}, padding={w.choice(0, 1)}, groups={groups})"
        )
    else:
        w.emit(f"F.conv{d}d({x}, {_like(w, x, (out, channels // groups, *taps))}, {bias}, {options})")


@kind(1.5)
def pools(w: Writer) -> None:
    x = w.tensor(rank(2, 5), is_real, filled)
    d = max(len(w.value(x).shape) - 2, 1)
    way = w.rng.randrange(5)
    k = w.rng.randint(1, 3)
    options = (
        f"{k}, stride={w.rng.randint(1, 3)}, padding={w.rng.randint(0, k // 2)}, ceil_mode={w.choice(True, False)}"
    )
    if way == 0:
        w.emit(f"F.max_pool{d}d({x}, {options})")
    elif way == 1:
        extra = w.choice("", ", count_include_pad=False")
        w.emit(f"F.avg_pool{d}d({x}, {options}{extra})")
    elif way == 2:
        w.emit(f"F.adaptive_avg_pool{d}d({x}, {w.size(1, 4)})")
    elif way == 3:
        w.emit(f"F.adaptive_max_pool{d}d({x}, {w.size(1, 4)})")
    else:
        w.emit(f"F.lp_pool{d}d({x}, 2, {k})")


@kind(1)
def resized(w: Writer) -> None:
    x = w.tensor(rank(3, 5), is_float, filled)
    r = w.value(x).dim()
    way = w.rng.randrange(4)
    if way == 0:
        w.emit(
            f"F.interpolate({x}, scale_factor={w.choice(2, 1.5, 0.5)}, mode={w.choice('nearest', 'nearest-exact')!r})"
        )
    elif way == 1:
        mode = {3: "linear", 4: w.choice("bilinear", "bicubic"), 5: "trilinear"}[r]
        w.emit(f"F.interpolate({x}, size={w.size(1, 6)}, mode={mode!r}, align_corners={w.choice(True, False)})")
    elif way == 2:
        w.emit(f"F.pixel_shuffle({x}, 2)")
    else:
        w.emit(f"F.pixel_unshuffle({x}, {w.choice(1, 2)})")


def wraps_itself(x: torch.Tensor, amounts: list[int]) -> bool:
    """Whether a circular pad takes more than what it leaves of a dimension: eager then copies from its new, uninitialised memory."""
    sizes = reversed(x.shape)
    return any(
        max(before, after) > size + min(before, 0) + min(after, 0)
        for size, before, after in zip(sizes, amounts[::2], amounts[1::2], strict=False)
    )


@kind(1.5)
def padded(w: Writer) -> None:
    x = w.tensor(rank(1))
    mode = w.choice("constant", "constant", "reflect", "replicate", "circular")
    count = w.rng.randint(1, min(w.value(x).dim(), 3))
    amounts = [w.choice("0", "1", "2", "-1", w.integer()) for _ in range(2 * count)]
    for amount in amounts:
        if any(abs(eval(amount, env)) > 5 for env in w.envs):
            raise NoLine
    if mode == "circular" and any(wraps_itself(eval(x, env), [eval(n, env) for n in amounts]) for env in w.envs):
        raise NoLine
    value = f", value={w.number()}" if mode == "constant" and w.chance(0.5) else ""
    w.emit(f"F.pad({x}, ({', '.join(amounts)}), mode={mode!r}{value})")


@kind(2)
def attention(w: Writer) -> None:
    dtype = w.choice("torch.float32", "torch.float32", "torch.float64", "torch.bfloat16", "torch.float16")
    b, h, q, k, e = (w.rng.randint(1, n) for n in (2, 3, 7, 7, 9))
    groups = w.choice(1, 1, 1, 2)
    floats = [n for n in w.names if is_float(w.value(n)) and w.value(n).dim() == 4 and w.value(n).numel()]
    seed = w.rng.randrange(99)
    query = f"tensor(({b}, {h * groups}, {q}, {e}), {dtype}, {seed})"
    if floats and groups == 1:
        query = w.rng.choice(floats)
        b, h, q, e = w.value(query).shape
        dtype = str(w.value(query).dtype)
        if w.chance(0.3):
            k = q
    key = f"tensor(({b}, {h}, {k}, {e}), {dtype}, {seed + 1})"
    if floats and groups == 1 and w.chance(0.3):
        key, k = query, q
    value = f"tensor(({b}, {h}, {k}, {w.choice(e, e, 5)}), {dtype}, {seed + 2})"
    mask = w.choice(
        "",
        "",
        ", is_causal=True",
        f", attn_mask=tensor(({q}, {k}), torch.bool, 5)",
        f", attn_mask=tensor(({b}, 1, {q}, {k}), {dtype}, 6)",
        f", attn_mask=torch.ones({q}, {k}, dtype=torch.bool).tril()",
        f", attn_mask=torch.arange({k}) <= torch.arange({q})[:, None] + {w.integer()}",
        f", attn_mask=torch.zeros({q}, {k}, dtype={dtype}).masked_fill(torch.arange({k}) > {w.integer()}, float('-inf'))",
    )
    scale = w.choice("", "", ", scale=0.3", ", scale=2.0")
    gqa = ", enable_gqa=True" if groups > 1 else ""
    w.emit(f"F.scaled_dot_product_attention({query}, {key}, {value}{mask}{scale}{gqa})")


@kind(1.5)
def losses(w: Writer) -> None:
    x = w.tensor(is_float, rank(1), filled)
    shape = tuple(w.value(x).shape)
    reduction = f", reduction={w.choice('mean', 'sum', 'none')!r}"
    name = w.choice(
        "mse_loss",
        "l1_loss",
        "smooth_l1_loss",
        "huber_loss",
        "binary_cross_entropy_with_logits",
        "kl_div",
        "cross_entropy",
        "nll_loss",
        "cosine_similarity",
        "soft_margin_loss",
        "hinge_embedding_loss",
        "poisson_nll_loss",
        "gaussian_nll_loss",
    )
    if name in ("cross_entropy", "nll_loss") and len(shape) >= 2:
        labels = f"index({(shape[0], *shape[2:])}, {shape[1]}, {w.rng.randrange(99)})"
        extra = w.choice("", ", ignore_index=0", f", weight=tensor(({shape[1]},), {w.value(x).dtype}, 3, 'positive')")
        if name == "cross_entropy":
            extra += w.choice("", ", label_smoothing=0.1")
        w.emit(f"F.{name}({x}, {labels}{extra}{reduction})")
    elif name == "cosine_similarity":
        w.emit(f"F.cosine_similarity({x}, {w.tensor(is_float)}, dim={w.dim(x)})")
    elif name == "gaussian_nll_loss":
        w.emit(f"F.gaussian_nll_loss({x}, {x}.flip(0), {x}.abs() + 0.1{reduction})")
    else:
        w.emit(f"F.{name}({x}, {w.choice(w.tensor(), f'{x}.sigmoid()', _like(w, x, shape))}{reduction})")
