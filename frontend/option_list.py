"""`mlirc.options()`: the options of torch.compile(model, backend="mlirc", options={...}), as data and as text."""

import dataclasses
from typing import Any

from mlirc.frontend.options import Options

TYPES = {bool: "True or False", float: "a number", int: "a whole number", str: "text"}
PASSES = {
    "name": "passes",
    "takes": "a list of classes",
    "values": None,
    "default": [],
    "help": "passes of your own, by the names that `insert` and `pipeline` then know (docs/adding.md)",
}


class OptionList(list[dict[str, Any]]):
    """The options, each with name, takes (what values, in words), values (all of them, or None), default, help. Prints as a table."""

    def __str__(self) -> str:
        from rich.table import Table

        from mlirc.frontend.table_text import table_text

        table = Table(box=None, pad_edge=False, padding=(0, 2, 1, 0))
        for title in ("option", "default", "takes", "help"):
            table.add_column(
                title, no_wrap=title == "option", overflow="fold", max_width=30 if title == "takes" else None
            )
        for one in self:
            table.add_row(*map(_plain, (one["name"], repr(one["default"]), one["takes"], one["help"])))
        return table_text(table, 130)

    __repr__ = __str__


def _plain(text: str) -> Any:
    from rich.text import Text

    return Text(text)


def options() -> OptionList:
    """What torch.compile(model, backend="mlirc", options={name: value}) takes: print it, or read it as a list of dictionaries."""
    defaults = Options()
    found = OptionList(_described(field, getattr(defaults, field.name)) for field in dataclasses.fields(Options))
    found.append(dict(PASSES))
    return found


def _described(field: "dataclasses.Field[Any]", default: Any) -> dict[str, Any]:
    allowed = field.metadata.get("allowed")
    takes = ", ".join(map(repr, allowed)) if allowed else field.metadata.get("takes") or TYPES[field.type]  # type: ignore[index]
    values = list(allowed) if allowed else [True, False] if field.type is bool else None
    default = field.metadata.get("given", default)
    return {"name": field.name, "takes": takes, "values": values, "default": default, "help": field.metadata["help"]}
