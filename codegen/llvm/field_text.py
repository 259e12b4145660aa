"""LLVM IR text of functions that read a record by field names."""

import ctypes
from collections.abc import Mapping


def with_fields(text: str, record: type[ctypes.Structure], numbers: Mapping[str, int]) -> str:
    """The text with numbers for names.

    record    of slots of 8 bytes, at %plan; FIELD_name is the slot of a field, and a line FIELD(name, type) loads it as
              %name, or FIELD(name, type, hint) as %name_hint
    numbers   what stands for other names in capitals
    """
    lines = []
    for line in text.splitlines():
        if "FIELD(" in line:
            name, type_, *hint = line.strip().removeprefix("FIELD(").removesuffix(")").split(", ")
            value = "_".join([name, *hint])
            lines.append(f"  %{value}_field = getelementptr i64, ptr %plan, i64 FIELD_{name}")
            lines.append(f"  %{value} = load {type_}, ptr %{value}_field")
        else:
            lines.append(line)
    text = "\n".join(lines) + "\n"
    known = {f"FIELD_{name}": getattr(record, name).offset // 8 for name, *_ in record._fields_} | dict(numbers)
    for name in sorted(known, key=len, reverse=True):  # a name may be the start of another
        text = text.replace(name, str(known[name]))
    return text
