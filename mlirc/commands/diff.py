"""`mlirc opt --diff`: what each pass changed, op by op. An op that only has other numbers is the same; what stays is folded."""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from mlirc.lowering.module.op_text import OpText

CONTEXT = 2  # ops that stay and are shown around a change
STYLES = {"-": "red", "+": "green", "~": "yellow", "@": "bold", ".": "dim"}

Change = tuple[str, "OpText"]  # " ": stays, "-": is gone, "+": is new, "~": reads other values than before


def changes(before: Sequence["OpText"], after: Sequence["OpText"]) -> list[Change]:
    """The ops of a function before and after a pass, in order."""
    matcher = SequenceMatcher(None, [op.key for op in before], [op.key for op in after], autojunk=False)
    found: list[Change] = []
    same: dict[str, str] = {}  # a value's name before -> after
    for tag, i, i_end, j, j_end in matcher.get_opcodes():
        if tag != "equal":
            found += [("-", op) for op in before[i:i_end]] + [("+", op) for op in after[j:j_end]]
            continue
        for old, new in zip(before[i:i_end], after[j:j_end], strict=True):
            reads = [(same.get(x.partition("#")[0], ""), x.partition("#")[2]) for x in old.operands]
            stays = reads == [(x.partition("#")[0], x.partition("#")[2]) for x in new.operands]
            found.append((" " if stays else "~", new))
            same.update(zip(old.results, new.results, strict=True))
    return found


def body(op: "OpText") -> str:
    """What a kernel computes: its text without its first and last lines; "" of an op without a body."""
    return "\n".join(op.key.split("\n")[2:-1])


def folded(found: Sequence[Change]) -> Iterator[tuple[str, str]]:
    """Lines with the sign of each: "-", "+", "~", " ", and "." for what is folded: ops, and bodies that only change owners."""
    gone = {body(op) for sign, op in found if sign == "-"}
    moved = gone & {body(op) for sign, op in found if sign == "+"} - {""}
    changed = [k for k, (sign, _) in enumerate(found) if sign != " "]
    near = {k for c in changed for k in range(c - CONTEXT, c + CONTEXT + 1)}
    hidden = 0
    for k, (sign, op) in enumerate(found):
        if k not in near and k != 0:  # the function's own line says where we are
            hidden += 1
            continue
        if hidden:
            yield ".", f"... {hidden} op{'s' if hidden > 1 else ''} as before"
            hidden = 0
        lines = op.text.split("\n")
        if len(lines) > 2 and (sign in " ~" or body(op) in moved):
            lines = [f"{lines[0]} ... {len(lines) - 2} lines as before ... {lines[-1].strip()}"]
        yield from ((sign, line) for line in lines)
    if hidden:
        yield ".", f"... {hidden} op{'s' if hidden > 1 else ''} as before"


class Diff:
    """Tells the difference to the module that it was shown last."""

    def __init__(self, module: Any):
        self.before = self._read(module)

    @staticmethod
    def _read(module: Any) -> "dict[str, list[OpText]]":
        from mlirc.lowering.module.op_text import functions_of

        return functions_of(module)

    def show(self, step: str, module: Any) -> None:
        before, self.before = self.before, self._read(module)
        told: list[tuple[str, str]] = []
        for name in dict.fromkeys([*before, *self.before]):
            found = changes(before.get(name, []), self.before.get(name, []))
            if any(sign != " " for sign, _ in found):
                told += folded(found)
        counts = {sign: sum(1 for s, _ in told if s == sign) for sign in "-+~"}
        summary = (
            f"{counts['+']} lines new, {counts['-']} gone, {counts['~']} with other operands" if told else "no change"
        )
        write([("@", f"// ----- {step}: {summary} -----"), *told])


def write(lines: Sequence[tuple[str, str]]) -> None:
    """To standard error, in colours where that is a terminal."""
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
