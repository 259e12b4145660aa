"""Modified Bessel functions of the first kind, of orders 0 and 1, as they are and divided by exp(|x|).

Up to 8 the power series, whose terms have one sign. From there on exp(|x|) / sqrt(|x|) times a polynomial in 16 / |x| - 1, which was
interpolated at Chebyshev's points to a relative error of 1e-10 (float32) and 3e-17 (float64).
"""

import math

import torch

from mlirc.dialects.ops.elementwise.exponential import FloatUnary
from mlirc.dialects.ops.elementwise.special import polynomial

aten = torch.ops.aten

LARGE = 8.0
# of order 0 and 1: sqrt(x) * exp(-x) * I(x) in 16 / x - 1 for x >= 8, the highest power first
TAIL = {
    torch.float32: (
        [3.161985528e-08, 1.086794248e-07, 3.073322917e-07, 1.476115734e-06, 1.113981566e-05, 0.0001362171642, 0.003360552242,
         0.4021765094],
        [-3.577435816e-08, -1.227321724e-07, -3.584298887e-07, -1.825690732e-06, -1.503526803e-05, -0.0002192371254,
         -0.009749577458, 0.3893984591],
    ),
    torch.float64: (
        [9.36508689281819e-11, 3.629355229718733e-11, -6.633287112547084e-10, -2.8033819978869995e-10, 2.1968921378829006e-09,
         1.1050558794424347e-09, -4.575553424534973e-09, -3.1346276429240787e-09, 6.560138746917057e-09, 7.3359687108161536e-09,
         -5.0381064879032845e-09, -1.3326094405766387e-08, -6.8493381882867694e-09, 7.534355843803342e-09, 2.1566251453104354e-08,
         3.932889375114634e-08, 8.872034383314144e-08, 2.973596046562712e-07, 1.4838476651250266e-06, 1.1143033800708978e-05,
         0.00013621607438984735, 0.0033605519836677504, 0.4021765094450081],
        [-9.752397204138195e-11, -3.365431853180176e-11, 6.917089294193807e-10, 2.6340771095136483e-10, -2.297004161885201e-09,
         -1.0594544160443166e-09, 4.810597405089944e-09, 3.086886736722725e-09, -6.983839624895866e-09, -7.44444147719727e-09,
         5.59337010179061e-09, 1.3958551001385955e-08, 6.8401389977069586e-09, -8.409182040442918e-09, -2.339250374801858e-08,
         -4.313196489977733e-08, -1.000109565963654e-07, -3.4838534380376333e-07, -1.8349102358955385e-06, -1.5038547209501858e-05,
         -0.0002192357638317243, -0.009749577193235635, 0.38939845902587233],
    ),
}  # fmt: skip
# of order 0 and 1: I(x) / (x / 2)**order in (x / 2)**2
SERIES = {
    dtype: tuple(
        [1 / (math.factorial(k) * math.factorial(k + order)) for k in reversed(range(terms))] for order in (0, 1)
    )
    for dtype, terms in ((torch.float32, 16), (torch.float64, 22))
}


def modified_bessel(b, x, order: int, scaled: bool):
    """I of `order` 0 or 1, times exp(-|x|) if `scaled`. NaN at infinities unless scaled, and 0.0 at -0.0 of order 1, as in eager."""
    size, half = b.abs(x), b.mul(x, b.constant(0.5))
    near = polynomial(b, b.mul(half, half), SERIES[b.dtype][order])
    tail = polynomial(b, b.sub(b.div(b.constant(16.0), size), b.constant(1.0)), TAIL[b.dtype][order])
    tail = b.div(tail, b.sqrt(size))
    exp = b.exp(b.neg(size) if scaled else size)
    if order == 1:
        near = b.mul(near, b.abs(half))
    near, far = (b.mul(near, exp), tail) if scaled else (near, b.mul(tail, exp))
    result = b.select(b.ge(size, b.constant(LARGE)), far, near)
    return b.select(b.lt(x, b.constant(0.0)), b.neg(result), result) if order == 1 else result


class BesselI0(FloatUnary, name="i0", aten=(aten.i0.default, aten.special_i0.default)):
    reference = staticmethod(torch.special.i0)
    scalar = staticmethod(lambda b, x: modified_bessel(b, x, 0, scaled=False))


class BesselI0e(FloatUnary, name="i0e", aten=(aten.special_i0e.default,)):
    reference = staticmethod(torch.special.i0e)
    scalar = staticmethod(lambda b, x: modified_bessel(b, x, 0, scaled=True))


class BesselI1(FloatUnary, name="i1", aten=(aten.special_i1.default,)):
    reference = staticmethod(torch.special.i1)
    scalar = staticmethod(lambda b, x: modified_bessel(b, x, 1, scaled=False))


class BesselI1e(FloatUnary, name="i1e", aten=(aten.special_i1e.default,)):
    reference = staticmethod(torch.special.i1e)
    scalar = staticmethod(lambda b, x: modified_bessel(b, x, 1, scaled=True))
