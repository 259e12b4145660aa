"""How a function takes its arguments: one by one, or in one structure of a random kind, as text."""

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True)
class Signature:
    """`defines` comes before the function, `parameters` are its own, `unpacks` its first lines, `arguments` a call's."""

    defines: str
    parameters: list[str]
    unpacks: list[str]
    arguments: str


def signature(rng: Random, names: list[str], plain: float = 0.85) -> Signature:
    if not names or rng.random() < plain:
        return Signature("", names, [], ", ".join(names))
    return rng.choice((_dictionary, _nested, _named_tuple, _data_class, _namespace, _keywords))(names)


def _dictionary(names: list[str]) -> Signature:
    items = ", ".join(f"{n!r}: {n}" for n in names)
    return Signature("", ["p"], [f"{n} = p[{n!r}]" for n in names], f"{{{items}}}")


def _nested(names: list[str]) -> Signature:
    first, rest = names[0], ", ".join(names[1:])
    unpacks = [f"{first}, q = p"] + ([f"[{rest}] = q['rest']"] if rest else [])
    return Signature("", ["p"], unpacks, f"({first}, {{'rest': [{rest}]}})")


def _named_tuple(names: list[str]) -> Signature:
    defines = f"Inputs = collections.namedtuple('Inputs', {names!r})\n\n\n"
    return Signature(defines, ["p"], [f"{n} = p.{n}" for n in names], f"Inputs({', '.join(names)})")


def _data_class(names: list[str]) -> Signature:
    fields = "".join(f"    {n}: object\n" for n in names)
    defines = f"@dataclasses.dataclass\nclass Inputs:\n{fields}\n\n"
    return Signature(defines, ["p"], [f"{n} = p.{n}" for n in names], f"Inputs({', '.join(names)})")


def _namespace(names: list[str]) -> Signature:
    given = ", ".join(f"{n}={n}" for n in names)
    return Signature("", ["p"], [f"{n} = p.{n}" for n in names], f"types.SimpleNamespace({given})")


def _keywords(names: list[str]) -> Signature:
    return Signature("", ["*", *names], [], ", ".join(f"{n}={n}" for n in names))
