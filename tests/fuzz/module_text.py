"""A random module: its parameters, buffers and layers as text."""

from dataclasses import dataclass, field
from random import Random


@dataclass
class Module:
    """What `__init__` makes; tensors and layers are named as `forward` does."""

    lines: list[str] = field(default_factory=list)
    tensors: list[str] = field(default_factory=list)
    layers: list[str] = field(default_factory=list)

    def text(self, body: str, parameters: list[str] | None = None) -> str:
        """The class, with this body of `forward`."""
        head = "class Program(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        init = "".join(f"        {line}\n" for line in self.lines)
        arguments = ", ".join(["self", *(parameters or [])])
        return f"{head}{init}\n    def forward({arguments}):\n{body}\n"


LAYERS = (
    "nn.Linear({n}, {m})",
    "nn.Linear({n}, {m}, bias=False)",
    "nn.LayerNorm({n})",
    "nn.BatchNorm1d({n})",
    "nn.Conv1d({n}, {m}, 3, padding=1)",
    "nn.Embedding({n}, {m})",
    "nn.BatchNorm2d({n})",
    "nn.Conv2d({n}, {m}, 3, padding=1)",
    "nn.Conv2d({n}, {m}, 1, bias=False)",
    "nn.GroupNorm(1, {n})",
    "nn.PReLU()",
    "nn.RMSNorm({n})",
    "nn.Dropout(0.0)",
    "nn.Sequential(nn.Linear({n}, {m}), nn.ReLU(), nn.Linear({m}, {n}))",
    "nn.Sequential(nn.Conv2d({n}, {m}, 3), nn.BatchNorm2d({m}), nn.ReLU())",
    "nn.MultiheadAttention({n}, 1, batch_first=True)",
    "nn.InstanceNorm1d({n}, affine=True, track_running_stats=True)",
    "nn.Bilinear({n}, {n}, {m})",
    "nn.Sequential(nn.Conv1d({n}, {m}, 1), nn.BatchNorm1d({m}))",
    "nn.ConvTranspose1d({n}, {m}, 2)",
    "nn.TransformerEncoderLayer({n}, 1, 4, dropout=0.0, batch_first=True)",
)


def random_module(rng: Random) -> Module:
    module = Module()
    for k in range(rng.randint(0, 2)):
        shape = tuple(rng.choice((1, 2, 3, 4, 5)) for _ in range(rng.randint(0, 2)))
        dtype = rng.choice(("torch.float32", "torch.float32", "torch.float64", "torch.bfloat16"))
        module.lines.append(f"self.p{k} = nn.Parameter(tensor({shape}, {dtype}, {k + 1}))")
        module.tensors.append(f"self.p{k}")
    for k in range(rng.randint(0, 2)):
        shape = tuple(rng.choice((1, 2, 3, 4, 5)) for _ in range(rng.randint(0, 2)))
        dtype = rng.choice(("torch.float32", "torch.int64", "torch.float64", "torch.bool"))
        persistent = rng.choice(("", ", persistent=False"))
        module.lines.append(f'self.register_buffer("b{k}", tensor({shape}, {dtype}, {k + 7}){persistent})')
        module.tensors.append(f"self.b{k}")
    for k in range(rng.randint(1, 3)):
        text = rng.choice(LAYERS).format(n=rng.choice((1, 2, 3, 4, 5)), m=rng.choice((1, 2, 3, 4, 8)))
        module.lines.append(f"self.l{k} = {text}")
        module.layers.append(f"self.l{k}")
    if rng.random() < 0.3:
        _share(rng, module)
    if rng.random() < 0.2:
        module.lines.append("self.flag = True")
    if rng.random() < 0.2:
        module.lines.append("self.number = 3")
    return module


def _share(rng: Random, module: Module) -> None:
    """Modules that are there twice, parameters of two modules, and modules in modules."""
    way, layer = rng.randrange(4), rng.choice(module.layers)
    if way == 0:
        module.lines.append(f"self.twin = {layer}")
        module.layers.append("self.twin")
    elif way == 1:
        module.lines += [f"self.other = copy.deepcopy({layer})", "tie(self.other, " + layer + ")"]
        module.layers.append("self.other")
    elif way == 2:
        module.lines.append(f"self.inner = nn.ModuleList([nn.Sequential({layer}), {layer}])")
        module.layers.append("self.inner[0]")
    else:
        module.lines.append(f"self.named = nn.ModuleDict({{'a': nn.Sequential({layer}), 'b': {layer}}})")
        module.layers.append("self.named['a']")
