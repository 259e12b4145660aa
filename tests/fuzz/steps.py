"""Programs that train: forward, backward and the optimizer's step in one compiled function, called several times."""

import textwrap
from random import Random

OPTIMIZERS = (
    "SGD(ps, lr=0.1)",
    "SGD(ps, lr=0.1, momentum=0.9)",
    "SGD(ps, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)",
    "SGD(ps, lr=0.1, momentum=0.9, dampening=0.5, maximize=True)",
    "Adam(ps, lr=0.01)",
    "Adam(ps, lr=0.01, amsgrad=True)",
    "AdamW(ps, lr=0.01)",
    "AdamW([{'params': ps[:1], 'lr': 0.1}, {'params': ps[1:]}], lr=0.01, weight_decay=0.1)",
    "RMSprop(ps, lr=0.01, momentum=0.5, centered=True)",
    "Adagrad(ps, lr=0.1)",
    "Adadelta(ps)",
    "NAdam(ps, lr=0.01)",
    "RAdam(ps, lr=0.01)",
    "Adamax(ps, lr=0.01)",
    "ASGD(ps, lr=0.01)",
)
LAYERS = (
    "nn.Linear({w}, {w})",
    "nn.Linear({w}, {w}, bias=False)",
    "nn.LayerNorm({w})",
    "nn.BatchNorm1d({w})",
    "nn.GELU()",
    "nn.ReLU()",
    "nn.Tanh()",
    "nn.Dropout(0.0)",
)
LOSSES = (
    "F.mse_loss(out, out.detach().flip(0) + 1)",
    "out.square().mean()",
    "F.cross_entropy(out, index((out.size(0),), out.size(1), 3))",
    "out.float().logsumexp(-1).sum()",
    "F.smooth_l1_loss(out, a)",
)
BETWEEN = (
    "m.optimizer.param_groups[0]['lr'] = 0.05",
    "m.model.eval()",
    "m.model.train()",
    "m.optimizer.zero_grad()",
    "m.optimizer.zero_grad(set_to_none=False)",
    "m.ps[0].requires_grad_(False)",
    "change(m.ps[0], 'data')",
    "change(m.ps[-1], 'numpy')",
    "m.optimizer.load_state_dict(m.optimizer.state_dict())",
    "m.optimizer.state.clear()",
)


def random_step(rng: Random) -> str:
    """What comes behind the header of a program (program.py)."""
    width = rng.choice((1, 2, 3, 5, 8))
    layers = [rng.choice(LAYERS).format(w=width) for _ in range(rng.randint(0, 2))]
    layers.insert(rng.randint(0, len(layers)), f"nn.Linear({width}, {width})")
    lines = [f"self.l{k} = {layer}" for k, layer in enumerate(layers)]
    lines += _sharing(rng, layers)
    forward = [f"a = self.l{k}(a)" for k in range(len(layers))]
    if rng.random() < 0.2:
        forward.insert(rng.randint(0, len(forward)), rng.choice(("a = a.sin() + a", "torch._dynamo.graph_break()")))
    foreach = rng.choice(("", "", ", foreach=False", ", foreach=True"))
    optimizer = rng.choice(OPTIMIZERS)[:-1] + foreach + ")"
    step = _step(rng)
    dtype = rng.choice(("torch.float32",) * 4 + ("torch.float64", "torch.bfloat16"))
    if dtype == "torch.bfloat16" and any("Norm" in layer for layer in layers):
        step = [line for line in step if "clip_grad" not in line]
    text = "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    text += _indented(lines, 2) + "\n    def forward(self, a):\n" + _indented([*forward, "return a"], 2)
    text += f"\n\ndef make():\n    model = Net().to({dtype})\n    ps = list(model.parameters())\n"
    text += f"    optimizer = torch.optim.{optimizer}\n\n    def step(a):\n" + _indented(step, 2)
    text += "\n    step.model, step.optimizer, step.ps = model, optimizer, ps\n    return step\n\n\n"
    return text + "def drive(f, m, see):\n" + _indented(_drive(rng, width, dtype), 1)


def _sharing(rng: Random, layers: list[str]) -> list[str]:
    linear = [k for k, layer in enumerate(layers) if "Linear" in layer]
    if len(linear) < 2 or rng.random() < 0.5:
        return []
    first, second = (f"self.l{k}" for k in linear[:2])
    return [rng.choice((f"{second}.weight = {first}.weight", f"{second} = {first}"))]


def _step(rng: Random) -> list[str]:
    zero = rng.choice(("optimizer.zero_grad()", "optimizer.zero_grad(set_to_none=False)", "model.zero_grad()"))
    loss = rng.choice(LOSSES)
    if rng.random() < 0.25:  # gradients accumulate
        lines = [
            "for part in (a, a.flip(0)):",
            "    out = model(part)",
            f"    loss = {loss}",
            "    (loss / 2).backward()",
        ]
    else:
        lines = ["out = model(a)", f"loss = {loss}", "loss.backward()"]
    if rng.random() < 0.3:
        lines.append(
            rng.choice(
                (
                    "torch.nn.utils.clip_grad_norm_(ps, 0.5)",
                    "loss = loss + torch.nn.utils.clip_grad_norm_(ps, 1.0, norm_type=float('inf'))",
                    "torch.nn.utils.clip_grad_norm_(ps, 1.0, foreach=False)",
                    "torch.nn.utils.clip_grad_value_(ps, 0.1)",
                )
            )
        )
    lines.append("optimizer.step()")
    if rng.random() < 0.15:
        lines += ["with torch.no_grad():", "    ps[0].mul_(0.9)"]
    lines.insert(rng.choice((0, 0, len(lines))), zero)
    return [
        *lines,
        rng.choice(("return loss.detach()", "return loss.detach(), out", "return None", "return loss.item()")),
    ]


def _drive(rng: Random, width: int, dtype: str) -> list[str]:
    rows = rng.choice((2, 3, 5))
    lines = []
    for k in range(rng.choice((2, 2, 3))):
        if k and rng.random() < 0.2:
            rows = rng.choice((2, 4, 7))
        lines.append(f"a = tensor(({rows}, {width}), {dtype}, {rng.randrange(99)})")
        if k and rng.random() < 0.35:
            lines.append(rng.choice(BETWEEN))
        lines.append("r = in_thread(f, a)" if rng.random() < 0.05 else "r = f(a)")
        lines.append("see(r, m.ps, [p.grad for p in m.ps], [dict(s) for s in m.optimizer.state.values()])")
    return lines


def _indented(lines: list[str], depth: int) -> str:
    return textwrap.indent("\n".join(lines) + "\n", "    " * depth)
