"""Marks errors that the user's program raises in eager too (a bad index, an operator's check); all others count as ours."""


def of_the_user(error: Exception) -> Exception:
    """Marks an error as one of the user's program."""
    error.mlirc_of_the_user = True  # type: ignore[attr-defined]
    return error


def belongs_to_the_user(error: Exception) -> bool:
    return getattr(error, "mlirc_of_the_user", False)
