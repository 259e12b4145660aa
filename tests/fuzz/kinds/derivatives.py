"""Gradients within a program: torch.func's, one in another, by rows, and along a direction."""

import torch

from tests.fuzz.writer import NoLine, Writer, filled, is_float, kind, rank

# torch 2.11's eager takes rms_norm's derivative within inference_mode for 0, and aot_eager does not
RMS_NORM = (
    "F.rms_norm({z}, {z}.shape[-1:])"
    if torch.__version__ >= "2.12"
    else "{z} * {z}.square().mean(-1, keepdim=True).rsqrt()"
)

SAME = (  # of the shape and dtype of {z}, and differentiable
    *("{z}.sin()", "{z}.exp()", "{z} * {z}", "{z} ** 3", "F.gelu({z})", "F.silu({z})", "F.softplus({z})", "{z}.tanh()"),
    *(
        "{z}.softmax(-1)",
        "{z}.log_softmax(0)",
        "{z} * {z}.mean()",
        "{z} * {z}.std(-1, keepdim=True)",
        "{z}.abs().sqrt()",
    ),
    *(
        "F.layer_norm({z}, {z}.shape[-1:])",
        RMS_NORM,
        "F.normalize({z}, dim=-1)",
        "{z}.cumsum(0)",
    ),
    *(
        "{z} - {z}.logsumexp(-1, keepdim=True)",
        "{z} * {z}.norm()",
        "{z} * {z}.prod(-1, keepdim=True)",
        "{z}.cumprod(-1)",
    ),
    *(
        "{z} @ {z}.mT @ {z}",
        "{z} @ {z}",
        "torch.outer({z}, {z}) @ {z}",
        "{z}.sort(-1).values",
        "{z} * {z}.amax(-1, keepdim=True)",
    ),
    *(
        "F.scaled_dot_product_attention({z}, {z}, {z})",
        "{z} * F.mse_loss({z}, {z}.flip(0))",
        "F.elu({z})",
        "{z}.relu() * 2",
    ),
    *("{z} / (1 + {z}.square())", "{z}.clamp(-1, 1) * {z}", "{z}.flip(0)", "torch.where({z} > 0, {z}, {z}.square())"),
    *("F.conv1d({z}[:, None], {z}[:1, None, :1], padding=0)[:, 0]", "{z}.roll(1, -1) * {z}", "{z}.mT.contiguous().mT"),
    *(
        "F.cross_entropy({z}, {z}.softmax(-1)) * {z}",
        "{z} * F.huber_loss({z}, -{z})",
        "{z}.log1p().nan_to_num()",
        "{z}.clone()",
    ),
    *(
        "F.group_norm({z}, 1)",
        "F.batch_norm({z}, None, None, training=True)",
        "F.avg_pool1d({z}, 3, 1, 1)",
        "{z}.var() * {z}",
    ),
    *(
        "F.max_pool1d({z}, 3, 1, 1)",
        "{z}.index_select(0, torch.zeros_like({z}[..., 0], dtype=torch.int64).view(-1))",
        "{z}.erf()",
    ),
    *(
        "torch.cat([{z}[1:], {z}[:1]])",
        "F.linear({z}, {z}.mT @ {z})",
        "{z}.atan2({z} + 2)",
        "torch.linalg.vector_norm({z}, 3, -1, True) * {z}",
    ),
    *(
        "torch.linalg.inv({z}.mT @ {z} + 2 * torch.eye({z}.shape[-1], dtype={z}.dtype)) @ {z}.mT @ {z}",
        "torch.hypot({z}, {z} + 1)",
    ),
)


def body(w: Writer, name: str) -> str:
    text = name
    for _ in range(w.rng.randint(1, 2)):
        text = w.choice(*SAME).format(z=text if text == name else f"({text})")
    return text


@kind(0.2)
def derivatives(w: Writer) -> None:
    x = w.tensor(is_float, rank(1, 4), filled)
    v = f"tensor({tuple(w.value(x).shape)}, {w.value(x).dtype}, {w.rng.randrange(99)})"
    f = f"lambda z: {body(w, 'z')}"
    total = f"lambda z: ({body(w, 'z')}).{w.choice('sum()', 'mean()', 'square().sum()', 'norm()')}"
    few = w.value(x).numel() <= 40
    options = [
        f"torch.func.grad({total})({x})",
        f"torch.func.grad_and_value({total})({x})",
        f"torch.func.grad(lambda y: torch.func.grad({total})(y).square().sum())({x})",
        f"torch.func.vjp({f}, {x})[1]({v})[0]",
        f"torch.func.jvp({f}, ({x},), ({v},))[1]",
        f"torch.func.jvp(torch.func.grad({total}), ({x},), ({v},))[1]",
        f"torch.func.vmap({f})({x})",
        f"torch.func.vmap(torch.func.grad({total}))({x})",
        f"torch.func.vmap({f}, -1, -1)({x})",
    ]
    if few:
        options += [
            f"torch.func.jacrev({f})({x})",
            f"torch.func.jacfwd({f})({x})",
            f"torch.func.hessian({total})({x})",
            f"torch.func.jacrev(torch.func.grad({total}))({x})",
        ]
    w.emit(w.choice(*options))


@kind(0.1)
def traced_gradients(w: Writer) -> None:
    """Of autograd's own function, which Dynamo traces where it is told to, and breaks the graph at elsewhere."""
    x = w.tensor(is_float, rank(1, 4), filled, lambda x: x.requires_grad)
    name = w.fresh()
    if not torch.is_grad_enabled():
        raise NoLine
    first = (
        f"{name} = torch.autograd.grad(({body(w, x)}).{w.choice('sum()', 'mean()', 'square().sum()', 'norm()')}, {x}"
    )
    w.do(
        w.choice(
            f"{first}, retain_graph=True)[0]",
            f"{first}, create_graph=True)[0]",
            f"{first}, create_graph=True)[0]\n{name} = ({name}.norm() - 1) ** 2",
            f"{first}, create_graph=True)[0]\n{name} = torch.autograd.grad(({name} * {x}).sum(), {x}, create_graph=True)[0]",
        ),
        (name,),
    )
