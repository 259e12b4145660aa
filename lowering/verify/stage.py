"""The verifier of each form: graph, kernel, memory and lowered.

MLIR's own verifier checks operands, results and attributes of `mlirc` ops; this one checks what it cannot see: which
ops may appear, text attributes, the ops of the `mlircx` namespace, kernel bodies (verify/kernel.py).
"""

import re
from collections.abc import Callable
from typing import Any

from mlirc.dialects.control_flow.region_ops import REGION_OPS, is_shared, module_body, region_functions
from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import OPS, attribute_value
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import info_of
from mlirc.lowering.kernel.nodes import structural_key
from mlirc.lowering.module.forms import ATEN, FLEX, GENERATED, LIBRARY, MADE_BY, NUMBERS, may_hold, stage_of
from mlirc.lowering.module.rules import (
    StageError,
    callee_of,
    expect,
    expression,
    list_attribute,
    rules_of,
    text_attribute,
)
from mlirc.lowering.verify.accesses import verify_accesses
from mlirc.lowering.verify.graph import verify_meaning
from mlirc.lowering.verify.kernel import verify_kernel
from mlirc.lowering.verify.memory import MemoryVerifier
from mlirc.lowering.verify.overlaps import verify_overlaps
from mlirc.lowering.verify.regions import verify_arena, verify_regions

Known = set[tuple]
"""Keys (`body_key`) of kernels that were verified before. Most kernels of a net are equal, and do not change between the memory
form and the lowered form, so each is verified once."""


def verify_stage(
    function: Any,
    stage: str,
    known: Known | None = None,
    proofs: str = "demanded",
    around: MemoryVerifier | None = None,
) -> tuple[Int, ...]:
    """Raises StageError, one line with the op, its source line, what was expected and what to do.

    stage    "graph", "kernel", "memory" or "lowered"
    known    kernels that are not verified again; those that are verified here are added
    proofs   whether accesses must be proved to stay within their buffers. "demanded": an op without a proof is refused; "tried":
             an op is refused where sizes are found for which it is wrong; "none": no proofs, as passes made it from a verified module
    around   for a region's function, the verifier of the function that its op is in

    Needs an entered context. Returns expressions that must be at least 0 whenever the function runs (verify/memory.py).
    """
    known = set() if known is None else known
    with rules_of(function):
        memory = begin(function, stage, proofs, around)
        functions = module_body(function).operations
        kernels = {attribute_value(op.attributes["sym_name"]) for op in functions if "sym_name" in op.attributes}
    invoked: set[str] = set()
    for op in function.regions[0].blocks[0].operations:
        with rules_of(op):
            verify_op(function, op, stage, kernels, known, memory)
            for nested in region_functions(op):
                if is_shared(nested):
                    if nested.name.value in invoked:
                        continue
                    invoked.add(nested.name.value)
                planned = stage in ("memory", "lowered")
                own = stage if planned else stage_of(nested) or stage
                obligations = verify_stage(nested, own, known, proofs, memory)
                if memory is not None:
                    memory.obligations |= dict.fromkeys(obligations)
            if memory is not None and region_functions(op):
                verify_arena(op, memory)
    return tuple(memory.obligations) if memory is not None else ()


def begin(function: Any, stage: str, proofs: str, around: MemoryVerifier | None = None) -> MemoryVerifier | None:
    """Checks what is said of the function as a whole, before its ops. Returns the verifier of its memory, or None without proofs."""
    expect(len(function.regions[0].blocks) == 1, function, "more than one block", "a graph is straight-line")
    operations = list(function.regions[0].blocks[0].operations)
    ends = bool(operations) and operations[-1].operation.name == "func.return"
    expect(ends, function, "ends in another op than func.return", "return the results")
    for op in operations:
        name = op.operation.name
        if name != "func.return" and not may_hold(stage, name):
            raise StageError(op, f"no op of the {stage} form", _advice(name, stage))
    if stage in ("memory", "lowered"):
        here = function.attributes.get("mlirc.arena", None)
        expect(here is not None, function, "no attribute mlirc.arena", "run plan-memory")
        expression(function, "mlirc.arena")
    if proofs == "none":
        return None
    memory = MemoryVerifier(function, proofs == "demanded")
    if around is not None:
        memory.facts, memory.bound = around.facts, set(around.bound)
    verify_arguments(function)
    memory.begin()
    return memory


def verify_op(
    function: Any, op: Any, stage: str, kernels: set[str], known: Known, memory: MemoryVerifier | None
) -> None:
    name = op.operation.name
    if name == "func.return":
        verify_results(function, op)
    else:
        if stage in ("memory", "lowered") and name in NUMBERS:
            number = not isinstance(op.results[0].type, ir.RankedTensorType)
            expect(number, op, f"a tensor in the {stage} form; only plain numbers stay", "run plan-memory")
        for value in op.results:
            try:
                info_of(value)
            except (ValueError, KeyError) as error:
                raise StageError(op, f"a result's type is not one of ours: {error}", "see tensor_types.py") from error
        check(op, known, memory)
        if name == "mlircx.run":
            verify_run(op)
            kernel = text_attribute(op, "kernel")
            expect(kernel in kernels, op, f"no function @{kernel} in the module", "run lower-kernels")
    if memory is not None:
        memory.op(op)


def check(op: Any, known: Known, memory: MemoryVerifier | None) -> None:
    """Verifies an op by its own rules, and, where there is a `memory`, what it reads and writes there."""
    with rules_of(op):
        _check(op, known, memory)


def _check(op: Any, known: Known, memory: MemoryVerifier | None) -> None:
    name = op.operation.name
    if name in CHECKS:
        CHECKS[name](op)
    if name in BODIES:
        # in what our own passes lowered, the code of equal bodies is one function: its name and the types stand for the body
        key = run_key(op) if memory is None and name == "mlircx.run" else body_key(op)
        verify_body(op, key, known)
        if memory is not None:
            count = len(op.operands) if name == "mlircx.kernel" else input_count(op)
            infos = [info_of(x) for x in (*op.operands, *op.results)]
            accesses = lambda: verify_accesses(op, infos[:count], infos[count:], memory)
            if key is None:
                accesses()
            else:
                memory.once(("accesses", name, key, *infos), accesses)
            if name != "mlircx.kernel":
                verify_overlaps(op, memory)
    elif memory is not None:
        if name in LIBRARY or name == "mlircx.call":
            if name != "mlircx.call" or text_attribute(op, "callee") != "copy":
                verify_device(op)
            if name in FLEX or (name == "mlircx.call" and f"mlircx.{text_attribute(op, 'callee')}" in FLEX):
                from mlirc.lowering.verify.flex_attention import verify_flex_accesses

                verify_flex_accesses(op, memory)
            elif f"mlirc.{callee_of(op)}" in GENERATED:
                from mlirc.lowering.verify.call_sizes import verify_call_sizes

                verify_call_sizes(op, memory)
        verify_meaning(op, memory, lambda made: check(made, known, memory))


def _advice(name: str, stage: str) -> str:
    if stage == "graph":
        return f"the graph form holds {', '.join(sorted(OPS)[:3])}, ... and ATen calls: `mlirc opt --list-ops`"
    if name.startswith("mlirc"):
        return f"run {MADE_BY[stage]}, or report what it left behind"
    return f"convert it to mlirc ops before {MADE_BY[stage]}"


# ---- the function


def verify_arguments(function: Any) -> None:
    for k, argument in enumerate(function.regions[0].blocks[0].arguments):
        number = str(argument.type) in ("i64", "f64")
        tensor = isinstance(argument.type, ir.RankedTensorType)
        expect(number or tensor, function, f"argument {k} is a {argument.type}", "graphs take tensors, i64 and f64")
        if tensor:
            try:
                info_of(argument)
            except (ValueError, KeyError) as error:
                raise StageError(function, f"argument {k}: {error}", "see tensor_types.py") from error


ALIAS_GROUPS = 'mlirc.results holds "g0", ...; "arg0", ... for arguments; "size" and "float0", ... for plain numbers'


def verify_results(function: Any, op: Any) -> None:
    if "mlirc.results" not in function.attributes:
        return
    groups = attribute_value(function.attributes["mlirc.results"])
    results = len(op.operands)
    expect(len(groups) == results, op, f"{len(groups)} alias groups for {results} results", "set mlirc.results")
    count = len(function.regions[0].blocks[0].arguments)
    for group in groups:
        argument = re.fullmatch(r"arg(\d+)", group)
        fits = int(argument[1]) < count if argument else re.fullmatch(r"g\d+|float\d+|size", group)
        expect(bool(fits), op, f'"{group}" is no alias group', ALIAS_GROUPS)


# ---- ops of the graph and kernel stages


def verify_view(op: Any) -> None:
    x, out = info_of(op.operands[0]), info_of(op.results[0])
    same = x.dtype.itemsize == out.dtype.itemsize
    expect(same, op, f"a view of {x.dtype} as {out.dtype}", "a view keeps the elements' size")
    expect(x.device == out.device, op, f"a view of {x.device} on {out.device}", "copy between devices by an ATen call")
    expression(op, "offset")
    map_ = list_attribute(op, "map")
    given = not text_attribute(op, "map") or len(map_) == x.rank
    expect(given, op, f"a map of {len(map_)} indices into {x.rank} dimensions", 'one each, or "" for none')


def verify_copy(op: Any) -> None:
    expect(len(op.operands) + len(op.results) == 2, op, "copies other than one tensor", "one, to one")
    x, out = (info_of(v) for v in (*op.operands, *op.results))
    same = (x.dtype, x.shape) == (out.dtype, out.shape)
    expect(same, op, f"{x.dtype} {x.shape} becomes {out.dtype} {out.shape}", "a copy changes strides only")


def verify_assign(op: Any) -> None:
    target, value = info_of(op.operands[0]), info_of(op.operands[1])
    expect(target.dtype == value.dtype, op, f"writes {value.dtype} into {target.dtype}", "cast the value first")
    base = op.operands[0]
    while not isinstance(base.owner, ir.Block):
        name = base.owner.name
        expect(name == "mlirc.view" or name in ATEN, op, f"the target comes from {name}", "overwrite arguments only")
        base = base.owner.operands[0]


def verify_matmul(op: Any) -> None:
    values = [info_of(v) for v in (*op.operands, *op.results)]
    count = 3 if callee_of(op) == "matmul" else 4
    expect(len(values) == count, op, f"{len(values)} operands and results", f"there are {count}")
    *bias, x, y, out = values
    ranks = x.rank == y.rank == out.rank and x.rank in (2, 3)
    expect(ranks, op, f"ranks {x.rank}, {y.rank} and {out.rank}", "matmuls are of matrices, or of one batch of them")
    if callee_of(op) == "addmm_gelu":
        expect(out.device != "cpu", op, "a matmul with GELU on the CPU", "write addmm and gelu, which passes merge")
    dtypes = {i.dtype for i in (*bias, x, y, out)}
    expect(len(dtypes) == 1, op, "operands and result of several dtypes", "cast them")
    fits = x.shape[-1] == y.shape[-2] and out.shape[-2:] == (x.shape[-2], y.shape[-1])
    expect(fits, op, f"{x.shape} @ {y.shape} gives no {out.shape}", "permute or view the operands first")
    expect(len({i.shape[:-2] for i in (x, y, out)}) == 1, op, f"batches of {x.shape} and {y.shape}", "as many in each")
    for info in bias:
        spread = info.rank <= out.rank and all(
            n in (1, m) for n, m in zip(reversed(info.shape), reversed(out.shape), strict=False)
        )
        expect(spread, op, f"a bias {info.shape} for {out.shape}", "one that broadcasts")


def verify_device(op: Any) -> None:
    devices = sorted(
        {info_of(x).device for x in (*op.operands, *op.results) if isinstance(x.type, ir.RankedTensorType)}
    )
    expect(len(devices) <= 1, op, f"tensors on {' and '.join(devices)}", "a kernel is on one device: copy what is not")


def verify_body(op: Any, key: tuple | None, known: Known) -> None:
    """Verifies the body of a kernel, launch or run, once for equal bodies: those of one key, `body_key`."""
    if key is None or key not in known:
        BODIES[op.operation.name](op)
        if key is not None:
            known.add(key)


def body_key(op: Any) -> tuple | None:
    """All that BODIES look at; None where it cannot be told, as the op is wrong."""
    try:
        (block,) = (block for region in op.regions for block in region.blocks)
        inputs = op.attributes.get("inputs", None)
        values = tuple(x.type for x in (*block.arguments, *op.results))
        return inputs, isinstance(op.attributes["label"], ir.StringAttr), values, structural_key(op)
    except (KeyError, IndexError, ValueError, TypeError):
        return None


def run_key(op: Any) -> tuple | None:
    """Equal for runs of one kernel on tensors of the same types; None where it cannot be told, as the op is wrong."""
    try:
        labelled = isinstance(op.attributes["label"], ir.StringAttr)
        types = tuple([x.type for x in (*op.operands, *op.results)])
        return op.attributes["kernel"], op.attributes["inputs"], labelled, len(op.regions[0].blocks), types
    except (KeyError, IndexError):
        return None


def verify_kernel_op(op: Any) -> None:
    verify_device(op)
    yields = verify_kernel(op, [info_of(x) for x in op.operands])
    results = [info_of(x) for x in op.results]
    verify_yield(op, yields, results)


def verify_yield(op: Any, yields: list[tuple[Any, int]], results: list[Any]) -> None:
    expect(len(yields) == len(results), op, f"yields {len(yields)} values for {len(results)} results", "one for each")
    for k, ((dtype, rank), info) in enumerate(zip(yields, results, strict=True)):
        expect(dtype == info.dtype, op, f"yields {dtype} as result {k}, which is {info.dtype}", "cast the value")
        expect(rank == info.rank, op, f"map {k} has {rank} indices for {info.rank} dimensions", "one for each")


def verify_aten(op: Any) -> None:
    name = text_attribute(op, "op")
    expect(name.count(".") >= 1, op, f"'{name}' names no operator", "write it as aten.add.Tensor")
    text_attribute(op, "args")
    aliases = list_attribute(op, "aliases")
    expect(len(aliases) == len(op.results), op, f"{len(aliases)} aliases for {len(op.results)} results", "-1 for none")
    for alias in aliases:
        known = isinstance(alias, int) and -1 <= alias < len(op.operands)
        expect(known, op, f"alias {alias} is no operand", "an operand's number, or -1")


def verify_generated(op: Any) -> None:
    """Verifies an op that kernels of our own are written for, or its call. A graph without such ops loads none of their rules."""
    callee = callee_of(op)
    if callee in ("attention", "attention_backward"):
        from mlirc.lowering.cpu.attention.call import verify_attention, verify_backward

        return verify_attention(op) if callee == "attention" else verify_backward(op)
    if callee == "depthwise_weight_gradient":
        from mlirc.lowering.cpu.convolution.depthwise_call import verify_depthwise

        return verify_depthwise(op)
    from mlirc.lowering.cpu.convolution.call import verify_convolution

    return verify_convolution(op)


def verify_flex(op: Any) -> None:
    from mlirc.lowering.verify.flex_attention import verify_flex_attention

    verify_flex_attention(op)


# ---- ops of the memory stage


def verify_slot(op: Any) -> None:
    offset = expression(op, "offset")
    aligned = isinstance(offset, int) and offset % 64 == 0 and offset >= 0
    if isinstance(offset, symbols.Expr):
        aligned = all(c % 64 == 0 for c in offset.terms.values())
    expect(aligned, op, f"the offset {offset} is no multiple of 64", "place the slot at one")


def input_count(op: Any) -> int:
    expect("inputs" in op.attributes, op, "no attribute inputs", "say how many operands are read")
    count = attribute_value(op.attributes["inputs"])
    fits = isinstance(count, int) and 0 <= count <= len(op.operands)
    expect(fits, op, f"{count} inputs among {len(op.operands)} operands", "say how many operands are read")
    return count


def verify_launch(op: Any) -> None:
    verify_device(op)
    count = input_count(op)
    infos = [info_of(x) for x in op.operands]
    verify_yield(op, verify_kernel(op, infos[:count]), infos[count:])


def verify_call(op: Any) -> None:
    """Verifies a library call by the rule of the graph op that it comes from."""
    callee = text_attribute(op, "callee")
    name = f"mlircx.{callee}" if f"mlircx.{callee}" in FLEX else f"mlirc.{callee}"
    expect(name in LIBRARY or callee == "copy", op, f"no routine '{callee}'", "see dialects/interpreter/callees.py")
    outputs = len(op.operands) - input_count(op)
    expect(outputs >= 1, op, "writes nothing", "the operands after the inputs are written")
    if name not in GENERATED and name not in FLEX:
        expect(outputs == 1, op, f"writes {outputs} tensors", "one")
    CHECKS[name](op)


def verify_run(op: Any) -> None:
    """Verifies a run's symbols and messages. BODIES has the rule for its body."""
    list_attribute(op, "symbols")
    checks = sum(item.operation.name == "mlirc.check_index" for item in op.regions[0].blocks[0].operations)
    messages = attribute_value(op.attributes["messages"]) if "messages" in op.attributes else []
    expect(len(messages) == checks, op, f"{len(messages)} messages for {checks} check_index", "one for each")


CHECKS: dict[str, Callable[[Any], None]] = {
    "mlirc.view": verify_view,
    "mlirc.copy": verify_copy,
    "mlirc.assign": verify_assign,
    "mlirc.matmul": verify_matmul,
    "mlirc.addmm": verify_matmul,
    "mlirc.addmm_gelu": verify_matmul,
    **dict.fromkeys(GENERATED, verify_generated),
    "mlircx.aten": verify_aten,
    "mlircx.aten_effect": verify_aten,
    "mlirc.slot": verify_slot,
    "mlircx.call": verify_call,
    **dict.fromkeys(REGION_OPS, verify_regions),
    **dict.fromkeys(FLEX, verify_flex),
}
BODIES: dict[str, Callable[[Any], None]] = {
    "mlircx.kernel": verify_kernel_op,
    "mlircx.launch": verify_launch,
    "mlircx.run": verify_launch,
}
