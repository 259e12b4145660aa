"""A number with its noun."""


def counted(number: int, noun: str, plural: str = "") -> str:
    """ "1 graph", "2 graphs"; `plural` where it is not the noun with an s."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
