"""Fourier transforms and complex numbers."""

from tests.fuzz.writer import Writer, is_complex, is_real, kind, rank, words

NORMS = ("", "", ", norm='ortho'", ", norm='forward'")


@kind(0.6)
def transforms(w: Writer) -> None:
    """Along one dimension, of a length that may be shortened or padded."""
    x = w.tensor(rank(1))
    name = w.choice(*words("fft ifft rfft irfft hfft ihfft"))
    length = w.choice("", "", f", n={w.size(1, 6)}")
    w.emit(f"torch.fft.{name}({x}{length}, dim={w.dim(x)}{w.choice(*NORMS)})")


@kind(0.4)
def transforms_of_several_dimensions(w: Writer) -> None:
    x = w.tensor(rank(2))
    name = w.choice(*words("fft ifft rfft irfft hfft ihfft"))
    sizes = w.choice("", "", f", s=({w.size(1, 5)}, {w.size(1, 5)})")
    dims = ", ".join(map(str, w.rng.sample(range(w.value(x).dim()), 2)))
    dims = w.choice("", f", dim=({dims})")
    w.emit(f"torch.fft.{name}{w.choice('2', 'n')}({x}{sizes}{dims}{w.choice(*NORMS)})")


@kind(0.3)
def shifts(w: Writer) -> None:
    x = w.tensor(rank(1))
    w.emit(
        w.choice(
            f"torch.fft.{w.choice('fftshift', 'ifftshift')}({x}{w.choice('', f', {w.dim(x)}')})",
            f"torch.fft.{w.choice('fftfreq', 'rfftfreq')}({x}.shape[-1])",
            f"torch.stft({x}, {w.size(2, 4)}, window=torch.hann_window(4), return_complex=True)",
        )
    )


@kind(1)
def complex_parts(w: Writer) -> None:
    x = w.tensor(is_complex)
    w.emit(
        w.choice(
            *("{}.real", "{}.imag", "torch.view_as_real({})", "{}.conj()", "{}.abs()", "{}.angle()", "{}.sgn()"),
            *(
                "{}.conj_physical()",
                "{}.mH",
                "{0}.real * {0}.imag",
                "{0} * {0}.conj()",
                "torch.resolve_conj({}.conj())",
            ),
            *("{}.exp()", "{}.sqrt()", "{}.log()", "{}.tanh()", "{}.sin()", "{}.reciprocal()", "{} ** 2", "{} / 3j"),
            *("{}.square()", "1 / {}", "{} * 2j + 1", "{}.isnan()", "{}.isinf()", "{0} == {0}.conj()", "{}.sigmoid()"),
            *("{}.cumsum(-1)", "{}.cumprod(-1)", "{}.prod(-1)", "{}.mean()", "{}.var(-1)", "{}.std()", "{}.norm()"),
        ).format(x)
    )


@kind(0.6)
def complex_made(w: Writer) -> None:
    x, y = w.tensor(is_real), w.tensor(is_real)
    w.emit(
        w.choice(
            f"torch.complex({x}, {y})",
            f"torch.polar({x}, {y})",
            f"{x} * 1j",
            f"{x} + {y} * 1j",
            f"torch.view_as_complex({x}.unflatten(-1, (-1, 2)))",
            f"torch.view_as_complex(torch.stack([{x}, {x}.sin()], -1))",
            f"{x}.to(torch.complex64)",
            f"torch.where({x} > 0, {x} * 1j, {y})",
        )
    )
