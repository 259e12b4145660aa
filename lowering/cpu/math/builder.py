"""The ScalarBuilder that writes MLIR text: every value is a vector of `lanes` elements, or a scalar where lanes is 1.

    text = MlirFunctionText(CpuTarget(vector_bytes=32))
    body = []                                             # lines inside a loop
    b = VectorBuilder(text, body, torch.float32, lanes=16)
    y = b.mul(b.value("%x", torch.float32), b.constant(2.0))
    text.preamble                                         # lines at the top of the function: the constants
    text.declarations                                     # lines beside the function: external functions

A value is the text of its SSA name, and knows its dtype. Signed and unsigned integers are both signless in the text;
the dtype tells them apart. Booleans are i1.
"""

from mlirc.lowering.cpu.math.arithmetic import Arithmetic
from mlirc.lowering.cpu.math.functions import MATH
from mlirc.lowering.cpu.math.text import MlirFunctionText, Value, element_text, literal_text

__all__ = ["MlirFunctionText", "Value", "VectorBuilder", "element_text", "literal_text"]


class VectorBuilder(Arithmetic):
    """ScalarBuilder whose methods append lines; see the module. The elementary functions are those of functions.py."""

    def rem(self, x: Value, y: Value) -> Value:
        return MATH["fmod"](self, x, y) if x.dtype.is_floating_point else super().rem(x, y)

    exp = MATH["exp"]
    exp2 = MATH["exp2"]
    expm1 = MATH["expm1"]
    tanh = MATH["tanh"]
    cosh = MATH["cosh"]
    sinh = MATH["sinh"]
    log = MATH["log"]
    log2 = MATH["log2"]
    log10 = MATH["log10"]
    log1p = MATH["log1p"]
    sin = MATH["sin"]
    cos = MATH["cos"]
    tan = MATH["tan"]
    asin = MATH["asin"]
    acos = MATH["acos"]
    atan = MATH["atan"]
    atan2 = MATH["atan2"]
    asinh = MATH["asinh"]
    acosh = MATH["acosh"]
    atanh = MATH["atanh"]
    pow = MATH["pow"]
    erf = MATH["erf"]
    erfc = MATH["erfc"]
    fmod = MATH["fmod"]
