"""The error function, inline, of float32."""

from typing import TYPE_CHECKING

from mlirc.lowering.vector_math_exp import EXP2
from mlirc.lowering.vector_math_floats import nearest_integer, polynomial, scaled_normal

if TYPE_CHECKING:
    from mlirc.lowering.vector_builder import Value, VectorBuilder

# erf(x) / x - 1 in x^2, |x| <= 0.92, relative error of erf 2^-26
_NEAR = (
    -0.0006003801245242357,
    0.004995853640139103,
    -0.026768580079078674,
    0.11281877011060715,
    -0.3761250078678131,
    0.12837915122509003,
)
# log2(1 - erf(x)) / x in x, 0.92 <= x <= 3.95, error of erf 2^-28.3
_FAR = (
    0.00030871457420289516,
    -0.004638190846890211,
    0.033023200929164886,
    -0.15186068415641785,
    -0.917147696018219,
    -1.6281020641326904,
)


def erf(b: "VectorBuilder", x: "Value") -> "Value":
    """x (1 + P(x^2)) near 0; beyond, 1 - 2^(x Q(x)), which is 1 from 3.92 on."""
    size = b.abs(x)
    near = b.fma(size, polynomial(b, b.mul(x, x), _NEAR), size)
    bounded = b.minimum(size, b.constant(4.0))
    power = b.mul(bounded, polynomial(b, bounded, _FAR))
    n, shifted = nearest_integer(b, power, 1.0)
    far = b.sub(b.constant(1.0), scaled_normal(b, polynomial(b, b.sub(power, n), EXP2), n, shifted))
    return b.copysign(b.select(b.lt(size, b.constant(0.92)), near, far), x)
