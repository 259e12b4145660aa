"""Shares large functions (tiles, panels) among kernels: each is compiled once, named by its content.

    llvm.func internal @kernel_3_body(...) { ... llvm.call @kernel_3_tile4x24(...) ... }
    llvm.func internal @kernel_3_tile4x24(...) { ... }

becomes a body that calls @part_2f6c..., and a source of that name, a hash of its text. An equal tile of kernel_7 has the same name.
"""

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future
from weakref import WeakValueDictionary

from mlirc.dialects.core.fork_locks import fork_lock

FunctionTexts = list[str]
"""Declarations, a line each, and functions: MLIR text. A module is some of these lists, without repetition."""

PREFIX = "part_"
LEAST = 1200  # characters of MLIR text: for shorter ones a declaration and a call cost as much

_FUNCTION = re.compile(r"^(?=(?:llvm|func)\.func )", re.MULTILINE)
_NAME = re.compile(r"\w+")

_lock = fork_lock()


class Parts:
    """The object file of some parts. It lives as long as a kernel that calls one of them."""

    def __init__(self, object_bytes: bytes):
        self.object_bytes = object_bytes


_made: "WeakValueDictionary[str, Parts]" = WeakValueDictionary()  # by name
_coming: dict[str, Future[Parts]] = {}


def take_parts(
    functions: str, name: str, declarations: Sequence[str]
) -> tuple[FunctionTexts, dict[str, FunctionTexts]]:
    """Splits the text of kernel `name` into the kernel, which only declares its large functions, and these functions by their new
    names.

    A large function is one that the body calls, together with all that it calls; what smaller ones call too stays as well."""
    own = f"@{name}_"  # no pattern, which would have to be compiled for each kernel
    texts: dict[str, str] = {}  # by what follows the kernel's name
    entry: list[str] = []
    for text in _FUNCTION.split(functions):
        head = f"llvm.func internal {own}"
        suffix = _NAME.match(text, len(head)) if text.startswith(head) else None
        if suffix and text.startswith("(", suffix.end()):
            texts[suffix[0]] = text.rstrip("\n")
        else:
            entry.append(text.rstrip("\n"))
    calls = {suffix: {used for used, _ in _uses(text, own) if used} - {suffix} for suffix, text in texts.items()}

    def reached(suffix: str, without: Collection[str] = ()) -> list[str]:
        """The function and all that it calls, directly or not; calls of `without` are not followed."""
        found = [suffix]
        for other in found:
            found += sorted(calls[other] - set(found) - set(without))
        return found

    parts: dict[str, FunctionTexts] = {}
    names: dict[str, str] = {}
    for root in sorted(calls.get("body", ())):
        text = "\n".join(texts[suffix] for suffix in reached(root))
        if len(text) >= LEAST:
            used = [line for line in declarations if _called(line) in text]
            text = text.replace(f"@{name}_", "@KERNEL_")
            digest = hashlib.sha256("\n".join([root, *used, text]).encode()).hexdigest()
            names[root] = made = f"{PREFIX}{digest[:32]}"
            text = text.replace(f"internal @KERNEL_{root}(", f"@{made}(").replace(f"@KERNEL_{root}(", f"@{made}(")
            parts[made] = [*used, text.replace("@KERNEL_", f"@{made}_")]
    if not parts:
        return [*declarations, functions], {}
    taken = {suffix for root in names for suffix in reached(root)} - set(reached("body", without=names))
    body = "\n".join([*entry, *(text for suffix, text in texts.items() if suffix not in taken)])
    start = body.partition(own)[0]
    body = start + "".join(
        [f"@{names[used]}{rest}" if used in names else f"{own}{used}{rest}" for used, rest in _uses(body, own)]
    )
    declared = [_declaration(texts[root], made) for root, made in names.items()]
    return [*declarations, *declared, body], parts


def _uses(text: str, prefix: str) -> Iterator[tuple[str, str]]:
    """The names behind each `prefix` in a text, with what comes before the next one."""
    for part in text.split(prefix)[1:]:
        found = _NAME.match(part)
        name = found[0] if found else ""
        yield name, part[len(name) :]


def module_of(lists: Iterable[FunctionTexts]) -> str:
    """The text of one module that holds all of these functions."""
    return "\n".join(dict.fromkeys(text for texts in lists for text in texts))


def _declaration(text: str, name: str) -> str:
    """The declaration, under another name, of the function with this text."""
    arguments, result = re.match(r"llvm\.func internal @\w+\((.*)\)( -> .*)? \{", text).groups()  # type: ignore[union-attr]
    return f"llvm.func @{name}({re.sub(r'%[^ ]+: ', '', arguments)}){result or ''}"


def _called(line: str) -> str:
    """The name that a declaration's calls begin with, `@name(`."""
    return line[line.index("@") : line.index("(", line.index("@")) + 1]


def claim(names: Iterable[str]) -> tuple[dict[str, Parts | Future[Parts]], Future[Parts], list[str]]:
    """(found, future, mine): parts that exist or that another thread compiles, and the names of the rest, which the caller must
    compile and hand to `publish` with the future."""
    with _lock:
        found: dict[str, Parts | Future[Parts]] = {}
        mine, future = [], Future()
        for name in names:
            if known := _made.get(name) or _coming.get(name):
                found[name] = known
            else:
                mine.append(name)
                _coming[name] = future
        return found, future, mine


def publish(future: Future[Parts], names: Iterable[str], made: Parts | BaseException) -> None:
    """Gives waiting threads the object file of these parts, or the error that compiling them raised."""
    with _lock:
        for name in names:
            _coming.pop(name, None)
            if isinstance(made, Parts):
                _made[name] = made
    if isinstance(made, Parts):
        future.set_result(made)
    else:
        future.set_exception(made)


def abandon(future: Future[Parts], names: Sequence[str]) -> None:
    """Fails the future of parts that will not be compiled, unless it has a result, so that no thread waits for ever."""
    if names and not future.done():
        publish(future, names, RuntimeError("the work that this was part of was ended before it was done"))
