"""Modules of every stage, changed at random: refused in one line, or they run without touching memory that is not theirs.

The seeds are small programs' forms. A worker process runs each mutant twice, its inputs and arena between pages that may not be
touched, flush with the end and with the start (tests/guard_worker.py). A worker that dies, or says what no user should see, is a hole.
"""

import json
import os
import random
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from mlirc.dialects.bindings import context
from mlirc.lowering.pass_manager import run_pipeline
from mlirc.lowering.pipelines import PIPELINES
from tests.compare_stages import prepare

ROOT = Path(__file__).parents[2]
x, w = torch.randn(6, 10), torch.randn(10, 10)
image = torch.randn(1, 3, 8, 8)
index = torch.randint(0, 6, (4,))
PROGRAMS = {
    "elementwise": (lambda x, y: (x * y).sin() + 1, (x, torch.randn(10))),
    "norm": (lambda x, w: F.layer_norm(x, (10,), w), (x, torch.randn(10))),
    "softmax": (lambda x: F.softmax(x, -1).sum(0), (x,)),
    "gather": (lambda t, i: F.embedding(i, t).relu(), (x, index)),
    "index": (lambda x, i: x.t()[:, i] + 1, (x, index)),
    "pad": (lambda x: F.pad(x, (1, 2), value=2.0).flip(1), (x,)),
    "cat": (lambda x: torch.cat([x, x.neg()[:, 2:]], 1), (x,)),
    "product": (lambda x, w: F.gelu(x @ w + 1), (x, w)),
    "attention": (lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), (torch.randn(1, 2, 5, 8),)),
    "convolution": (lambda x, w: F.conv2d(x, w, padding=1).relu(), (image, torch.randn(4, 3, 3, 3))),
    "pool": (lambda x: F.max_pool2d(x, 2) + F.avg_pool2d(x, 2), (image,)),
    "scan": (lambda x: x.cumsum(1).cummax(0).values, (x,)),
    "scatter": (lambda x, i: (x * 2).index_add(0, i, x[:4]), (x, index)),
    "halves": (lambda x: (x.bfloat16() * 2).float().amax(1), (x,)),
}

QUICK = ("elementwise", "gather", "cat", "scan", "scatter")  # cheap to compile, and of most kinds of op


@cache
def seeds(names: tuple[str, ...] = QUICK) -> list[tuple[str, str, dict[str, int]]]:
    """(name of program and stage, text, values of symbols)."""
    found = []
    for name in names:
        fn, inputs = PROGRAMS[name]
        for dynamic in (False, True) if name in ("elementwise", "softmax", "pad", "gather", "cat") else (False,):
            with context():
                function, imported = prepare(fn, *inputs, dynamic=dynamic)
                values: dict[str, int] = {}
                from mlirc.dialects.graph_signature import bind_symbols

                values = bind_symbols(function, inputs)
                found.append((f"{name} import", str(imported.module), values))
                for stage, passes in PIPELINES["cpu"].items():
                    run_pipeline(imported.module, passes)
                    found.append((f"{name} {stage}", str(imported.module), values))
    return found


NUMBER = re.compile(r"(?<![\w.%@#])-?\d+(?![\w.]*x?\w*\()")
TYPE = re.compile(r"tensor<[^<>]*>|(?<=: )f32|(?<=: )i64")
ATTRIBUTE = re.compile(r'\w+ = ("[^"]*"|\[[^\]]*\]|[\w.-]+)(?: : \w+)?,? ?')
STRING = re.compile(r'"([^"\n]*)"')
OP = re.compile(r'"mlircx?\.\w+"')
VALUE = re.compile(r"%[\w#]+")
NUMBERS = (0, 1, 2, 3, 7, 8, 9, 63, 64, 65, 128, 4096, -1, -8, 2**31, 2**32, 2**62, 2**63 - 1, 2**63, 10**30)
EXPRESSIONS = (
    "d0",
    "d1",
    "d0 + 1",
    "d0 - 1",
    "d0*2",
    "d1//2",
    "d0 % 3",
    "s0",
    "s9",
    "max(d0, 1)",
    "0",
    "",
    "i0",
    "d7",
    "d0*d1",
    "d0//0",
    "u0",
)


def mutate(text: str, random: random.Random) -> str:
    """The text with one to three changes."""
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        text = random.choice(CHANGES)(text, random)
    return text


def place(pattern: re.Pattern, text: str, random: random.Random) -> re.Match | None:
    found = list(pattern.finditer(text))
    return random.choice(found) if found else None


def put(text: str, match: re.Match | None, new: str) -> str:
    return text if match is None else text[: match.start()] + new + text[match.end() :]


def number(text, random):
    found = place(NUMBER, text, random)
    if found is None:
        return text
    near = int(found[0]) + random.choice((-2, -1, 1, 2))
    return put(text, found, str(random.choice((near, near, random.choice(NUMBERS)))))


def exchanged(text, random):
    """One op by another of the text, or of the dialect."""
    from mlirc.dialects.dialect import OPS

    others = OP.findall(text) + [f'"mlirc.{name}"' for name in OPS]
    return put(text, place(OP, text, random), random.choice(others))


def types(text, random):
    found = TYPE.findall(text)
    return put(text, place(TYPE, text, random), random.choice(found)) if found else text


def expression(text, random):
    found = place(STRING, text, random)
    return put(text, found, f'"{random.choice((*EXPRESSIONS, *STRING.findall(text)[:50]))}"')


def everywhere(text, random):
    """One number by another wherever it stands: sizes, extents and offsets change together."""
    found = place(NUMBER, text, random)
    if found is None:
        return text
    new = str(max(int(found[0]) + random.choice((-1, 1, 2, 8)), 0))
    return re.sub(rf"(?<![\w.%@#-]){re.escape(found[0])}(?![\w.])|(?<=[<x]){re.escape(found[0])}(?=x)", new, text)


def alike(text, random):
    """Two operands of one line change places."""
    lines = text.split("\n")
    k = random.randrange(len(lines))
    found = list(VALUE.finditer(lines[k].partition(" = ")[2] or lines[k]))
    if len(found) < 2:
        return text
    a, b = (x[0] for x in random.sample(found, 2))
    lines[k] = re.sub(f"{a}(?!\\w)|{b}(?!\\w)", lambda m: b if m[0] == a else a, lines[k])
    return "\n".join(lines)


def in_a_map(text, random):
    """An index by another of as many dimensions; a constant; another sign, operator, comparison."""
    found = place(re.compile(r'map = "([^"]+)"|maps = \["([^"]+)"|value = "([^"]+)"|wraps = \w+'), text, random)
    if found is None:
        return text
    whole = found[0]
    if "wraps" in whole:
        return put(text, found, "wraps = false" if "true" in whole else "wraps = true")
    changes = [
        ("d0", "d1"),
        ("d1", "d0"),
        ("d0", "0"),
        ("d0", "d0 % 2"),
        ("d1", "d1 // 2"),
        (" + ", " - "),
        ("0x1.0", "-0x1.8"),
    ]
    old, new = random.choice([c for c in changes if c[0] in whole] or [("", "")])
    return put(text, found, whole.replace(old, new, 1))


def op_alike(text, random):
    """An op by another with the same operands."""
    sets = (
        ("add", "sub", "mul", "maximum", "minimum", "div"),
        ("sin", "cos", "neg", "exp", "relu", "tanh", "sqrt", "log"),
        ("ge", "gt", "le", "lt", "eq", "ne"),
        ("logical_and", "logical_or"),
    )
    names = {name: others for others in sets for name in others}
    found = place(re.compile(rf'"mlirc\.({"|".join(names)})"'), text, random)
    return put(text, found, f'"mlirc.{random.choice(names[found[1]])}"') if found else text


def dropped(text, random):
    return put(text, place(ATTRIBUTE, text, random), "")


def operands(text, random):
    found = VALUE.findall(text)
    return put(text, place(VALUE, text, random), random.choice(found)) if found else text


def line(text, random):
    lines = text.split("\n")
    k, j = random.randrange(len(lines)), random.randrange(len(lines))
    what = random.choice(("drop", "twice", "exchange"))
    if what == "drop":
        del lines[k]
    elif what == "twice":
        lines.insert(j, lines[k])
    else:
        lines[k], lines[j] = lines[j], lines[k]
    return "\n".join(lines)


def byte(text, random):
    k = random.randrange(len(text))
    return text[:k] + random.choice(('"', "<", "{", "(", "\0", "\\FF", "é", "", "9", ",", "-")) + text[k + 1 :]


KEEPING = (everywhere, alike, in_a_map, op_alike)  # what they leave is often a module still
CHANGES = (number,) * 3 + (exchanged, types, expression, operands) * 2 + (dropped, line, byte) + KEEPING * 8


class Worker:
    def __init__(self):
        environment = os.environ | {"PYTHONPATH": str(ROOT), "MLIRC_CACHE_DIR": "off", "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, str(ROOT / "tests" / "guard_worker.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )

    def run(self, text: str, values: dict[str, int]) -> str:
        """What became of the module; how the worker died, if it did."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps([text, values]) + "\n")
        self.process.stdin.flush()
        found = "begin"
        while found.startswith("begin") or not found.startswith(("ran", "raised", "refused", "late", "odd")):
            found = self.process.stdout.readline()
            if not found:
                return f"died: {self.process.wait()}"
        return found.strip()


def holes(count: int, seed: int, names: tuple[str, ...] = QUICK) -> tuple[Counter, list[tuple[str, str, str]]]:
    """How often each end came, and mutants that are holes: the name of the seed, what became of it, the text."""
    chance = random.Random(seed)
    worker, ends, found = Worker(), Counter(), []
    given = seeds(names)
    for _ in range(count):
        name, text, values = chance.choice(given)
        mutant = mutate(text, chance)
        end = worker.run(mutant, values)
        ends[f"{name.split()[-1]} {end.split()[0]}"] += 1
        if end.startswith(("died", "odd")):
            found.append((name, end, mutant))
        if end.startswith("died"):
            worker = Worker()
    worker.process.kill()
    worker.process.wait()
    return ends, found


def check_seeds(names: tuple[str, ...]) -> None:
    worker = Worker()
    ends = {name: worker.run(text, values) for name, text, values in seeds(names)}
    worker.process.kill()
    worker.process.wait()
    assert {name: end for name, end in ends.items() if end != "ran"} == {}


def test_some_seeds_run():
    check_seeds(QUICK)


@pytest.mark.full
def test_the_seeds_run():
    check_seeds(tuple(PROGRAMS))


@pytest.mark.parametrize("seed", [1])
def test_some_mutants(seed):
    _, found = holes(60, seed)
    assert found == []


@pytest.mark.full
@pytest.mark.parametrize("seed", range(100, 120))
def test_many_mutants(seed):
    _, found = holes(1000, seed, tuple(PROGRAMS))
    assert found == []
