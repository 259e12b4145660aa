"""Makes the exception for an index out of range, of eager's kind: RuntimeError for a gather, IndexError for all others.

The check that a kernel has for an index holds the message, with `{index}` and `{size}` in place of the numbers.
"""

RUNTIME = "RuntimeError: "  # a message that begins so is a RuntimeError's


def index_text(message: str, index: int, size: int) -> str:
    return message.removeprefix(RUNTIME).replace("{index}", str(index)).replace("{size}", str(size))


def index_error(message: str, index: int, size: int) -> Exception:
    kind = RuntimeError if message.startswith(RUNTIME) else IndexError
    return kind(index_text(message, index, size))
