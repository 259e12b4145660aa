"""The gradients of attention with a body, in two kernels; both recompute the weights from the logarithms of the sums.

weights = exp2(scores * log2(e) - lse)
slopes = weights * (dout @ v^T - delta), then as score_mod's gradient makes them
of queries: a program has a block of them, and goes through keys       dq += slopes @ k
of keys: a program has a block of them, and goes through queries,      dk += slopes^T @ q,  dv += weights^T @ dout
         of all heads and batches that share them
"""

from mlirc.dialects.core.symbols import Int
from mlirc.lowering.gpu.attention.text import FlexText
from mlirc.lowering.gpu.triton.schedule import TritonTile


def write_query_gradient(t: FlexText) -> None:
    problem, y, x = t.problem, t.queries, t.keys
    _, heads, _, _ = problem.space
    t.bind_programs(y, heads, "d1", "d0", last_first=True)
    t.bind_place("d0", "d1")
    for name in ("q", "dout", "lse", "delta"):
        t.base(name, "d0", "d1")
    for name in ("k", "v"):
        t.base(name, *t.shared_head())
    t.add(f"q = {t.rows('q', y)}")
    t.add(f"dout = {t.rows('dout', y)}")
    load_sums(t, y, "[:, None]")
    t.outer_values(x)
    t.add("dq = tl.zeros([YBLOCK, DBLOCK], tl.float32)")
    for counts, indices, partial in problem.lists:
        with t.loop(counts, indices, y, x, problem.rows, problem.columns):
            t.add(f"k = {t.rows('k', x)}")
            t.add(f"v = {t.rows('v', x)}")
            slopes, _ = slopes_of(t, t.dot("q", "tl.trans(k)"), t.dot("dout", "tl.trans(v)"), partial, indices, x)
            t.add(f"dq = {t.dot(slopes, 'k', 'dq')}")
    t.base("dq", "d0", "d1")
    t.store_rows("dq", y, f"(dq * {problem.scale!r})")


def write_key_gradients(t: FlexText) -> None:
    problem, y, x = t.problem, t.queries, t.keys
    batch, _, _, _ = problem.space
    t.bind_programs(x, problem.info("k").shape[1], "shared_head", "shared_batch", last_first=False)
    for name in ("k", "v"):
        t.base(name, "shared_batch", "shared_head")
        t.add(f"{name} = {t.rows(name, x)}")
    t.add("dk = tl.zeros([XBLOCK, DBLOCK], tl.float32)")
    t.add("dv = tl.zeros([XBLOCK, EBLOCK], tl.float32)")
    group, members = problem.group, problem.group * (batch if problem.one_batch else 1)
    if members == 1:
        t.bind_place("shared_batch", "shared_head")
        key_loops(t, y, x)
    else:
        t.add(f"for member in range(0, {t.number(members)}):")
        with t.e.scope():
            t.bind_place(*member_place(t, group))
            key_loops(t, y, x)
    for name, value in (("dk", f"(dk * {problem.scale!r})"), ("dv", "dv")):
        t.base(name, "shared_batch", "shared_head")
        t.store_rows(name, x, value)


def member_place(t: FlexText, group: Int) -> tuple[str, str]:
    """Batch and head of a member of those that share the keys."""
    one = group == 1
    head = "shared_head" if one else f"shared_head * {t.number(group)} + member % {t.number(group)}"
    if not t.problem.one_batch:
        return "shared_batch", head
    return "member + shared_batch * 0" if one else f"member // {t.number(group)} + shared_batch * 0", head


def key_loops(t: FlexText, y: TritonTile, x: TritonTile) -> None:
    problem = t.problem
    for name in ("q", "dout", "lse", "delta"):
        t.base(name, "d0", "d1")
    t.outer_values(y)
    for counts, indices, partial in problem.lists:
        with t.loop(counts, indices, x, y, problem.columns, problem.rows):
            t.add(f"q = {t.rows('q', y)}")
            t.add(f"dout = {t.rows('dout', y)}")
            load_sums(t, y, "[None, :]")
            scores, of_weights = t.dot("k", "tl.trans(q)"), t.dot("v", "tl.trans(dout)")
            slopes, weights = slopes_of(t, scores, of_weights, partial, indices, y)
            t.add(f"dv = {t.dot(t.narrowed(weights), 'dout', 'dv')}")
            t.add(f"dk = {t.dot(slopes, 'q', 'dk')}")


def load_sums(t: FlexText, rows: TritonTile, spread: str) -> None:
    """Rows that see nothing, or that there are not, have weights of 0."""
    t.add(f"lse_line = {t.line('lse', rows, 'float(' + repr('inf') + ')')}")
    t.add(f"lse = tl.where(lse_line == float('-inf'), float('inf'), lse_line){spread}")
    t.add(f"delta = {t.line('delta', rows, '0.0')}{spread}")


def slopes_of(
    t: FlexText, scores: str, of_weights: str, partial: bool, indices: str, along: TritonTile
) -> tuple[str, str]:
    """The gradient of the scores before score_mod, as it is multiplied, and the weights."""
    changed, factor = t.changed(scores)
    seen = t.seen(partial, along)
    t.add(f"weights = {t.weights(changed, factor, 'lse')}")
    if seen:
        t.add(f"weights = {t.where(seen, 'weights', '0.0')}")
    t.add(f"slopes = weights * ({of_weights} - delta)")
    t.known(t.problem.reads(1), "slopes")
    made = t.full(t.e.value(t.problem.gradient))
    t.add(f"seen_slopes = {t.where(seen, t.narrowed(made), '0.0')}")
    t.hide(indices, along, {"weights": "tl.zeros_like(weights)", "seen_slopes": "tl.zeros_like(seen_slopes)"})
    return "seen_slopes", "weights"
