"""Imports an FX graph of AOTAutograd as a module with one `func.func @graph` of graph-level ops.

A node's fake tensor gives the dtype, sizes and strides of its result. A rule (dialect.IMPORTS) builds the ops of a call. A call without a rule,
or whose rule raises NotOurs, becomes the op that calls ATen. A graph whose sizes depend on data arrives as subgraphs (subgraphs.py).
"""

import logging
import operator
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import field
from typing import Any

import torch
from torch.fx import GraphModule, Node

from mlirc.codegen.abi.kernel_sources import kernel_sources
from mlirc.codegen.aten.overridden_kernels import computes_otherwise
from mlirc.dialects.control_flow.region_ops import REGION_OPS
from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import func, ir
from mlirc.dialects.core.dialect import IMPORTS, OPS, create
from mlirc.dialects.core.graph_builder import GraphBuilder, NotOurs, UnequalSizes
from mlirc.dialects.core.graph_signature import GUARDS
from mlirc.dialects.core.symbols import Expr, Int
from mlirc.dialects.core.tensor_types import TensorInfo, info_of, type_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.frontend.errors import UnsupportedGraph
from mlirc.frontend.importer import (
    aten_import,
    collectives,
    empty_operands,
    refused_operands,
    storage_readers,
    triton_kernels,
    views,
)
from mlirc.frontend.importer.bodies import all_nodes, attribute, has_regions, is_shared_region, nested_constants
from mlirc.frontend.importer.graph_results import return_results
from mlirc.frontend.importer.locations import erase_from, location_of, mark
from mlirc.frontend.importer.refused_dtypes import refused
from mlirc.frontend.importer.regions import import_regions
from mlirc.frontend.importer.shared_functions import SharedRegion, invoked
from mlirc.frontend.importer.sizes import (
    environment_of,
    guarantees,
    guarded,
    is_ragged_size,
    is_sparse,
    size,
    storage_offset,
    tensor_info,
)
from mlirc.frontend.importer.triton_call import is_triton_kernel
from mlirc.frontend.torch_compat.aot_autograd.higher_order import with_effects
from mlirc.frontend.torch_compat.fake_tensors import storage_id
from mlirc.frontend.torch_compat.older_torch import widen_sums
from mlirc.lowering.host import host_target
from mlirc.lowering.module.target_attribute import set_target

log = logging.getLogger("mlirc")
aten = torch.ops.aten


@dataclass
class Imported:
    """A graph in the dialect, with what a caller needs to run it.

    inputs    positions of the FX placeholders that became arguments (None and unused constants do not)
    constants tensors of the graph module, appended to the arguments, which are marked {mlirc.constant}
    outputs   for each FX output: ("result", k), ("item", k) for a SymFloat, ("truth", k) for a SymBool,
              or ("value", constant); result_views.py has more
    objects   arguments of ATen calls that have no text: subgraphs, generators
    aten      operator name -> (count, why it is not compiled)
    regions   that are to be compiled once
    """

    module: ir.Module
    inputs: list[int] = field(default_factory=list)
    constants: list[torch.Tensor] = field(default_factory=list)
    outputs: list[tuple[str, Any]] = field(default_factory=list)
    objects: list[Any] = field(default_factory=list)
    aten: dict[str, tuple[int, str]] = field(default_factory=dict)
    regions: list[SharedRegion] = field(default_factory=list)


def import_graph(
    gm: GraphModule, parameters: Collection[int] = (), after_node: Callable[[], None] | None = None
) -> Imported:
    """Build the module; needs an entered context (core/context.py). Raises UnsupportedGraph.

    `parameters` are the positions of placeholders that are the model's parameters and buffers. Their arguments are marked {mlirc.parameter},
    because they seldom change between calls. `after_node` is called after each node.
    """
    if kernel_sources() is None:
        raise UnsupportedGraph(
            f"of which operators somebody has overridden the kernels is not known: {kernel_sources.why}"
        )
    widen_sums(gm)
    return GraphImporter(gm, parameters, after_node).run()


class GraphImporter:
    def __init__(self, gm: GraphModule, parameters: Collection[int], after_node: Callable[[], None] | None = None):
        self.gm = gm
        self.after_node = after_node
        self.parameters = frozenset(parameters)
        self.values: dict[Node, Any] = {}  # an ir.Value, a tuple of them, an Int, or any Python constant
        self.imported = Imported(ir.Module.create())
        self.aten_counts: Counter[str] = Counter()
        self.aten_reasons: dict[str, str] = {}
        self.computes_otherwise: dict[Any, list[str]] = {}
        self.argument_of_storage: dict[int, int] = {}
        self.known_sizes: list[Int] = []  # what @graph's arguments give values to
        self.nested_constants: dict[int, ir.Value] = {}  # of tensors that functions hold which operators take, by id
        self.shared: dict[tuple, SharedRegion] = {}
        self.read_storages = storage_readers.read_storages(gm.graph)
        self.given_away = storage_readers.given_away(gm.graph)

    def run(self) -> Imported:
        placeholders = self.gm.graph.find_nodes(op="placeholder")
        constants = [n for n in self.gm.graph.find_nodes(op="get_attr") if isinstance(self.attribute(n), torch.Tensor)]
        nested = nested_constants(self.gm)
        types, attributes, nodes = [], [], []
        for position, node in enumerate(placeholders):
            declared = self.argument(node)
            if declared is None:
                continue
            self.imported.inputs.append(position)
            types.append(declared[0])
            attributes.append(declared[1])
            if position in self.parameters:
                declared[1]["mlirc.parameter"] = ir.UnitAttr.get()
            nodes.append(node)
        for node in constants:
            tensor = self.attribute(node)
            self.imported.constants.append(tensor)
            types.append(type_of(tensor_info(tensor)))
            attributes.append({"mlirc.constant": ir.UnitAttr.get()})
            nodes.append(node)
        for tensor in nested:
            self.imported.constants.append(tensor)
            types.append(type_of(tensor_info(tensor)))
            attributes.append({"mlirc.constant": ir.UnitAttr.get()})
        self.known_sizes = [size for type_ in types if is_tensor(type_) for size in info_of(type_).shape]
        self.known_sizes += [symbols.parse(a["mlirc.symbol"].value) for a in attributes if "mlirc.symbol" in a]
        with ir.InsertionPoint(self.imported.module.body):
            function = func.FuncOp("graph", (types, []))
        function.attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(a) for a in attributes])
        unknown = [ir.Location.unknown()] * len(nested)
        bound = {name for n in self.known_sizes for name in symbols.free_symbols(n)}
        if guards := guarantees(environment_of(self.gm), bound):
            function.attributes[GUARDS] = ir.StringAttr.get(symbols.print_list(guards))
        block = function.add_entry_block([*map(location_of, nodes), *unknown])
        self.nested_constants = dict(zip(map(id, nested), list(block.arguments)[len(nodes) :], strict=True))
        for index, node in enumerate(nodes):
            value = node.meta.get("val")
            if isinstance(value, torch.SymInt):
                continue  # its expression stands for it
            if isinstance(value, torch.Tensor) and not is_sparse(value):
                self.argument_of_storage.setdefault(storage_id(value), index)
            self.values[node] = block.arguments[index]
        with ir.InsertionPoint(block):
            for node in placeholders:
                if isinstance(node.meta.get("val"), torch.SymBool):
                    self.values[node] = GraphBuilder().cast(self.values[node], torch.bool)
            self.nodes()
            return_results(self, function)
        set_target(self.imported.module, host_target(is_on_gpu(self.gm)))
        self.imported.regions = list(self.shared.values())
        self.imported.aten = {name: (count, self.aten_reasons[name]) for name, count in self.aten_counts.items()}
        return self.imported

    def nodes(self) -> None:
        """Builds the ops of all nodes at the insertion point; those of placeholders have values."""
        for node in self.gm.graph.nodes:
            if node.op == "call_function":
                try:
                    with location_of(node):
                        self.values[node] = self.call(node)
                        if node in self.given_away:
                            given = (self.values[node],)
                            self.values[node] = self.by_aten(node, aten.clone.default, given, {}, storage_readers.GIVEN)
                except Exception as error:
                    error.fx_node = node  # type: ignore[attr-defined]  # the report of the error names this node
                    raise
                if self.after_node is not None:
                    self.after_node()
            elif node.op == "get_attr" and node not in self.values:
                value = self.attribute(node)
                self.values[node] = self.nested_constants[id(value)] if isinstance(value, torch.Tensor) else value
            elif node.op in ("call_module", "call_method"):
                raise UnsupportedGraph(f"a node of kind {node.op} ({node.target}) is no functional ATen call")

    def within(self, gm: GraphModule, constants: dict[int, ir.Value]) -> "GraphImporter":
        """What imports the graph of a function that an operator of this graph takes; `constants` are the values of its tensors, by id."""
        inner = GraphImporter(gm, ())
        inner.imported, inner.known_sizes, inner.nested_constants = self.imported, self.known_sizes, constants
        inner.aten_counts, inner.aten_reasons = self.aten_counts, self.aten_reasons
        inner.computes_otherwise, inner.shared = self.computes_otherwise, self.shared
        return inner

    def attribute(self, node: Node) -> Any:
        return attribute(self.gm, node)

    def argument(self, node: Node) -> tuple[ir.Type, dict[str, ir.Attribute]] | None:
        """Type and attributes of a placeholder; None for one that is no argument (a constant, None)."""
        value = node.meta.get("val")
        if is_effect_token(node):
            self.values[node] = None  # the order of effects is the order of ops: tokens are not passed around
            return None
        if is_ragged_size(node):
            return None
        if isinstance(value, torch.Tensor):
            return type_of(tensor_info(value)), {}
        if isinstance(value, torch.SymInt):
            self.values[node] = symbols.symbol(node.meta["symbol"]) if "symbol" in node.meta else size(value)
            text = ir.StringAttr.get(str(self.values[node]))
            return ir.IntegerType.get_signless(64), {"mlirc.symbol": text}
        if isinstance(value, (torch.SymFloat, torch.SymBool)):  # a truth is 1.0 or 0.0
            return type_of(TensorInfo(torch.float64, ())), {"mlirc.scalar": ir.UnitAttr.get()}
        self.values[node] = value
        return None

    # ---- nodes

    def argument_value(self, x: Any) -> Any:
        """An FX argument for a rule: values, size expressions and Python constants, in lists and tuples."""
        if isinstance(x, Node):
            return self.values[x]
        if isinstance(x, (list, tuple)):
            return (
                type(x)(map(self.argument_value, x))
                if type(x) in (list, tuple)
                else [self.argument_value(y) for y in x]
            )
        if isinstance(x, dict):
            return {key: self.argument_value(y) for key, y in x.items()}
        if isinstance(x, torch.SymInt):
            return size(x)
        return x

    def call(self, node: Node) -> Any:
        target: Any = node.target
        if target is aten._efficientzerotensor.default:
            target = aten.zeros.default  # kernels read memory, of which that has none
        promised: Any = node.meta.get("val")
        if target is operator.getitem:
            return self.argument_value(node.args[0])[node.args[1]]
        if isinstance(promised, torch.SymInt):
            return size(promised)
        if isinstance(promised, torch.SymBool):
            raise UnsupportedGraph(f"{target} is true or false by data")
        if isinstance(promised, (bool, int)) and not isinstance(target, torch._ops.HigherOrderOperator):
            return promised  # about sizes: guarded by Dynamo already
        if promised is None and target in (aten._assert_scalar.default, aten.sym_constrain_range_for_size.default):
            return None  # Dynamo guards what these say of backed sizes
        args = aten_import.each_dimension(target, tuple(map(self.argument_value, node.args)))
        kwargs = {key: self.argument_value(x) for key, x in node.kwargs.items()}
        if isinstance(promised, torch.SymFloat):
            return self.float_arithmetic(node, target, args)
        if target is with_effects:
            _, operator_, *rest = args
            results = aten_import.call_aten(
                operator_, tuple(rest), kwargs, node.meta["val"][1:], self.imported.objects, effect=True
            )
            return (None, *results)
        if target not in self.computes_otherwise:
            self.computes_otherwise[target] = computes_otherwise(target)
        keys = self.computes_otherwise[target]
        if (
            keys and target is not aten.copy_.default
        ):  # which is no call, but how AOTAutograd says what an input becomes
            reason = f"its kernel for {', '.join(keys)} is not PyTorch's"
            return self.by_aten(node, target, args, kwargs, reason, overridden=True)
        if any(is_sparse(x) for x in (*flat(promised), *(y.meta.get("val") for y in node.all_input_nodes))):
            return self.by_aten(node, target, args, kwargs, "a tensor is sparse")
        if target is aten.copy_.default:
            return self.assign(node, *args[:2])
        if target is aten.convolution.default and refused_operands.pads_too_much(node):
            return self.by_aten(node, target, args, kwargs, refused_operands.PADS, overridden=True)
        if target in storage_readers.STRIDED and not storage_readers.stays_within(node):
            return self.by_aten(node, target, *storage_readers.checked(node, args, kwargs, self.values))
        if views.is_view(target) and isinstance(args[0], ir.Value):
            if views.is_refused(node):
                return self.by_aten(node, target, args, kwargs, "eager refuses it")
            return self.view(node, args, kwargs)
        if target is aten.as_strided_copy.default:
            return storage_readers.copy(node, self.values)
        if node in self.read_storages:
            made = storage_readers.scatter(node, args, self.values, self.imported.objects)
            if made is None:
                return self.by_aten(node, target, args, kwargs, storage_readers.REASON)
            self.count(aten.as_strided_scatter.default, storage_readers.REASON)
            return made
        if collectives.is_collective(target):
            return collectives.import_collective(self, node, args, kwargs)
        if is_triton_kernel(target):
            return triton_kernels.import_triton_kernel(self, node, kwargs)
        if is_shared_region(target):
            results = invoked(self, node, args)
            return tuple(
                self.with_type(x, tensor_info(v)) if isinstance(v, torch.Tensor) else x
                for x, v in zip(results, flat(promised), strict=True)
            )
        return self.operator(node, target, args, kwargs)

    def operator(self, node: Node, target: Any, args: tuple, kwargs: dict) -> Any:
        promised = node.meta.get("val")
        rule = IMPORTS.get(target) or IMPORTS.get(str(target))
        reason = aten_import.without_op(target, args)
        if has_regions(target):
            marked = mark()
            try:
                results = import_regions(self, node, args)
                made = tuple(self.with_type(x, info_of_fake(v)) for x, v in zip(results, flat(promised), strict=True))
                marked.erase()
                return made
            except NotOurs as error:
                reason = f"{reason}: {error}"
                erase_from(marked)
        if rule is not None and any(isinstance(v, torch.Tensor) and tensor_info(v).may_overlap for v in flat(promised)):
            rule, reason = None, "elements of the result share memory"  # a kernel would write each of them
        if rule is not None and (why := empty_operands.refusal(node)):
            rule, reason = None, why
        if rule is not None and refused_operands.refused(node):
            rule, reason = None, refused_operands.REASON
        if rule is not None and refused_operands.may_divide_by_zero(node):
            rule, reason = None, refused_operands.ZERO_DIVISOR
        if rule is not None:
            infos = [tensor_info(v) if isinstance(v, torch.Tensor) else None for v in flat(promised)]
            builder = GraphBuilder(infos[0] if infos else None, infos)
            marked = mark()
            try:
                made = rule(builder, *args, **kwargs)
                if not refused(node):
                    results = [self.with_type(v, info) for v, info in zip(flat(made), infos, strict=True)]
                    marked.erase()
                    return results[0] if isinstance(promised, torch.Tensor) else tuple(results)
                reason = "its kernel refuses these dtypes or numbers"
            except NotOurs as error:
                reason = str(error)
            erase_from(marked)
        return self.by_aten(node, target, args, kwargs, reason)

    def by_aten(self, node: Node, target: Any, args: tuple, kwargs: dict, reason: str, overridden: bool = False) -> Any:
        """Builds a call of the ATen operator, and counts it with `reason`. Raises UnsupportedGraph where another dtype is promised
        than it gives."""
        refused(node)
        self.count(target, reason)
        value = node.meta.get("val")
        return aten_import.call_aten(target, args, kwargs, value, self.imported.objects, overridden=overridden)

    def count(self, target: Any, reason: str) -> None:
        name = aten_import.operator_text(target)
        self.aten_counts[name] += 1
        self.aten_reasons.setdefault(name, reason)

    def with_type(self, value: Any, info: TensorInfo | None) -> Any:
        """A rule's result, converted to the dtype and strides of the fake tensor."""
        if info is None or value is None:
            return None
        if isinstance(value, (bool, int, float, Expr)):
            value = GraphBuilder(info).cast(value, info.dtype)
        have = info_of(value)
        if have == info:
            return value
        if have.shape != info.shape:
            value = self.resized(value, info.shape)
        if have.dtype != info.dtype:
            value = GraphBuilder(info).cast(value, info.dtype)
        have = info_of(value)
        if (have.stride, have.device) == (info.stride, info.device):
            return value
        op = value.owner
        unused = not isinstance(op, ir.Block) and next(iter(value.uses), None) is None
        fixed = {"mlirc.view", "mlirc.constant", "mlirc.size", "mlircx.aten", *REGION_OPS}
        if unused and op.operation.name not in fixed:
            value.set_type(type_of(info))
            return value
        return create("copy", [value], [type_of(info)]).out

    def resized(self, value: ir.Value, shape: tuple[Int, ...]) -> ir.Value:
        """A rule's result in the sizes that PyTorch promises. By the guards they are equal: s0//2 is 4 in front of a linear layer."""
        have, environment = info_of(value), environment_of(self.gm)
        if environment is None or tuple(guarded(n, environment) for n in have.shape) != shape:
            known = len(have.shape) != len(shape) or all(isinstance(n, int) for n in (*have.shape, *shape))
            raise (AssertionError if known else UnequalSizes)(
                f"a rule made {have.shape} where PyTorch promises {shape}"
            )
        stride = tuple(guarded(n, environment) for n in have.stride)
        index = [symbols.symbol(f"d{k}") for k in range(have.rank)]
        return GraphBuilder(have).view(value, shape, stride, index)

    # ---- views, assignments, scalars

    def view(self, node: Node, args: tuple, kwargs: dict) -> Any:
        promised = node.meta["val"]
        viewed = node.args[0]
        assert isinstance(viewed, Node)
        behind = views.shown_behind_a_number(node)
        if behind is not None:
            viewed, args = behind, (self.values[behind], *args[1:])
        if storage_readers.is_absolute(node):
            storage_readers.refuse_unknown_storage(node)
        source = viewed.meta["val"]
        viewed_info = tensor_info(source)
        made = []
        start: Int = 0
        for fake in flat(promised):
            info = tensor_info(fake)
            offset = storage_offset(fake) - storage_offset(source)
            if node.target is aten.diagonal.default:
                offset = views.diagonal_start(offset, info)
            if storage_readers.is_absolute(node):
                offset = storage_offset(fake) - storage_readers.begins(viewed)
            if isinstance(promised, torch.Tensor):
                index = views.index_map(node.target, viewed_info, info, offset, args, kwargs)
            else:
                index, start = views.part_map(node.target, viewed_info.shape, info.shape, args, kwargs, start)
            have = info_of(args[0])
            if have == info and isinstance(offset, int) and offset == 0:
                made.append(args[0])
                continue
            attributes = {"map": "" if index is None else symbols.print_list(index), "offset": str(offset)}
            if index is None and info.shape and not index_needed(info) and (offset == 0 or info.numel == 0):
                attributes["map"] = symbols.print_list([0] * viewed_info.rank)
            made.append(create("view", [args[0]], [type_of(info)], attributes).out)
        return made[0] if isinstance(promised, torch.Tensor) else made

    def assign(self, node: Node, target: ir.Value, value: Any) -> Any:
        builder = GraphBuilder(info_of(target))
        create("assign", [target, builder.cast(value, info_of(target).dtype)], [])
        return target

    def float_arithmetic(self, node: Node, target: Callable, args: Sequence[Any]) -> Any:
        """Builds arithmetic of SymFloats, which are 0-d float64 tensors."""
        builder = GraphBuilder()
        if target in (torch.sym_float, float):
            return builder.cast(args[0], torch.float64)
        if target is aten._local_scalar_dense.default or getattr(target, "__name__", "") == "item":
            return builder.cast(args[0], torch.float64)
        name = {"truediv": "div"}.get(
            getattr(target, "__name__", ""), getattr(target, "__name__", "").removeprefix("_sym_")
        )
        if name not in OPS:
            raise UnsupportedGraph(f"{target} of a float that is a graph input has no op in the dialect")
        return getattr(builder, name)(*(builder.cast(x, torch.float64) for x in args))


def is_on_gpu(gm: GraphModule) -> bool:
    """Whether a tensor of the graph is on a GPU."""
    values = (x for node in all_nodes(gm) for x in flat(node.meta.get("val")))
    return any(isinstance(x, torch.Tensor) and x.device.type == "cuda" for x in values)


def is_effect_token(node: Node) -> bool:
    """Whether a placeholder is a token that AOTAutograd threads through calls with side effects."""
    return bool(node.users) and all(user.target is with_effects and user.args[0] is node for user in node.users)


def info_of_fake(fake: Any) -> TensorInfo | None:
    return tensor_info(fake) if isinstance(fake, torch.Tensor) else None


def is_tensor(type_: ir.Type) -> bool:
    return isinstance(type_, ir.RankedTensorType)


def index_needed(info: TensorInfo) -> bool:
    """Whether the tensor may have more than one element."""
    return not (isinstance(info.numel, int) and info.numel <= 1)


def flat(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]
