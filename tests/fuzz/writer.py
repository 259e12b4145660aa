"""Writes the body of a random function line by line: a line stays if it runs in eager, for all calls."""

import functools
import math
import re
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from tests.fuzz import functions, tensors
from tests.fuzz.calls import Pair

LARGEST = 4000  # elements of a value
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
COMPLEX = (torch.complex64, torch.complex128)
DTYPES = (*FLOATS, *INTEGERS, torch.bool, *COMPLEX)
GLOBALS = {"torch": torch, "F": F, "math": math, "tensor": tensors.tensor, "index": tensors.index}
GLOBALS |= {"permutation": tensors.permutation, "np": np, "functools": functools, "Pair": Pair, "functions": functions}

# A tensor made in a line, which becomes an argument or a global: Dynamo does not trace how it is made.
MADE = re.compile(r"(?<![.\w])(?:tensor|index|permutation)\((?:[^()]|\([^()]*\))*\)")

words = str.split
Kind = Callable[["Writer"], Any]
KINDS: list[tuple[str, float, Kind]] = []


def kind(weight: float = 1.0) -> Callable[[Kind], Kind]:
    """Registers a generator of lines. The name of its file is what `--kinds` chooses by."""

    def register(function: Kind) -> Kind:
        KINDS.append((f"{function.__module__.rsplit('.', 1)[-1]}.{function.__name__}", weight, function))
        return function

    return register


class Writer:
    """A function's body while it grows. `envs` holds each call's variables."""

    def __init__(self, rng: Random, envs: list[dict[str, Any]], prefix: str = "v"):
        self.rng = rng
        self.envs = envs
        self.lines: list[str] = []
        self.names = [name for name, value in envs[0].items() if isinstance(value, torch.Tensor)]
        self.inputs = list(self.names)
        self.ints = [name for name in envs[0] if all(type(env[name]) is int for env in envs)]
        self.floats = [name for name in envs[0] if all(type(env[name]) is float for env in envs)]
        self.attributes: list[str] = []  # a module's, as "self.w"
        self.constants: dict[str, str] = {}
        self.prefix, self.count = prefix, 0

    # What a line is made of.

    def tensor(self, *tests: Callable[[torch.Tensor], bool], needed: int = 0) -> str:
        """The name of a tensor for which all tests hold. Late ones are picked more often. Raises NoLine if there is none."""
        fitting = [n for n in self.names if all(test(self.value(n)) for test in tests)]
        if not fitting:
            raise NoLine
        if self.rng.random() < 0.6:
            return fitting[max(self.rng.randrange(len(fitting)) for _ in range(2))]
        return self.rng.choice(fitting)

    def value(self, name: str) -> Any:
        return eval(name, self.envs[0])

    def values(self, name: str) -> list[Any]:
        """In all calls."""
        return [eval(name, env) for env in self.envs]

    def size(self, low: int = 1, high: int = 6) -> str:
        """A size, as text: a number, an integer argument, or a size of a tensor."""
        fitting = [n for n in self.ints if all(low <= env[n] <= high for env in self.envs)]
        if fitting and self.rng.random() < 0.5:
            return self.rng.choice(fitting)
        if self.names and self.rng.random() < 0.2:
            name = self.rng.choice(self.names)
            if self.value(name).dim():
                return f"{name}.size({self.rng.randrange(self.value(name).dim())})"
        return str(self.rng.randint(low, high))

    def integer(self) -> str:
        """A Python integer: an argument, made of them, or a number."""
        if self.ints and self.rng.random() < 0.6:
            return self.rng.choice(self.ints)
        return str(self.rng.choice((0, 1, 2, 3, -1, -2, 5, 7, 10)))

    def real(self) -> str:
        if self.floats and self.rng.random() < 0.6:
            return self.rng.choice(self.floats)
        return str(self.rng.choice((0.5, 2.0, -1.5, 0.0, 1.0, 0.1, 3.0, -0.25)))

    def number(self) -> str:
        return self.integer() if self.rng.random() < 0.5 else self.real()

    def dim(self, name: str) -> int:
        """A dimension of a tensor, counted from either end."""
        rank = max(self.value(name).dim(), 1)
        return self.rng.randrange(-rank, rank)

    def choice(self, *items: Any) -> Any:
        return self.rng.choice(items)

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    # Lines.

    def emit(self, text: str, tests: Iterable[Callable[[Any], bool]] = ()) -> str:
        """`v7 = text`, if that runs for all calls and gives tensors that are not too large. Raises NoLine if not."""
        name = f"{self.prefix}{self.count}"
        values = []
        text = self.hoisted(text)
        for env in self.envs:
            try:
                value = eval(text, env)
            except Exception:
                raise NoLine from None
            if isinstance(value, torch.Tensor) and (value.numel() > LARGEST or value.dim() > 6):
                raise NoLine
            values.append(value)
        self.count += 1
        for env, value in zip(self.envs, values, strict=True):
            env[name] = value
        self.lines.append(f"{name} = {text}")
        self.remember(name, values)
        return name

    def remember(self, name: str, values: list[Any]) -> None:
        """Later lines may use what is of one kind in all calls: a split has fewer parts in some of them."""
        if all(isinstance(value, torch.Tensor) for value in values):
            self.names.append(name)
        elif all(isinstance(value, list | tuple) for value in values):
            parts = enumerate(zip(*values, strict=False))
            self.names += [f"{name}[{k}]" for k, part in parts if all(isinstance(x, torch.Tensor) for x in part)]
        elif all(type(value) is int for value in values):
            self.ints.append(name)
        elif all(type(value) is float for value in values):
            self.floats.append(name)

    def do(self, text: str, new: tuple[str, ...] = ()) -> None:
        """A statement of one or more lines that makes the variables `new`."""
        text = self.hoisted(text)
        for env in self.envs:
            try:
                exec(text, env)
            except Exception:
                raise NoLine from None
            if any(isinstance(env[n], torch.Tensor) and env[n].numel() > LARGEST for n in new):
                raise NoLine
        self.lines.append(text)
        for name in new:
            self.remember(name, self.values(name))

    def hoisted(self, text: str) -> str:
        """The line with names for the tensors that it makes."""

        def name_of(match: re.Match) -> str:
            name = f"t{len(self.constants)}"
            self.constants[name] = match[0]
            for env in self.envs:
                env[name] = eval(match[0], GLOBALS)
            return name

        return MADE.sub(name_of, text)

    def used_constants(self) -> dict[str, str]:
        text = "\n".join(self.lines)
        return {name: made for name, made in self.constants.items() if re.search(rf"\b{name}\b", text)}

    def fresh(self) -> str:
        self.count += 1
        return f"{self.prefix}{self.count - 1}"


class NoLine(Exception):
    """A generator found nothing that fits."""


def write(writer: Writer, lines: int, chosen: list[tuple[str, float, Kind]]) -> None:
    """Adds lines, of kinds drawn by weight."""
    kinds, weights = [k for _, _, k in chosen], [w for _, w, _ in chosen]
    for _ in range(lines * 4):
        if len(writer.lines) >= lines:
            return
        try:
            writer.rng.choices(kinds, weights)[0](writer)
        except NoLine:
            continue


# Tests of tensors, for Writer.tensor.


def is_float(x: torch.Tensor) -> bool:
    return x.dtype in FLOATS


def is_integer(x: torch.Tensor) -> bool:
    return x.dtype in INTEGERS


def is_inexact(x: torch.Tensor) -> bool:
    return x.dtype in FLOATS or x.dtype in COMPLEX


def is_real(x: torch.Tensor) -> bool:
    return x.dtype not in COMPLEX


def is_complex(x: torch.Tensor) -> bool:
    return x.dtype in COMPLEX


def is_number(x: torch.Tensor) -> bool:
    return x.dtype != torch.bool


def rank(low: int, high: int = 9) -> Callable[[torch.Tensor], bool]:
    return lambda x: low <= x.dim() <= high


def filled(x: torch.Tensor) -> bool:
    return x.numel() > 0
