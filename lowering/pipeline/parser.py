"""Pass pipelines as text, in MLIR's syntax: `canonicalize,cse,fuse-elementwise{max-ops=8},plan-memory`.

Names of ours are looked up in the registry of passes; any other item is handed to MLIR's own pass manager as it stands,
with its options, or with the passes nested in it: `func.func(cse)`.
"""

import dataclasses
from typing import Any

from mlirc.lowering.module.nearest import nearest

OPEN, CLOSE = "{(", "})"
NOT_TEXT = {"text": False}
"""Metadata of a pass's field that no text sets: run_pipeline is `given` it."""


class PipelineError(ValueError):
    """The text of a pipeline is wrong, or wrong for this module: what, where, and what would be right."""


@dataclasses.dataclass(frozen=True)
class Step:
    """One pass of a pipeline: its name, and the text of its options or of the passes nested in it, with the brackets."""

    name: str
    arguments: str = ""

    def __str__(self) -> str:
        return self.name + self.arguments


def parse(text: str) -> list[Step]:
    """The steps of a pipeline. Raises PipelineError at an unclosed bracket, an empty name, text after the options."""
    steps = []
    for item in map(str.strip, _split(text)):
        end = next((k for k, c in enumerate(item) if c in OPEN), len(item))
        name, arguments = item[:end].strip(), item[end:]
        if not 0 < len(name) <= 100 or not all(c.isalnum() or c in "-_." for c in name):
            raise PipelineError(f"'{item[:100]}' in '{text[:200]}' is not a pass: NAME or NAME{{option=value ...}}")
        if arguments and arguments[-1] not in CLOSE:
            raise PipelineError(f"'{item}' in '{text}' goes on after the options")
        steps.append(Step(name, arguments))
    return steps


def _split(text: str) -> list[str]:
    """At the commas outside brackets."""
    items, opened, start = [], "", 0
    for position, character in enumerate(text):
        if character in OPEN:
            opened += character
        elif character in CLOSE:
            if opened[-1:] != OPEN[CLOSE.index(character)]:
                raise PipelineError(f"'{character}' at column {position + 1} of '{text}' closes nothing")
            opened = opened[:-1]
        elif character == "," and not opened:
            items.append(text[start:position])
            start = position + 1
    if opened:
        raise PipelineError(f"'{opened[-1]}' is not closed in '{text}'")
    if text.strip():
        items.append(text[start:])
    return items


def make_pass(cls: type, step: Step) -> Any:
    """An instance of a pass class with the step's options. Raises PipelineError that lists the options there are."""
    fields = {field.name.replace("_", "-"): field for field in options_of(cls)}
    values = {}
    for key, text in _options(step):
        field = fields.get(key.replace("_", "-"))
        if field is None:
            known = ", ".join(fields) or "none"
            close = nearest(key, fields) or ";"
            raise PipelineError(f"pass '{step.name}' has no option '{key}'{close} its options: {known}")
        values[field.name] = _value(step, key, text, type(field.default))
    return cls(**values)


def options_of(cls: type) -> list[dataclasses.Field]:
    """The fields of a pass that text sets."""
    return [field for field in dataclasses.fields(cls) if field.metadata != NOT_TEXT]


def _options(step: Step) -> list[tuple[str, str]]:
    if step.arguments[:1] == "(":
        raise PipelineError(f"'{step}': no passes are nested in '{step.name}'; options go in braces")
    options = []
    for word in step.arguments[1:-1].split():
        key, equals, value = word.partition("=")
        if not equals or not key or not value:
            raise PipelineError(f"'{word}' in '{step}' is not an option: name=value, separated by spaces")
        options.append((key, value))
    return options


def _value(step: Step, key: str, text: str, kind: type) -> Any:
    if kind is bool:
        if text not in ("true", "false"):
            raise PipelineError(f"pass '{step.name}': {key} is true or false, not '{text}'")
        return text == "true"
    try:
        return kind(text)
    except ValueError as error:
        raise PipelineError(f"pass '{step.name}': {key} takes {kind.__name__}, not '{text}'") from error
