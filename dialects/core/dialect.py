"""The `mlirc` dialect: the base classes of ops, and the registry that importer, interpreter, passes and tests iterate over.

Three levels, all values typed as tensor_types.py says:
  graph level   ops on tensors: elementwise, reductions, composites, movement, contractions, ATen calls   (ops/)
  kernel level  `mlircx.kernel` holds one fused group as scalar work in an iteration space                 (kernel_ops.py)
  memory level  slots of the arena, launches, calls: the host program                                    (memory_ops.py)

An op's class states all there is to know of it: ATen overloads, dtype rule, scalar body or expansion, eager reference.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from pkgutil import walk_packages
from typing import Any, Protocol, cast

import torch

from mlirc.dialects.core.bindings import ext, ir, register_list_ops
from mlirc.dialects.core.scalar_builder import check_body


class Mlirc(ext.Dialect, name="mlirc"):
    pass


class Mlircx(ir.Dialect):
    """The namespace of the ops with lists of operands or results of mixed types: kernel, yield, aten, launch, call, run.

    A dialect defined in Python (IRDL) gives all members of a variadic list one type; so these ops are unregistered in MLIR and
    verified in Python (lowering/verify/stage.py). Upstream passes treat them as having effects: `eliminate-dead` removes dead ones.
    """

    DIALECT_NAMESPACE = "mlircx"
    operations: list[type] = []


class ListOp(ir.OpView):
    """Base of the `mlircx` ops. A subclass says its name and how many regions it has."""

    _ODS_REGIONS = (0, True)

    def __init_subclass__(cls, *, name: str, regions: int = 0):
        super().__init_subclass__()
        cls.mnemonic = cls._op_name = name
        cls.OPERATION_NAME = f"mlircx.{name}"
        cls._ODS_REGIONS = (regions, True)
        Mlircx.operations.append(cls)


class Combining(Protocol):
    """What FoldOp says of an op that defines a kind."""

    combine: Callable[..., Any]
    identity: float


OPS: dict[str, type] = {}  # "add" -> its class
COMBINED: dict[str, type[Combining]] = {}  # kind of a fold -> the op that says how it combines two values (FoldOp)
# ATen overload -> rule(g, *args, **kwargs) that builds dialect ops and returns their values
IMPORTS: dict[Any, Callable] = {}


_importers: dict[Any, str] = {}  # ATen overload -> the name of the module that has its rule
_files: dict[str, Any] = {}  # module's name -> the module that defined ops or imports last


def _defined_in(name: str) -> None:
    """Something is being defined in the module of that name. If its import was interrupted before (Ctrl-C), this is its second
    one: what the first one defined is withdrawn."""
    module = sys.modules.get(name)
    if _files.setdefault(name, module) is module:
        return
    _files[name] = module
    for mnemonic, cls in list(OPS.items()):
        if cls.__module__ == name:
            del OPS[mnemonic]
            COMBINED.pop(mnemonic, None)
    for overload, file in list(_importers.items()):
        if file == name:
            del _importers[overload]
            IMPORTS.pop(overload, None)


def _import_by(rule: Callable, overloads: tuple, file: str) -> None:
    for overload in overloads:
        assert overload not in IMPORTS, f"{overload} is imported twice"
        _importers[overload] = file
        IMPORTS[overload] = rule


def imports(*overloads: Any) -> Callable[[Callable], Callable]:
    """Decorator: the function builds what these ATen overloads mean, out of dialect ops, with a GraphBuilder.

    One that PyTorch registers late, or not in every version, goes by its text: "prims.fma.default".
    """

    def register(rule: Callable) -> Callable:
        _defined_in(rule.__module__)
        _import_by(rule, overloads, rule.__module__)
        return rule

    return register


class Op(Mlirc.Operation):
    """Base of every graph-level op. `reference(*tensors, **attributes)` is its meaning in eager PyTorch.

    An annotation in an op's class declares an operand, result, attribute or region, and nothing else.
    """

    def __init_subclass__(cls, *, name: str | None = None, aten: tuple = (), **keywords: Any):
        _defined_in(cls.__module__)
        super().__init_subclass__(name=name, **keywords)
        if name:
            if loaded():
                raise RuntimeError(
                    f"mlirc.{name} is defined too late: ops must exist before the first graph is compiled"
                )
            assert name not in OPS, f"mlirc.{name} is defined twice"
            OPS[name] = cls
            cls.mnemonic = name
            cls.overloads = tuple(aten)
            for overload in aten:
                _import_by(cls.import_rule(overload), (overload,), cls.__module__)

    @classmethod
    def import_rule(cls, overload: Any) -> Callable:
        raise TypeError(f"{cls.__name__} lists ATen overloads, but its base class has no import rule for them")

    @classmethod
    def attributes_of(cls, op: Any) -> dict[str, Any]:
        """The op's own attributes as Python values, by name: what `reference` and `expand` take as keywords."""
        return {name: attribute_value(attr) for name, attr in op.attributes.items() if not name.startswith("mlirc.")}


class Elementwise(Op, traits=[ext.Pure]):
    """An op whose result element depends on one element of each operand. Operands broadcast as in PyTorch.

    computes   the dtype that operands are converted to before the scalar work (half types then widen to float32):
               "result" the result's dtype; "float" likewise, and integers become floats; "operands" the promoted dtype
               of the operands (comparisons); "bool";
               or a tuple, with one of these for each operand.
    gives      the scalar body's result dtype: "same" as computed, or a torch dtype.
    cheap      whether fusion may compute it again rather than store it (exp, pow, erf: no).
    rounds_numbers  whether a number, or a 0-d operand of another dtype, is rounded to a half dtype first, as eager does
               (None: where it `jumps`). Otherwise it keeps float32's precision.
    jumps      whether the result may jump from one number to the next: comparisons, rounding to whole numbers, edges of a
               domain (log, asin). An operand of a half type is then rounded to it first, numbers too; elsewhere what a
               kernel computed before keeps float32's precision.
    scalar     the body, once for every target: scalar(b, *values) on a ScalarBuilder (scalar_builder.py).

    The same class serves at kernel level, on scalars of the computed dtype.
    """

    computes = "result"
    gives = "same"
    cheap = True
    rounds_numbers = None
    jumps = False

    def __init_subclass__(cls, **keywords: Any):
        body = getattr(cls, "scalar", None)
        if body is not None and not cls.__module__.startswith("mlirc."):  # tests run each body of ours
            check_body(body)
        super().__init_subclass__(**keywords)

    @classmethod
    def operand_kinds(cls, count: int) -> tuple[str, ...]:
        """`computes` of each of so many operands."""
        return cls.computes if isinstance(cls.computes, tuple) else (cls.computes,) * count

    @classmethod
    def import_rule(cls, overload: Any) -> Callable:
        return lambda g, *args, **kwargs: g.elementwise(cls, *args, **kwargs)

    @classmethod
    def scalar_result(cls, computed: torch.dtype) -> torch.dtype:
        """The dtype of a kernel-level result whose operands have dtype `computed`."""
        return cls.gives if isinstance(cls.gives, torch.dtype) else computed


class Unary(Elementwise):
    x: ext.Operand[Any]
    out: ext.Result[Any]


class Binary(Elementwise):
    x: ext.Operand[Any]
    y: ext.Operand[Any]
    out: ext.Result[Any]


class Ternary(Elementwise):
    x: ext.Operand[Any]
    y: ext.Operand[Any]
    z: ext.Operand[Any]
    out: ext.Result[Any]


class FoldOp(Op):
    """Base of reductions and scans, which fold values by a `kind`: one of kernel_ops.REDUCTIONS or SCANS, or one that the op defines.

    An op that has `combine` defines a kind, which has the op's name:

        combine(b, x, y)   a scalar body, which makes one value of two neighbours, x before y; b.dtype is the dtype of both and of the result
        identity           a number that changes no value: combine(identity, x) and combine(x, identity) are x

    Values are combined in groups of any size: combine(combine(x, y), z) is combine(x, combine(y, z)) but for rounding. A scan keeps their
    order; a reduction does not, so its `combine` also has to give the same for y and x.
    """

    kind = ""

    def __init_subclass__(cls, *, name: str | None = None, **keywords: Any):
        combine = getattr(cls, "combine", None)
        if name and combine is not None:
            if not isinstance(getattr(cls, "identity", None), int | float):
                raise TypeError(
                    f"{cls.__name__} has `combine`, and so needs `identity`, a number that changes no value"
                )
            check_body(combine)
            cls.kind = name
        super().__init_subclass__(name=name, **keywords)
        if name and combine is not None:
            COMBINED[name] = cast(type[Combining], cls)


class Reduction(FoldOp, traits=[ext.Pure]):
    """Folds the dimensions `dims` of its input by `kind` (kernel_ops.Reduce).

    dims     a text list of nonnegative dimensions, "0, 2"
    keepdim  true or false
    The input is converted to the result's dtype first, unless `kind` gives another one (argmax, any).
    """

    x: ext.Operand[Any]
    dims: ir.StringAttr
    keepdim: Any
    out: ext.Result[Any]


class Composite(Op, traits=[ext.Pure]):
    """An op kept whole through import and simplify (softmax, layer_norm); the pass `decompose` then expands it.

    `expand(g, *operands, **attributes)` builds it from smaller ops with a GraphBuilder and returns the results.
    """


def attribute_value(attribute: ir.Attribute) -> Any:
    """A builtin attribute as a Python value: str, bool, int, float, or a list of them."""
    if isinstance(attribute, ir.StringAttr):
        return ir.StringAttr(attribute).value
    if isinstance(attribute, ir.BoolAttr):
        return ir.BoolAttr(attribute).value
    if isinstance(attribute, ir.IntegerAttr):
        return ir.IntegerAttr(attribute).value
    if isinstance(attribute, ir.FloatAttr):
        return ir.FloatAttr(attribute).value
    if isinstance(attribute, ir.ArrayAttr):
        return [attribute_value(item) for item in ir.ArrayAttr(attribute)]
    raise ValueError(f"mlirc ops have string, bool, integer, float and array attributes, not {attribute}")


def make_attribute(value: Any) -> ir.Attribute:
    """A Python value as a builtin attribute (int as i64, float as f64); an attribute as itself."""
    if isinstance(value, ir.Attribute):
        return value
    if isinstance(value, bool):
        return ir.BoolAttr.get(value)
    if isinstance(value, int):
        return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)
    if isinstance(value, float):
        return ir.FloatAttr.get(ir.F64Type.get(), value)
    if isinstance(value, str):
        return ir.StringAttr.get(value)
    return ir.ArrayAttr.get([make_attribute(item) for item in value])


LIST_OPS = frozenset(
    ("kernel", "yield", "aten", "aten_effect", "launch", "call", "run", "while_loop", "cond", "scan_loop", "invoke")
    + ("flex_attention", "flex_attention_query_gradient", "flex_attention_key_gradients")
)


def create(name: str, operands: list, results: list, attributes: dict[str, Any] | None = None, regions: int = 0) -> Any:
    """A new `mlirc.NAME` (or `mlircx.NAME`) at the insertion point: faster than the generated constructors, which bind a signature.
    Raises ValueError where the dialect has no such op, TypeError where an operand is no value, or a result no type."""
    made = {key: make_attribute(value) for key, value in attributes.items()} if attributes else None
    prefix = "mlircx" if name in LIST_OPS else "mlirc"
    try:
        op = ir.Operation.create(
            f"{prefix}.{name}", results=results, operands=operands, attributes=made, regions=regions
        )
    except (TypeError, ValueError) as error:
        values = [x for x in operands if not isinstance(x, (ir.Value, ir.Operation, ir.OpView))]
        types = [x for x in results if not isinstance(x, ir.Type)]
        for wrong, what in ((values, "operand {} of '{}' is no value"), (types, "result {} of '{}' is no type")):
            if wrong:
                raise TypeError(f"create: {what.format(repr(wrong[0]), f'{prefix}.{name}')}") from error
        raise
    made_op = op.opview
    if type(made_op) is ir.OpView:
        op.erase()
        raise ValueError(f"create: the dialect has no op '{prefix}.{name}'")
    return made_op


def load_ops() -> None:
    """Import every file that defines ops, so that OPS and IMPORTS are complete."""
    from mlirc.dialects import ops

    for module in ("graph_ops", "kernel_ops", "memory_ops"):
        import_module(f"mlirc.dialects.core.{module}")
    import_module("mlirc.dialects.control_flow.region_ops")
    for module in walk_packages(ops.__path__, f"{ops.__name__}."):
        import_module(module.name)


def loaded() -> bool:
    """Whether the dialect is registered with MLIR, so that no op can be added."""
    return bool(getattr(Mlirc, "_mlir_module", None))


def load() -> None:
    """Register the dialect with the current context (context.py does it once)."""
    load_ops()
    for dialect in (Mlirc, Mlircx):
        # of a class that was defined twice, as its import was interrupted, the last one
        last = {
            (cls.__module__, cls.__qualname__, getattr(cls, "OPERATION_NAME", "")): cls for cls in dialect.operations
        }
        dialect.operations[:] = last.values()
    Mlirc.load()
    register_list_ops(Mlircx, Mlircx.operations)
