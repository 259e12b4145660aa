"""RNN, GRU and LSTM, of both layouts and directions, with the activations that a node names."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from mlirc.frontend.onnx_import.registry import OnnxNode, op
from mlirc.frontend.onnx_import.values import OnnxValueError

Activation = Callable[[torch.Tensor], torch.Tensor]


def _activation(name: str, alpha: float | None, beta: float | None) -> Activation:
    def number(x: float | None, default: float) -> float:
        return default if x is None else x

    found: dict[str, Activation] = {
        "relu": torch.relu,
        "tanh": torch.tanh,
        "sigmoid": torch.sigmoid,
        "affine": lambda x: number(alpha, 1.0) * x + number(beta, 0.0),
        "leakyrelu": lambda x: F.leaky_relu(x, number(alpha, 0.01)),
        "thresholdedrelu": lambda x: torch.where(x > number(alpha, 1.0), x, torch.zeros_like(x)),
        "scaledtanh": lambda x: number(alpha, 1.0) * torch.tanh(number(beta, 1.0) * x),
        "hardsigmoid": lambda x: torch.clamp(number(alpha, 0.2) * x + number(beta, 0.5), 0, 1),
        "elu": lambda x: F.elu(x, number(alpha, 1.0)),
        "softsign": F.softsign,
        "softplus": F.softplus,
    }
    if name.lower() not in found:
        raise OnnxValueError(f"it has no activation '{name}'")
    return found[name.lower()]


def _activations(node: OnnxNode, defaults: Sequence[str], directions: int) -> list[list[Activation]]:
    """The activations of each direction, each with the numbers that it takes."""
    names = node.get("activations") or list(defaults) * directions
    takes_alpha = {"affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu"}
    takes_beta = {"affine", "scaledtanh", "hardsigmoid"}
    alphas, betas = list(node.get("activation_alpha") or []), list(node.get("activation_beta") or [])
    found = []
    for name in names:
        alpha = alphas.pop(0) if name.lower() in takes_alpha and alphas else None
        beta = betas.pop(0) if name.lower() in takes_beta and betas else None
        found.append(_activation(name, alpha, beta))
    count = len(defaults)
    return [found[k * count : (k + 1) * count] for k in range(directions)]


def _recurrent(
    node: OnnxNode,
    x: torch.Tensor,
    lengths: Any,
    states: list[Any],
    defaults: Sequence[str],
    step_of: Callable[..., Any],
) -> tuple[Any, ...]:
    """Y, and the last state of each kind. `step_of(direction, activations)` -> step(x of a time, states) -> states."""
    if node.get("layout", 0):
        x = x.transpose(0, 1)
        states = [None if s is None else s.transpose(0, 1) for s in states]
    direction = node.get("direction", "forward")
    count = 2 if direction == "bidirectional" else 1
    acts = _activations(node, defaults, count)
    time, batch, hidden = x.shape[0], x.shape[1], node.need("hidden_size")
    if not isinstance(time, int):
        raise OnnxValueError("its number of steps is not known when the model is compiled")
    whole, last = [], []
    for k in range(count):
        step = step_of(k, acts[k])
        now = [torch.zeros(batch, hidden, dtype=x.dtype) if s is None else s[k] for s in states]
        reverse = direction == "reverse" or k == 1
        rows: list[Any] = [None] * time
        for t in range(time - 1, -1, -1) if reverse else range(time):
            new = step(x[t], now)
            if lengths is not None:
                within = (t < lengths).unsqueeze(-1)
                rows[t] = torch.where(within, new[0], torch.zeros_like(new[0]))
                now = [torch.where(within, b, a) for a, b in zip(now, new, strict=True)]
            else:
                rows[t], now = new[0], new
        whole.append(torch.stack(rows))
        last.append(now)
    y = torch.stack(whole, 1)
    ends = [torch.stack([states[k] for states in last]) for k in range(len(states))]
    if node.get("layout", 0):
        return (y.permute(2, 0, 1, 3), *(s.transpose(0, 1) for s in ends))
    return (y, *ends)


def _bias(b: Any, k: int, gates: int, hidden: int, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    if b is None:
        nothing = torch.zeros(gates * hidden, dtype=w.dtype)
        return nothing, nothing
    return b[k][: gates * hidden], b[k][gates * hidden :]


def _clipped(node: OnnxNode, x: torch.Tensor) -> torch.Tensor:
    limit = node.get("clip", 0.0)
    return torch.clamp(x, -limit, limit) if limit else x


@op("RNN")
def rnn(node: OnnxNode, x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None) -> Any:
    hidden = node.need("hidden_size")

    def step_of(k: int, acts: list[Activation]) -> Callable[..., Any]:
        wb, rb = _bias(b, k, 1, hidden, w)
        return lambda xt, now: [acts[0](_clipped(node, F.linear(xt, w[k], wb) + F.linear(now[0], r[k], rb)))]

    return _recurrent(node, x, lengths, [h], ("Tanh",), step_of)


@op("GRU")
def gru(node: OnnxNode, x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None) -> Any:
    """Gates in the order z, r, h."""
    hidden = node.need("hidden_size")

    def step_of(k: int, acts: list[Activation]) -> Callable[..., Any]:
        wb, rb = _bias(b, k, 3, hidden, w)
        r_zr, r_h = r[k][: 2 * hidden], r[k][2 * hidden :]

        def step(xt: torch.Tensor, now: list[torch.Tensor]) -> list[torch.Tensor]:
            given = F.linear(xt, w[k], wb)
            gates = _clipped(node, given[:, : 2 * hidden] + F.linear(now[0], r_zr, rb[: 2 * hidden]))
            z, reset = acts[0](gates).chunk(2, 1)
            if node.get("linear_before_reset", 0):
                inner = reset * F.linear(now[0], r_h, rb[2 * hidden :])
            else:
                inner = F.linear(reset * now[0], r_h, rb[2 * hidden :])
            new = acts[1](_clipped(node, given[:, 2 * hidden :] + inner))
            return [(1 - z) * new + z * now[0]]

        return step

    return _recurrent(node, x, lengths, [h], ("Sigmoid", "Tanh"), step_of)


@op("LSTM")
def lstm(
    node: OnnxNode,
    x: Any,
    w: Any,
    r: Any,
    b: Any = None,
    lengths: Any = None,
    h: Any = None,
    c: Any = None,
    p: Any = None,
) -> Any:
    """Gates in the order i, o, f, c; peepholes in the order i, o, f."""
    hidden = node.need("hidden_size")

    def step_of(k: int, acts: list[Activation]) -> Callable[..., Any]:
        wb, rb = _bias(b, k, 4, hidden, w)
        peep = [None] * 3 if p is None else p[k].chunk(3)

        def peeped(gate: torch.Tensor, weight: Any, cell: torch.Tensor) -> torch.Tensor:
            return gate if weight is None else gate + weight * cell

        def step(xt: torch.Tensor, now: list[torch.Tensor]) -> list[torch.Tensor]:
            state, cell = now
            i, o, f, g = (F.linear(xt, w[k], wb) + F.linear(state, r[k], rb)).chunk(4, 1)
            i = acts[0](_clipped(node, peeped(i, peep[0], cell)))
            f = 1 - i if node.get("input_forget", 0) else acts[0](_clipped(node, peeped(f, peep[2], cell)))
            new = f * cell + i * acts[1](_clipped(node, g))
            o = acts[0](_clipped(node, peeped(o, peep[1], new)))
            return [o * acts[2](new), new]

        return step

    return _recurrent(node, x, lengths, [h, c], ("Sigmoid", "Tanh", "Tanh"), step_of)
