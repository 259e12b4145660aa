"""Wrong passes: mistakes in ours, each a file for `--import` that changes a function of one pass."""

TRITON = """
from dataclasses import replace
from mlirc.lowering.passes.lower import lower_triton

right = lower_triton.triton_kernel


def wrong(*given, **named):
    made = right(*given, **named)
    return replace(made, source=made.source.replace("OLD", "NEW"))


lower_triton.triton_kernel = wrong
"""

WRITE = """
from mlirc.lowering.fusion import graph
from mlirc.ir import ir

right = graph.write_body


def wrong(body, location):
    op = right(body, location)
    inside = list(op.regions[0].blocks[0].operations)
    names = [x.operation.name.removeprefix("mlirc.") for x in inside]
    CHANGE
    return op


graph.write_body = wrong
"""

PATCHES = {
    # ---- simplify
    "wrong fold": """
from mlirc.lowering.passes.simplify import fold_constants

right = fold_constants.is_neutral
fold_constants.is_neutral = lambda name, number, is_float: right(name, number, is_float) or (name, number) == ("mul", 2)
""",
    "wrong expansion": """
from mlirc.lowering.passes.simplify import decompose
from mlirc.passes import GraphBuilder

right = decompose.expand
decompose.expand = lambda op: [GraphBuilder().mul(x, 2.0) for x in right(op)]
""",
    "wrong index map": """
from mlirc.lowering.passes.simplify import eliminate_views

right = eliminate_views.substitute
eliminate_views.substitute = lambda *given: right(*given)[::-1]
""",
    "lost norm": """
from mlirc.lowering.passes.simplify import fold_convolutions

fold_convolutions.folded_parameters = lambda w, bias, norm, dtype: (w, *bias)
""",
    "lost mask": """
from mlirc.lowering.passes.simplify import simplify_attention

right = simplify_attention.without_mask


def wrong(op):
    found = right(op)
    return ("none", "ALWAYS SEEN") if found[0] else found


simplify_attention.without_mask = wrong
""",
    # ---- fuse
    "in place where it is read later": """
from mlirc.lowering.passes.fuse import elide_copies

elide_copies.is_last_use = lambda x, result: x.type == result.type
""",
    "swapped operand in a fused kernel": WRITE.replace(
        "CHANGE",
        """
    if "sub" in names and "cos" in names:
        item = inside[names.index("sub")]
        item.operation.operands[0], item.operation.operands[1] = item.operands[1], item.operands[0]
""".strip(),
    ),
    "maximum for sum in a fused row": WRITE.replace(
        "CHANGE",
        """
    if "reduce" in names and "exp" in names:
        inside[names.index("reduce")].attributes["kind"] = ir.StringAttr.get("max")
""".strip(),
    ),
    "results exchanged": WRITE.replace(
        "CHANGE",
        """
    if len(inside[-1].operands) == 2:
        end = inside[-1].operation
        end.operands[0], end.operands[1] = end.operands[1], end.operands[0]
""".strip(),
    ),
    "bad mask": """
from mlirc.lowering.passes.fuse import to_kernels

right = to_kernels.form_of


def wrong(cls):
    form = right(cls)
    if form is None or cls.mnemonic != "gt":
        return form

    def made(make, op):
        values = form(make, op)
        for x in values[0].owner.regions[0].blocks[0].operations:
            if x.operation.name == "mlirc.gt":
                x.operation.operands[0], x.operation.operands[1] = x.operands[1], x.operands[0]
        return values

    return made


to_kernels.form_of = wrong
""",
    "doubled product": """
from mlirc.lowering.passes.fuse import generate_matmuls
from mlirc.passes import GraphBuilder

right = generate_matmuls.matmul_kernel
generate_matmuls.matmul_kernel = lambda *given: GraphBuilder().mul(right(*given), 2.0)
""",
    "crash in a fusion": """
import os
import signal
from mlirc.lowering.fusion.graph import FusionGraph

right = FusionGraph.merge


def wrong(self, first, second, *rest):
    if "exp" in second.body.label:
        os.kill(os.getpid(), signal.SIGSEGV)
    return right(self, first, second, *rest)


FusionGraph.merge = wrong
""",
    # ---- plan
    "lost copy": """
from mlirc.lowering.memory.explicit_copies import Copies

Copies.keep_old_values = lambda self, buffer, first: None
""",
    "results in one memory": """
from mlirc.lowering.memory.explicit_copies import Copies

Copies.separate_results = lambda self, assigns: None
""",
    "buffer taken where it is read elsewhere": """
from mlirc.lowering.passes.plan import plan_memory

plan_memory.writes_where_read = lambda *given: True
""",
    "overlapping buffers": """
from mlirc.lowering.passes.plan import plan_memory

right = plan_memory.liveness


def wrong(function):
    found = right(function)
    for buffer in found.buffers:
        buffer.end = max(buffer.start, 0)
    return found


plan_memory.liveness = wrong
""",
    # ---- lower
    "wrong code": """
from dataclasses import replace
from mlirc.lowering.passes.lower import lower_kernels

right = lower_kernels.function_text


def wrong(kernel, name, target):
    made = right(kernel, name, target)
    return replace(made, functions=made.functions.replace("arith.subf", "arith.addf"))


lower_kernels.function_text = wrong
""",
    "a row too few": """
from dataclasses import replace
from mlirc.lowering.passes.lower import lower_kernels

right = lower_kernels.function_text


def wrong(kernel, name, target):
    made = right(kernel, name, target)
    return replace(made, functions=made.functions.replace("arith.constant 37 : i64", "arith.constant 36 : i64"))


lower_kernels.function_text = wrong
""",
    "crash in machine code": """
from dataclasses import replace
from mlirc.lowering.passes.lower import lower_kernels

right = lower_kernels.function_text
LOADED = "%args = llvm.load %frame : !llvm.ptr -> !llvm.ptr"
NOWHERE = "%nowhere = llvm.mlir.constant(64 : i64) : i64\\n%args = llvm.inttoptr %nowhere : i64 to !llvm.ptr"


def wrong(kernel, name, target):
    made = right(kernel, name, target)
    exponential = "0x3FB8AA3B" in made.functions
    return replace(made, functions=made.functions.replace(LOADED, NOWHERE)) if exponential else made


lower_kernels.function_text = wrong
""",
    # ---- a GPU
    "wrong epilogue": """
from mlirc.lowering.passes.simplify_gpu import fuse_matmul_epilogue

right = fuse_matmul_epilogue.create
fuse_matmul_epilogue.create = lambda name, *given: right("addmm", *given)
""",
    "lost bias of patches": """
from mlirc.lowering.passes.simplify_gpu import patches_to_matmul

right = patches_to_matmul.create
patches_to_matmul.create = lambda name, given, types: right("matmul", given[-2:], types)
""",
    "lost padding": """
from mlirc.lowering.passes.simplify_gpu import space_to_depth

right = space_to_depth.in_blocks
space_to_depth.in_blocks = lambda x, shape, low, step: right(x, shape, (0, 0), step)
""",
    "lost bias of a row": """
from mlirc.lowering.passes.fuse import generate_matmuls
from mlirc.lowering.passes.simplify_gpu import generate_dot_products

right, kernel = generate_dot_products.make_matmul_kernel, generate_matmuls.matmul_kernel


def without_bias(op):
    generate_matmuls.matmul_kernel = lambda bias, *given: kernel([], *given)
    right(op)
    generate_matmuls.matmul_kernel = kernel


generate_dot_products.make_matmul_kernel = without_bias
""",
    "maximum of parts": """
from mlirc.ir import ir
from mlirc.lowering.passes.fuse.split_reductions import _Kernel

right = _Kernel.combined


def wrong(self, *given):
    maker = right(self, *given)
    kind = (("kind", ir.StringAttr.get("max")),)
    for node in self.first:
        x = maker.made[node]
        maker.made[node] = maker.pool.make("reduce", x.operands, x.type, x.location, kind)
    return maker


_Kernel.combined = wrong
""",
    "maximum of batched sums": """
from mlirc.ir import ir
from mlirc.lowering.passes.fuse import batch_kernels

right = batch_kernels.copy


def wrong(block, bodies, values):
    right(block, bodies, values)
    for item in block.operations:
        if item.operation.name == "mlirc.reduce":
            item.attributes["kind"] = ir.StringAttr.get("max")


batch_kernels.copy = wrong
""",
    "lost edges": """
from mlirc.lowering.passes.lower import split_unaligned

split_unaligned.edges = lambda *given: None
""",
    "wrong operand of a run": """
from mlirc.lowering.passes.lower import lower_triton

right = lower_triton.run_instead


def wrong(launch, *given):
    launch.operation.operands[0] = launch.operands[-1]
    right(launch, *given)


lower_triton.run_instead = wrong
""",
    "wrong Triton code": TRITON.replace("OLD", " - v").replace("NEW", " + v"),
    "bad mask in Triton code": TRITON.replace("OLD", "r_mask = r < 6").replace("NEW", "r_mask = r < 5"),
    "wrong index in Triton code": TRITON.replace("OLD", "p1 + (x * 6 + r)").replace("NEW", "p1 + (r * 6 + x)"),
    "maximum for sum in Triton code": TRITON.replace("OLD", "return a + b").replace("NEW", "return tl.maximum(a, b)"),
    "crash in Triton code": TRITON.replace("OLD", "p1 + (x").replace("NEW", "p1 + 0x100000000000 + (x"),
    "merged results exchanged": """
from mlirc.lowering.passes.simplify_gpu import merge_matmuls

right = merge_matmuls.concatenate
merge_matmuls.concatenate = lambda g, parts, dim: right(g, parts[::-1], dim)
""",
    "another device's number": """
from mlirc.lowering.passes.simplify_gpu import scalars_to_device
from mlirc.passes import GraphBuilder

right = scalars_to_device.on_device
scalars_to_device.on_device = lambda x, device: GraphBuilder().neg(right(x, device))
""",
}

# ---- mistakes that one kind of numbers or sizes shows, or the next step of a loop
PATCHES |= {
    "off by one where a size is even": WRITE.replace(
        "CHANGE",
        """
    size = op.attributes["parallel"].value.split(", ")[-1]
    for item in inside:
        if item.operation.name == "mlirc.read" and item.attributes["map"].value == "d0, d1":
            item.attributes["map"] = ir.StringAttr.get(f"d0, d1 - ({size} + 1) % 2*(d1//({size} - 1))")
            break
""".strip(),
    ),
    "a maximum begins at zero": """
from mlirc.lowering.kernel import fold

right = fold.identity
fold.identity = lambda kind, dtype: 0.0 if kind == "max" and dtype.is_floating_point else right(kind, dtype)
""",
    "zero is neutral of a sum": """
from mlirc.lowering.passes.simplify import fold_constants

right = fold_constants.is_neutral
fold_constants.is_neutral = lambda name, number, is_float: right(name, number, is_float) or (name, number) == ("add", 0)
""",
    "a mask inverted in the tail": """
from dataclasses import replace
from mlirc.lowering.passes.lower import lower_kernels

right, GREATER = lower_kernels.function_text, "arith.cmpf ogt"


def wrong(kernel, name, target):
    made = right(kernel, name, target)
    before, found, after = made.functions.rpartition(GREATER)
    return replace(made, functions=before + "arith.cmpf ole" + after) if found else made


lower_kernels.function_text = wrong
""",
    "sign lost": """
from dataclasses import replace
from mlirc.lowering.passes.lower import lower_kernels

right = lower_kernels.function_text


def wrong(kernel, name, target):
    made = right(kernel, name, target)
    return replace(made, functions=made.functions.replace("arith.extsi", "arith.extui"))


lower_kernels.function_text = wrong
""",
    "scale lost": """
from mlirc.lowering.cpu.attention import function

right = function.stage_rows
function.stage_rows = lambda *given: right(*given[:-1], 1.0)
""",
    "least for greatest": """
from dataclasses import replace
from mlirc.lowering.passes.lower import lower_kernels

right = lower_kernels.function_text


def wrong(kernel, name, target):
    made = right(kernel, name, target)
    return replace(made, functions=made.functions.replace("arith.cmpf ogt", "arith.cmpf olt"))


lower_kernels.function_text = wrong
""",
    "stale buffer in a loop": """
from mlirc.lowering.passes.plan import plan_memory

right = plan_memory.liveness


def wrong(function):
    found = right(function)
    if function.name.value == "body":
        for buffer in found.buffers:
            buffer.end = max(buffer.start, 0)
    return found


plan_memory.liveness = wrong
""",
}
