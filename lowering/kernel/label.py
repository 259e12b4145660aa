"""The label of a kernel: the notable ops in it, in order, "add_gelu" or "layer_norm"."""

# what moves data or writes numbers down is named only where there is nothing else
MINOR = frozenset(("cast", "copy", "constant", "size", "iota"))
LONGEST = 8  # words


def merge_labels(first: str, second: str) -> str:
    """A label with each word of both once. Of more than LONGEST words the middle ones are left out.

    "add" and "gelu" give "add_gelu"; "softmax" and "softmax" give "softmax"; "cast" and "exp" give "exp".
    """
    words = list(dict.fromkeys(first.split("_") + second.split("_")))
    notable = [word for word in words if word and word not in MINOR] or words[:1]
    if len(notable) > LONGEST:
        notable = notable[: LONGEST // 2] + notable[-(LONGEST // 2) :]
    return "_".join(notable)
