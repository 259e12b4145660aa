"""The verifiers of the stages: what each form forbids, and that the error says where and what to do."""

import pytest

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.lowering.module.rules import StageError
from mlirc.lowering.pipeline.pass_manager import verify_forms
from mlirc.lowering.verify import stage as verify_stage_module
from mlirc.lowering.verify.stage import verify_stage

X = "tensor<4x8xf32>"


def verify(
    stage: str, body: str, result: str = X, attributes: str = "", known: set[tuple] | None = None, more: str = ""
) -> None:
    text = f"func.func @graph(%x: {X}{more}) -> {result} {attributes} {{\n{body}\n}}"
    with context():
        module = ir.Module.parse(text)
        verify_stage(module.body.operations[0], stage, known)


def kernel(body: str, parallel: str = "4, 8", inner: str = "") -> str:
    return f"""%0 = "mlircx.kernel"(%x) ({{
      ^bb0(%a: {X}):
        {body}
      }}) {{parallel = "{parallel}", inner = "{inner}", label = "test"}} : ({X}) -> {X}
      return %0 : {X}"""


READ = f'%r = "mlirc.read"(%a) {{map = "d0, d1", masked = false}} : ({X}) -> f32'
YIELD = '"mlircx.yield"(%r) {maps = ["d0, d1"]} : (f32) -> ()'
SLOT = f'%0 = "mlirc.slot"() {{offset = "OFFSET"}} : () -> {X}\n return %x : {X}'
NEG = f'%0 = "mlirc.neg"(%x) : ({X}) -> {X}\n return %0 : {X}'


KERNEL = "func.func @kernel_0(%args: !llvm.ptr) -> i64 {\n%0 = arith.constant 0 : i64\n return %0 : i64\n}"


def lowered(body: str, attributes: str = 'kernel = "kernel_0", symbols = "", messages = []') -> str:
    return f"""%0 = "mlirc.allocate"() : () -> {X}
      "mlircx.run"(%x, %0) ({body}) {{parallel = "4, 8", inner = "", label = "x", inputs = 1 : i64, {attributes}}}
        : ({X}, {X}) -> ()
      return %0 : {X}
      }}
      {KERNEL.removesuffix("}")}"""


ARENA = 'attributes {mlirc.arena = "0"}'
BODY = f"{{\n^bb0(%a: {X}):\n{READ}\n{YIELD}\n}}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (lowered("{}"), "mlircx.run .*: 0 blocks; a body is one block"),
        (lowered(BODY.replace('"d0, d1"]', '"d0"]')), "map 0 has 1 indices for 2 dimensions"),
        (lowered(BODY).replace('"kernel_0"', '"kernel_1"'), "no function @kernel_1 in the module; run lower-kernels"),
        (lowered(BODY).replace("messages = []", 'messages = ["bad"]'), "1 messages for 0 check_index"),
        (lowered(BODY).replace("mlircx.run", "mlircx.launch"), "no op of the lowered form"),
    ],
)
def test_wrong_runs(text, message):
    with pytest.raises(StageError, match=message):
        verify("lowered", text, attributes=ARENA)


def test_equal_kernels_are_verified_once(monkeypatch):
    """And others, equal but for a type, a map or a size, each."""
    seen = []
    plain = verify_stage_module.verify_kernel
    monkeypatch.setattr(verify_stage_module, "verify_kernel", lambda op, infos: seen.append(op) or plain(op, infos))
    known: set[tuple] = set()
    one = lowered(BODY)
    verify("lowered", one, attributes=ARENA, known=known)
    verify("lowered", one.replace('label = "x"', 'label = "y"'), attributes=ARENA, known=known)
    verify("memory", one.replace("mlircx.run", "mlircx.launch"), attributes=ARENA, known=known)
    assert len(seen) == 1
    verify("lowered", one.replace('parallel = "4, 8"', 'parallel = "4, 8, 1"'), attributes=ARENA, known=known)
    assert len(seen) == 2
    wrong = {
        lowered(BODY.replace("4x8", "8x4")): "the body takes",
        one.replace('"d0, d1"]', '"d0"]'): "map 0 has 1 indices",
        one.replace("inputs = 1", "inputs = 2"): "the body takes",
        one.replace('label = "x"', "label = 1 : i64"): "no text attribute label",
    }
    for text, message in wrong.items():
        with pytest.raises(StageError, match=message):
            verify("lowered", text, attributes=ARENA, known=known)


def test_right_forms_pass():
    verify("lowered", lowered(BODY), attributes=ARENA)
    verify("graph", NEG)
    verify("kernel", kernel(f"{READ}\n{YIELD}"))
    verify("graph", kernel(f"{READ}\n{YIELD}"))  # a pass may make kernels early
    arena = 'attributes {mlirc.arena = "64*s0 + 256"}'
    verify("memory", SLOT.replace("OFFSET", "64*s0 + 128"), attributes=arena, more=', %n: i64 {mlirc.symbol = "s0"}')


@pytest.mark.parametrize(
    ("stage", "body", "message"),
    [
        ("kernel", NEG, r"mlirc.neg \(-:2:6\): no op of the kernel form; run to-kernels"),
        ("graph", SLOT, "mlirc.slot .*no op of the graph form"),
        ("memory", kernel(f"{READ}\n{YIELD}"), "no op of the memory form; run plan-memory"),
        ("memory", SLOT.replace("OFFSET", "0"), "no attribute mlirc.arena; run plan-memory"),
        ("memory", SLOT.replace("OFFSET", "32"), "the offset 32 is no multiple of 64"),
        ("memory", SLOT.replace("OFFSET", "32*s0"), r"the offset 32\*s0 is no multiple of 64"),
        (
            "graph",
            f'%0 = "mlirc.view"(%x) {{map = "d0", offset = "0"}} : ({X}) -> {X}\n return %0 : {X}',
            "a map of 1 indices into 2 dimensions",
        ),
        (
            "graph",
            f'%0 = "mlirc.view"(%x) {{map = "", offset = "open(1)"}} : ({X}) -> {X}\n return %0 : {X}',
            "is not a size expression",
        ),
        (
            "kernel",
            f'%0 = "mlirc.matmul"(%x, %x) : ({X}, {X}) -> {X}\n return %0 : {X}',
            r"\(4, 8\) @ \(4, 8\) gives no \(4, 8\)",
        ),
        (
            "kernel",
            f'%0 = "mlirc.neg"(%x) : ({X}) -> {X}\n "mlirc.assign"(%0, %x) : ({X}, {X}) -> ()\n return %x : {X}',
            "no op of the kernel form",
        ),
        (
            "graph",
            f'%0 = "mlirc.neg"(%x) : ({X}) -> {X}\n "mlirc.assign"(%0, %x) : ({X}, {X}) -> ()\n return %x : {X}',
            "the target comes from mlirc.neg; overwrite arguments only",
        ),
        (
            "graph",
            f'%0 = "mlircx.aten"(%x) {{op = "aten.neg.default", args = "[]", aliases = "3"}} : ({X}) -> {X}\n'
            f" return %0 : {X}",
            "alias 3 is no operand",
        ),
    ],
)
def test_wrong_ops(stage, body, message):
    with pytest.raises(StageError, match=message):
        arena = 'attributes {mlirc.arena = "4096"}' if stage == "memory" and "no attribute" not in message else ""
        verify(stage, body, attributes=arena)


SUM = '%v = "mlirc.sum"(%r) {dims = "", keepdim = false} : (f32) -> f32'
REDUCE = '%s = "mlirc.reduce"(%r) {kind = "sum"} : (f32) -> f32'


@pytest.mark.parametrize(
    ("body", "parallel", "inner", "message"),
    [
        (
            READ.replace("d0, d1", "d0") + "\n" + YIELD,
            "4, 8",
            "",
            r"mlirc.read \(-:4:\d+\): 1 indices into 2 dimensions",
        ),
        (READ.replace("d0, d1", "d0, d2") + "\n" + YIELD, "4, 8", "", "d2 is no iteration dimension; there are 2"),
        (READ.replace("d0, d1", "d0, i0") + "\n" + YIELD, "4, 8", "", "i0 stands for nothing"),
        (READ.replace("f32\n", "f64\n").replace("-> f32", "-> f64"), "4, 8", "", "reads torch.float64 from"),
        (f"{READ}\n{REDUCE}\n{YIELD}", "4, 8", "", "there is no inner dimension to fold"),
        (f"{READ}\n{REDUCE.replace('sum', 'median')}\n{YIELD}", "4", "8", "no kind 'median'; there are sum"),
        (f"{READ}\n{REDUCE.replace('sum', 'mean')}\n{YIELD}", "4", "8", "a CPU's kernel has no mean"),
        (f"{READ}\n" + YIELD.replace("d0, d1", "d0, 0"), "4", "8", "an inner value's map leaves out d1"),
        (f"{READ}\n" + YIELD.replace("d0, d1", "d0"), "4, 8", "", "map 0 has 1 indices for 2 dimensions"),
        (
            f"{READ}\n{SUM}\n{YIELD}",
            "4, 8",
            "",
            "no op of a",
        ),
        (f"{READ}\n{YIELD}", "d1, 8", "", "the size d1 names an iteration dimension"),
        (
            f'{READ}\n%c = "mlirc.constant"() {{value = "1"}} : () -> i64\n'
            f'%v = "mlirc.add"(%r, %c) : (f32, i64) -> f32\n{YIELD}',
            "4, 8",
            "",
            "cast them to the computed dtype",
        ),
    ],
)
def test_wrong_kernels(body, parallel, inner, message):
    with pytest.raises(StageError, match=message):
        verify("kernel", kernel(body, parallel, inner))


def wrong(text: str) -> None:
    with context(), pytest.raises(StageError):
        verify_forms(ir.Module.parse(text))


@pytest.mark.parametrize(
    "op",
    [
        '"mlirc.neg"(%x) : (tensor<8xf32>) -> tensor<9xf32>',
        '"mlirc.neg"(%x) : (tensor<8xf32>) -> tensor<8xi32>',
        '"mlirc.neg"(%x) : (tensor<8xf32>) -> tensor<?xf32, {size = "s0"}>',
        '"mlirc.add"(%x, %y) : (tensor<8xf32>, tensor<3xf32>) -> tensor<8xf32>',
        '"mlirc.copy"(%x) : (tensor<8xf32>) -> tensor<9xf32>',
        '"mlirc.sum"(%x) {dims = "0", keepdim = false} : (tensor<8xf32>) -> tensor<2xf32>',
        '"mlirc.sum"(%x) {dims = "1", keepdim = false} : (tensor<8xf32>) -> tensor<f32>',
        '"mlirc.reindex"(%x) {map = "d0 + 1"} : (tensor<8xf32>) -> tensor<8xf32>',
        '"mlirc.reindex"(%x) {map = "d0 - 1"} : (tensor<8xf32>) -> tensor<8xf32>',
        '"mlirc.reindex"(%x) {map = "s0"} : (tensor<8xf32>) -> tensor<8xf32>',
        '"mlirc.reindex"(%x) {map = "d1"} : (tensor<8xf32>) -> tensor<8xf32>',
        '"mlirc.cat2"(%x, %y) {dim = 0 : i64} : (tensor<8xf32>, tensor<3xf32>) -> tensor<12xf32>',
        '"mlirc.cat2"(%x, %y) {dim = 1 : i64} : (tensor<8xf32>, tensor<3xf32>) -> tensor<11xf32>',
        '"mlirc.cumsum"(%x) {dim = 0 : i64} : (tensor<8xf32>) -> tensor<9xf32>',
        '"mlirc.softmax"(%x) {dim = 0 : i64} : (tensor<8xf32>) -> tensor<9xf32>',
        '"mlirc.softmax"(%x) {dim = 4 : i64} : (tensor<8xf32>) -> tensor<8xf32>',
        '"mlirc.view"(%x) {map = "", offset = "1"} : (tensor<8xf32>) -> tensor<8xf32>',
        '"mlirc.view"(%x) {map = "", offset = "-1"} : (tensor<8xf32>) -> tensor<4xf32>',
        '"mlirc.view"(%x) {map = "d0 + 4", offset = "4"} : (tensor<8xf32>) -> tensor<8xf32>',
        '"mlirc.view"(%x) {map = "d0", offset = "4"} : (tensor<8xf32>) -> tensor<4xf32>',
        '"mlirc.view"(%x) {map = "", offset = "0"} : (tensor<8xf32>) -> tensor<4xf32, {stride = "3"}>',
        '"mlirc.index"(%x, %i) {dims = "0", place = 0 : i64, wraps = true, message = ""} '
        ": (tensor<8xf32>, tensor<5xi64>) -> tensor<6xf32>",
        '"mlirc.index"(%x, %i) {dims = "1", place = 0 : i64, wraps = true, message = ""} '
        ": (tensor<8xf32>, tensor<5xi64>) -> tensor<5xf32>",
        '"mlirc.matmul"(%x, %y) : (tensor<8xf32>, tensor<3xf32>) -> tensor<8xf32>',
    ],
)
def test_results_that_do_not_fit(op):
    result = op[op.rindex("->") + 3 :]
    wrong(
        f"func.func @graph(%x: tensor<8xf32>, %y: tensor<3xf32>, %i: tensor<5xi64>) -> {result} {{\n%0 = {op}\n"
        f"return %0 : {result}\n}}"
    )


@pytest.mark.parametrize(
    ("read", "mask"),
    [
        ("d0 + 1, d1", ""),
        ("d0, d1 - 1", ""),
        ("d0 + 1, d1", '%m = "mlirc.lt"(%at, %n) : (i64, i64) -> i1'),  # d0 < 4
        ("d0, d0 * d1", ""),
        ("d0 // 2, (d1 + 9) // 2", ""),
    ],
)
def test_reads_that_leave_the_tensor(read, mask):
    scalars = """%at = "mlirc.size"() {expr = "d0"} : () -> i64
      %n = "mlirc.constant"() {value = "4"} : () -> i64
      """
    masked, operands, types = (", %m", "true", f"({X}, i1)") if mask else ("", "false", f"({X})")
    body = f'{mask}\n%r = "mlirc.read"(%a{masked}) {{map = "{read}", masked = {operands}}} : {types} -> f32\n{YIELD}'
    with pytest.raises(StageError, match="reads dimension"):
        verify("kernel", kernel(scalars + body))


def test_reads_within():
    scalars = '%at = "mlirc.size"() {expr = "d0"} : () -> i64\n%n = "mlirc.constant"() {value = "3"} : () -> i64\n'
    mask = '%m = "mlirc.lt"(%at, %n) : (i64, i64) -> i1\n'
    read = f'%r = "mlirc.read"(%a, %m) {{map = "d0 + 1, d1", masked = true}} : ({X}, i1) -> f32\n'
    verify("kernel", kernel(scalars + mask + read + YIELD))
    for map_ in ("d0, 7 - d1", "(d0*8 + d1) // 8, (d0*8 + d1) % 8", "max(d0 - 1, 0), min(d1, 3)", "(d0 + 3) % 4, d1"):
        verify("kernel", kernel(READ.replace('map = "d0, d1"', f'map = "{map_}"') + "\n" + YIELD))


@pytest.mark.parametrize(
    "ops",
    [
        '%0 = "mlirc.slot"() {offset = "64"} : () -> tensor<8xf32>\n',
        '%0 = "mlirc.slot"() {offset = "-64"} : () -> tensor<8xf32>\n',
        '%0 = "mlirc.slot"() {offset = "0"} : () -> tensor<17xf32>\n',
        '%0 = "mlirc.allocate"() : () -> tensor<8xf32, {stride = "-1"}>\n',
        '%0 = "mlirc.allocate"() : () -> tensor<?xf32, {size = "-4"}>\n',
        '%0 = "mlirc.allocate"() : () -> tensor<8xf32>\n' + '"mlirc.release"(%0) : (tensor<8xf32>) -> ()\n' * 2,
        '%0 = "mlirc.allocate"() : () -> tensor<8xf32>\n'
        '%1 = "mlirc.view"(%0) {map = "d0", offset = "0"} : (tensor<8xf32>) -> tensor<4xf32>\n'
        '"mlirc.release"(%0) : (tensor<8xf32>) -> ()\n'
        '%2 = "mlirc.view"(%1) {map = "d0", offset = "0"} : (tensor<4xf32>) -> tensor<4xf32>\n',
        '"mlirc.release"(%x) : (tensor<8xf32>) -> ()\n',
    ],
)
def test_memory_that_is_not_there(ops):
    wrong(
        'func.func @graph(%x: tensor<8xf32>) -> tensor<8xf32> attributes {mlirc.arena = "64"} {\n'
        f"{ops}return %x : tensor<8xf32>\n}}"
    )


def test_a_result_in_the_arena():
    wrong(
        'func.func @graph(%x: tensor<8xf32>) -> tensor<8xf32> attributes {mlirc.arena = "64"} {\n'
        '%0 = "mlirc.slot"() {offset = "0"} : () -> tensor<8xf32>\nreturn %0 : tensor<8xf32>\n}'
    )
