"""How a program is called: inputs, their layouts and aliases, several calls, gradients, and what changes in between."""

import copy
import re
from dataclasses import dataclass, field
from random import Random
from typing import Any

from mlirc.frontend.torch_compat.dynamo.skipped_guards import CHECKS_ALL
from tests.fuzz.changes import FLIPPED, WAYS, change
from tests.fuzz.structures import Signature
from tests.fuzz.writer import GLOBALS

DTYPES = (
    ["torch.float32"] * 8
    + ["torch.float64"] * 2
    + ["torch.bfloat16", "torch.float16"] * 2
    + ["torch.int64"] * 2
    + ["torch.int32", "torch.bool", "torch.uint8", "torch.int8", "torch.int16", "torch.complex64", "torch.complex128"]
)
SMALL = (0, 1, 2, 3, 4, 5, -1, -2, -3)
HUGE = (2**31, -(2**31) - 1, 2**33, -(2**33), 2**53 + 1, 100, -100)
REALS = ("0.5", "2.0", "-1.5", "0.0", "-0.0", "1e-3", "3e9", "1.0", "float('inf')", "float('nan')", "-7.25")


@dataclass
class Input:
    """An argument: its name, and its text for each call."""

    name: str
    texts: list[str]
    layout: str = ""
    leaf: bool = False  # has a gradient


@dataclass
class Calls:
    """All that surrounds a program's body."""

    rng: Random
    options: dict[str, Any]
    count: int
    module: bool
    training: bool
    mode: str
    kept: bool = False  # a module in evaluation, whose weights change between all calls
    raises: bool = False
    inputs: list[Input] = field(default_factory=list)
    signature: Signature = field(default_factory=lambda: Signature("", [], [], ""))

    @property
    def names(self) -> list[str]:
        return [x.name for x in self.inputs]

    def environments(self) -> list[dict[str, Any]]:
        """The arguments of each call."""
        environments = []
        for k in range(self.count):
            env: dict[str, Any] = {}
            exec("\n".join(self.arguments(k)), GLOBALS, env)
            environments.append({**GLOBALS, **{name: env[name] for name in self.names}})
        return environments

    def arguments(self, k: int) -> list[str]:
        """Lines that make the arguments of a call."""
        lines = []
        for x in self.inputs:
            if x.leaf and x.layout:
                lines += [f"{x.name}_leaf = {x.texts[k]}.requires_grad_()", f"{x.name} = {x.name}_leaf{x.layout}"]
            else:
                lines.append(f"{x.name} = {x.texts[k]}{x.layout}" + (".requires_grad_()" if x.leaf else ""))
        return lines

    @property
    def leaves(self) -> list[str]:
        return [f"{x.name}_leaf" if x.layout else x.name for x in self.inputs if x.leaf]

    def lines(self, attributes: list[str], module: Any = None) -> list[str]:
        """The body of `drive`; `module` is one like the program's."""
        rng, lines = self.rng, ["m.eval()"] if self.kept else []
        for k in range(self.count):
            lines += self.arguments(k)
            if self.training and self.leaves and rng.random() < 0.1:
                lines.append(f"{rng.choice(self.leaves)}.register_hook(lambda g: g * 2)")
            lines += self.call()
            tensors = [x.name for x in self.inputs if x.texts[0].startswith("tensor") or x.texts[0][0] in "abc"]
            tensors = [x for x in tensors if not re.fullmatch(r"t\d+", x)]
            shown = ", ".join(["r", *tensors, *(f"m.{a}" for a in attributes)])
            lines.append(f"see({shown})")
            if self.training:
                lines += self.backward(attributes)
            elif not self.raises and rng.random() < 0.25:
                lines += self.changed_results(shown)
            if k + 1 < self.count and self.module:
                lines += self.changed_state(module)
            if k + 1 < self.count and rng.random() < 0.15:
                lines += [*self.call(), f"see({shown})"]
        return lines

    def call(self) -> list[str]:
        way = self.rng.random()
        called = [*(["attempt"] if self.raises else []), "f"]
        if way < 0.06:
            called.insert(0, "in_thread")
        arguments = ", ".join([*called[1:], *([self.signature.arguments] if self.signature.arguments else [])])
        text = f"r = {called[0]}({arguments})"
        modes = [self.mode] if self.mode else []
        if 0.06 < way < 0.11:
            modes.append(f"flipped({self.rng.choice(FLIPPED)!r})")
        if modes:
            return [f"with {', '.join(modes)}:", f"    {text}"]
        if way > 0.95:
            return ["with torch.no_grad():", f"    {text}"]
        return [text]

    def backward(self, attributes: list[str]) -> list[str]:
        leaves = self.leaves + [f"m.{a}" for a in attributes if a.startswith("p")]
        if self.module and self.rng.random() < 0.5:
            leaves.append("*m.parameters()")
        if not leaves:
            return ["total(r).backward()"]
        every = f"[{', '.join(leaves)}]"
        way = self.rng.random()
        if way < 0.5:
            return [f"see(gradients(r, {every}))"]
        if way < 0.6:
            return ["s = total(r)", "s.backward(retain_graph=True)", "s.backward()", f"see([p.grad for p in {every}])"]
        if way < 0.75:
            return [f"g = gradients(r, {every}, create_graph=True)", "see(g)", f"see(gradients(g, {every}))"]
        if way < 0.83:
            written = ["r", *(x.name for x in self.inputs if x.texts[0].startswith("tensor") or x.texts[0][0] in "abc")]
            return [f"see(after_writes(r, {every}, {self.rng.choice(written)}))"]
        if way < 0.88:
            return [f"see(batched(r, {every}))"]
        if way < 0.94:
            return [f"see(of_some(r, {every}, {self.rng.choice((1, 2, 4, 5, 6, 10))}))"]
        lines = ["total(r).backward()", f"see([p.grad for p in {every}])"]
        if self.module and self.rng.random() < 0.5:
            lines += ["with torch.no_grad():", "    for p in m.parameters():"]
            lines += ["        if p.grad is not None:", "            p -= 0.1 * p.grad", "m.zero_grad()"]
        return lines

    def changed_results(self, shown: str) -> list[str]:
        change = self.rng.choice(("add_(1)", "zero_()", "t_()", "mul_(2)"))
        tensor = "[x for x in torch.utils._pytree.tree_leaves(r) if isinstance(x, torch.Tensor)]"
        return [f"{tensor}[0].{change}", f"see({shown})"]

    def changed_state(self, module: Any) -> list[str]:
        """What happens to a module between two calls."""
        rng = self.rng
        tensors = [f"m.get_parameter({n!r})" for n, _ in module.named_parameters()]
        tensors += [f"m.get_buffer({n!r})" for n, _ in module.named_buffers()]
        changes = [
            f"{rng.choice(tensors)}.requires_grad_(False)" if tensors else "",
            f"{rng.choice(tensors)}.data.mul_(2)" if tensors else "",
            "m.eval()",
            "m.train()",
            "m.eval()",
            "m.flag = False",
            "m.number = 4",
            "m.number = -2",
            "m.load_state_dict({k: v * 2 for k, v in m.state_dict().items()})",
            "for b in m.buffers():\n    b.data.copy_(b.data + 1)",
            "for p in m.parameters():\n    p.data.mul_(0.5)",
            *(("m.double()", "m.to(torch.bfloat16)") if CHECKS_ALL else ()),
            "m.requires_grad_(False)",
            "m.zero_grad()",
            "for p in m.parameters():\n    p.data = p.data.clone()",
        ]
        chosen = [] if self.kept else rng.sample([c for c in changes if c], rng.choice((0, 0, 1, 1, 2)))
        if tensors and (self.kept or rng.random() < 0.5):
            chosen += [self.written_weight(rng.choice(tensors)) for _ in range(rng.choice((1, 1, 2)))]
        return [line for text in chosen if _possible(text, module) for line in text.split("\n")]

    def written_weight(self, t: str) -> str:
        at = self.rng.choice(("", "", ", 0", ", -1"))
        return f"change({t}, {self.rng.choice(list(WAYS))!r}{at})"


def _possible(text: str, module: Any) -> bool:
    """Whether eager can do it."""
    if "'process'" in text:  # not forked while programs are written
        return True
    try:
        exec(text, {**GLOBALS, "m": copy.deepcopy(module), "change": change})
    except Exception:
        return False
    return True


def random_calls(rng: Random) -> Calls:
    way = rng.random()
    training = rng.random() < 0.3
    count = rng.choice((1, 1, 1, 2, 2, 2, 3, 4))
    options = {"dynamic": rng.choice((None, None, True, True, False))}
    mode = ""
    if not training and rng.random() < 0.4:
        mode = rng.choice(("torch.no_grad()", "torch.no_grad()", "torch.inference_mode()"))
    elif rng.random() < 0.06:
        mode = "torch.autocast('cpu', torch.bfloat16)"
    calls = Calls(rng, options, count, way < 0.25, training, mode, way < 0.06)
    if calls.kept:
        calls.training, calls.count = False, max(count, 3)
        calls.mode = rng.choice(("torch.no_grad()", "torch.inference_mode()"))
    _add_tensors(calls)
    _add_numbers(calls)
    return calls


def _add_tensors(calls: Calls) -> None:
    rng = calls.rng
    resized = calls.count > 1 and not calls.kept and rng.random() < 0.5
    sizes = [_sizes(rng)]
    for _ in range(calls.count - 1):
        sizes.append(_sizes(rng) if resized else sizes[0])
    dtypes = [rng.choice(DTYPES) for _ in range(rng.choice((1, 1, 2)))]
    values = rng.choice(("normal",) * 8 + ("ties", "positive", "special", "special", "extreme"))
    for k in range(rng.choice((1, 1, 2, 2, 3))):
        name = "abc"[k]
        if k and rng.random() < 0.12:
            other = calls.inputs[0]
            view = rng.choice(
                (
                    "",
                    "",
                    "[1:]",
                    ".t()",
                    "[:-1]",
                    ".view(-1)",
                    ".flip(0)",
                    "[::2]",
                    ".mT",
                    ".detach()",
                    ".view_as(a)",
                    "[0]",
                )
            )
            if _runs(calls, view):
                calls.inputs.append(Input(name, [f"{other.name}{view}"] * calls.count))
                continue
        if k and rng.random() < 0.12:  # one tensor for two arguments, in some of the calls
            ways = ("a", "a.detach().clone().mul_(a.detach())")
            calls.inputs.append(Input(name, [rng.choice(ways) for _ in range(calls.count)]))
            continue
        dims = rng.choices(("A", "B", "C", "1"), (4, 4, 3, 1), k=rng.choice((0, 1, 1, 2, 2, 2, 3, 3, 4)))
        dtype = rng.choice(dtypes)
        kind = values if rng.random() < 0.7 else "normal"
        seed = rng.randrange(100)
        texts = []
        for c in range(calls.count):
            shape = tuple(1 if d == "1" else sizes[c][d] for d in dims)
            extra = "" if kind == "normal" else f", {kind!r}"
            texts.append(f"tensor({shape}, {dtype}, {seed + c}{extra})")
        layout = _layout(rng, len(dims))
        if not all(_evaluates(text + layout) for text in texts):
            layout = ""
        leaf = calls.training and "float" in dtype and rng.random() < 0.75
        calls.inputs.append(Input(name, texts, layout, leaf))


def _runs(calls: Calls, view: str) -> bool:
    for env in calls.environments():
        try:
            eval(f"a{view}", {}, env)
        except Exception:
            return False
    return True


def _evaluates(text: str) -> bool:
    try:
        eval(text, GLOBALS)
    except Exception:
        return False
    return True


def _sizes(rng: Random) -> dict[str, int]:
    sizes = {
        name: rng.choice((0, 1, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8, 9, 16, 17) if rng.random() < 0.9 else (33, 40, 65))
        for name in "ABC"
    }
    if rng.random() < 0.15:  # as many heads as images
        sizes |= dict.fromkeys(rng.choice(("AB", "BC", "AC", "ABC")), sizes["A"])
    return sizes


def _layout(rng: Random, rank: int) -> str:
    """How a tensor lies: mostly contiguous."""
    if rng.random() < 0.6 or rank == 0:
        return ""
    options = [
        "[::2]",
        "[..., 1:]",
        ".flip(0)",
        ".expand(2, {})".format(", ".join(["-1"] * rank)),
        "[None]",
        "[:, None]",
        ".unsqueeze(-1)",
        "[:0]",
    ]
    if rank >= 2:
        options += [
            ".mT",
            ".transpose(0, 1)",
            "[:, ::2]",
            ".transpose(0, -1)",
            ".mT",
            "[:, :1].expand({})".format(", ".join(["-1", "3"] + ["-1"] * (rank - 2))),
        ]
    if rank == 4:
        options += [".to(memory_format=torch.channels_last)"] * 4
    return rng.choice(options)


def _add_numbers(calls: Calls) -> None:
    rng = calls.rng
    for name in rng.choice(((), (), ("n",), ("n",), ("n", "k"))):
        pool = SMALL if rng.random() < 0.8 else (*SMALL, *HUGE)
        first = rng.choice(pool)
        changing = rng.random() < 0.7
        calls.inputs.append(
            Input(name, [str(first if c == 0 or not changing else rng.choice(pool)) for c in range(calls.count)])
        )
    if rng.random() < 0.2:
        calls.inputs.append(
            Input("s", [rng.choice(REALS if rng.random() < 0.4 else REALS[:4]) for _ in range(calls.count)])
        )
    if rng.random() < 0.05:
        calls.inputs.append(Input("flag", [rng.choice(("True", "False")) for _ in range(calls.count)]))
