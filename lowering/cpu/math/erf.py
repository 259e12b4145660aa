"""The error function of float32, inline, and the normal distribution function Phi, which GELU needs.

AVX-512 and AVX2 look up an entry of a table in registers for each lane, by one instruction (`permuted`). There both functions are a
polynomial for each interval of |x|, whose coefficients come from tables of as many entries as there are lanes. Elsewhere erf is two
polynomials, which take 1.5 to 2 times as long, and there is no Phi. erf is right to a relative error; Phi to an absolute one, beside 1/2,
which takes 2/3 of the operations.
"""

import torch

from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.cpu.math.arithmetic import Arithmetic
from mlirc.lowering.cpu.math.exp import EXP2
from mlirc.lowering.cpu.math.floats import (
    ROUNDING,
    nearest_integer,
    permuted,
    picks_eight,
    polynomial,
    scaled_normal,
    uses_avx512,
)
from mlirc.lowering.cpu.math.text import Value

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


@dataclass(frozen=True)
class Tables:
    """A function f of x >= 0, constant from `end` on. Entry k of a table is for the interval around k * width.

    f(x) = v + t (s + P(t)) with t = x - c. The center c is chosen near k * width so that v = f(c) is nearly a float32: rounding it
    changes it by 2^-28 at most. In the first interval of erf, v is t in place of a number, and s is less by 1.

    centers        c
    values         v
    coefficients   of t: a table for each power, from the highest of P down to the slope s
    """

    width: float
    end: float
    centers: tuple[float, ...]
    values: tuple[float, ...]
    coefficients: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class HalfTables:
    """Phi(|x|) - 1/2. Entry k of a table is for the interval around k * width: a polynomial in |x| / width - k.

    coefficients   a table for each power, from the constant up. The last interval is half as long; at its end the value is 1/2 exactly
    """

    width: float
    coefficients: tuple[tuple[float, ...], ...]


# fmt: off
# Relative error 2^-25.1 at most; 1.25 units in the last place with all roundings, 0.25 on average.
_SIXTEEN = Tables(
    width=33 / 128,
    end=3.9921875,
    centers=(
        0.0, 0.25800609588623047, 0.513655960559845, 0.7748551368713379,
        1.0303477048873901, 1.2873083353042603, 1.547534704208374, 1.805709719657898,
        2.0643563270568848, 2.319023370742798, 2.577894926071167, 2.835939884185791,
        3.095672369003296, 3.351111650466919, 3.607375144958496, 3.865187644958496,
    ),
    values=(
        0.0, 0.2847958207130432, 0.5324181914329529, 0.7268383502960205,
        0.854919970035553, 0.9313215017318726, 0.9713700413703918, 0.9893402457237244,
        0.996493399143219, 0.9989604353904724, 0.9997333288192749, 0.9999394416809082,
        0.9999880194664001, 0.9999978542327881, 0.9999996423721313, 0.9999999403953552,
    ),
    coefficients=(
        (
            0.11095456779003143, 0.07902828603982925, 0.003439074382185936, -0.0560854971408844,
            -0.06771957129240036, -0.04208867624402046, -0.00985775887966156, 0.00901379156857729,
            0.012925876304507256, 0.009374862536787987, 0.004901570733636618, 0.002016184153035283,
            0.0006769142346456647, 0.00018920683942269534, 0.0003339370305184275, 0.00014992761134635657,
        ),
        (
            0.000289406772935763, 0.12919841706752777, 0.1822982281446457, 0.14328545331954956,
            0.0589408352971077, -0.014003850519657135, -0.0470891147851944, -0.04572119936347008,
            -0.030253741890192032, -0.015690496191382408, -0.0065419794991612434, -0.0022734743542969227,
            -0.0006601226050406694, -0.00016656563093420118, -0.0006387417670339346, -0.00040692719630897045,
        ),
        (
            -0.37614190578460693, -0.30507713556289673, -0.13645584881305695, 0.04142234846949577,
            0.14613193273544312, 0.1659793257713318, 0.12997986376285553, 0.07967505604028702,
            0.03989913687109947, 0.016944395378232002, 0.006008857861161232, 0.0018239138880744576,
            0.00047044717939570546, 0.00010709000343922526, 1.859398980741389e-05, 2.3670158952882048e-06,
        ),
        (
            2.850659370778885e-07, -0.272375226020813, -0.4451807141304016, -0.47964775562286377,
            -0.4021477997303009, -0.27697786688804626, -0.1592300683259964, -0.07817217707633972,
            -0.032844554632902145, -0.012082810513675213, -0.003780631348490715, -0.001028608065098524,
            -0.00024053221568465233, -5.016153954784386e-05, 9.293486300521181e-07, 5.1783777053060476e-06,
        ),
        (
            0.12837916612625122, 1.0557117462158203, 0.8667019009590149, 0.6190196871757507,
            0.3903021216392517, 0.21515846252441406, 0.10289137065410614, 0.04329121857881546,
            0.015910359099507332, 0.005210458766669035, 0.001466671354137361, 0.00036275904858484864,
            7.771987293381244e-05, 1.4974477380746976e-05, 2.5171752895403188e-06, 3.6663709579443093e-07,
        ),
    ),
)
# Relative error 2^-27.9 at most; 0.8 units in the last place with all roundings, 0.25 on average.
_EIGHT = Tables(
    width=67 / 128,
    end=3.925,
    centers=(
        0.0, 0.5259499549865723, 1.0427980422973633, 1.5676158666610718,
        2.093675374984741, 2.6167500019073486, 3.1488184928894043, 3.655062675476074,
    ),
    values=(
        0.0, 0.5430058836936951, 0.8597173094749451, 0.9733730554580688,
        0.9969326257705688, 0.9997849464416504, 0.9999915361404419, 0.9999997615814209,
    ),
    coefficients=(
        (
            -0.029989786446094513, 0.006408120505511761, 0.013206453993916512, -0.005495214834809303,
            -0.002266081515699625, 0.0006517907604575157, 0.000257053499808535, -0.00021866022143512964,
        ),
        (
            0.0033033175859600306, -0.04771668091416359, 0.008227875456213951, 0.016642063856124878,
            -0.001182411564514041, -0.0022791759110987186, -0.0004233719955664128, 0.0002712305577006191,
        ),
        (
            0.1117309182882309, -0.00030271513969637454, -0.06743703782558441, -0.007531515788286924,
            0.012799239717423916, 0.004331533331423998, 0.0005144858732819557, 4.9911875976249576e-05,
        ),
        (
            0.00016263009456451982, 0.18348677456378937, 0.05457141622900963, -0.04834679141640663,
            -0.02835015207529068, -0.0055908686481416225, -0.0004920454230159521, -5.7072109484579414e-05,
        ),
        (
            -0.37613698840141296, -0.12742967903614044, 0.14895524084568024, 0.12612612545490265,
            0.036463987082242966, 0.005071964580565691, 0.00035007460974156857, 1.5050678484840319e-05,
        ),
        (
            2.517076040930988e-07, -0.4500524401664734, -0.3966355621814728, -0.1515134572982788,
            -0.02948787435889244, -0.003136442042887211, -0.00017561549611855298, -5.697522738046246e-06,
        ),
        (
            0.12837916612625122, 0.8556951284408569, 0.3803567886352539, 0.09665210545063019,
            0.014084303751587868, 0.0011986034223809838, 5.576980402111076e-05, 1.7804013623390347e-06,
        ),
    ),
)
# Phi(-x), x >= 0, of which 0 is left from `end` on: the last center. Error 2^-26 at most but near the end, where it is 1e-8 as in
# eager, whose 1 + erf(x) has 24 bits; GELU's error is 0.4 times eager's on normal numbers.
_NORMAL = Tables(
    width=0.8,
    end=5.599999904632568,
    centers=(
        0.0, 0.7999275326728821, 1.600733757019043, 2.3966729640960693,
        3.19935941696167, 4.001891136169434, 4.797362804412842, 5.599999904632568,
    ),
    values=(
        0.5, 0.21187639236450195, 0.05471795052289963, 0.008272341452538967,
        0.0006886667106300592, 3.14191056531854e-05, 8.038412602218159e-07, 0.0,
    ),
    coefficients=(
        (
            0.0015862014843150973, 0.002808115677908063, -0.0009332725894637406, -0.0007061256328597665,
            0.00017448447761125863, 8.384379179915413e-05, 8.90758110472234e-06, 0.003493238240480423,
        ),
        (
            -0.01082622166723013, 0.0009152075508609414, 0.005248487461358309, -0.0002112227666657418,
            -0.0009154677973128855, -0.00018795354117173702, -1.4392726370715536e-05, 0.0039111413061618805,
        ),
        (
            0.00022826892381999642, -0.02277935855090618, -0.0032412810251116753, 0.006184919737279415,
            0.0023055188357830048, 0.00028804398607462645, 1.600069117557723e-05, 0.0015848196344450116,
        ),
        (
            0.0664592757821083, 0.017397601157426834, -0.028839895501732826, -0.0178547203540802,
            -0.0036779821384698153, -0.0003318226954434067, -1.4623123206547461e-05, 0.0002740824711509049,
        ),
        (
            1.9573983536247397e-06, 0.11587250977754593, 0.0886734127998352, 0.027051212266087532,
            0.003821566002443433, 0.0002657758886925876, 9.624423000786919e-06, 1.7542541172588244e-05,
        ),
        (
            -0.39894232153892517, -0.28970852494239807, -0.11079083383083344, -0.022573817521333694,
            -0.00238896906375885, -0.00013283257430884987, -4.0136474126484245e-06, -3.3835469537280005e-08,
        ),
    ),
)
# Phi(|x|) - 1/2, error 2^-26; exactly 1/2 from 5.6 on, which is off by 1e-8 as eager's. GELU's error is 0.47 times eager's on
# AVX2, about that of eager's own on AVX-512, whose erf is better.
_NORMAL_SIXTEEN = HalfTables(
    width=5.6 / 15,
    coefficients=(
        (
            0.0, 0.14554981887340546, 0.27236759662628174, 0.3686431050300598,
            0.4323250353336334, 0.4690259099006653, 0.48745453357696533, 0.4955168068408966,
            0.49858981370925903, 0.4996102750301361, 0.499905526638031, 0.4999799430370331,
            0.49999627470970154, 0.49999940395355225, 0.49999991059303284, 0.5,
        ),
        (
            0.14893844723701477, 0.13891249895095825, 0.11270543187856674, 0.07954581826925278,
            0.04883810877799988, 0.026083707809448242, 0.012118498794734478, 0.004897758364677429,
            0.0017219274304807186, 0.0005266248481348157, 0.00014010602899361402, 3.242510138079524e-05,
            6.527920504595386e-06, 1.1432398423494305e-06, 1.741681927569516e-07, 1.0827724281625706e-06,
        ),
        (
            9.411128587544226e-08, -0.009680553339421749, -0.01570827141404152, -0.016629831865429878,
            -0.013614339753985405, -0.009088393300771713, -0.005067086778581142, -0.002389170927926898,
            -0.0009599538170732558, -0.00032988391467370093, -9.787231829250231e-05, -2.527896322135348e-05,
            -5.674190106219612e-06, -1.3822806295138435e-06, -7.136043933542169e-08, 1.6891042832867242e-05,
        ),
        (
            -0.003460469888523221, -0.002777070039883256, -0.001158553408458829, 0.0004700167046394199,
            0.0013954545138403773, 0.0015053673414513469, 0.001131001627072692, 0.0006632479489780962,
            0.0003168072726111859, 0.00012587553646881133, 4.2106541513931006e-05, 1.1948970495723188e-05,
            2.891531948989723e-06, 5.988777047605254e-07, 1.0644847492358167e-07, 9.464351023780182e-05,
        ),
        (
            2.0620911982405232e-06, 0.00031948211835697293, 0.00044219481060281396, 0.0003340928233228624,
            0.00012394993973430246, -5.1514518418116495e-05, -0.00011830648145405576, -0.00010631207987898961,
            -6.623842637054622e-05, -3.3590298698982224e-05, -1.1562355211935937e-05, -2.360210601182189e-06,
            -2.3997563403099775e-07, 1.1310961554045207e-06, -4.424937856128963e-07, 0.00021615713194478303,
        ),
        (
            6.99598022038117e-05, 4.873793659498915e-05, -2.9473022777892766e-07, -3.759493847610429e-05,
            -4.253088991390541e-05, -2.4349550585611723e-05, -3.900836418324616e-06, 6.7837654569302686e-06,
            8.065557267400436e-06, 5.3490007303480525e-06, 2.588657025626162e-06, 9.858844123300514e-07,
            3.0547678875336715e-07, 7.842469784691275e-08, 1.6872387931243793e-08, 0.0001728709612507373,
        ),
    ),
)
# fmt: on


def erf(b: Arithmetic, x: Value) -> Value:
    """erf(x) of float32, within 1.5 units in the last place."""
    size, tables = b.abs(x), _tables(b)
    return b.copysign(_by_tables(b, size, tables) if tables else _by_two_polynomials(b, size), x)


def _tables(b: Arithmetic) -> Tables | None:
    """The tables of as many entries as there are lanes; None where no instruction looks up an entry for each lane."""
    if uses_avx512(b):
        return _SIXTEEN
    return _EIGHT if picks_eight(b) else None


def _by_tables(b: Arithmetic, size: Value, tables: Tables) -> Value:
    """erf(size) for size >= 0."""
    size = b.minimum(size, b.constant(tables.end))
    nearest, shifted = nearest_integer(b, size, 1 / tables.width)
    number = b.bitcast(shifted, torch.int32)
    t = b.sub(size, permuted(b, tables.centers, number))
    slope = permuted(b, tables.coefficients[0], number)
    for table in tables.coefficients[1:]:
        slope = b.fma(slope, t, permuted(b, table, number))
    first = b.lt(nearest, b.constant(0.5))  # not of `size`, which may lie on the other side of where that was rounded
    return b.fma(slope, t, b.select(first, t, permuted(b, tables.values, number)))


def _by_two_polynomials(b: Arithmetic, size: Value) -> Value:
    """erf(size) for size >= 0: x (1 + P(x^2)) near 0; beyond, 1 - 2^(x Q(x)), which is 1 from 3.92 on."""
    near = b.fma(size, polynomial(b, b.mul(size, size), _NEAR), size)
    bounded = b.minimum(size, b.constant(4.0))
    power = b.mul(bounded, polynomial(b, bounded, _FAR))
    n, shifted = nearest_integer(b, power, 1.0)
    far = b.sub(b.constant(1.0), scaled_normal(b, polynomial(b, b.sub(power, n), EXP2), n, shifted))
    return b.select(b.lt(size, b.constant(0.92)), near, far)


def has_normal(b: Arithmetic) -> bool:
    """Whether one instruction looks up a number for each lane."""
    return picks_eight(b) or uses_avx512(b)


def normal(b: Arithmetic, x: Value) -> Value:
    """Phi(x) of float32, within 2^-25, where `has_normal`."""
    if uses_avx512(b):
        return _normal_by_half_tables(b, x, _NORMAL_SIXTEEN)
    below = _normal_below(b, b.minimum(b.abs(x), b.constant(_NORMAL.end)))
    negative = b.lt(b.bitcast(x, torch.int32), b.constant(0, torch.int32))
    return b.select(negative, below, b.sub(b.constant(1.0), below))


def _normal_by_half_tables(b: Arithmetic, x: Value, tables: HalfTables) -> Value:
    """Phi(x) = 1/2 + sign(x) (Phi(|x|) - 1/2). The sign is put back as a bit."""
    last = len(tables.coefficients[0]) - 1.0
    places = b.minimum(b.abs(b.mul(x, b.constant(1 / tables.width))), b.constant(last))
    shifted = b.add(places, b.constant(ROUNDING))
    t = b.sub(places, b.sub(shifted, b.constant(ROUNDING)))
    number = b.bitcast(shifted, torch.int32)
    value, *coefficients = (permuted(b, table, number) for table in tables.coefficients)
    squared, slope = b.mul(t, t), coefficients.pop()
    for low, high in reversed(list(zip(coefficients[::2], coefficients[1::2], strict=True))):
        slope = b.fma(slope, squared, b.fma(high, t, low))
    half = b.bitcast(b.fma(slope, t, value), torch.int32)
    sign = b.and_(b.bitcast(x, torch.int32), b.constant(-(1 << 31), torch.int32))
    return b.add(b.bitcast(b.or_(half, sign), torch.float32), b.constant(0.5))


def _normal_below(b: Arithmetic, x: Value) -> Value:
    """Phi(-x) for 0 <= x <= _NORMAL.end. The polynomial is evaluated in t^2, two terms at a time: fewer operations wait for one another."""
    _, shifted = nearest_integer(b, x, 1 / _NORMAL.width)
    number = b.bitcast(shifted, torch.int32)
    t = b.sub(x, permuted(b, _NORMAL.centers, number))
    squared = b.mul(t, t)
    result, *others = (permuted(b, table, number) for table in (*_NORMAL.coefficients, _NORMAL.values))
    for high, low in zip(others[::2], others[1::2], strict=True):
        result = b.fma(result, squared, b.fma(high, t, low))
    return result
