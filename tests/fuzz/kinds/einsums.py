"""Equations of torch.einsum: repeated letters, an ellipsis, no result's letters, sizes of 1 that are broadcast."""

from tests.fuzz.writer import Writer, is_number, kind, rank


@kind(1)
def equations(w: Writer) -> None:
    """Letters stand for sizes, so that any operands fit; a new operand is made of the letters that there are, and one more."""
    first = w.tensor(rank(0, 4), is_number)
    shape = tuple(w.value(first).shape)
    sizes: dict[str, int] = {}
    terms, operands = [_letters(w, shape, sizes)], [first]
    for _ in range(w.choice(0, 1, 1, 2)):
        if w.chance(0.3):
            other = w.tensor(rank(0, 4), lambda x: x.dtype == w.value(first).dtype)
            terms.append(_letters(w, tuple(w.value(other).shape), sizes))
            operands.append(other)
            continue
        chosen = w.rng.choices([*sizes, "z"], k=w.rng.randint(0, 3))
        sizes.setdefault("z", w.rng.randint(0, 3))
        new = tuple(1 if w.chance(0.15) else sizes[c] for c in chosen)
        terms.append("".join(chosen))
        operands.append(f"tensor({new}, {w.value(first).dtype}, {w.rng.randrange(99)})")
    left = sorted({c for term in terms for c in term if c.isalpha()})
    result = "".join(w.rng.sample(left, w.rng.randint(0, len(left))))
    if w.chance(0.3):  # the first dimensions of the first operand are no letters
        kept = w.rng.randint(0, len(terms[0]))
        terms[0] = "..." + terms[0][kept:]
        result = w.choice("...", "...", "") + "".join(c for c in result if any(c in term for term in terms))
    arrow = w.choice("->" + result, "->" + result, "->" + result, "")
    w.emit(f"torch.einsum('{', '.join(terms)}{arrow}', {', '.join(operands)})")


def _letters(w: Writer, shape: tuple, sizes: dict[str, int]) -> str:
    """A letter for each dimension: one that stands for this size, or a new one."""
    term = ""
    for size in shape:
        fitting = [c for c, known in sizes.items() if known == size or size == 1]
        if fitting and w.chance(0.5):
            term += w.rng.choice(fitting)
        else:
            letter = "abcdefghijklmnop"[len(sizes)]
            sizes[letter] = size
            term += letter
    return term
