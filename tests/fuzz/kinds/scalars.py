"""Python's numbers, control flow on them, graph breaks, and tensors made of numbers."""

from tests.fuzz.writer import NoLine, Writer, filled, is_real, kind

INTEGERS = """
{} + 1; {} * 2; -{}; abs({}); max({}, 0); min({}, 2); {} // 2; {} // -2; {} % 3; {} % -3; {} ** 2; {} << 1; {} >> 1; {} & 3
{} | 4; {} ^ 1; ~{}; int({} * 0.5); int({} / 2); round({} / 2); math.floor({} / 3); math.ceil({} / 3); math.trunc({} / 3)
max({}, -{}); min(max({}, -2), 2); torch.sym_max({}, 0); torch.sym_min({}, 1); {} * {}; {} - 3; 3 - {}; divmod({}, 3)[0]
divmod({}, 3)[1]; int({} > 0); ({} + 3) // 4 * 4"""
PAIRS = "{} + {}; {} - {}; {} * {}; max({}, {}); min({}, {}); {} if {} > 0 else 1; {} & {}; {} | {}"
REALS = """
{} / 2; {} / 3; {} * 0.5; float({}); math.sqrt(abs({})); {} ** 0.5 if {} > 0 else 0.25; 1.5 * {}; torch.sym_float({})
math.exp(min({}, 3)); math.sin({}); abs({} * -1.5); max({}, 0.5); min({} / 2, 1.5); math.pow(2.0, min({}, 3))"""


def _form(w: Writer, forms: str) -> str:
    return w.choice(*forms.strip().replace("\n", "; ").split("; "))


def _safe(w: Writer, text: str) -> str:
    """A number that fits in 64 bits in every call (exclusions.py)."""
    for env in w.envs:
        try:
            value = eval(text, env)
        except Exception:
            raise NoLine from None
        if isinstance(value, complex) or abs(value) >= 1 << 62:
            raise NoLine
    return text


@kind(2.5)
def integers(w: Writer) -> None:
    names = (
        w.ints
        + [f"{n}.size({w.dim(n)})" for n in w.names[:2] if w.value(n).dim()]
        + [f"{n}.numel()" for n in w.names[:1]]
    )
    if not names:
        raise NoLine
    if w.chance(0.3):
        text = _form(w, PAIRS).format(w.rng.choice(names), w.rng.choice(names))
    else:
        form = _form(w, INTEGERS)
        n = w.rng.choice(names)
        text = form.format(*[n] * form.count("{}"))
    w.emit(_safe(w, text))


@kind(1)
def reals(w: Writer) -> None:
    names = w.ints + w.floats
    if not names:
        raise NoLine
    form = _form(w, REALS)
    n = w.rng.choice(names)
    w.emit(_safe(w, form.format(*[n] * form.count("{}"))))


@kind(1.5)
def created(w: Writer) -> None:
    dtype = w.choice("torch.float32", "torch.int64", "torch.float64", "torch.int32", "torch.bfloat16", "torch.bool")
    x = w.tensor()
    real = w.choice("torch.float32", "torch.float64", "torch.int64", "torch.float16")
    w.emit(
        w.choice(
            f"torch.full(({w.size(0, 4)}, {w.size(1, 4)}), {w.number()}, dtype={dtype})",
            f"torch.arange({w.size(0, 8)})",
            f"torch.arange({w.size(1, 8)}, dtype={real}) + {w.integer()}",
            f"torch.arange({w.integer()}, {w.integer()} + 6)",
            f"torch.arange({w.size(6, 9)}, -2, -2)",
            f"torch.arange(0.5, {w.size(3, 6)}, 0.75)",
            f"torch.linspace({w.number()}, {w.number()}, {w.size(0, 6)})",
            f"torch.zeros({x}.shape, dtype={dtype})",
            f"torch.ones_like({x}) * {w.number()}",
            f"torch.full_like({x}, {w.number()})",
            f"torch.tensor({w.number()})",
            f"torch.tensor([{w.integer()}, {w.number()}])",
            f"{x}.new_full(({w.size(1, 3)},), {w.number()})",
            f"torch.eye({w.size(1, 4)}, {w.size(1, 4)})",
            f"torch.scalar_tensor({w.number()}, dtype={real})",
            f"torch.tril_indices({w.size(1, 4)}, {w.size(1, 4)})",
            f"torch.logspace({w.real()}, {w.real()}, {w.size(1, 4)})",
            f"{x}.new_zeros({x}.shape)",
        )
    )


@kind(1)
def branches(w: Writer) -> None:
    x, name = w.tensor(), w.fresh()
    test = w.choice(
        f"{x}.size({w.dim(x)}) > 2" if w.value(x).dim() else "True",
        f"{w.integer()} > 1",
        f"{w.real()} < 0.3",
        f"{w.integer()} % 2 == 0",
        f"{x}.dim() > 1 and {w.integer()} >= 0",
        f"{x}.numel() == 0",
    )
    w.do(f"if {test}:\n    {name} = {x} + 1\nelse:\n    {name} = {x} * {w.number()}", (name,))


@kind(0.6)
def loops(w: Writer) -> None:
    x, name = w.tensor(), w.fresh()
    w.do(
        f"{name} = {x}\nfor k in range({w.size(0, 3)}):\n    {name} = {name} {w.choice('+', '*')} {w.choice('k', w.number(), x)}",
        (name,),
    )


@kind(0.7)
def breaks(w: Writer) -> None:
    x = w.tensor(filled, is_real)
    way = w.rng.randrange(4)
    if way == 0:
        w.do("torch._dynamo.graph_break()")
    elif way == 1:
        w.emit(f"{x}.flatten()[0].item()")
    elif way == 2:
        w.do(
            f"if bool(({x} > {w.number()}).any()):\n    {x} = {x} + 1"
            if x.isidentifier()
            else "torch._dynamo.graph_break()"
        )
    else:
        w.emit(f"{x}.tolist()[0]" if w.value(x).dim() == 1 else f"{x}.sum().item()")


@kind(0.5)
def closures(w: Writer) -> None:
    x, name = w.tensor(), w.fresh()
    w.do(f"{name}_f = lambda y: y * {w.number()} + {x}")
    w.emit(f"{name}_f({w.tensor()})")


@kind(0.5)
def scalars_of_tensors(w: Writer) -> None:
    x = w.tensor(filled, is_real)
    w.emit(f"{x}.{w.choice('sum', 'mean', 'amax')}() {w.choice('*', '+', '>')} {w.number()}")
