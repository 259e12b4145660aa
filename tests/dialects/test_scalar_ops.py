"""Every scalar op of the registry: its body, run on torch tensors, against eager, at special values too."""

import math

import mpmath
import pytest
import torch

from mlirc.dialects.core.context import context
from mlirc.dialects.core.dialect import IMPORTS, OPS, Binary, Elementwise, Ternary, Unary, load_ops
from mlirc.dialects.core.scalar_builder import TorchBuilder
from mlirc.dialects.core.tensor_types import KERNEL_DTYPES, opmath
from mlirc.dialects.ops.elementwise.activation_backward import Gradient
from tests.compare_stages import prepare

load_ops()
FLOATS = (torch.float64, torch.float32)
HALVES = (torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
COMPUTED = (*FLOATS, *INTEGERS, torch.bool)
APART = ("cast", "bitcast", "philox_uniform")  # the last one: tests/triton/random/test_random_numbers.py
SCALAR_OPS = sorted(name for name, cls in OPS.items() if issubclass(cls, Elementwise) and name not in APART)
DIVISIONS = ("floor_divide", "trunc_divide", "remainder", "fmod")
# In eager, which zero these give depends on the position in the tensor (vector or tail), for gelu on the processor; lerp's may vanish.
EITHER_ZERO = ("maximum", "minimum", "fmax", "fmin", "clamp", "relu", "gelu", "lerp")


def erfcx(x: float) -> mpmath.mpf:
    """The first term of its series is all there is to see of large numbers, which mpmath.erfc does not take."""
    return 1 / (x * mpmath.sqrt(mpmath.pi)) if x > 1e20 else mpmath.exp(mpmath.mpf(x) ** 2) * mpmath.erfc(x)


# Of these eager loses digits in float64, too: of digamma below a negative integer, of erfcx those of the rounded x * x.
EXACT = {OPS["digamma"]: mpmath.digamma, OPS["erfcx"]: erfcx}


def arity(cls: type) -> int:
    return 1 if issubclass(cls, Unary) else 2 if issubclass(cls, Binary) else 3


def values(dtype: torch.dtype, randoms: int) -> torch.Tensor:
    """Special values of a dtype, then random ones."""
    generator = torch.Generator().manual_seed(7)
    if dtype == torch.bool:
        return torch.tensor([False, True])
    if dtype.is_floating_point:
        limits = torch.finfo(dtype)
        special = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, -3.0, 6.0, 20.5, 90.0, -104.0, math.inf, -math.inf, math.nan]
        special += [limits.max, limits.min, limits.tiny, *subnormals(dtype), 1e-5, -1e4]
        random = torch.randn(randoms, generator=generator, dtype=torch.float64) * 3
        return torch.cat([torch.tensor(special, dtype=torch.float64), random]).to(dtype)
    limits = torch.iinfo(dtype)
    special = [0, 1, 2, 3, 7, 64, limits.max, limits.min, limits.max - 1, *([-1, -2, -7, -100] if limits.min else [])]
    random = torch.randint(limits.min, limits.max, (randoms,), generator=generator, dtype=dtype)
    return torch.cat([torch.tensor(special, dtype=dtype), random])


def subnormals(dtype: torch.dtype) -> list[float]:
    limits = torch.finfo(dtype)
    least = limits.tiny * limits.eps
    return [least, -least, 3 * least, limits.tiny / 100, -limits.tiny / 2]


def is_small(x: torch.Tensor) -> torch.Tensor:
    """Which numbers are subnormal, or the least that is not."""
    if not x.dtype.is_floating_point:
        return torch.zeros_like(x, dtype=torch.bool)
    return (x != 0) & (x.abs() <= torch.finfo(x.dtype).tiny)


def operands(cls: type, name: str, dtype: torch.dtype) -> list[torch.Tensor]:
    """All combinations of values for the operands, whose dtypes are as `computes` says."""
    count = arity(cls)
    words = cls.computes if isinstance(cls.computes, tuple) else (cls.computes,) * count
    grids = [values(torch.bool if word == "bool" else dtype, (300, 30, 3)[count - 1]) for word in words]
    if name in DIVISIONS and dtype in INTEGERS:
        grids[1] = grids[1][(grids[1] != 0) & (grids[1] != -1)]  # rules see to 0; lowest / -1 traps in eager
    if name == "xlog1py":  # eager's vectors give log1p of the least number as 0
        grids[1] = grids[1][~is_small(grids[1])]
    if name == "lerp" and dtype.is_floating_point:
        grids = [
            grid[grid.abs() < 1e4] for grid in grids
        ]  # eager multiplies and adds at once, without overflow between
    shape = tuple(map(len, grids))
    return [
        grid.view([-1 if e == d else 1 for e in range(count)]).expand(shape).contiguous()
        for d, grid in enumerate(grids)
    ]


def dtypes_of(cls: type) -> tuple[torch.dtype, ...]:
    if cls.computes == "bool":
        return (torch.bool,)
    return FLOATS if cls.computes == "float" else COMPUTED


def reference(cls: type, args: list[torch.Tensor]) -> torch.Tensor | None:
    """What eager gives, None where it refuses the dtype."""
    try:
        return cls.reference(*args)
    except (RuntimeError, NotImplementedError):
        return None


def exact(cls: type, args: list[torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    """The reference in float64, rounded to `dtype`: the better answer where eager itself rounds on the way."""
    wide = [x.double() if x.dtype.is_floating_point else x for x in args]
    result = cls.reference(*wide)
    if cls in EXACT:
        finite = torch.isfinite(result)
        numbers = zip(*(x[finite].tolist() for x in wide), strict=True)
        with mpmath.workdps(30):
            result[finite] = torch.tensor([float(EXACT[cls](*xs)) for xs in numbers], dtype=torch.float64)
    return result.to(dtype) if result.dtype.is_floating_point else result


def assert_same(name: str, got: torch.Tensor, args: list[torch.Tensor], tolerance: float) -> None:
    """`got` is eager's result, or nearer to the exact one."""
    cls = OPS[name]
    eager = cls.reference(*args)
    got = got.expand(eager.shape)
    if not eager.dtype.is_floating_point:
        torch.testing.assert_close(got, eager, rtol=0, atol=0)
        return
    # what a gradient's slope loses near its roots is multiplied by the gradient that comes in
    scale = args[0].abs().clamp(1.0, torch.finfo(eager.dtype).max) if issubclass(cls, Gradient) else 1.0
    same = torch.zeros(eager.shape, dtype=torch.bool)
    limits = torch.finfo(eager.dtype)
    small = torch.stack([is_small(x).expand(eager.shape) for x in args]).any(0)
    least = torch.tensor(4 * limits.tiny * limits.eps, dtype=torch.float64)
    absolute = torch.where(small, least, torch.as_tensor(tolerance * scale, dtype=torch.float64))
    for answer in (eager, exact(cls, args, eager.dtype)):
        same |= torch.isclose(got, answer, rtol=tolerance, atol=0, equal_nan=True)
        same |= (got.double() - answer.double()).abs() <= absolute
    wrong = ~same
    report = [
        *(x[wrong][:5].tolist() for x in args),
        "gives",
        got[wrong][:5].tolist(),
        "not",
        eager[wrong][:5].tolist(),
    ]
    assert same.all(), f"mlirc.{name} of {report}"


@pytest.mark.parametrize("name", SCALAR_OPS)
def test_body_is_reference(name):
    cls = OPS[name]
    tried = 0
    for dtype in dtypes_of(cls):
        args = operands(cls, name, dtype)
        eager = reference(cls, args)
        if eager is None:
            continue
        tried += 1
        got = cls.scalar(TorchBuilder(dtype), *args)
        assert got.dtype == eager.dtype == cls.scalar_result(dtype)
        assert_same(name, got, args, 20 * torch.finfo(dtype).eps if dtype.is_floating_point else 0.0)
        if eager.dtype.is_floating_point and name not in EITHER_ZERO:
            zeros = (eager == 0) & (got == 0)
            assert torch.equal(got.expand(eager.shape)[zeros].signbit(), eager[zeros].signbit())
    assert tried, f"the reference of mlirc.{name} takes no dtype that kernels compute with"


OTHERWISE = {  # ops whose reference is imported as others, and why
    "cancel": "sub of half types is imported as it where one operand is computed of the other",
    "clamp": "two tensors are imported as maximum and minimum",
    "erfinv": "of float32 on a CPU, it is a call of PyTorch's kernel",
    "fma": "prims.fma is imported as it, and has no body in eager",
    "isfinite": "it is decomposed before the importer sees it",
    "pow_wide": "pow is imported as it where the exponent is a number with more bits than x has",
}


@pytest.mark.parametrize("name", SCALAR_OPS)
def test_a_reference_is_imported_as_its_op(name):
    """The tests of numbers/ compile the reference: of a formula they would test the formula's ops, and never this one's body."""
    cls, held = OPS[name], set[str]()
    words = cls.computes if isinstance(cls.computes, tuple) else (cls.computes,) * arity(cls)
    for dtype in (torch.float32, torch.int32, torch.bool):
        args = [torch.ones(3, dtype=torch.bool if word == "bool" else dtype) for word in words]
        if reference(cls, args) is not None:
            with context():
                function, _ = prepare(cls.reference, *args)
                held |= {op.operation.name for op in function.regions[0].blocks[0].operations}
    assert held, f"eager takes no dtype that was tried of {name}"
    is_held = f"mlirc.{name}" in held
    assert is_held != (name in OTHERWISE), (
        f"the reference of mlirc.{name} is imported as {', '.join(sorted(held))}; it must call the operator itself, or stand in OTHERWISE"
    )


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", [k for k in SCALAR_OPS if OPS[k].computes != "bool"])
@pytest.mark.thinned
def test_half_types_compute_in_float32(name, dtype):
    cls = OPS[name]
    args = operands(cls, name, dtype)
    eager = reference(cls, args)
    if eager is None:
        pytest.skip(f"eager has no {name} of {dtype}")
    got = cls.scalar(TorchBuilder(opmath(dtype)), *(x.to(opmath(x.dtype)) for x in args))
    got = got.to(dtype) if got.dtype.is_floating_point else got
    assert_same(name, got, args, torch.finfo(dtype).eps)


def test_overloads_are_aten_overloads():
    for overload in IMPORTS:
        # registered when a graph is traced that calls it
        late = overload == "prims.fma.default" or str(overload).startswith("mlirc.flex_")
        assert late or isinstance(overload, torch._ops.OpOverload), f"{overload} is no overload of an operator"
    assert len(IMPORTS) >= 120


def test_every_scalar_op_states_how_it_computes():
    words = {"result", "float", "operands", "bool"}
    for name in SCALAR_OPS:
        cls = OPS[name]
        assert issubclass(cls, (Unary, Binary, Ternary)), name
        computes = cls.computes if isinstance(cls.computes, tuple) else (cls.computes,) * arity(cls)
        assert len(computes) == arity(cls) and set(computes) <= words, name
        assert cls.gives == "same" or cls.gives in KERNEL_DTYPES, name


def test_dialect_loads():
    with context() as entered:
        assert entered.is_registered_operation("mlirc.gelu")
