"""Changes of a module's text, most of which keep it well-formed: what they leave is refused for what it means, or runs."""

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache
from random import Random

from mlirc.dialects.core.dialect import OPS, load_ops

NUMBER = re.compile(r"(?<![\w.%@#])-?\d+(?![\w.]*x?\w*\()")
TYPE = re.compile(r"tensor<(?:[^<>]|<[^<>]*>)*>")
ATTRIBUTE = re.compile(r'\w+ = ("[^"]*"|\[[^\]]*\]|[\w.-]+)(?: : \w+)?,? ?')
STRING = re.compile(r'"([^"\n]*)"')
OP = re.compile(r'"mlircx?\.\w+"')
VALUE = re.compile(r"%[\w#]+")
CALL = re.compile(r'("mlircx?\.\w+")\(([^()]*)\)( (?:<\{.*?\}> )?(?:\{.*?\} )?): (\([^()]*\) -> .*)$', re.MULTILINE)
DEFINED = re.compile(r"^ *(%\w+) = .* -> ([^,()]+|tensor<.*>)$", re.MULTILINE)
ARGUMENT = re.compile(r"(%arg\d+): (tensor<(?:[^<>]|<[^<>]*>)*>|\w+)")
EXPRESSION = re.compile(
    r'(?:map|size|expr|offset|parallel|inner|mlirc\.arena|after|padding|stride|dims) = "([^"]*)"|maps = \["([^"]*)"'
)
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
    "us0",
    "s0//2*2",
)
ALIKE = (
    ("add", "sub", "mul", "maximum", "minimum", "div", "pow", "remainder"),
    ("sin", "cos", "neg", "exp", "relu", "tanh", "sqrt", "log", "abs", "floor"),
    ("ge", "gt", "le", "lt", "eq", "ne"),
    ("logical_and", "logical_or", "logical_xor"),
    ("sum", "prod", "max", "min", "amax", "amin", "argmax", "argmin", "any", "all"),
)
OTHERS = {name: names for names in ALIKE for name in names}
SCALARS = ("f32", "f64", "bf16", "f16", "i64", "i32", "i8", "i1")

Mutation = Callable[[str, Random], str]


def mutate(text: str, random: Random) -> str:
    """The text with one to three changes."""
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        for _ in range(10):
            changed = random.choice(CHANGES)(text, random)
            if changed != text:
                text = changed
                break
    return text


def place(pattern: re.Pattern, text: str, random: Random) -> re.Match | None:
    found = list(pattern.finditer(text))
    return random.choice(found) if found else None


def put(text: str, match: re.Match | None, new: str, group: int = 0) -> str:
    return text if match is None else text[: match.start(group)] + new + text[match.end(group) :]


# ---- of any text


def number(text: str, random: Random) -> str:
    found = place(NUMBER, text, random)
    if found is None:
        return text
    near = int(found[0]) + random.choice((-2, -1, 1, 2))
    return put(text, found, str(random.choice((near, near, random.choice(NUMBERS)))))


def exchanged(text: str, random: Random) -> str:
    """One op by another of the text, or of the dialect."""
    load_ops()
    others = OP.findall(text) + [f'"mlirc.{name}"' for name in OPS]
    return put(text, place(OP, text, random), random.choice(others))


def one_type(text: str, random: Random) -> str:
    found = TYPE.findall(text)
    return put(text, place(TYPE, text, random), random.choice(found)) if found else text


def string(text: str, random: Random) -> str:
    return put(text, place(STRING, text, random), random.choice((*EXPRESSIONS, *STRING.findall(text)[:50])), 1)


def dropped(text: str, random: Random) -> str:
    return put(text, place(ATTRIBUTE, text, random), "")


def operand(text: str, random: Random) -> str:
    found = VALUE.findall(text)
    return put(text, place(VALUE, text, random), random.choice(found)) if found else text


def line(text: str, random: Random) -> str:
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


def byte(text: str, random: Random) -> str:
    k = random.randrange(len(text))
    return text[:k] + random.choice(('"', "<", "{", "(", "\0", "\\FF", "é", "", "9", ",", "-")) + text[k + 1 :]


# ---- what leaves a module


def number_everywhere(text: str, random: Random) -> str:
    """Sizes, extents and offsets change together."""
    found = place(NUMBER, text, random)
    if found is None:
        return text
    new = str(max(int(found[0]) + random.choice((-1, 1, 2, 8)), 0))
    return re.sub(rf"(?<![\w.%@#-]){re.escape(found[0])}(?![\w.])|(?<=[<x]){re.escape(found[0])}(?=x)", new, text)


def type_everywhere(text: str, random: Random) -> str:
    """A type by another of its rank, or with other sizes, strides or dtype."""
    found = sorted(set(TYPE.findall(text)))
    if not found:
        return text
    old = random.choice(found)
    shape, _, scalar = re.sub(r", \{.*\}", "", old)[7:-1].rpartition("x")
    sizes = shape.split("x") if shape else []
    what = random.randrange(4)
    if what == 0:
        new = random.choice([t for t in found if t.count("x") == old.count("x")])
    elif what == 1 and sizes:
        random.shuffle(sizes)
        new = f"tensor<{'x'.join([*sizes, scalar])}>"
    elif what == 2 and sizes and "?" not in sizes:
        strides = [str(random.choice((0, 1, 2, 6, 10, 60, 64))) for _ in sizes]
        new = f'tensor<{shape}x{scalar}, {{stride = "{", ".join(strides)}"}}>'
    else:
        new = old.replace(scalar, random.choice(SCALARS)) if scalar else old
    return text.replace(old, new)


def scalar_everywhere(text: str, random: Random) -> str:
    found = sorted(set(re.findall(rf"\b(?:{'|'.join(SCALARS)})\b", text)))
    old = random.choice(found) if found else "f32"
    return re.sub(rf"(?<=x){old}\b|(?<=<){old}\b|(?<!\w){old}\b", random.choice(SCALARS), text)


def operands_exchanged(text: str, random: Random) -> str:
    """Two operands of one op change places."""
    found = place(CALL, text, random)
    names = found[2].split(", ") if found else []
    if len(names) < 2:
        return text
    random.shuffle(names)
    return put(text, found, ", ".join(names), 2)


def operand_of_equal_type(text: str, random: Random) -> str:
    types = dict(ARGUMENT.findall(text)) | dict(DEFINED.findall(text))
    found = place(CALL, text, random)
    names = found[2].split(", ") if found and found[2] else []
    if not names:
        return text
    k = random.randrange(len(names))
    same = [name for name, type_ in types.items() if type_ == types.get(names[k])]
    if not same:
        return text
    names[k] = random.choice(same)
    return put(text, found, ", ".join(names), 2)


@cache
def by_signature(texts: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
    found: defaultdict[str, dict[tuple[str, str], None]] = defaultdict(dict)
    for text in texts:
        for name, _, attributes, signature in CALL.findall(text):
            found[signature][name, attributes] = None
    return {signature: list(ops) for signature, ops in found.items()}


def op_of_equal_type(text: str, random: Random) -> str:
    """An op, or its attributes, by those of another with the same operand and result types."""
    found = place(CALL, text, random)
    if found is None:
        return text
    name, attributes = random.choice(by_signature((text,))[found[4]])
    return put(text, found, f"{name}({found[2]}){attributes}: {found[4]}")


def op_alike(text: str, random: Random) -> str:
    found = place(re.compile(rf'"(?:mlirc\.)?({"|".join(OTHERS)})"'), text, random)
    return put(text, found, random.choice(OTHERS[found[1]]), 1) if found else text


def expression(text: str, random: Random) -> str:
    """A place in a map, a size or an offset: another dimension, number, sign."""
    found = place(EXPRESSION, text, random)
    if found is None:
        return text
    group = 1 if found[1] is not None else 2
    whole = found[group]
    parts = list(re.finditer(r"\b(?:d|s|i)\d+\b|\b\d+\b|[-+*]", whole))
    if not parts:
        return put(text, found, random.choice(EXPRESSIONS), group)
    part = random.choice(parts)
    if part[0].isdigit():
        k = int(part[0])
        new = str(random.choice((k + 1, max(k - 1, 0), k + 64, max(k - 64, 0), 2 * k, k // 2, 0, 1)))
    elif part[0] in "+-*":
        new = random.choice("+-*")
    else:
        new = random.choice(
            (
                "d0",
                "d1",
                "d2",
                "0",
                part[0] + " + 1",
                part[0] + " - 1",
                f"{part[0]} % 2",
                f"{part[0]}//2",
                f"max({part[0]}, 1)",
                f"min({part[0]}, 2)",
            )
        )
    return put(text, found, whole[: part.start()] + new + whole[part.end() :], group)


def place_of_view(text: str, random: Random) -> str:
    """A view's offset and map together."""
    found = place(re.compile(r'map = "([^"]*)", offset = "(\d+)"'), text, random)
    if found is None:
        return text
    by = random.choice((-10, -1, 1, 2, 10, 60))
    indices = found[1].split(", ") if found[1] else []
    if indices:
        k = random.randrange(len(indices))
        indices[k] += f" + {by}" if by > 0 else f" - {-by}"
    return put(text, found, f'map = "{", ".join(indices)}", offset = "{max(int(found[2]) + by, 0)}"')


def slot(text: str, random: Random) -> str:
    """A slot's place by another's, or some steps on; or a smaller or larger arena."""
    pattern = re.compile(r'"mlirc\.slot"\(\) (?:<\{|\{)offset = "(\d+)"|mlirc\.arena = "(\d+)"')
    found = place(pattern, text, random)
    if found is None:
        return text
    group = 1 if found[1] else 2
    others = [m[1] for m in pattern.finditer(text) if m[1]] or ["0"]
    old = int(found[group])
    new = random.choice((*others, str(old + 64), str(max(old - 64, 0)), str(old + 128), str(old // 2)))
    return put(text, found, new, group)


def groups(text: str, random: Random) -> str:
    found = place(re.compile(r'"(g\d+|arg\d+)"'), text, random)
    return put(text, found, random.choice(("g0", "g1", "g7", "arg0", "arg1", "arg9")), 1)


def constant(text: str, random: Random) -> str:
    found = place(re.compile(r'value = "([^"]+)"'), text, random)
    if found is None:
        return text
    old = found[1]
    if old in ("true", "false"):
        new = "false" if old == "true" else "true"
    elif re.fullmatch(r"-?\d+", old):
        new = str(random.choice((int(old) + 1, int(old) - 1, -int(old), *NUMBERS[:16])))
    else:
        new = random.choice(("0x1.8p+1", "-0x1.8p+1", "0x0.0p+0", "-0x0.0p+0", "nan", "inf", "-inf", "0x1.0p+100"))
    return put(text, found, new, 1)


def word(text: str, random: Random) -> str:
    """A truth value, a kind, a count, a number among an operator's arguments."""
    found = place(
        re.compile(
            r'(?:wraps|masked|keepdim) = (\w+)|inputs = (\d+)|args = "([^"]*)"|kind = "(\w+)"|aliases = "([^"]*)"|causal = "(\w+)"'
        ),
        text,
        random,
    )
    if found is None:
        return text
    group = next(k for k in range(1, 7) if found[k] is not None)
    old = found[group]
    if old in ("true", "false"):
        new = "false" if old == "true" else "true"
    elif group == 4:
        new = random.choice(OTHERS.get(old, (old,)))
    elif group == 6:
        new = random.choice(("none", "upper", "lower", "left", "right"))
    else:
        return put(text, found, re.sub(r"-?\d+(?!.*\d)", lambda m: str(int(m[0]) + random.choice((-1, 1))), old), group)
    return put(text, found, new, group)


ANYHOW: tuple[Mutation, ...] = (number, number, exchanged, one_type, string, operand, dropped, line, byte)
KEEPING: tuple[Mutation, ...] = (
    *(
        number_everywhere,
        type_everywhere,
        scalar_everywhere,
        operands_exchanged,
        operand_of_equal_type,
        op_of_equal_type,
    ),
    *(
        op_alike,
        op_alike,
        expression,
        expression,
        expression,
        place_of_view,
        slot,
        slot,
        groups,
        constant,
        constant,
        word,
        word,
    ),
)
CHANGES: tuple[Mutation, ...] = ANYHOW + KEEPING * 3
