"""A seed -> the text of a program.

The text defines `make()`, which gives a function or a module, `drive(f, m, see)`, which calls it (f is made() as it is or
compiled, m is what was made) and shows what came of it, and OPTIONS, torch.compile's.
"""

import copy
import re
import textwrap
from random import Random
from typing import Any

import torch

from tests.fuzz import kinds
from tests.fuzz.calls import tie
from tests.fuzz.drive import Calls, Input, random_calls
from tests.fuzz.kinds.python import raising_line
from tests.fuzz.module_text import random_module
from tests.fuzz.steps import random_step
from tests.fuzz.structures import signature
from tests.fuzz.writer import GLOBALS, KINDS, Kind, NoLine, Writer, write

assert kinds
STEPS = 0.03  # of all programs are whole training steps
RAISING = 0.05  # raise
# Kinds that sum nothing up: where a sum of squares overflows on the way is its own formula's choice.
OF_EXTREMES = ("elementwise", "views", "mutation", "scalars")
HEADER = """\
import collections
import copy
import dataclasses
import functools
import math
import types

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from tests.fuzz import functions
from tests.fuzz.calls import Pair, after_writes, attempt, batched, gradients, in_thread, of_some, tie, total
from tests.fuzz.changes import change, flipped
from tests.fuzz.tensors import index, permutation, tensor

OPTIONS = {options}

"""


def random_program(seed: int, only: str = "") -> str:
    """The program of a seed; `only` chooses kinds whose names have one of these words."""
    rng = Random(seed)
    words = [word for word in only.split(",") if word]
    chosen = [k for k in KINDS if not words or any(word in k[0] for word in words)]
    if (not words or "steps" in words) and rng.random() < (1 if words == ["steps"] else STEPS):
        return HEADER.format(options={"dynamic": rng.choice((None, None, True))}) + random_step(rng)
    chosen = _emphasis(rng, chosen)
    calls = random_calls(rng)
    if any("extreme" in text for x in calls.inputs for text in x.texts):
        chosen = [k for k in chosen if k[0].split(".")[0] in OF_EXTREMES] or chosen
    if calls.module:
        return _module(rng, calls, chosen)
    writer = Writer(rng, calls.environments())
    write(writer, _length(rng), chosen)
    lines = _finished(rng, calls, writer)
    made = _constants(calls, writer)
    body = _packed(rng, calls, lines)
    made += calls.signature.defines
    function = made + f"def program({', '.join(calls.signature.parameters)}):\n{textwrap.indent(body, '    ')}\n\n\n"
    return _text(calls, function + "def make():\n    return program\n", [])


def _module(rng: Random, calls: Calls, chosen: list[tuple[str, float, Kind]]) -> str:
    module = random_module(rng)
    scope: dict[str, Any] = {}
    exec(module.text("        return None"), {**GLOBALS, "nn": torch.nn, "copy": copy, "tie": tie}, scope)
    environments = calls.environments()
    for env in environments:
        torch.manual_seed(0)
        env["self"] = scope["Program"]()
    writer = Writer(rng, environments)
    writer.names += module.tensors
    writer.attributes = module.layers
    write(writer, _length(rng), [*chosen, *[k for k in KINDS if k[0].startswith("modules.")] * 3])
    lines = _finished(rng, calls, writer)
    made = _constants(calls, writer)
    body = _packed(rng, calls, lines)
    made += calls.signature.defines
    text = made + module.text(textwrap.indent(body, "        "), calls.signature.parameters)
    return _text(calls, text + "\n\nmake = Program\n", module.tensors, scope["Program"]())


def _finished(rng: Random, calls: Calls, writer: Writer) -> list[str]:
    """The lines with what is returned; in some programs one of them raises."""
    returned = results(rng, writer)
    if calls.training or calls.kept or rng.random() > RAISING:
        return [*writer.lines, f"return {returned}"]
    try:
        line = raising_line(writer)
    except NoLine:
        return [*writer.lines, f"return {returned}"]
    calls.raises = True
    return [*writer.lines, f"bad = {line}", f"return bad, {returned}"]


def _packed(rng: Random, calls: Calls, lines: list[str]) -> str:
    calls.signature = signature(rng, calls.names)
    return "\n".join([*calls.signature.unpacks, *lines])


def _text(calls: Calls, function: str, attributes: list[str], module: Any = None) -> str:
    drive = textwrap.indent("\n".join(calls.lines([a.removeprefix("self.") for a in attributes], module)), "    ")
    return HEADER.format(options=calls.options) + function + f"\n\ndef drive(f, m, see):\n{drive}\n"


def _constants(calls: Calls, writer: Writer) -> str:
    """Tensors that lines have made for themselves: globals, or arguments of every call."""
    lines = []
    for name, made in writer.used_constants().items():
        if calls.rng.random() < 0.4:
            lines.append(f"{name} = {made}\n")
        else:
            calls.inputs.append(Input(name, [made] * calls.count))
    return "".join(lines) + "\n" * bool(lines)


def _length(rng: Random) -> int:
    return rng.choice((1, 2, 3, 4, 5, 6, 8, 12))


def _emphasis(rng: Random, chosen: list[tuple[str, float, Kind]]) -> list[tuple[str, float, Kind]]:
    """Some programs are mostly of one or two files' kinds: what only many of a kind together show."""
    files = sorted({name.split(".")[0] for name, _, _ in chosen} - {"modules"})
    chosen = [k for k in chosen if not k[0].startswith("modules.")]
    if rng.random() < 0.5:
        return chosen
    some = set(rng.sample(files, min(2, len(files))))
    return [(name, weight * (8 if name.split(".")[0] in some else 1), kind) for name, weight, kind in chosen]


def results(rng: Random, writer: Writer) -> str:
    """What is returned: one tensor or several, in a structure; inputs, views, numbers, and things twice among them."""
    names = writer.names[-6:] + [rng.choice(writer.names)]
    unused = [n for n in writer.names if not _read_later(writer, n)][-5:]
    if unused and rng.random() < 0.7:
        picked = unused
    else:
        picked = [names[max(rng.randrange(len(names)) for _ in range(2))] for _ in range(rng.choice((1, 1, 2, 3, 4)))]
    if writer.ints and rng.random() < 0.15:
        picked.append(rng.choice(writer.ints))
    if writer.floats and rng.random() < 0.1:
        picked.append(rng.choice(writer.floats))
    if rng.random() < 0.03:
        picked.append("None")
    way = rng.random()
    if way < 0.3 and len(picked) == 1:
        return picked[0]
    if way < 0.35 and len(picked) == 2:
        return f"Pair({picked[0]}, {picked[1]})"
    if way < 0.7:
        return f"({', '.join(picked)},)"
    if way < 0.85:
        return f"[{', '.join(picked)}]"
    return "{" + ", ".join(f"{'abcdefgh'[k]!r}: {p}" for k, p in enumerate(picked)) + "}"


def _read_later(writer: Writer, name: str) -> bool:
    return len(re.findall(rf"(?<![\w.]){re.escape(name)}(?!\w)", "\n".join(writer.lines))) > 1 or name in writer.inputs
