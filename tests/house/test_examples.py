"""The programs in examples/ do what they say, in fewer than 80 lines; an experiment has fewer than 120, and a page that explains it."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch

from tests.forked_programs import python

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", ROOT / "examples" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_an_example_is_short_and_has_a_test(file):
    experiment = "@register" in file.read_text()
    assert len(file.read_text().splitlines()) < (120 if experiment else 80)
    assert f"test_{file.stem}" in globals()
    assert file.with_suffix(".md").is_file() or not experiment


def test_train_gpt():
    module = load("train_gpt")
    losses = module.main(60)
    assert losses[-1] < 0.7 * losses[0]


def test_serve_resnet():
    assert max(load("serve_resnet").main()) < 1e-5


def test_custom_op():
    """In a process of its own: ops are defined before the first graph is compiled."""
    program = "import custom_op, torch; r = custom_op.main(); torch.testing.assert_close(*r['gradients']); assert not r['aten']"
    done = python("-c", program, cwd=ROOT / "examples")
    assert done.returncode == 0, done.stderr


def test_join_matmuls():
    difference, entries = load("join_matmuls").main()
    assert difference < 1e-6
    assert [(entry["subject"], entry["rule"], entry["taken"]) for entry in entries] == [
        ("3 matmuls", "SAME ROWS", True)
    ]


@pytest.mark.parametrize("norm", ["LayerNorm", pytest.param("RMSNorm", marks=pytest.mark.full)])
def test_residual_in_matmul(norm):
    """Both residuals are added by matmuls; a norm between reads one tensor, and one less is written and read for each."""
    difference, kernels, fewer = load("residual_in_matmul").main(getattr(torch.nn, norm)(64))
    assert difference < 1e-5
    assert len(kernels) == 3 and kernels[0] == kernels[2] == "matmul_add"
    assert fewer == 2 * 128 * 64 * 4


def test_plan_fusions(tmp_path):
    """The plan's file is carried out without the planner: fewer bytes, and the same answer."""
    module = load("plan_fusions")
    arguments = torch.randn(64, 64), torch.randn(64, 64)
    greedy, planned, replayed, expected = module.main(tmp_path / "plan.json", module.block, *arguments)
    torch.testing.assert_close(replayed, expected)
    tensor = 64 * 64 * 4
    assert (greedy, planned) == (11 * tensor, 9 * tensor)  # the norm's kernel reads neither the product nor x


@pytest.mark.full
@pytest.mark.parametrize("name", ["mlp", "bert", "gpt2", "llama", "resnet", "vit"])
def test_plans_of_models(name, tmp_path):
    """A plan of each model's graph is carried out without the planner, moves no more bytes than the greedy passes, and is right."""
    from benchmarks.models import MODELS

    model = MODELS[name](True)
    module, inputs = model.build(), model.inputs(model.batch, torch.float32)

    def logits(*values):
        return module(**dict(zip(inputs, values, strict=True))).logits

    greedy, planned, replayed, expected = load("plan_fusions").main(tmp_path / "plan.json", logits, *inputs.values())
    assert planned <= greedy and (planned < greedy) == (name in ("llama", "vit"))
    torch.testing.assert_close(replayed, expected)


def test_a_plan_is_optimal():
    """No partition of small graphs that legal merges reach moves fewer bytes: all of them are tried."""
    from random import Random

    from mlirc.ir import context
    from mlirc.passes import KernelFusion, Ledger, run_pipeline
    from tests.compare_stages import prepare
    from tests.property.random_programs import random_program

    module, seen = load("plan_fusions"), 0
    for seed in range(12):
        program, inputs = random_program(Random(seed), 6)
        with context():
            _, imported = prepare(program, *inputs)
            run_pipeline(imported.module, "canonicalize,cse,decompose,canonicalize,cse,to-kernels")
            for function in imported.module.body.operations:
                fusion = KernelFusion(function, Ledger(), "plan-fusions")
                if len(fusion.groups()) > 7:
                    continue
                least = fewest(fusion, set())
                for region in module.regions(fusion.candidates()):
                    search = module.Search(fusion, region, 10_000)
                    assert search.left > 0
                    for step in search.best:
                        fusion.merge(step)
                assert sum(group.read + group.written for group in fusion.groups()) == least
                seen += 1
    assert seen > 5


def fewest(fusion, tried):
    """Bytes of the best partition, by trying all orders of merges."""
    key = frozenset(group.members for group in fusion.groups())
    least = sum(group.read + group.written for group in fusion.groups())
    if key in tried:
        return least
    tried.add(key)
    for pair in fusion.candidates():
        if not pair.kind or (pair.rule != "LIMITS" and (pair.estimated_gain or 0) > 0):
            fusion.attempt(pair)
            least = min(least, fewest(fusion, tried))
            fusion.undo()
    return least


def test_learned_fusion(tmp_path):
    """The fit finds the rates that gains were made of, and the pass merges what gains by them, and nothing else."""
    import json
    from random import Random

    from mlirc.execution.modules import interpret
    from mlirc.ir import context, ir
    from mlirc.passes import run_pipeline

    module, random = load("learned_fusion"), Random(0)
    rates = {"near": 0.02, "far": 0.25, "op": 0.5, "kernel": 40.0}
    files = [tmp_path / f"{name}.jsonl" for name in "ab"]
    for file in files:
        lines: list[dict] = [{"record": "run"}]
        for _ in range(20):
            saved = {
                "bytes": random.randrange(2 << 20),
                "ops": random.randrange(9999),
                "kernels": random.randrange(1, 3),
            }
            gain = float(
                module.np.dot(module.features(saved["bytes"], saved["ops"], saved["kernels"]), [*rates.values()])
            )
            lines.append({"record": "candidate", "estimated_gain": 1.0, "measured": {"cpu_gain": gain, "saved": saved}})
        lines.append({"record": "candidate", "estimated_gain": 1.0, "measured": None})
        file.write_text("\n".join(map(json.dumps, lines)))
    assert module.fit(map(module.measured, files), 1e-12).tolist() == pytest.approx([*rates.values()], rel=1e-3)
    assert module.main([str(file) for file in files]).keys() == rates.keys()

    text = """
    func.func @graph(%x: tensor<8x16xf32>) -> tensor<8xf32> {
      %0 = "mlirc.exp"(%x) : (tensor<8x16xf32>) -> tensor<8x16xf32>
      %1 = "mlirc.neg"(%0) : (tensor<8x16xf32>) -> tensor<8x16xf32>
      %2 = "mlirc.sum"(%1) {dims = "1", keepdim = false} : (tensor<8x16xf32>) -> tensor<8xf32>
      return %2 : tensor<8xf32>
    }"""
    x = torch.randn(8, 16)
    for options, kernels in (("", 1), ("{near=-1.0 kernel=-1.0}", 3)):
        with context():
            graph = ir.Module.parse(text)
            entries = run_pipeline(graph, f"to-kernels,learned-fusion{options}").ledger.entries
            assert str(graph).count("mlircx.kernel") == kernels
            torch.testing.assert_close(interpret(graph, [x]).results[0], -x.exp().sum(-1))
        assert [e.rule for e in entries if e.pass_name == "learned-fusion" and not e.taken] == ["PREDICTED LOSS"] * (
            kernels - 1
        )


CASES = {
    "additive": {},
    "boolean": {"mask": torch.ones(33, 33, dtype=torch.bool).tril()},
    "rows hidden whole": {"mask": torch.zeros(33, 33).index_fill(0, torch.tensor([0, 32]), float("-inf"))},
    "not finite": {"rows": {0: float("nan"), 5: float("inf"), 7: -0.0}},
    "heads between": {"order": (1, 2)},
    "half": {"dtype": torch.bfloat16},
    "double": {"dtype": torch.float64},
}


@pytest.mark.parametrize("name", CASES)
def test_mask_in_scores(name):
    """The scale and the mask are in the scores' kernel, and the result is eager's, as near to float64 as that."""
    module, case = load("mask_in_scores"), CASES[name]
    torch.manual_seed(0)
    shape = (2, 33, 4, 16) if "order" in case else (2, 4, 33, 16)
    q, k, v = (
        torch.randn(shape, dtype=case.get("dtype", torch.float32)).transpose(*case.get("order", (0, 0)))
        for _ in range(3)
    )
    for row, value in case.get("rows", {}).items():
        q[..., row, :] = value
    mask = case.get("mask", torch.ones(33, 33).tril().log().to(q.dtype))
    result, kernels, taken = module.main(q, k, v, mask)
    assert taken == {"scores-to-kernels": 1, "mask-in-scores": 3 if name == "half" else 2}  # half scores are cast first
    last = "select" if name == "boolean" else "add"
    assert any(f"scores_mul_{last}" in kernel for kernel in kernels)
    expected = module.attention(q, k, v, mask)
    exact = module.attention(*(x.double() if x.is_floating_point() else x for x in (q, k, v, mask)))
    assert result.dtype == expected.dtype and result.stride() == expected.stride()
    assert result.isnan().equal(expected.isnan())
    allowed = 2 * (expected - exact).nan_to_num().abs().max() + 8 * torch.finfo(q.dtype).eps
    assert (result - exact).nan_to_num().abs().max() <= allowed


def test_mask_in_scores_of_any_size():
    module = load("mask_in_scores")
    options = {"insert": module.INSERT, "fallback": "error"}
    compiled = torch.compile(module.attention, backend="mlirc", options=options, dynamic=True)
    for length in (2, 33, 64):
        q, k, v = torch.randn(3, 2, 4, length, 16)
        mask = torch.ones(length, length).tril().log()
        torch.testing.assert_close(compiled(q, k, v, mask), module.attention(q, k, v, mask))


@pytest.mark.parametrize(
    ("last", "rule"),
    [("scores.softmax(-1) + scores", "READ TWICE"), ("scores.softmax(-2)", None), ("scores.exp()", None)],
)
def test_which_scores_are_taken(last, rule):
    """Scores that something else reads stay a library call; so do those of another dimension's softmax, or of none."""
    import mlirc

    module = load("mask_in_scores")
    space = {}
    exec(f"def function(q, k):\n    scores = q @ k * 0.25 + 1.0\n    return {last}", space)
    options = {"insert": module.INSERT, "fallback": "error"}
    graph = mlirc.explain(space["function"], options=options)(torch.randn(4, 8, 16), torch.randn(4, 16, 8)).data[
        "graphs"
    ][0]
    found = [entry["rule"] for entry in graph["ledger"] if entry["pass_name"] == "scores-to-kernels"]
    assert found == ([rule] if rule else []) and graph["library"]


ROWS, WEIGHT = "tensor<8x4xf32>", "tensor<4x4xf32>"
JOINED = {
    "two": ("%p0 = {matmul}(%x, %w)\n%p1 = {matmul}(%x, %v)\n", "%p0, %p1", 1),
    "other rows": ("%p0 = {matmul}(%x, %w)\n%p1 = {matmul}(%y, %v)\n", "%p0, %p1", 2),
    "five": ("".join(f"%p{k} = {{matmul}}(%x, %w)\n" for k in range(5)), "%p0, %p1, %p2, %p3, %p4", 2),
    "computed weight": (
        '%s = "mlirc.exp"(%v) : ({w}) -> {w}\n%p0 = {matmul}(%x, %w)\n%p1 = {matmul}(%x, %s)\n',
        "%p0, %p1",
        2,
    ),
    "written weight": (
        '%p0 = {matmul}(%x, %w)\n%p1 = {matmul}(%x, %v)\n"mlirc.assign"(%v, %w) : ({w}, {w}) -> ()\n',
        "%p0, %p1",
        2,
    ),
}


@pytest.mark.parametrize("returned", [False, True], ids=["read", "returned"])
@pytest.mark.parametrize("case", JOINED)
def test_which_products_join_matmuls_takes(case, returned):
    """What is joined computes the same; a product that the graph returns keeps its strides, and so stays."""
    from mlirc.execution.modules import interpret
    from mlirc.ir import context, ir
    from mlirc.passes import run_pipeline

    load("join_matmuls")
    body, results, left = JOINED[case]
    names = results.split(", ")
    lines = body.replace("{w}", WEIGHT)
    lines = "".join(
        line.replace("{matmul}", '"mlirc.matmul"')
        + (f" : ({ROWS}, {WEIGHT}) -> {ROWS}" if "{matmul}" in line else "")
        + "\n"
        for line in lines.splitlines()
    )
    if not returned:
        lines += "".join(f'{name}r = "mlirc.exp"({name}) : ({ROWS}) -> {ROWS}\n' for name in names)
        names = [f"{name}r" for name in names]
    types = ", ".join([ROWS] * len(names))
    groups = ", ".join(f'"g{k}"' for k in range(len(names)))
    text = (
        (
            f"func.func @graph(%x: {ROWS}, %y: {ROWS}, %w: {WEIGHT} {{mlirc.parameter}}, %v: {WEIGHT} {{mlirc.parameter}})\n"
            f"-> ({types}) attributes {{mlirc.results = [{groups}]}} {{\n{lines}return {', '.join(names)} : {types}\n}}"
        )
        .replace("%1r", "%r1")
        .replace("%2r", "%r2")
        .replace("%3r", "%r3")
        .replace("%4r", "%r4")
    )
    torch.manual_seed(0)
    inputs = [torch.randn(8, 4), torch.randn(8, 4), torch.randn(4, 4), torch.randn(4, 4)]
    with context():
        before, after = ir.Module.parse(text), ir.Module.parse(text)
        run_pipeline(after, "join-matmuls,canonicalize")
        assert str(after).count("mlirc.matmul") == (str(before).count("mlirc.matmul") if returned else left)
        for got, expected in zip(interpret(after, inputs).results, interpret(before, inputs).results, strict=True):
            torch.testing.assert_close(got, expected)
