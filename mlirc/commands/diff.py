"""`mlirc opt --diff`: what each pass changed, op by op. Numbers of SSA values are ignored; unchanged ops are elided."""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

import click

from mlirc.lowering.module.counted import counted

if TYPE_CHECKING:
    from mlirc.lowering.module.op_text import OpText

CONTEXT = 2  # unchanged ops shown around a change, as of `diff -U2`
STYLES = {"-": "red", "+": "green", "~": "yellow", "@": "bold", ".": "dim"}

Change = tuple[str, "OpText"]  # " ": unchanged, "-": removed, "+": added, "~": the same op with other operands


def changes(before: Sequence["OpText"], after: Sequence["OpText"]) -> list[Change]:
    """Aligns the ops of a function before and after a pass, as an edit script."""
    from mlirc.lowering.module.op_text import same_operands

    found: list[Change] = []
    renamed: dict[str, str] = {}  # SSA names before -> after, of ops that match
    for tag, i, i_end, j, j_end in aligned(before, after):
        if tag != "equal":
            found += [("-", op) for op in before[i:i_end]] + [("+", op) for op in after[j:j_end]]
            continue
        for old, new in zip(before[i:i_end], after[j:j_end], strict=True):
            found.append((" " if same_operands(old, new, renamed) else "~", new))
            renamed.update(zip(old.results, new.results, strict=True))
    return found


def aligned(before: Sequence["OpText"], after: Sequence["OpText"]) -> Iterator[tuple[str, int, int, int, int]]:
    """Edits as of SequenceMatcher.get_opcodes. Ops that compute the same of the same values are matched first, and between these
    ops that are alike but for their operands."""
    same = SequenceMatcher(None, computed(before), computed(after), autojunk=False)
    for tag, i, i_end, j, j_end in same.get_opcodes():
        if tag == "equal":
            yield tag, i, i_end, j, j_end
            continue
        old, new = ([op.key for op in ops] for ops in (before[i:i_end], after[j:j_end]))
        for alike, a, a_end, b, b_end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            yield alike, i + a, i + a_end, j + b, j + b_end


def computed(ops: Sequence["OpText"]) -> list[int]:
    """A number for each op: equal for ops with the same text whose operands have equal numbers, too."""
    numbers: dict[str, int] = {}
    found = []
    for op in ops:
        operands = tuple((numbers.get(name, name), part) for name, _, part in (x.partition("#") for x in op.operands))
        found.append(hash((op.key, operands)))
        is_header = op.text.startswith("func.func")  # its results are the function's arguments
        numbers |= {name: hash((k, is_header)) if is_header else found[-1] for k, name in enumerate(op.results)}
    return found


def region_text(op: "OpText") -> str:
    """The ops in its region, without the op's own line, the block's header and the closing line; "" without a region."""
    return "\n".join(op.key.split("\n")[2:-1])


def elided(found: Sequence[Change]) -> Iterator[tuple[str, str]]:
    """Lines, each with its sign; "." stands for unchanged ops that are left out.

    A region that goes from one op to another unchanged is one line.
    """
    removed = {region_text(op) for sign, op in found if sign == "-"}
    moved = removed & {region_text(op) for sign, op in found if sign == "+"} - {""}
    changed = [k for k, (sign, _) in enumerate(found) if sign != " "]
    near = {k for c in changed for k in range(c - CONTEXT, c + CONTEXT + 1)}
    elided_count = 0
    for k, (sign, op) in enumerate(found):
        if k not in near and k != 0:  # the line of the func.func is always shown
            elided_count += 1
            continue
        if elided_count:
            yield ".", f"... {counted(elided_count, 'op')} unchanged"
            elided_count = 0
        lines = op.text.split("\n")
        if len(lines) > 2 and (sign in " ~" or region_text(op) in moved):
            lines = [f"{lines[0]} ... {counted(len(lines) - 2, 'line')} unchanged ... {lines[-1].strip()}"]
        yield from ((sign, line) for line in lines)
    if elided_count:
        yield ".", f"... {counted(elided_count, 'op')} unchanged"


class Diff:
    """Prints what changed since the module that it was shown last."""

    def __init__(self, module: Any):
        self.before = self._read(module)

    @staticmethod
    def _read(module: Any) -> "dict[str, list[OpText]]":
        from mlirc.lowering.module.op_text import functions_of

        return functions_of(module)

    def show(self, step: str, module: Any) -> None:
        before, self.before = self.before, self._read(module)
        lines: list[tuple[str, str]] = []
        for name in dict.fromkeys([*before, *self.before]):
            found = changes(before.get(name, []), self.before.get(name, []))
            if any(sign != " " for sign, _ in found):
                lines += elided(found)
        counts = {sign: sum(1 for s, _ in lines if s == sign) for sign in "-+~"}
        summary = (
            f"{counted(counts['+'], 'line')} added, {counts['-']} removed, {counts['~']} with other operands"
            if lines
            else "no change"
        )
        write([("@", f"// ----- {step}: {summary} -----"), *lines])


def write(lines: Sequence[tuple[str, str]]) -> None:
    """Writes to standard error, in colours if that is a terminal."""
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True, soft_wrap=True)
    if not console.is_terminal:
        click.echo("\n".join(plain(sign, line) for sign, line in lines), err=True)
        return
    for sign, line in lines:
        console.print(Text(plain(sign, line), style=STYLES.get(sign, "")), highlight=False)


def plain(sign: str, line: str) -> str:
    return line if sign == "@" else f"  {line}" if sign == "." else f"{sign} {line}"
