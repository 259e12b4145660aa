"""Wrong passes, planted by `mlirc run --import`: each makes one mistake that verifies, and nothing else."""

import dataclasses
from dataclasses import dataclass

from mlirc.dialects.core.dialect import attribute_value, create
from mlirc.ir import info_of, ir
from mlirc.passes import GraphBuilder, register

KERNELS = ("mlircx.kernel", "mlircx.launch", "mlircx.run")


def planted(name):
    """Decorator: a pass that gives each top-level op to the function, until it returns True, and asks for each as for a rewrite."""

    def make(change):
        @dataclass(frozen=True)
        class Planted:
            __doc__ = change.__doc__

            def run(self, function, ledger):
                for op in list(function.regions[0].blocks[0].operations):
                    if ledger.allows(name, op) and change(op):
                        return

        Planted.name = name
        register(Planted)
        return change

    return make


def bodies(op, name):
    """Ops of this name in the body of a kernel."""
    if op.operation.name not in KERNELS:
        return []
    return [x for x in op.regions[0].blocks[0].operations if x.operation.name == name]


def replace(op, name):
    """Another op of the same operands in its place."""
    with ir.InsertionPoint(op), op.location:
        made = create(name, list(op.operands), [r.type for r in op.results])
    for old, new in zip(op.results, made.operation.results, strict=True):
        old.replace_all_uses_with(new)
    op.operation.erase()
    return True


# ---- the graph


@planted("swap-operands")
def swap_operands(op):
    """A subtraction the other way round."""
    if op.operation.name == "mlirc.sub":
        a, b = op.operands
        op.operation.operands[0], op.operation.operands[1] = b, a
        return True
    return False


@planted("wrong-fold")
def wrong_fold(op):
    """A constant that is one bit off in its exponent."""
    if op.operation.name == "mlirc.constant" and attribute_value(op.attributes["value"]).endswith("p+1"):
        value = attribute_value(op.attributes["value"])
        op.attributes["value"] = ir.StringAttr.get(value.replace("p+1", "p+2"))
        return True
    return False


@planted("sine-for-cosine")
def sine_for_cosine(op):
    """sin for cos."""
    return op.operation.name == "mlirc.cos" and replace(op, "sin")


@planted("forget-negation")
def forget_negation(op):
    """-x becomes x."""
    if op.operation.name == "mlirc.neg":
        op.results[0].replace_all_uses_with(op.operands[0])
        return True
    return False


@planted("wrong-view")
def wrong_view(op):
    """A slice that begins an element later."""
    if op.operation.name == "mlirc.view" and attribute_value(op.attributes["offset"]) == "2":
        op.attributes["offset"] = ir.StringAttr.get("3")
        return True
    return False


@planted("square-product")
def square_product(op):
    """x @ x for x @ y, where both are square."""
    if op.operation.name == "mlirc.matmul" and info_of(op.operands[0]) == info_of(op.operands[1]):
        op.operation.operands[1] = op.operands[0]
        return True
    return False


@planted("forget-update")
def forget_update(op):
    """An input that is not overwritten."""
    if op.operation.name == "mlirc.assign":
        op.operation.erase()
        return True
    return False


# ---- kernels


@planted("wrong-map")
def wrong_map(op):
    """A square operand that is read transposed."""
    for read in bodies(op, "mlirc.read"):
        if attribute_value(read.attributes["map"]) == "d0, d1":
            read.attributes["map"] = ir.StringAttr.get("d1, d0")
            return True
    return False


@planted("maximum-for-sum")
def maximum_for_sum(op):
    """A fold of another kind."""
    for fold in bodies(op, "mlirc.reduce"):
        if attribute_value(fold.attributes["kind"]) == "sum":
            fold.attributes["kind"] = ir.StringAttr.get("max")
            return True
    return False


@planted("wrong-epilogue")
def wrong_epilogue(op):
    """The last op of a kernel, an addition, becomes a subtraction."""
    return any(replace(x, "sub") for x in bodies(op, "mlirc.add")[-1:])


@planted("yield-before-last")
def yield_before_last(op):
    """A kernel that writes what it had before its last op."""
    for end in bodies(op, "mlircx.yield"):
        last = end.operands[0].owner
        if not isinstance(last, ir.Block) and last.name == "mlirc.exp":
            end.operation.operands[0] = last.operands[0]
            return True
    return False


@planted("fuse-across-mutation")
def fuse_across_mutation(op):
    """A kernel that reads an input goes behind what overwrites it. (Values keep what they held: a copy is what is lost later.)"""
    if op.operation.name == "mlirc.copy":
        op.results[0].replace_all_uses_with(op.operands[0])
        return True
    return False


# ---- memory


@planted("overlapping-buffers")
def overlapping_buffers(op):
    """All buffers at the start of the arena."""
    if op.operation.name == "mlirc.slot" and attribute_value(op.attributes["offset"]) != "0":
        op.attributes["offset"] = ir.StringAttr.get("0")
    return False


@planted("lose-copy")
def lose_copy(op):
    """A copy that is not made: a launch that moves elements and computes none."""
    names = (
        [x.operation.name for x in op.regions[0].blocks[0].operations] if op.operation.name == "mlircx.launch" else []
    )
    if names == ["mlirc.read", "mlircx.yield"]:
        op.operation.erase()
        return True
    return False


@planted("wrong-output")
def wrong_output(op):
    """A library call whose operands change places."""
    if op.operation.name == "mlircx.call" and attribute_value(op.attributes["callee"]) == "matmul":
        a, b = op.operands[0], op.operands[1]
        op.operation.operands[0], op.operation.operands[1] = b, a
        return True
    return False


@planted("other-strides")
def other_strides(op):
    """A result that lies by columns, where rows were promised."""
    if op.operation.name != "func.return":
        return False
    info = info_of(op.operands[0])
    with ir.InsertionPoint(op), op.location:
        made = GraphBuilder().copy(op.operands[0], dataclasses.replace(info, stride=(1, info.shape[0])))
    op.operation.operands[0] = made
    function = op.operation.parent
    types = [a.type for a in function.regions[0].blocks[0].arguments], [x.type for x in op.operands]
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(*types))
    return True


# ---- lowered kernels: the body stays right


@planted("wrong-code")
def wrong_code(op):
    """A lowered kernel's code multiplies where it should add."""
    if op.operation.name != "mlircx.run":
        return False
    module = op.operation.parent.parent
    code = [
        f
        for f in module.regions[0].blocks[0].operations
        if attribute_value(f.operation.attributes["sym_name"]).startswith("kernel_")
    ]
    return any(multiplied(x) for f in code for x in walked(f))


def walked(op):
    for region in op.regions:
        for block in region.blocks:
            for inside in list(block.operations):
                yield inside
                yield from walked(inside)


def multiplied(op):
    if op.operation.name != "arith.addf":
        return False
    with ir.InsertionPoint(op), op.location:
        made = ir.Operation.create("arith.mulf", [op.results[0].type], list(op.operands))
    op.results[0].replace_all_uses_with(made.results[0])
    op.operation.erase()
    return True
