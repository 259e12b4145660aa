"""Linear algebra of matrices that are well conditioned, for what a decomposition does not leave open: no signs of its vectors."""

import torch

from tests.fuzz.writer import COMPLEX, NoLine, Writer, kind, rank, words

ORDERS = words("2 1 0 3 0.5 -1 -2 inf -inf")
SQUARE = words(
    """
    linalg.det logdet linalg.inv inverse linalg.matrix_exp linalg.cond linalg.pinv linalg.eigvalsh linalg.svdvals linalg.cholesky
    linalg.matrix_rank trace linalg.matrix_norm cholesky_inverse
    """
)
DTYPES = (torch.float32, torch.float64, *COMPLEX)


def matrices(w: Writer, low: int = 1) -> str:
    """The name of matrices of finite numbers, of `low` dimensions or more. LAPACK gives anything for others, and prints."""
    x = w.tensor(rank(low, 4), lambda x: x.dtype in DTYPES)
    if not all(eval(x, env).isfinite().all() for env in w.envs):
        raise NoLine
    return x


def well_conditioned(w: Writer, x: str) -> str:
    """A matrix, or several, whose eigenvalues are positive, as an expression."""
    shape = w.value(x).shape
    if shape[-1] > 17:
        raise NoLine
    rows = x if len(shape) > 1 else f"{x}[None]"
    size = f"{x}.shape[-1]"
    of = f"({rows}.mH @ {rows})"
    return f"({of} / 2 + torch.diag(torch.arange(1, {size} + 1, dtype={x}.dtype) * 0.7))"


@kind(0.5)
def of_square_matrices(w: Writer) -> None:
    x = matrices(w)
    a = well_conditioned(w, x)
    name = w.choice(*SQUARE)
    if name == "linalg.matrix_norm":
        order = w.choice("'fro'", "'nuc'", "2", "-2", "1", "-1", "float('inf')", "-float('inf')")
        w.emit(f"torch.linalg.matrix_norm({a}, {order}{w.choice('', ', keepdim=True')})")
    elif name == "linalg.cond":
        w.emit(f"torch.linalg.cond({a}{w.choice('', ', 1', ', 2', ', -2', chr(44) + ' ' + repr('fro'))})")
    else:
        w.emit(f"torch.{name}({a})")


@kind(0.4)
def of_matrices(w: Writer) -> None:
    """Of any shape: powers, norms, products of more than two."""
    x = matrices(w, 2)
    w.emit(
        w.choice(
            f"torch.linalg.matrix_norm({x}, {w.choice(repr('fro'), 1, -1)}, dim=({w.choice('0, 1', '-2, -1', '-1, 0')}))",
            f"torch.linalg.pinv({x}, rtol=1e-3)",
            f"torch.linalg.matrix_power({well_conditioned(w, x)}, {w.choice(-2, -1, 0, 1, 2, 3)})",
            f"torch.linalg.multi_dot([{x}, {x}.mT, {x}])",
            f"torch.chain_matmul({x}, {x}.mT, {x})",
            f"torch.tril({x}, {w.integer()})",
            f"torch.triu({x}, {w.integer()})",
            f"torch.diagonal({x}, {w.choice(0, 1, -1)}, {w.choice('0, 1', '-1, -2')})",
            f"torch.diag_embed({x}, {w.choice(0, 1, -1)})",
            f"torch.linalg.vecdot({x}, {x}.flip(-1))",
            f"torch.cov({x})",
            f"torch.corrcoef({x})",
            f"torch.linalg.svdvals({x})",
        )
    )


@kind(0.3)
def vector_norms(w: Writer) -> None:
    x = w.tensor()
    dtype = w.choice("", "", "", ", dtype=torch.float64", ", dtype=torch.float32", ", dtype=torch.complex128")
    order = w.choice(*ORDERS)
    order = f"float('{order}')" if "inf" in order else order
    dims = w.choice("", f", dim={w.dim(x)}", ", dim=(0, -1)", ", keepdim=True")
    w.emit(f"torch.linalg.vector_norm({x}, {order}{dims}{dtype})")


@kind(0.5)
def several_results(w: Writer) -> None:
    x = matrices(w)
    a = well_conditioned(w, x)
    w.emit(
        w.choice(
            f"torch.linalg.slogdet({a})",
            f"torch.linalg.inv_ex({a}).inverse",
            f"torch.linalg.cholesky_ex({a}).L",
            f"torch.linalg.qr({a}).R.abs()",
            f"torch.linalg.eigh({a}).eigenvalues",
            f"torch.linalg.lu_factor({a})",
            f"torch.linalg.lu({a})",
            f"torch.linalg.ldl_factor({a})",
        )
    )


@kind(0.3)
def composed_again(w: Writer) -> None:
    """A matrix from what it was decomposed into."""
    x, name = matrices(w), w.fresh()
    a = well_conditioned(w, x)
    w.do(
        w.choice(
            f"{name}_q, {name}_r = torch.linalg.qr({a})\n{name} = {name}_q @ {name}_r",
            f"{name}_v, {name}_e = torch.linalg.eigh({a})\n{name} = {name}_e * {name}_v.sqrt().unsqueeze(-2) @ {name}_e.mH",
            f"{name}_u, {name}_s, {name}_v = torch.linalg.svd({x}, full_matrices=False)\n{name} = {name}_u * {name}_s[..., None, :] @ {name}_v",
            f"{name}_l = torch.linalg.cholesky({a})\n{name} = {name}_l @ {name}_l.mH",
        ),
        (name,),
    )


@kind(0.5)
def solutions(w: Writer) -> None:
    x = matrices(w)
    a = well_conditioned(w, x)
    shape = w.value(x).shape
    b = w.choice(f"tensor(({shape[-1]}, {w.choice(0, 1, 3)}), {w.value(x).dtype}, {w.rng.randrange(99)})", f"{x}.mT", x)
    upper, left = w.choice("True", "False"), w.choice("True", "False")
    w.emit(
        w.choice(
            f"torch.linalg.solve({a}, {b})",
            f"torch.linalg.solve({a}, {b}, left={left})",
            f"torch.linalg.solve_triangular({a}.triu(), {b}, upper=True, left={left})",
            f"torch.linalg.solve_triangular({a}, {b}, upper={upper}, unitriangular={w.choice('True', 'False')})",
            f"torch.linalg.lstsq({a}, {b}).solution",
            f"torch.cholesky_solve({b}, torch.linalg.cholesky({a}))",
            f"torch.linalg.lu_solve(*torch.linalg.lu_factor({a}), {b})",
            f"torch.linalg.tensorsolve({a}, {x})",
        )
    )
