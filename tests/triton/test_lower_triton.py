"""The pass lower-triton: which launches become what."""

import re

from mlirc.codegen.cuda.triton_compile import compile_kernels, kernel_source
from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.dialects.core.dialect import attribute_value
from mlirc.lowering.pipeline.pass_manager import run_pipeline

GPU = 'tensor<?x768xf32, {size = "s0, 768", device = "cuda:0"}>'


def launch(x: str, y: str, type_: str, label: str = "neg", op: str = "neg") -> str:
    return f"""
  "mlircx.launch"({x}, {y}) ({{
  ^bb0(%a: {type_}):
    %r = "mlirc.read"(%a) {{map = "d0, d1", masked = false}} : ({type_}) -> f32
    %n = "mlirc.{op}"(%r) : (f32) -> f32
    "mlircx.yield"(%n) {{maps = ["d0, d1"]}} : (f32) -> ()
  }}) {{parallel = "s0, 768", inner = "", label = "{label}", inputs = 1 : i64}} : ({type_}, {type_}) -> ()"""


def lowered(
    *launches: str, pipeline: str = "lower-triton", type_: str = GPU, before: str = "", given: str = ""
) -> ir.Module:
    """`given`: the argument's type where it is not the result's."""
    module = ir.Module.parse(f"""
func.func @graph(%x: {given or type_}) -> {type_} attributes {{mlirc.arena = "0"}} {{
  %y = "mlirc.allocate"() : () -> {type_}
  {before}{"".join(launches)}
  return %y : {type_}
}}""")
    run_pipeline(module, pipeline)
    return module


def named(module: ir.Module, name: str) -> list:
    function = module.body.operations[0]
    ops = [*module.body.operations, *function.regions[0].blocks[0].operations]
    return [op for op in ops if op.operation.name == name]


def test_equal_launches_share_a_kernel():
    with context():
        module = lowered(launch("%x", "%y", GPU), launch("%x", "%y", GPU, "other"), launch("%x", "%y", GPU, op="exp"))
        runs, kernels = named(module, "mlircx.run"), named(module, "mlirc.triton")
        assert [attribute_value(op.attributes["kernel"]) for op in runs] == [
            "kernel_0_neg",
            "kernel_0_neg",
            "kernel_1_neg",
        ]
        assert [attribute_value(op.attributes["sym_name"]) for op in kernels] == ["kernel_0_neg", "kernel_1_neg"]
        assert attribute_value(runs[0].attributes["symbols"]) == "s0"
        assert attribute_value(kernels[0].attributes["signature"]) == ["*fp32", "*fp32", "i64"]


def test_the_text_is_all_that_is_needed():
    with context():
        text = str(lowered(launch("%x", "%y", GPU)))
        (kernel,) = named(ir.Module.parse(text), "mlirc.triton")
        grid = [symbols.parse(s) for s in attribute_value(kernel.attributes["grid"])]
        constants = {n.name: attribute_value(n.attr) for n in ir.DictAttr(kernel.attributes["constants"])}
        made = compile_kernels([kernel_source(kernel)])
    assert made[0].cubin and made[0].name == "kernel_0_neg"
    for rows in (0, 1, 7, 1000):
        programs = -(-rows * 768 // constants["XBLOCK"])
        assert [symbols.evaluate(n, {"s0": rows}) for n in grid] == [programs, 1, 1]


def test_launches_on_the_cpu_are_left_to_lower_kernels():
    cpu = GPU.replace(', device = "cuda:0"', "")
    with context():
        module = lowered(launch("%x", "%y", cpu), type_=cpu)
        assert len(named(module, "mlircx.launch")) == 1 and not named(module, "mlirc.triton")
        both = lowered(launch("%x", "%y", cpu), type_=cpu, pipeline="lower-triton,lower-kernels")
        assert len(named(both, "mlircx.run")) == 1


def test_alignment():
    given = GPU.replace("s0, 768", "2*s0 + 1, 768")
    view = f'%v = "mlirc.view"(%x) {{map = "", offset = "OFFSET"}} : ({given}) -> {GPU}\n'
    for offset, pipeline, divisible in (
        ("4", "lower-triton", [0, 1]),
        ("2", "lower-triton", [1]),
        ("4*s0", "lower-triton", [0, 1]),
        ("0", "lower-triton{aligned-arguments=false}", [1]),
    ):
        with context():
            before = view.replace("OFFSET", offset)
            module = lowered(launch("%v", "%y", GPU), before=before, pipeline=pipeline, given=given)
            (kernel,) = named(module, "mlirc.triton")
            assert attribute_value(kernel.attributes["divisible"]) == divisible, offset


def test_what_aten_returns_is_taken_to_be_aligned():
    call = f'%v = "mlircx.aten"(%x) {{op = "aten.clone.default", args = "[]", aliases = "-1"}} : ({GPU}) -> {GPU}\n'
    for pipeline, divisible in (("lower-triton", [0, 1]), ("lower-triton{aligned-arguments=false}", [1])):
        with context():
            (kernel,) = named(lowered(launch("%v", "%y", GPU), before=call, pipeline=pipeline), "mlirc.triton")
            assert attribute_value(kernel.attributes["divisible"]) == divisible


def test_large_tensors_have_wide_indices():
    wide = 'tensor<3000000x768xf32, {device = "cuda:0"}>'
    text = launch("%x", "%y", wide).replace("s0, 768", "3000000, 768")
    with context():
        (kernel,) = named(lowered(text, type_=wide), "mlirc.triton")
        assert "tl.int64" in attribute_value(kernel.attributes["source"])
        narrow = wide.replace("3000000", "2000000")
        (kernel,) = named(lowered(text.replace("3000000", "2000000"), type_=narrow), "mlirc.triton")
        assert "tl.int64" not in attribute_value(kernel.attributes["source"])


def test_warps_wait_for_each_other_where_an_output_is_an_input():
    """A row is read by other warps than write it. Slots at one place are one memory, an argument is what its views are."""
    flat = 'tensor<?xf32, {size = "768*s0", device = "cuda:0"}>'
    before = f"""%s0 = "mlirc.slot"() {{offset = "0"}} : () -> {GPU}
  %s1 = "mlirc.slot"() {{offset = "0"}} : () -> {GPU}
  %s2 = "mlirc.slot"() {{offset = "3072*s0"}} : () -> {GPU}
  %f = "mlirc.view"(%x) {{map = "", offset = "0"}} : ({GPU}) -> {flat}
  %v = "mlirc.view"(%f) {{map = "", offset = "0"}} : ({flat}) -> {GPU}
"""
    rows = """mlirc.reduce"(%r) {kind = "sum"} : (f32) -> f32
    %q = "mlirc.div"(%r, %n) : (f32, f32) -> f32"""
    for x, y, waits in (
        ("%x", "%y", False),
        ("%s0", "%s1", True),
        ("%s0", "%s2", False),
        ("%x", "%v", True),
        ("%s0", "%y", False),
    ):
        text = (
            launch(x, y, GPU)
            .replace('mlirc.neg"(%r) : (f32) -> f32', rows)
            .replace('"mlircx.yield"(%n)', '"mlircx.yield"(%q)')
        )
        text = text.replace('parallel = "s0, 768", inner = ""', 'parallel = "s0", inner = "768"')
        with context():
            (kernel,) = named(lowered(text, before=before), "mlirc.triton")
            assert ("debug_barrier" in attribute_value(kernel.attributes["source"])) == waits, (x, y)


def test_a_part_of_an_operand_is_read_by_its_address():
    """Half of each row, by the address of the whole, whichever comes first; not half of the rows by the other half's."""
    whole, part = (f'tensor<16x{n}xf32, {{device = "cuda:0", stride = "128, 1"}}>' for n in (128, 64))
    result = part.replace("128", "64")
    views = "".join(
        f'  %v{k} = "mlirc.view"(%x) {{map = "d0, d1 + {n}", offset = "{n}"}} : ({whole}) -> {part}\n'
        for k, n in ((0, 0), (1, 64))
    )
    for first, second, types, read in (
        ("%x", "%v1", (whole, part), {"p0"}),
        ("%v1", "%x", (part, whole), {"p1"}),
        ("%v0", "%v1", (part, part), {"p0", "p1"}),
    ):
        reads = "".join(
            f'%r{k} = "mlirc.read"(%a{k}) {{map = "d0, d1", masked = false}} : ({type_}) -> f32\n'
            for k, type_ in enumerate(types)
        )
        text = f"""
  "mlircx.launch"({first}, {second}, %y) ({{
  ^bb0(%a0: {types[0]}, %a1: {types[1]}):
    {reads}
    %n = "mlirc.add"(%r0, %r1) : (f32, f32) -> f32
    "mlircx.yield"(%n) {{maps = ["d0, d1"]}} : (f32) -> ()
  }}) {{parallel = "16, 64", inner = "", label = "add", inputs = 2 : i64}} : ({types[0]}, {types[1]}, {result}) -> ()"""
        with context():
            (kernel,) = named(lowered(text, type_=result, before=views, given=whole), "mlirc.triton")
            source = attribute_value(kernel.attributes["source"])
        loads = re.findall(r"tl\.load\((p\d) \+ \((.*)\)\)", source)
        assert {name for name, _ in loads} == read, source
        assert sum(place.endswith(" + 64") for _, place in loads) == (len(read) == 1), source
