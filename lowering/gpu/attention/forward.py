"""Attention with a body, forward: a program has a block of queries, and goes through the keys that the block mask lists.

largest, total, result = -inf, 0, 0
for keys in partial blocks, and then in full blocks:
    scores = score_mod(q @ k^T * scale), in partial blocks -inf where mask_mod hides
    weights = exp2(scores * log2(e) - new largest)
    total, result = both * exp2(largest - new largest) + sum(weights), weights @ v
result / total
"""

from mlirc.lowering.gpu.attention.text import FlexText


def write_forward(t: FlexText) -> None:
    problem, y, x = t.problem, t.queries, t.keys
    _, heads, _, _ = problem.space
    t.bind_programs(y, heads, "d1", "d0", last_first=True)
    t.bind_place("d0", "d1")
    t.base("q", "d0", "d1")
    for name in ("k", "v"):
        t.base(name, *t.shared_head())
    t.add(f"q = {t.rows('q', y)}")
    t.outer_values(x)
    t.add("largest = tl.full([YBLOCK], float('-inf'), tl.float32)")
    t.add("total = tl.zeros([YBLOCK], tl.float32)")
    t.add("result = tl.zeros([YBLOCK, EBLOCK], tl.float32)")
    hidden = "float('-inf')"
    for counts, indices, partial in problem.lists:
        with t.loop(counts, indices, y, x, problem.rows, problem.columns):
            t.add(f"k = {t.rows('k', x)}")
            scores, factor = t.changed(t.dot("q", "tl.trans(k)"))
            if (s := t.where(t.seen(partial, x), scores, hidden)) != "s":
                t.add(f"s = {s}")
            t.hide(indices, x, {"s": f"tl.full([YBLOCK, XBLOCK], {hidden}, tl.float32)"})
            t.add(f"larger = tl.maximum(largest, tl.max(s, 1) * {factor!r})")
            t.add("base = tl.where(larger == float('-inf'), 0.0, larger)  # of rows that see nothing yet")
            t.add(f"weights = {t.weights('s', factor, 'base[:, None]')}")
            t.add("less = tl.exp2(largest - base)")
            t.add("total = tl.fma(total, less, tl.sum(weights, 1))")
            t.add(f"v = {t.rows('v', x)}")
            t.add(f"result = {t.dot(t.narrowed('weights'), 'v', 'result * less[:, None]')}")
            t.add("largest = larger")
    t.add("nothing = total == 0")
    if not t.is_exact:
        t.add("inverse = 1.0 / tl.where(nothing, 1.0, total)")
    t.base("out", "d0", "d1")
    t.store_rows(
        "out", y, "(result / tl.where(nothing, 1.0, total)[:, None])" if t.is_exact else "(result * inverse[:, None])"
    )
    t.base("lse_out", "d0", "d1")
    t.store_line("lse_out", y, "tl.where(nothing, float('-inf'), largest + tl.log2(total))")
    if "largest" in problem.place:
        t.base("largest", "d0", "d1")
        t.store_line("largest", y, "largest")
