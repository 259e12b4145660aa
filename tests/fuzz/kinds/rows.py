"""Reductions, norms, softmax, scans, sorting."""

from tests.fuzz.kinds.mutation import overlaps
from tests.fuzz.writer import NoLine, Writer, is_float, is_real, kind, rank, words

REDUCTIONS = words(
    """
    sum mean prod amax amin all any logsumexp var std count_nonzero nansum nanmean norm
    """
)


def _dims(w: Writer, x: str) -> str:
    r = w.value(x).dim()
    if r >= 2 and w.chance(0.25):
        return str(tuple(w.rng.sample(range(r), 2)))
    return str(w.dim(x))


@kind(4)
def reduced(w: Writer) -> None:
    x = w.tensor()
    name = w.choice(*REDUCTIONS)
    keep = w.choice("", ", keepdim=True")
    dims = _dims(w, x)
    if name in ("prod", "all", "any"):
        dims = str(w.dim(x))
    if name in ("var", "std"):
        extra = w.choice("", ", correction=0", ", unbiased=False", ", correction=2")
        w.emit(f"torch.{name}({x}, {dims}{extra}{keep})")
    elif name == "norm":
        order = w.choice("2", "1", "float('inf')", "3", "0", "0.5")
        w.emit(f"torch.linalg.vector_norm({x}, {order}, {dims}{keep})")
    elif w.chance(0.25) and name in ("sum", "mean", "prod", "amax", "amin", "all", "any"):
        w.emit(f"{x}.{name}()")
    elif name in ("sum", "mean", "prod") and w.chance(0.3):
        w.emit(
            f"torch.{name}({x}, {dims}, dtype={w.choice('torch.float64', 'torch.float32', 'torch.int64', 'torch.bfloat16')})"
        )
    elif name == "count_nonzero":
        w.emit(f"torch.count_nonzero({x}, {dims})")
    else:
        w.emit(f"torch.{name}({x}, {dims}{keep})")


@kind(1)
def pairs(w: Writer) -> None:
    x = w.tensor()
    d = w.dim(x)
    w.emit(
        w.choice(
            "torch.var_mean({}, {})",
            "torch.std_mean({}, {})",
            "torch.aminmax({}, dim={})",
            "torch.max({}, {})",
            "torch.min({}, {})",
        ).format(x, d)
    )


@kind(1)
def positions(w: Writer) -> None:
    x = w.tensor(is_real)
    w.emit(
        w.choice(
            "torch.argmax({0}, {1})",
            "torch.argmin({0}, {1})",
            "torch.argmax({0})",
            "torch.sort({0}, dim={1}, stable=True)",
            "torch.argsort({0}, dim={1}, stable=True)",
            "torch.sort({0}, dim={1}, stable=True, descending=True)",
        ).format(x, w.dim(x))
    )


@kind(0.7)
def largest(w: Writer) -> None:
    """Of topk and its like only values: which of equal elements' positions is given is not defined."""
    x = w.tensor(rank(1), is_real, lambda x: not overlaps(x))
    d = w.dim(x)
    w.emit(
        w.choice(
            f"torch.topk({x}, {w.size(1, 3)}, {d}, largest={w.choice('True', 'False')}).values",
            f"torch.kthvalue({x}, {w.size(1, 3)}, {d}).values",
            f"torch.median({x}, {d}).values",
            f"torch.unique({x})",
        )
    )


@kind(1.5)
def scans(w: Writer) -> None:
    x = w.tensor()
    name = w.choice("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin", "cumsum")
    extra = ""
    if name in ("cumsum", "cumprod") and w.chance(0.3):
        extra = f", dtype={w.choice('torch.float64', 'torch.int32', 'torch.int64', 'torch.bfloat16')}"
    w.emit(f"torch.{name}({x}, {w.dim(x)}{extra})")


@kind(2)
def softmaxes(w: Writer) -> None:
    x = w.tensor(is_float)
    extra = w.choice("", "", ", dtype=torch.float32", ", dtype=torch.float64")
    w.emit(f"F.{w.choice('softmax', 'log_softmax', 'softmin')}({x}, {w.dim(x)}{extra})")


@kind(2)
def norms(w: Writer) -> None:
    x = w.tensor(is_float, rank(1))
    shape = w.value(x).shape
    way = w.rng.randrange(6)
    if way == 0:
        w.emit(f"F.layer_norm({x}, {x}.shape[-{w.rng.randint(1, len(shape))}:])")
    elif way == 1:
        w.emit(f"F.rms_norm({x}, {x}.shape[-1:])")
    elif way == 2:
        w.emit(f"F.normalize({x}, dim={w.dim(x)})")
    elif way == 3 and len(shape) >= 2:
        options = [g for g in (1, 2, 3) if shape[1] % g == 0]
        w.emit(f"F.group_norm({x}, {w.rng.choice(options)})")
    elif way == 4:
        w.emit(f"F.instance_norm({x})")
    elif len(shape) >= 2:
        w.emit(f"F.batch_norm({x}, None, None, training=True)")
    else:
        raise NoLine


@kind(0.7)
def differences(w: Writer) -> None:
    x = w.tensor(rank(1))
    w.emit(
        w.choice("torch.diff({0}, dim={1})", "torch.trapezoid({0}, dim={1})", "torch.renorm({0}, 2, {1}, 1.0)").format(
            x, w.dim(x)
        )
    )
