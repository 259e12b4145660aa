"""Functions of tests/fuzz/functions.py: with gradients of their own, and compiled once for all calls."""

from tests.fuzz.writer import Writer, is_float, kind


@kind(0.5)
def own_gradients(w: Writer) -> None:
    x = w.tensor(is_float)
    w.emit(
        w.choice(
            f"functions.Cube.apply({x})",
            f"functions.Tanh.apply({x})",
            f"functions.Split.apply({x})[0]",
            f"functions.Split.apply({x})",
            f"functions.Clamped.apply({x} * 3)",
            f"functions.scaled({x}, {w.number()})",
            f"functions.Tanh.apply(functions.Cube.apply({x}))",
        )
    )


@kind(0.2)
def equal_regions(w: Writer) -> None:
    x = w.tensor(is_float)
    w.emit(w.choice(f"functions.equal({x}) + functions.equal({x} * 2)", f"functions.equal({x})"))
