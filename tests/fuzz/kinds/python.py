"""What programs do beside tensors: containers and state around graph breaks, NumPy, exceptions that are caught."""

import torch

from tests.fuzz.kinds.mutation import target
from tests.fuzz.writer import NoLine, Writer, filled, is_float, is_real, kind, rank

BREAK = "torch._dynamo.graph_break()"


@kind(0.7)
def state_around_a_break(w: Writer) -> None:
    """State made before a graph break, and changed after it."""
    x, name = w.tensor(), w.fresh()
    y = w.tensor()
    w.do(
        w.choice(
            f"{name}_l = [{x}]\n{BREAK}\n{name}_l.append({name}_l[0] * 2)\n{name} = {name}_l[-1] + 1",
            f"{name}_d = {{'x': {x}}}\n{BREAK}\n{name}_d['y'] = {name}_d.pop('x') + 1\n{name} = {name}_d['y'].sin()",
            f"{name} = {x} + 1\nwith torch.no_grad():\n    {name} = {name} * 2\n    {BREAK}\n    {name} = {name} + {y}",
            f"def {name}_g(z):\n    {BREAK}\n    return z * 2\n{name} = {name}_g({x} + 1) + 1",
            f"{name}_n = 0\nfor z in ({x}, {y}):\n    {name}_n += z.dim()\n    {BREAK}\n{name} = {x} * {name}_n",
            f"{name} = {x}.clone()\n{name}.add_(1)\n{BREAK}\n{name}.mul_(2)",
        ),
        (name,),
    )


@kind(0.7)
def views_around_a_break(w: Writer) -> None:
    """A view made before a graph break; it and its base are written after it."""
    x, name = target(w, rank(1), filled), w.fresh()
    w.do(
        w.choice(
            f"{name} = {x}[0]\n{x}.add_(1)\n{BREAK}\n{name}.mul_(2)",
            f"{name} = {x}.detach()\n{BREAK}\n{x}.add_(1)",
            f"{name} = {x}.view(-1)\n{BREAK}\n{name}[0] = 3",
            f"{x}.mul_(2)\n{name} = {x}[1:]\n{BREAK}\n{x}[0] = 7\n{name}.sub_(1)",
        ),
        (name,),
    )


@kind(0.6)
def numpy(w: Writer) -> None:
    x = w.tensor(lambda x: x.dtype in (torch.float32, torch.float64, torch.int64, torch.bool, torch.int32))
    w.emit(
        w.choice(
            f"torch.from_numpy(np.abs({x}.detach().numpy()))",
            f"torch.as_tensor({x}.detach().numpy() * 2)",
            f"torch.from_numpy(np.add({x}.detach().numpy(), 1))",
            f"torch.as_tensor(np.sum({x}.detach().numpy()))",
            f"torch.from_numpy(np.transpose({x}.detach().numpy()))",
            f"torch.from_numpy(np.where({x}.detach().numpy() > 0, 1.0, 2.0))",
            f"{x} * float(np.float64(0.5))",
            f"{x} + int(np.int64({w.integer()}))",
            f"torch.as_tensor(np.arange({w.size(0, 4)}))",
        )
    )


@kind(0.4)
def caught(w: Writer) -> None:
    """An exception that the program itself catches."""
    x, name = w.tensor(is_real), w.fresh()
    raising = w.choice("raise ValueError('no')", f"{{}}[{w.integer()}]", "1 // 0", "assert False", "[][3]")
    w.do(
        f"try:\n    {name} = {x} + 1\n    {raising}\nexcept Exception:\n    {name} = {x} * 2\nfinally:\n    {name} = {name} + 1",
        (name,),
    )


@kind(0.4)
def containers(w: Writer) -> None:
    x, y, name = w.tensor(), w.tensor(), w.fresh()
    w.do(
        w.choice(
            f"{name} = sum([z.sum() for z in ({x}, {y})])",
            f"{name} = {{k: z * 2 for k, z in zip('ab', ({x}, {y}))}}['b']",
            f"{name} = next(z + 1 for z in ({x}, {y}))",
            f"*_, {name} = sorted([{x}, {y}], key=lambda z: z.dim())\n{name} = {name} + 1",
            f"{name} = functools.reduce(lambda p, q: p * 2 + q, [{x}.sum(), {y}.sum(), 1])",
            f"{name} = Pair({x}, {y})._replace(second={x} + 1).second",
        ),
        (name,),
    )


RAISES = (
    "{x} @ tensor(({k}, 3), {d}, 1)",
    "{x}[{k}]",
    "{x}.view(-1, {k})",
    "{x} + tensor(({k}, 2, 7), {d}, 1)",
    "torch.cat([{x}, {x}[None]])",
    "{x}.select(0, {k})",
    "{x}.item()",
    "{x}.permute(0, 0)",
    "{x}.squeeze(9)",
    "{x}[index((3,), 50, 1) + 30]",
    "torch.index_select({x}, 0, index((3,), 50, 1) + 30)",
    "F.embedding(index((3,), 50, 1) + 30, {x})",
    "torch.gather({x}, 0, torch.full_like({x}, 40, dtype=torch.int64))",
    "{x}.expand(2, {k})",
    "{x} // (1 // {n})",
    "[{x}, {x}][{n} + 2]",
    "{{}}[{n}]",
    "{x}.nothing",
    "{x}[:0].max()",
    "{x}[{n}:].min(0).values",
    "{x}[..., {k}:].max(-1).indices",
    "{x}[{x} != {x}].max()",
    "{x} + 'text'",
    "torch.bitwise_and({x}, 1.5)",
    "torch.linalg.inv({x})",
    "torch.linalg.cholesky({x})",
    "F.cross_entropy({x}, {x}.long()[..., 0] + 100)",
    "{x}.reshape({n}, -1)",
    "torch.zeros({n} - 3)",
    "torch.arange({n}, 3, -1)",
    "math.sqrt({n} - 4)",
    "{x}.narrow(0, {n}, 2)",
    "F.conv1d({x}, tensor((2, {k}, 3), {d}, 1))",
    "{x}.unflatten(0, (2, {k}))",
    "F.layer_norm({x}, ({k},))",
    "{x}.to(torch.int64) // 0",
    "torch.stack([])",
    "{x}.chunk({n} - 1)",
)


def raising_line(w: Writer) -> str:
    """An expression that raises in eager in some call or all. Raises NoLine if there is none."""
    for _ in range(12):
        x = w.tensor(is_float) if w.chance(0.7) else w.tensor()
        text = w.choice(*RAISES).format(x=x, k=w.rng.randint(3, 9), d=w.value(x).dtype, n=w.integer())
        text = w.hoisted(text)
        if any(_raises(text, env) for env in w.envs):
            return text
    raise NoLine


def _raises(text: str, env: dict) -> bool:
    try:
        eval(text, env)
    except Exception:
        return True
    return False
