"""Where LLVM IR text could make poison or undef, as strings: nothing for text of ours.

    assert poison(mlir_to_llvm(source)) == []

What LLVM's own passes make of such text is theirs. An instruction that can give poison has to be on this list, with what
shows that it gives none, or that none is read:

    nsw, nuw, exact, inbounds, disjoint, nneg, samesign: never
    reassoc     on sums and products of lanes: it permits an order, and makes no poison
    nnan        on an extremum of lanes that no NaN is among, or that a select replaces where there is one
    fptosi      only arms of selects read it, and not where the number is outside: a select passes no poison on
    sdiv, srem, udiv, urem
                by constants but 0 and -1; by a select that puts 1 in place of those; in i64 by sizes and numbers of
                threads, which are positive where there is a point to divide
    shl, lshr, ashr
                by constants below the width; by a umin with one; or only selects read it, by whether y < width
    insertelement, shufflevector
                one element into poison, which is all lanes, or which only a shuffle of lane 0 to all lanes reads;
                otherwise no lane of poison
    masked loads and gathers
                with zeros where the mask is off
    abs, ctlz, cttz
                with `false`: of the lowest number, and of 0, they are defined
    no assume, no metadata and no attribute that promises a value's range
"""

import re
from collections import defaultdict
from dataclasses import dataclass, field

FLAGS = re.compile(
    r" (nsw|nuw|nusw|exact|inbounds|inrange|disjoint|nneg|samesign|ninf|nsz|arcp|contract|afn|fast)\b|(?<! call) (nnan|reassoc)\b"
)
PROMISES = re.compile(
    r"!(range|nonnull|noundef|align|dereferenceable|invariant|noalias|fpmath)\b|@llvm\.assume|\bundef\b"
)
ARGUMENTS = re.compile(r"\b(noundef|nonnull|noalias|nofpclass|dereferenceable\(|range\()")
INSTRUCTION = re.compile(r"^  (?:(%[\w.]+) = )?(?:tail )?([a-z]+)\b(.*)$", re.MULTILINE)
VALUE = re.compile(r"%[\w.]+")
DIVISIONS, SHIFTS = ("sdiv", "udiv", "srem", "urem"), ("shl", "lshr", "ashr")
CONSTANT = re.compile(r", (?:splat \(i\d+ )?(-?\d+)\)?$")


@dataclass
class Function:
    """Its values: the instruction that gives each, as (opcode, the rest of the line), and those that read it."""

    made: dict[str, tuple[str, str]] = field(default_factory=dict)
    readers: dict[str, list[tuple[str, str]]] = field(default_factory=lambda: defaultdict(list))


def poison(text: str) -> list[str]:
    found = [line for line in text.split("\n") if _promises(line)]
    for body in re.split(r"^define ", text, flags=re.MULTILINE)[1:]:
        body = body[: body.index("\n}")]
        suspects, function = [], Function()
        for match in INSTRUCTION.finditer(body):
            name, opcode, rest = match[1], match[2], match[3]
            if name:
                function.made[name] = opcode, rest
            for value in VALUE.findall(rest):
                function.readers[value].append((opcode, rest))
            if opcode in RULES and name:
                suspects.append((name, opcode, rest))
            elif "poison" in rest:
                found.append(match[0])
        found += [f"  {name} = {op}{rest}" for name, op, rest in suspects if not RULES[op](function, name, rest)]
    return found


def _promises(line: str) -> bool:
    if line.startswith("  "):
        return bool(FLAGS.search(line) or PROMISES.search(line))
    return line.startswith("define") and bool(ARGUMENTS.search(line))


def _conversion(f: Function, name: str, rest: str) -> bool:
    x = VALUE.search(rest)
    return x is not None and all(_chosen_inside(f, x[0], reader) for reader in f.readers[name])


def _chosen_inside(f: Function, x: str, reader: tuple[str, str]) -> bool:
    """Whether a select reads a conversion of x where |x| is less than a power of two."""
    if reader[0] != "select":
        return False
    opcode, rest = f.made.get(VALUE.findall(reader[1])[0], ("", ""))
    compared = re.match(r" olt <?[^%]*(%[\w.]+), ", rest)
    if opcode != "fcmp" or compared is None:
        return False
    opcode, rest = f.made.get(compared[1], ("", ""))
    return opcode == "call" and "@llvm.fabs" in rest and rest.rstrip(")").endswith(x)


def _division(f: Function, name: str, rest: str) -> bool:
    constant = CONSTANT.search(rest)
    if constant:
        unsigned = f.made[name][0][0] == "u"
        return constant[1] != "0" and (unsigned or constant[1] != "-1")
    if re.match(r" i64 ", rest):
        return True
    opcode, chosen = f.made.get(VALUE.findall(rest)[-1], ("", ""))
    return opcode == "select" and re.search(r"(splat \(i\d+ 1\)|i\d+ 1), ", chosen) is not None


def _shift(f: Function, name: str, rest: str) -> bool:
    width = int(re.search(r"i(\d+)", rest)[1])  # type: ignore[index]
    constant = CONSTANT.search(rest)
    if constant:
        return 0 <= int(constant[1]) < width
    amount = VALUE.findall(rest)[-1]
    opcode, given = f.made.get(amount, ("", ""))
    least = re.search(r"@llvm\.umin.*?(\d+)\)+$", given)
    if opcode == "call" and least:
        return int(least[1]) < width
    return all(_within(f, amount, width, reader) for reader in f.readers[name])


def _within(f: Function, amount: str, width: int, reader: tuple[str, str]) -> bool:
    if reader[0] != "select":
        return False
    opcode, rest = f.made.get(VALUE.findall(reader[1])[0], ("", ""))
    limit = re.match(rf" ult .*{amount}, (?:splat \(i\d+ )?(\d+)\)?$", rest)
    return opcode == "icmp" and limit is not None and int(limit[1]) <= width


def _insertion(f: Function, name: str, rest: str) -> bool:
    if not re.search(r"i(32|64) \d+$", rest):  # a lane that is computed may be none
        return False
    if "> poison," not in rest:
        return "poison" not in rest
    if rest.startswith(" <1 x "):
        return True
    return all(
        opcode == "shufflevector" and re.match(rf" <[^%]*{name}, .* zeroinitializer$", read)
        for opcode, read in f.readers[name]
    )


def _shuffle(f: Function, name: str, rest: str) -> bool:
    vectors = re.match(r" <(\d+) x [^>]*> (.*?), <\d+ x [^>]*> (.*?), <\d+ x i32> (.*)$", rest)
    if vectors is None:
        return False
    lanes, first, second, mask = int(vectors[1]), vectors[2], vectors[3], vectors[4]
    if "poison" in first or "poison" in mask:
        return False
    most = max(map(int, re.findall(r"i32 (\d+)", mask)), default=0)
    return second != "poison" or most < lanes


def _extraction(f: Function, name: str, rest: str) -> bool:
    lanes = re.match(r" <(\d+) x", rest)
    lane = re.search(r", i\d+ (\d+)$", rest)
    return lanes is not None and lane is not None and int(lane[1]) < int(lanes[1])


def _call(f: Function, name: str, rest: str) -> bool:
    if "poison" in rest:
        return False
    if "@llvm.masked." in rest:
        return rest.endswith("zeroinitializer)")
    if re.search(r"@llvm\.(abs|ctlz|cttz)\.", rest):
        return rest.endswith("i1 false)")
    if " reassoc " in rest:
        return re.search(r"@llvm\.vector\.reduce\.f(add|mul)\.", rest) is not None
    if " nnan " in rest:
        return re.search(r"@llvm\.vector\.reduce\.f(max|min)\.", rest) is not None and (
            _is_number(f, VALUE.findall(rest)[-1], set()) or _replaced(f, name, VALUE.findall(rest)[-1])
        )
    return True


def _is_number(f: Function, value: str, seen: set[str]) -> bool:
    """Whether a value starts from constants that are numbers, and is replaced by what is greater or less than it only."""
    if not value.startswith("%"):
        return "nan" not in value and not re.search(r"0x7F[F8]8|0x[7F]FF[89A-F]", value)
    if value in seen:
        return True
    seen.add(value)
    opcode, rest = f.made.get(value, ("", ""))
    if opcode == "phi":
        return all(_is_number(f, x.strip(), seen) for x in re.findall(r"\[ (.*?), %\w+ \]", rest))
    condition, first, second = _arms(rest) if opcode == "select" else ("", "", "")
    compared, rest = f.made.get(condition, ("", ""))
    ordered = compared == "fcmp" and re.match(rf" o[gl]t .*{first}, {second}$", rest)
    return bool(ordered) and _is_number(f, second, seen)


def _arms(rest: str) -> tuple[str, str, str]:
    values = VALUE.findall(rest)
    return (values[0], values[1], values[2]) if len(values) == 3 else ("", "", "")


def _replaced(f: Function, name: str, x: str) -> bool:
    """Whether only selects read it, where no lane of x differs from itself."""
    return all(opcode == "select" and _any_nan(f, VALUE.findall(rest)[0], x) for opcode, rest in f.readers[name])


def _any_nan(f: Function, condition: str, x: str) -> bool:
    opcode, rest = f.made.get(condition, ("", ""))
    if opcode != "call" or "@llvm.vector.reduce.or." not in rest:
        return False
    opcode, rest = f.made.get(VALUE.findall(rest)[-1], ("", ""))
    return opcode == "fcmp" and re.match(rf" u\w+ .*{x}, {x}$", rest) is not None


RULES = {
    "fptosi": _conversion,
    "fptoui": _conversion,
    "insertelement": _insertion,
    "extractelement": _extraction,
    "shufflevector": _shuffle,
    "call": _call,
    **dict.fromkeys(DIVISIONS, _division),
    **dict.fromkeys(SHIFTS, _shift),
}
