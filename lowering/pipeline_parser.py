"""Pass pipelines as text, in MLIR's syntax: `canonicalize,cse,fuse-elementwise{max-ops=8},plan-memory`.

Names of ours are looked up in the registry of passes; any other name is handed to MLIR's own pass manager, options and all.
"""

import dataclasses
from typing import Any


class PipelineError(ValueError):
    """The text of a pipeline is wrong: what, where, and what would be right."""


@dataclasses.dataclass(frozen=True)
class Step:
    """One pass of a pipeline: its name and the options as they were written."""

    name: str
    options: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        inside = " ".join(f"{key}={value}" for key, value in self.options)
        return f"{self.name}{{{inside}}}" if inside else self.name


def parse(text: str) -> list[Step]:
    """The steps of a pipeline. Raises PipelineError at an unclosed brace, an empty name, an option without a value."""
    steps = []
    for item in _split(text):
        name, brace, rest = item.partition("{")
        name = name.strip()
        if not name or not all(c.isalnum() or c in "-_." for c in name):
            raise PipelineError(f"'{item.strip()}' in '{text}' is not a pass: NAME or NAME{{option=value ...}}")
        if brace and not rest.rstrip().endswith("}"):
            raise PipelineError(f"'{item.strip()}': the options do not end in '}}'")
        options = []
        for word in rest.rstrip().removesuffix("}").split():
            key, equals, value = word.partition("=")
            if not equals or not key or not value:
                raise PipelineError(f"'{word}' in '{item.strip()}' is not an option: name=value, separated by spaces")
            options.append((key, value))
        steps.append(Step(name, tuple(options)))
    return steps


def _split(text: str) -> list[str]:
    """At the commas outside braces."""
    items, depth, start = [], 0, 0
    for position, character in enumerate(text):
        if character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if depth < 0:
                raise PipelineError(f"'}}' without '{{' at column {position + 1} of '{text}'")
        elif character == "," and depth == 0:
            items.append(text[start:position])
            start = position + 1
    if depth:
        raise PipelineError(f"'{{' is not closed in '{text}'")
    if text.strip():
        items.append(text[start:])
    return items


def make_pass(cls: type, step: Step) -> Any:
    """An instance of a pass class with the step's options. Raises PipelineError that lists the options there are."""
    fields = {field.name.replace("_", "-"): field for field in dataclasses.fields(cls)}
    values = {}
    for key, text in step.options:
        field = fields.get(key.replace("_", "-"))
        if field is None:
            known = ", ".join(fields) or "none"
            raise PipelineError(f"pass '{step.name}' has no option '{key}'; its options: {known}")
        values[field.name] = _value(step, key, text, type(field.default))
    return cls(**values)


def _value(step: Step, key: str, text: str, kind: type) -> Any:
    if kind is bool:
        if text not in ("true", "false"):
            raise PipelineError(f"pass '{step.name}': {key} is true or false, not '{text}'")
        return text == "true"
    try:
        return kind(text)
    except ValueError as error:
        raise PipelineError(f"pass '{step.name}': {key} takes {kind.__name__}, not '{text}'") from error
