"""Splits a dimension that a kernel divides by a constant, as a reshape does, in two, so that nothing is divided and each part has a
stride.

before:  parallel = "8, 768"      x at 64*(d1 % 64) + d1//64
after:   parallel = "8, 12, 64"   x at 64*d3 + d2
"""

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Expr, Int, symbol
from mlirc.lowering.kernel.nodes import Kernel, Linear, is_dim, linear_form, recompute_dims

SHORTEST = {"cpu": 4, "gpu": 5}  # parts of fewer elements would leave most lanes of a vector idle


def divide_axes(kernel: Kernel, kind: str) -> None:
    """Rewrites `kernel`, for this kind of target. A dimension stays if anything but `d // c` and `d % c`, with one constant c, is done to it."""
    if any(n.kind == "scan" for n in kernel.nodes):
        return
    linears = [a.address for a in kernel.accesses] + [n.size for n in kernel.nodes if n.size]
    divisors: dict[str, set[int | None]] = {}
    for linear in linears:
        _collect(linear.rest, divisors)
    names = {d: found.pop() for d, found in divisors.items() if len(found) == 1}
    fresh = 1 + max((int(d[1:]) for d in (*kernel.parallel, *kernel.inner)), default=0)
    values: dict[str, Int] = {}
    ranges: dict[str, Int] = {}
    for sizes in (kernel.parallel, kernel.inner):
        for d, size in list(sizes.items()):
            divisor = names.get(d)
            if divisor is None or divisor < SHORTEST[kind] or symbols.mod(size, divisor) != 0:
                continue
            quotient, remainder = f"d{fresh}", f"d{fresh + 1}"
            fresh += 2
            values[d] = symbol(quotient) * divisor + symbol(remainder)
            ranges[remainder] = divisor
            _replace(sizes, d, {quotient: symbols.floordiv(size, divisor), remainder: divisor})
    if values:
        dims = frozenset(kernel.parallel) | frozenset(kernel.inner)
        for linear in linears:
            _rewrite(linear, values, ranges, dims)
        recompute_dims(kernel)


def _collect(value: Int, divisors: dict[str, set[int | None]]) -> None:
    """Adds the constant that each dimension in the terms of `value` is divided by, None for anything else done to it."""
    if isinstance(value, int):
        return
    for monomial in value.terms:
        for atom in monomial:
            if isinstance(atom, str):
                if is_dim(atom):
                    divisors.setdefault(atom, set()).add(None)
                continue
            name, x, y = atom
            plain = name in ("floordiv", "mod") and isinstance(x, Expr) and str(x).isidentifier()
            for d in symbols.free_symbols(x) | symbols.free_symbols(y):
                if is_dim(d):
                    divisors.setdefault(d, set()).add(y if plain and isinstance(y, int) else None)


def _replace(sizes: dict[str, Int], d: str, parts: dict[str, Int]) -> None:
    items = [item for name, size in sizes.items() for item in (parts.items() if name == d else [(name, size)])]
    sizes.clear()
    sizes.update((name, size) for name, size in items if size != 1)


def _rewrite(linear: Linear, values: dict[str, Int], ranges: dict[str, Int], dims: frozenset[str]) -> None:
    total = symbols.substitute(linear.rest, values, ranges)
    for d, stride in linear.strides.items():
        total = total + values.get(d, symbol(d)) * stride
    made = linear_form(total, dims)
    linear.strides, linear.rest = made.strides, made.rest
