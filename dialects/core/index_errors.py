"""The exception that a bad index raises, from the message of its check. Eager's gather raises RuntimeError, all others IndexError."""

RUNTIME = "RuntimeError: "  # how a message begins whose check raises that


def index_text(message: str, index: int, size: int) -> str:
    return message.removeprefix(RUNTIME).replace("{index}", str(index)).replace("{size}", str(size))


def index_error(message: str, index: int, size: int) -> Exception:
    kind = RuntimeError if message.startswith(RUNTIME) else IndexError
    return kind(index_text(message, index, size))
