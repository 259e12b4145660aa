"""Chooses the exception of a bad index from the message of its check: RuntimeError for eager's gather, IndexError for all others."""

RUNTIME = "RuntimeError: "  # how a message begins whose check raises that


def index_text(message: str, index: int, size: int) -> str:
    return message.removeprefix(RUNTIME).replace("{index}", str(index)).replace("{size}", str(size))


def index_error(message: str, index: int, size: int) -> Exception:
    kind = RuntimeError if message.startswith(RUNTIME) else IndexError
    return kind(index_text(message, index, size))
