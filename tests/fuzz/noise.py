"""Eager with the last bit of every inexact operation changed at random: how far rounding alone can carry a result.

Beside it what eager leaves open: element by element its own code gives other special values than in vectors (`again`),
sums and products have any order, and those that cancel but for rounding may be 0 (`cancelled`), an operation may be computed
in a wider type (`wider`), where a half type's number that leaves its range between two operations is one that we keep
(docs/decisions.md), a logarithm of a sum has that sum's rounding, and a NaN has any bits.
"""

import functools
import math
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.fuzz.writer import words

# Operations that round nothing: what they give is one of their operands' numbers, or an integer.
_EXACT = """
clone copy copy_ fill fill_ zero_ zeros zeros_like ones ones_like full full_like empty empty_like empty_strided
new_empty new_zeros new_ones new_full new_empty_strided arange cat stack gather index index_select where neg
neg_ abs relu relu_ flip roll repeat constant_pad_nd masked_fill masked_fill_ index_put index_put_ scatter
scatter_ max min amax amin maximum minimum sort topk cummax cummin clamp clamp_ clamp_min clamp_max fmin fmax
aminmax argmax argmin eq ne lt le gt ge isnan isinf isfinite sign sgn floor ceil trunc round nonzero
masked_select embedding reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d tril triu
max_pool2d_with_indices index_copy index_copy_ index_fill index_fill_ take masked_scatter rot90 set_ resize_
logical_not logical_and logical_or logical_xor nan_to_num slice_scatter select_scatter _unsafe_index nextafter copysign
_unique _unique2 unique_dim unique_consecutive unique_dim_consecutive mode median nanmedian kthvalue searchsorted bucketize
isin isneginf isposinf signbit heaviside
"""
EXACT = frozenset(words(_EXACT))
# Of these a NaN is a new one: IEEE 754 leaves its sign and payload open (eager's maximum of two vectors has all bits set).
_OF_ANY_NAN = """
max min amax amin maximum minimum cummax cummin clamp clamp_min clamp_max fmin fmax aminmax relu sign floor ceil trunc round
max_pool2d_with_indices
"""
OF_ANY_NAN = frozenset(words(_OF_ANY_NAN))
# The sum inside is rounded where it is near 1, and its logarithm near 0: the error is one of 1, not of the result.
COMPLEX_PRODUCTS = {"mul", "div", "reciprocal"}
LOGARITHMS_OF_SUMS = frozenset(("_log_softmax", "logsumexp", "logaddexp", "logcumsumexp"))
# Of these a zero may have any sign: sums of products begin as a library likes, and of -0.0 and 0.0 neither is larger; eager's
# gradient of a softmax has one sign along the last dimension and another along others (tests/dialects/numbers/test_signs_of_zero.py).
# LAPACK's least squares have another for a right-hand side alone than for the same in a batch (judged/test_noise_goes_on.py).
_SIGNLESS = """
mm bmm addmm baddbmm addbmm mv addmv dot vdot convolution convolution_backward _scaled_dot_product_flash_attention_for_cpu
_scaled_dot_product_flash_attention_for_cpu_backward _scaled_dot_product_attention_math linear _trilinear _cdist_forward
_softmax_backward_data _log_softmax_backward_data native_group_norm_backward linalg_lstsq
maximum minimum max min amax amin fmax fmin aminmax clamp clamp_min clamp_max max_pool2d_with_indices
"""
SIGNLESS = frozenset(words(_SIGNLESS))
# Sums of products: each addition is rounded by the size of what is summed so far, however little is left of it.
PRODUCTS = frozenset(words("mm bmm addmm baddbmm addbmm mv addmv dot vdot convolution"))

# Eager's kernels for a GPU have their sixth as a float32, in float64 too; those for a CPU have not.
SIXTHS = frozenset(words("hardsigmoid hardsigmoid_backward hardswish hardswish_backward"))

SUMMED = ("sum", "mean", "std_mean", "var_mean", "native_batch_norm_backward", "native_layer_norm_backward")
# Eager's running means on a GPU, of many threads, are NaN after an infinity or keep it, as the elements lie.
VARIANCES = frozenset(words("var std var_mean std_mean"))
SUMS = frozenset(words("sum mean nansum prod cumsum cumprod linalg_vector_norm norm"))  # and products
NORMS = frozenset(words("linalg_vector_norm norm"))
REPEATED = 2**16  # elements: larger tensors are in vectors but for their last elements
HALVES = (torch.float16, torch.bfloat16)
# Elementwise, though PyTorch does not tag them so.
_POINTWISE = """
elu_backward gelu_backward silu_backward mish_backward logit_backward log_sigmoid_backward softplus_backward
hardswish_backward hardsigmoid_backward leaky_relu_backward threshold_backward hardtanh_backward log_sigmoid_forward
"""
POINTWISE = frozenset(words(_POINTWISE))


def _apart(x: Any) -> Any:
    """The tensor with every other element of memory: eager's code for one element at a time goes through it."""
    return torch.stack([x, x], -1)[..., 0] if _is_real(x) else x


def _repeated(x: Any) -> Any:
    """Each element a row of equal ones: eager's code in vectors goes through all, the tensor's last ones too."""
    return torch.stack([x] * 64, -1) if _is_real(x) and x.numel() <= REPEATED else x


def _on_cpu(x: Any) -> Any:
    return x.cpu() if isinstance(x, torch.Tensor) else x


def _wide(x: Any) -> Any:
    """Numbers that nothing leaves the range of, and in which nothing is rounded that the dtype shows."""
    return x.double() if _is_float(x) else x


def _wide_sum(x: Any) -> Any:
    """An argument of a sum that is wide though another dtype is asked for, in which eager adds one number after another."""
    return torch.float64 if isinstance(x, torch.dtype) and x.is_floating_point else _wide(x)


def _wide_as(dtype: torch.dtype, x: Any) -> Any:
    """The operand of a pointwise operation that gives this dtype, wide: an integer is rounded to the dtype first."""
    return x.to(dtype).double() if _is_real(x) and not x.is_floating_point() else _wide(x)


def cancelled(name: str, args: tuple, result: Any) -> Any:
    """The result with 0 for a sum of which nothing but rounding is left: a bias before a normalization has no gradient."""
    if name in ("std_mean", "var_mean"):
        return result[0], cancelled("mean", args, result[1])
    if name in ("sum", "mean"):
        x, dims = args[0], args[1] if len(args) > 1 and args[1] else None
        if not _is_float(x) or not _is_float(result):
            return result
        shape, every = result.shape, x.double().abs().sum(dims)
        return _without_rest(
            result, every.reshape(shape) / (x.numel() / max(result.numel(), 1) if name == "mean" else 1)
        )
    x = args[0]  # a gradient; that of the bias is its sum
    if not _is_float(x) or not _is_float(result[2]):
        return result
    kept = {1} if name == "native_batch_norm_backward" else set(range(x.dim() - result[2].dim(), x.dim()))
    every = x.double().abs().sum([d for d in range(x.dim()) if d not in kept] or None)
    return (*result[:2], _without_rest(result[2], every.reshape(result[2].shape)))


def _without_rest(result: torch.Tensor, every: torch.Tensor) -> torch.Tensor:
    rest = result.double().abs() <= 8 * torch.finfo(result.dtype).eps * every
    return result.clone().copy_(torch.where(rest & (every != 0), 0.0, result))


def _is_float(x: Any) -> bool:
    return _is_real(x) and x.is_floating_point()


def _is_real(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and not x.is_complex() and x.layout == torch.strided and not x._is_zerotensor()


def _computed(inputs: list[Any]) -> torch.dtype | None:
    """The dtype in which an operation that writes to another tensor computes; None where that one's is among them."""
    tensors = [x for x in inputs if isinstance(x, torch.Tensor)]
    if not tensors:
        return None
    dtype = functools.reduce(torch.promote_types, [x.dtype for x in tensors])
    dtype = dtype if dtype.is_floating_point or dtype.is_complex else torch.get_default_dtype()
    return dtype if dtype.is_floating_point else None


def root_mean_square(x: torch.Tensor, shape: list[int], weight: torch.Tensor | None, eps: float | None) -> torch.Tensor:
    """rms_norm by its definition: of a row of an infinity NaN there and 0 elsewhere, as eager's own kernel on a GPU has it of 8
    elements, and not of 6, where it gives NaN everywhere."""
    wide = x.double()
    squares = wide.square().mean(list(range(-len(shape), 0)), keepdim=True)
    result = wide * (squares + (torch.finfo(x.dtype).eps if eps is None else eps)).rsqrt()
    return (result if weight is None else result * weight.double()).to(x.dtype)


def layer_norm(x: torch.Tensor, shape: list[int], weight: Any, bias: Any, eps: float) -> torch.Tensor:
    """layer_norm by its definition: of an element that is its row's mean it is 0, where eager has what is left of x * r - mean * r."""
    return _affine(_normalised(x.double(), list(range(-len(shape), 0)), eps), weight, bias).to(x.dtype)


def batch_norm(
    x: torch.Tensor, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> torch.Tensor:
    """batch_norm by its definition, for the same reason as `layer_norm`."""
    shaped = [None if p is None else p.reshape(1, -1, *[1] * (x.dim() - 2)) for p in (weight, bias, mean, var)]
    if training:
        made = _normalised(x.double(), [d for d in range(x.dim()) if d != 1], eps)
    else:
        made = (x.double() - shaped[2]) * (shaped[3].double() + eps).rsqrt()
    return _affine(made, *shaped[:2]).to(x.dtype)


def group_norm(
    x: torch.Tensor, weight: Any, bias: Any, images: int, channels: int, pixels: int, groups: int, eps: float
) -> torch.Tensor:
    """group_norm by its definition, for the same reason as `layer_norm`."""
    parts = _normalised(x.double().reshape(images, groups, channels // groups * pixels), [-1], eps).reshape(
        images, channels, pixels
    )
    shaped = [None if p is None else p.unsqueeze(-1) for p in (weight, bias)]
    return _affine(parts, *shaped).reshape(x.shape).to(x.dtype)


def _normalised(x: torch.Tensor, dims: list[int], eps: float) -> torch.Tensor:
    x = x - x.mean(dims, keepdim=True)
    return x * (x.square().mean(dims, keepdim=True) + eps).rsqrt()


def _affine(x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None) -> torch.Tensor:
    x = x if weight is None else x * weight.double()
    return x if bias is None else x + bias.double()


def _dims(x: torch.Tensor, dims: Any) -> list[int]:
    return [dims] if isinstance(dims, int) else list(dims or range(x.dim()))


DEFINITIONS = {
    "native_batch_norm": batch_norm,
    "native_layer_norm": layer_norm,
    "native_group_norm": group_norm,
    "_fused_rms_norm": root_mean_square,
}


def _nonzero_parts(x: Any, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Where the real part of a factor is not zero, and where the imaginary part is not."""
    wide = torch.as_tensor(x, device=like.device).to(torch.complex128).expand(like.shape)
    return wide.real != 0, wide.imag != 0


class Noise(TorchDispatchMode):
    """Changes the last bit of inputs and results of every other operation."""

    def __init__(self, seed: int):
        super().__init__()
        self.zero = -0.0 if seed % 2 else 0.0
        self.reversed = seed % 3 == 0  # sums that overflow on the way do so in one order, and not in another
        self.shuffled = seed % 3 == 1
        self.sorted = seed % 6 == 5  # the largest first: what overflows in any order does so in this one
        self.smallest_first = (
            seed % 24 == 17
        )  # of factors: what vanishes in any order does so in this one, and is NaN times infinity
        self.cancels = seed % 4 == 3
        self.apart = seed % 4 == 1
        self.repeated = seed % 4 == 2
        self.wide = seed % 4 in (0, 3)
        self.still = (
            seed % 20 == 8
        )  # equal numbers stay equal, so that their differences are 0 in formulas that keep them
        self.generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if any(isinstance(x, torch.Tensor) and x.is_meta for x in torch.utils._pytree.arg_tree_leaves(*args)):
            return func(*args, **kwargs)  # eager asks for the shape of a sum of a zero without memory
        name = func._schema.name.removeprefix("aten::")
        composite = torch._C.DispatchKey.CompositeImplicitAutograd
        if torch.is_inference_mode_enabled() and torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), composite):
            with self:  # what arrives in parts outside of that mode: those of eager, and not of Python's decompositions
                return func._op_dk(composite, *args, **kwargs)
        if name in SIGNLESS or (name in ("cumsum", "native_layer_norm") and args[0].is_cuda):
            return torch.utils._pytree.tree_map(self.signless, self.run(func, name, args, kwargs))
        return self.run(func, name, args, kwargs)

    def run(self, func: Any, name: str, args: tuple, kwargs: dict) -> Any:
        schema = func._schema
        if torch.Tag.nondeterministic_seeded in func.tags and not any(isinstance(x, torch.Tensor) for x in args):
            return func(*args, **kwargs)  # once: another draw would be another input
        if name in EXACT or any(r.alias_info and not r.alias_info.is_write for r in schema.returns):
            result = func(*args, **kwargs)
            return torch.utils._pytree.tree_map(self.other_nan, result) if name in OF_ANY_NAN else result
        written = [arg for k, arg in enumerate(schema.arguments) if arg.alias_info and arg.alias_info.is_write]
        unshaken = args
        if not written and name not in ("_to_copy",):
            args = torch.utils._pytree.tree_map(self.shake, args)
        spread = name in VARIANCES and args[0].is_cuda
        if (name in ("sum", "mean", "nansum", "prod") or spread) and isinstance(args[0], torch.Tensor):
            args = (self.in_another_order(*args[:2], by_size=name == "prod"), *args[1:])
        if written and self.wide and name.endswith("_") and torch.Tag.pointwise in func.tags:
            self.in_place_wider(func, args, kwargs)
            self.shake_in_place(args[0])
            return args[0]
        result = func(*args, **kwargs)
        if name == "prod" and self.sorted and _is_float(result):
            result = self.one_after_another(args, result)
        if self.wide and name in SIXTHS and result.is_cuda and result.dtype == torch.float64:
            result = result.clone().copy_(func(*torch.utils._pytree.tree_map(_on_cpu, args)))
        pointwise = torch.Tag.pointwise in func.tags or name in POINTWISE
        if not written and (self.apart or self.repeated) and pointwise:
            how = _apart if self.apart else _repeated
            result = self.again(func, how, args, kwargs, result, lambda given, other: other)
        if not written and self.wide:
            wide = _wide_sum if name in SUMS else _wide
            wide = functools.partial(_wide_as, result.dtype) if pointwise and _is_float(result) else wide
            result = self.again(func, wide, args, kwargs, result, self.wider)
        if written:
            for k, arg in enumerate(schema.arguments):
                if arg in written:
                    given = args[k] if k < len(args) else kwargs.get(arg.name)
                    self.shake_in_place(given, _computed([x for x in args if x is not given]))
            return result
        if self.cancels and name in SUMMED:
            result = cancelled(name, args, result)
        definition = DEFINITIONS.get(name)
        if definition is not None and self.wide and _is_float(result[0]):
            result = (result[0].clone().copy_(definition(*unshaken)), *result[1:])
        if name in PRODUCTS and _is_float(result):
            result = self.rounded(func, args, kwargs, result)
        if name.startswith("_scaled_dot_product") and not name.endswith("backward"):
            result = (self.of_attention(func, args, kwargs, result[0]), *result[1:])
        if name in NORMS and result.dtype == torch.float64:
            result = self.summed_in_sequence(args, result)
        if name == "digamma" and _is_float(result):  # terms from ln 10 on cancel near its zeros
            result = result + math.log(10) * torch.finfo(result.dtype).eps * self.draw(result).to(result.dtype)
        if name in COMPLEX_PRODUCTS and isinstance(result, torch.Tensor) and result.is_complex() and not written:
            result = self.of_complex(name, args, result)
        if name in ("addcmul", "addcdiv") and isinstance(result, torch.Tensor) and result.is_complex() and not written:
            product = args[1] * args[2] if name == "addcmul" else args[1] / args[2]
            if product.is_complex():
                moved = self.of_complex("mul" if name == "addcmul" else "div", args[1:3], product) - product
            else:
                moved = self.moved(product, product.abs().double()) - product
            other = torch.where((moved == 0) | ~moved.isfinite(), result, result + kwargs.get("value", 1) * moved)
            result = result.clone().copy_(other)
        if name in LOGARITHMS_OF_SUMS and _is_float(result):
            result = result + torch.finfo(result.dtype).eps * self.draw(result).to(result.dtype)
        return torch.utils._pytree.tree_map(self.shake, result)

    def again(self, func: Any, how: Any, args: tuple, kwargs: dict, result: Any, choose: Any) -> Any:
        """The operation once more on its operands in another form; `result`'s memory is laid out as it is."""
        results = result if isinstance(result, tuple) else (result,)
        if not all(map(_is_float, results)) or (self.wide and results[0].dtype == torch.float64):
            return result
        try:
            other = func(*torch.utils._pytree.tree_map(how, args), **torch.utils._pytree.tree_map(how, kwargs))
        except (RuntimeError, NotImplementedError, TypeError):
            return result
        if isinstance(result, tuple):
            return tuple(self.chosen(how, one, two, choose) for one, two in zip(result, other, strict=True))
        return self.chosen(how, result, other, choose)

    def chosen(self, how: Any, result: Any, other: Any, choose: Any) -> Any:
        if _is_float(other) and how is _repeated and other.shape[-1:] == (64,):
            other = other[..., 0]
        if not _is_float(other) or other.shape != result.shape:
            return result
        return result.clone().copy_(choose(result, other))

    def wider(self, given: torch.Tensor, wide: torch.Tensor) -> torch.Tensor:
        """The number that was rounded once; of a half type its last one where its range alone ended, or its smallest."""
        if given.dtype not in HALVES:
            return wide.to(given.dtype)
        limits = torch.finfo(given.dtype)
        sign = torch.where(wide < 0, -1.0, 1.0)
        in_single = wide.float().isfinite()
        kept = torch.where(given.isinf() & in_single, sign * limits.max, wide)
        smallest = sign * limits.tiny * limits.eps * (2 + self.draw(given))  # two of them need not cancel
        return torch.where((kept.to(given.dtype) == 0) & (wide.float() != 0), smallest, kept).to(given.dtype)

    def rounded(self, func: Any, args: tuple, kwargs: dict, result: torch.Tensor) -> torch.Tensor:
        """A sum of products with another rounding: by the last bit of the sum of their absolute values."""
        if not result.numel():  # eager refuses transposed convolutions that give nothing in float64, and not in float32
            return result
        args, kwargs = torch.utils._pytree.tree_map(lambda x: _wide(x.abs()) if _is_float(x) else x, (args, kwargs))
        sizes = func(*args, **{key: abs(x) if type(x) in (int, float) else x for key, x in kwargs.items()})
        moved = self.moved(result, sizes)
        if not self.cancels:
            return moved
        rest = result.double().abs() <= 8 * torch.finfo(torch.promote_types(result.dtype, torch.float32)).eps * sizes
        return moved.masked_fill_(rest & (sizes != 0), 0.0)

    def summed_in_sequence(self, args: tuple, result: torch.Tensor) -> torch.Tensor:
        """A norm in float64 as a loop in vectors sums it: roundings of equal numbers go one way, and each adds its own."""
        exponent = 2 if len(args) < 2 or args[1] is None else args[1]
        if exponent == 0 or math.isinf(exponent):
            return result
        summands = args[0].numel() / max(result.numel(), 1)
        return self.moved(result, result.abs() * summands / 8 * max(1.0, 1 / abs(exponent)))

    def of_attention(self, func: Any, args: tuple, kwargs: dict, result: torch.Tensor) -> torch.Tensor:
        """An attention whose scores are rounded by their size: so is the exponential of each."""
        query, key, value = (x.double() for x in args[:3])
        scale = kwargs.get("scale")
        most = key.norm(dim=-1).max() if key.numel() else 0.0
        score = query.norm(dim=-1, keepdim=True) * most * (query.shape[-1] ** -0.5 if scale is None else abs(scale))
        weighted = func(*args[:2], value.abs().to(args[2].dtype), *args[3:], **kwargs)[0]
        return self.moved(result, (1 + score) / 2 * weighted.double())

    def moved(self, result: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
        """The result, each element by the last bit of a number of this size, as float32 or a wider type has it."""
        eps = torch.finfo(torch.promote_types(result.dtype, torch.float32)).eps
        other = (result.double() + eps * sizes * self.draw(result)).to(result.dtype)
        return result.clone().copy_(torch.where(result.isfinite() & other.isfinite(), other, result))

    def of_complex(self, name: str, args: tuple, result: torch.Tensor) -> torch.Tensor:
        """A product or quotient of complex numbers: each part is a sum of two products, which may cancel or be too small for the dtype, and
        whose rounding is as large as the number. A part that is a sum of zeros stays."""
        factors = (torch.ones_like(args[0]), args[0]) if name == "reciprocal" else args[:2]
        if any(not isinstance(x, (torch.Tensor, int, float, complex)) for x in factors):
            return result
        (a, b), (c, d) = (_nonzero_parts(x, result) for x in factors)
        summed = torch.stack([(a & c) | (b & d), (a & d) | (b & c)], -1)
        parts = torch.view_as_real(result.resolve_conj())
        limits = torch.finfo(parts.dtype)
        rounding = (limits.eps * result.abs().unsqueeze(-1)).clamp_min(limits.tiny * limits.eps)
        if self.cancels:
            other = torch.where(parts.abs() <= 8 * rounding, self.zero, parts)
        else:
            other = parts + rounding * self.draw(parts).to(parts.dtype)
        other = torch.where(summed & parts.isfinite() & other.isfinite(), other, parts)
        return result.clone().copy_(torch.view_as_complex(other))

    def in_place_wider(self, func: Any, args: tuple, kwargs: dict) -> None:
        """An operation in place, of numbers that are kept in range."""
        copies = {id(x): _wide(x.clone()) for x in [*args, *kwargs.values()] if _is_float(x)}
        func(*args, **kwargs)
        x = args[0]
        if not _is_float(x) or x.dtype == torch.float64:
            return
        func(*(copies.get(id(y), y) for y in args), **{k: copies.get(id(y), y) for k, y in kwargs.items()})
        x.copy_(self.wider(x, copies[id(x)]))

    def in_another_order(self, x: torch.Tensor, dims: Any = None, by_size: bool = False) -> torch.Tensor:
        """The summands, or factors, of each result in the other order, or in any, or the largest first, of factors by size, or the smallest."""
        if self.reversed:
            return x.flip(_dims(x, dims))
        if self.sorted and x.dim() and not x.is_complex():
            descending = not (by_size and self.smallest_first)
            for dim in _dims(x, dims):
                wide = x.double()
                x = x.gather(dim, (wide.abs() if by_size else wide).argsort(dim, descending=descending))
        for dim in _dims(x, dims) if self.shuffled else ():
            x = (
                x.index_select(dim, torch.randperm(x.shape[dim], generator=self.generator).to(x.device))
                if x.dim()
                else x
            )
        return x

    def one_after_another(self, args: tuple, result: torch.Tensor) -> torch.Tensor:
        """A product whose factors are taken by size, of all dimensions: it vanishes, or overflows, where it does in any order."""
        x, dim = (args[0], args[1]) if len(args) > 1 and isinstance(args[1], int) else (args[0].flatten(), 0)
        if not x.dim() or not 0 < x.shape[dim] <= 10_000:  # each is an operation
            return result
        wide = self.in_another_order(x, [dim], by_size=True).to(torch.promote_types(result.dtype, torch.float32))
        made = functools.reduce(torch.mul, wide.unbind(dim))
        return result.clone().copy_(made.reshape(result.shape))

    def signless(self, x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or not x.is_floating_point() or x.layout != torch.strided:
            return x
        return x.clone().copy_(torch.where(x == 0, self.zero, x))

    def shake(self, x: Any) -> Any:
        if isinstance(x, torch.Tensor) and x._is_zerotensor():  # it has no memory
            return x
        if not isinstance(x, torch.Tensor) or x.layout != torch.strided or not x.is_floating_point():
            if isinstance(x, torch.Tensor) and x.is_complex() and x.layout == torch.strided:
                parts = self.changed(torch.view_as_real(x.resolve_conj()))  # a product would make NaN of two infinities
                return x.clone().copy_(torch.view_as_complex(parts))
            return x
        return self.changed(x)

    def other_nan(self, x: Any) -> Any:
        """The tensor with other bits in what is NaN, where it is laid out."""
        if not _is_float(x):
            return x
        bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
        quiet = int(torch.tensor(torch.nan, dtype=x.dtype).view(bits))
        found = torch.tensor([-1, quiet, quiet | torch.iinfo(bits).min], dtype=bits, device=x.device)
        other = found[(self.draw(x) + 1).long()].view(x.dtype)
        return x.clone().copy_(torch.where(x.isnan(), other, x))

    def changed(self, x: torch.Tensor, computed: torch.dtype | None = None) -> torch.Tensor:
        x = self.other_nan(x)
        limits = torch.finfo(x.dtype)
        eps = max(limits.eps, torch.finfo(computed or x.dtype).eps)
        wide = x if x.dtype == torch.float64 else x.double()
        bit = (eps * wide.abs()).clamp_min(limits.tiny * limits.eps) * (
            wide != 0
        )  # of a subnormal number, the smallest
        other = (wide + bit * self.draw(x)).to(x.dtype)
        changes = x.isfinite() & other.isfinite() & (wide != 0)  # -0.0 + 0.0 is 0.0
        return x.clone().copy_(torch.where(changes, other, x))  # strides stay

    def shake_in_place(self, x: Any, computed: torch.dtype | None = None) -> None:
        if not isinstance(x, torch.Tensor) or x.layout != torch.strided or x._is_zerotensor():
            return
        if x.is_complex() and not x.is_conj():
            x = torch.view_as_real(x)
        if _is_float(x) and not any(s == 0 and n > 1 for s, n in zip(x.stride(), x.shape, strict=True)):
            x.copy_(self.changed(x, computed))

    def draw(self, x: torch.Tensor) -> torch.Tensor:
        if self.still:
            return torch.zeros(x.shape, dtype=torch.float64, device=x.device)
        return torch.randint(-1, 2, x.shape, generator=self.generator).to(torch.float64).to(x.device)
