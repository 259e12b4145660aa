"""The fuzzer itself: what it notices, that it repeats itself, and that programs it found once stay right."""

import ast
import contextlib
import itertools
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from mlirc.frontend.torch_compat import global_switches
from tests import sampling
from tests.fuzz import calls, changes, judge, program, steps, structures, tensors, workers
from tests.fuzz.compare import differences
from tests.fuzz.kinds import mutation
from tests.fuzz.kinds.layers import wraps_itself
from tests.fuzz.kinds.rows import norms
from tests.fuzz.program import random_program
from tests.fuzz.shrink import shrink
from tests.fuzz.writer import NoLine, Writer

LONG = ("norms_of_mixed_dtypes", "strides_of_kernels")
FOUND = [
    pytest.param(path, marks=[pytest.mark.full] * (path.stem in LONG), id=path.stem)
    for path in sorted((Path(__file__).parents[1] / "found").glob("*.py"))
]

PROGRAM = """
import torch
from torch import nn
from tests.fuzz.calls import gradients, in_thread, total
from tests.fuzz.tensors import index, permutation, tensor
OPTIONS = {}
def program(a, n):
    b = a.sin()
    c = b * 2 + n
    return c, a
def make():
    return program
def drive(f, m, see):
    a = tensor((4, 3), torch.float32, 3)
    r = f(a, 2)
    see(r, a)
    r = f(a, -2)
    see(r, a)
"""


def wrong_backend(change):
    """Eager, with the first result changed."""

    def backend(graph, inputs):
        def run(*args):
            first, *rest = graph(*args)
            return [change(first), *rest]

        return run

    return backend


@pytest.mark.parametrize("path", FOUND)
def test_a_program_that_was_wrong_once(path):
    verdict = judge.judge(path.read_text())
    assert verdict.kind == "right", verdict


@pytest.mark.parametrize("seed", range(12))
def test_the_text_of_a_seed_is_always_the_same(seed):
    text = random_program(seed)
    ast.parse(text)
    assert text == random_program(seed)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda x: x * 1.001, "values"),
        (lambda x: x.double(), "dtype"),
        (lambda x: x[:2], "shape"),
        (lambda x: x.t().contiguous().t(), "stride"),
        (lambda x: 1 / 0, "error ZeroDivisionError"),
        (lambda x: x.masked_fill(x > 0.5, float("nan")), "values"),
    ],
)
def test_a_wrong_backend_is_noticed(change, kind):
    verdict = judge.judge(PROGRAM, wrong_backend(change))
    assert verdict.kind == "bug"
    assert kind in {difference.kind for difference in verdict.differences}


def test_a_limit_is_an_answer_of_aot_eagers(monkeypatch):
    """Where that is wrong, too, another wrong answer at the same place is a bug."""
    run, added = judge.run, wrong_backend(lambda x: x + 1)
    monkeypatch.setattr(
        judge,
        "run",
        lambda program, backend, *args, **options: run(
            program, added if backend == "aot_eager" else backend, *args, **options
        ),
    )
    assert judge.judge(PROGRAM, added).kind == "limit"
    assert judge.judge(PROGRAM, wrong_backend(lambda x: x * float("nan"))).kind == "bug"


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "mlirc"])
def test_a_right_backend_is_right(backend):
    assert judge.judge(PROGRAM, backend).kind == "right"


def test_rounding_is_no_bug_and_a_wrong_digit_is():
    """A sum that nearly cancels may differ by what its order changes, not by more."""
    text = PROGRAM.replace("a.sin()", "(a * 1e6).sum(0) - (a * 1e6).flip(0).sum(0) + a[0]")
    nearly = lambda x: x + 1e-3
    assert judge.judge(text, wrong_backend(nearly)).kind == "right"
    assert judge.judge(text, wrong_backend(lambda x: x + 100)).kind == "bug"


def test_what_rounding_seldom_makes_equal_is_no_bug():
    """A vector's similarity with itself is 1, or next to it: which is a matter of rounding, in few draws that of the other."""
    text = PROGRAM.replace("b * 2 + n", "torch.ne(torch.cosine_similarity(b, b, dim=0), 1)")
    assert judge.judge(text, wrong_backend(lambda x: torch.zeros_like(x))).kind == "right"
    text = text.replace("(b, b, dim=0)", "(b, b + 1, dim=0)")
    assert judge.judge(text, wrong_backend(lambda x: torch.zeros_like(x))).kind == "bug"


def test_what_comes_after_another_structure_is_compared():
    """Where aot_eager raises once, its later answers still say what PyTorch's own limit is."""
    eager, other = judge.Trace(), judge.Trace()
    for trace, first, second in ((eager, (1, 2), 3), (other, (1,), 4)):
        trace.see(first)
        trace.see(second)
    assert [(d.observation, d.kind) for d in differences(eager, other)] == [(0, "structure"), (1, "value")]


def test_aliases_are_seen():
    text = PROGRAM.replace("return c, a", "return c, c[0]")
    assert judge.judge(text, "eager").kind == "right"
    assert judge.judge(text, wrong_backend(lambda x: x.clone())).kind == "bug"


def test_a_bug_shrinks_to_what_shows_it():
    def shows(text):
        return "a.sin()" in text and judge.judge(text, "eager").kind == "right"

    small = shrink(PROGRAM, shows, seconds=20)
    assert "a.sin()" in small and "b * 2" not in small and "(a, -2)" not in small


def test_programs_of_many_seeds():
    for seed in sampling.some(range(21005, 21013), 4):
        verdict = judge.judge(random_program(seed))
        assert verdict.kind != "bug", (seed, verdict)


@pytest.mark.parametrize("way", changes.WAYS)
@pytest.mark.parametrize("at", [..., 0, -1])
@pytest.mark.thinned
def test_a_way_to_change_a_weight(way, at):
    """All that another way changes is changed, and nothing else."""
    weight = torch.nn.Parameter(torch.arange(12.0).reshape(3, 4))
    expected = weight.detach().clone()
    expected[at] = expected[at] * 2 + 1
    changes.change(weight, way, at)
    assert torch.equal(weight.detach(), expected)


def test_data_of_a_tensor_of_inference_mode_stays_of_that_mode():
    """Else eager refuses its views."""
    with torch.inference_mode():
        x = torch.arange(6.0)
    changes.change(x, "other_data")
    assert x.is_inference() and torch.equal(x[:3], torch.tensor([1.0, 3.0, 5.0]))


class KeptUnseen(torch.autograd.Function):
    """A square root that keeps its result without a version counter."""

    @staticmethod
    def forward(ctx, x):
        ctx.kept = x.sqrt()
        return ctx.kept

    @staticmethod
    def backward(ctx, grad):
        return grad / (2 * ctx.kept)


def test_a_write_that_autograd_does_not_see_is_noticed():
    x = torch.rand(5).add(1).requires_grad_()
    for function, same in ((torch.sqrt, True), (lambda x: x * 2, True), (KeptUnseen.apply, False)):
        y = function(x)
        before, after = calls.after_writes(y, [x], y)
        assert torch.equal(before, after) == same


def test_gradients_of_a_batch():
    x = torch.rand(5).requires_grad_()
    (found,) = calls.batched(x.sin(), [x])
    (one,) = calls.gradients(x.sin(), [x])
    assert torch.equal(found, torch.stack([one, -2 * one, one / 2]))


def test_a_weight_that_changes_unseen_is_noticed():
    """As a backend that keeps its first answer would be."""
    text = PROGRAM.replace("    r = f(a, -2)", "    change(a, 'numpy')\n    r = f(a, 2)")
    text = text.replace(
        "import gradients",
        "import gradients\nfrom tests.fuzz.changes import change\nfrom tests.fuzz.calls import gradients",
    )
    kept = []

    def first_answer(graph, inputs):
        return lambda *args: kept[0] if kept else kept.append(graph(*args)) or kept[0]

    assert judge.judge(text, "mlirc").kind == "right"
    assert judge.judge(text, first_answer).kind == "bug"


@pytest.mark.parametrize("name", changes.FLIPPED)
def test_a_flipped_switch_is_put_back(name):
    before = global_switches.read()
    with changes.flipped(name):
        pass
    assert global_switches.read() == before


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("names", [["a"], ["a", "n", "s"]])
@pytest.mark.thinned
def test_structures_of_arguments_are_unpacked(seed, names):
    made = structures.signature(random.Random(seed), names, plain=0.0)
    body = "".join(f"    {line}\n" for line in made.unpacks)
    text = f"import collections, dataclasses, types\n{made.defines}def f({', '.join(made.parameters)}):\n{body}"
    scope: dict = {name: k for k, name in enumerate(names)}
    exec(f"{text}    return [{', '.join(names)}]\nresult = f({made.arguments})", scope)
    assert scope["result"] == list(range(len(names)))


def test_steps_of_all_optimizers_run_in_eager():
    """And a backend whose first result is a little off is noticed in one."""
    texts = [program.random_program(seed, "steps") for seed in range(60)]
    for text in texts:
        trace = judge.run(judge.load(text), None)
        assert trace.error is None, (text, trace.error)
    for optimizer in steps.OPTIMIZERS:
        assert any(f"optim.{optimizer[:-1]}" in text for text in texts), optimizer


def test_errors_are_compared_by_type():
    text = PROGRAM.replace("r = f(a, -2)", "r = attempt(f, a[:, :2].t(), -2)").replace(
        "import gradients", "import attempt, gradients"
    )
    text = text.replace("c = b * 2 + n", "c = b @ b + n").replace("f(a, 2)", "f(a[:3], 2)")
    assert judge.judge(text, "mlirc").kind == "right"
    assert judge.judge(text.replace("b @ b", "b"), wrong_backend(lambda x: {}["no"])).kind == "bug"


def test_a_program_runs_again_in_another_process(monkeypatch, tmp_path):
    """Which finds a warm cache; with one worker at a time, after its end."""
    script = tmp_path / "fake.py"
    script.write_text(
        "import json, os, sys\n"
        "for line in sys.stdin:\n"
        f"    open({str(tmp_path / 'log')!r}, 'a').write(f'{{os.getpid()}} {{line}}')\n"
        "    print(json.dumps({'kind': 'right', 'hits': int('again' in line)}), flush=True)\n"
    )
    popen = subprocess.Popen
    monkeypatch.setattr(
        workers.subprocess, "Popen", lambda command, **options: popen([sys.executable, str(script)], **options)
    )
    pool = workers.Pool(iter(range(13)), time.monotonic() + 60, [])
    seeds = [seed for seed, _ in pool.outcomes(1)]
    assert seeds == [*range(13), 0, 6, 12] and pool.hits == 3
    lines = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    assert {pid for pid, *_ in lines[:13]}.isdisjoint({pid for pid, *_ in lines[13:]})
    assert not pool.cache.exists()


def test_a_call_in_a_thread_raises_what_the_call_raises():
    with pytest.raises(ZeroDivisionError):
        calls.in_thread(lambda: 1 / 0)
    assert calls.in_thread(lambda x: x + 1, 2) == 3


def test_special_values_are_there():
    x = tensors.tensor((400,), torch.float32, 1, "special")
    assert x.isnan().any() and x.isinf().any() and ((x == 0) & x.signbit()).any()


def test_a_worker_that_dies_is_told_apart(monkeypatch, tmp_path):
    """While a program is written or runs in eager it is PyTorch's crash, in compiled code a finding; others go on."""
    script = tmp_path / "fake.py"
    script.write_text(
        "import json, os, sys\n"
        "for line in sys.stdin:\n"
        "    phase = ['written', 'eager', 'compiled', ''][int(line) % 4]\n"
        "    if phase:\n"
        "        print(json.dumps({'phase': phase, 'program': 'text'}), flush=True)\n"
        "        os.abort()\n"
        "    print(json.dumps({'phase': 'eager'}) + '\\n' + json.dumps({'kind': 'right'}), flush=True)\n"
    )
    popen = subprocess.Popen
    monkeypatch.setattr(
        workers.subprocess, "Popen", lambda command, **options: popen([sys.executable, str(script)], **options)
    )
    outcomes = dict(workers.Pool(iter(range(4)), time.monotonic() + 60, []).outcomes(2))
    assert len(outcomes) == 4
    assert {k: (o if isinstance(o, str) else o.kind) for k, o in outcomes.items()} == {
        0: "crash of PyTorch",
        1: "crash of PyTorch",
        2: "crash (SIGABRT)",
        3: "right",
    }


def test_workers_that_cannot_start_are_an_error(monkeypatch, tmp_path):
    """A broken installation is no crash of PyTorch: no program was judged."""
    script = tmp_path / "fake.py"
    script.write_text("import mlirc_is_not_installed_here\n")
    popen = subprocess.Popen
    monkeypatch.setattr(
        workers.subprocess, "Popen", lambda command, **options: popen([sys.executable, str(script)], **options)
    )
    with pytest.raises(RuntimeError, match="ended with status 1 before its first program"):
        list(workers.Pool(iter(range(4)), time.monotonic() + 60, []).outcomes(2))


def test_a_crash_that_is_not_ours_is_told_apart(monkeypatch):
    program = "OPTIONS = {{}}\ndef make():\n    return lambda x: x + 1\ndef drive(f, m, see):\n    import os\n    {}\n"
    aborts, raises = program.format("os.abort()"), program.format("raise ValueError")
    assert workers.aot_eager_dies([raises, aborts, raises])  # an earlier program of the process
    monkeypatch.setattr(workers, "TRIES", 1)
    assert not workers.aot_eager_dies([raises, raises])


def test_a_crash_that_comes_at_times_is_told_apart(monkeypatch):
    ends = itertools.chain([0, 1, -6], itertools.repeat(0))
    monkeypatch.setattr(
        workers.subprocess, "run", lambda *args, **options: subprocess.CompletedProcess(args, next(ends), b"", b"")
    )
    assert workers.aot_eager_dies(["a program"])
    assert not workers.aot_eager_dies(["a program"])


@pytest.mark.parametrize("phase", ["eager", "compiled"])
def test_a_lost_gpu_is_told_apart(monkeypatch, phase):
    runs = []
    monkeypatch.setattr(judge, "run", lambda *args, **options: runs.append(args) or judge.Trace())
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)

    def synchronize():
        if len(runs) == 1 + (phase == "compiled"):
            raise RuntimeError("device-side assert triggered")

    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    with pytest.raises(judge.DeviceLost) as lost:
        judge.judge(PROGRAM)
    assert lost.value.phase == phase


def test_a_worker_without_its_gpu_is_followed_by_another(monkeypatch, tmp_path):
    script = tmp_path / "fake.py"
    script.write_text(
        "import json, os, sys\n"
        "for line in sys.stdin:\n"
        "    ends = int(line.split()[0]) % 3 == 0\n"
        "    print(json.dumps({'kind': str(os.getpid()), 'ends': ends}), flush=True)\n"
        "    if ends:\n"
        "        break\n"
    )
    popen = subprocess.Popen
    monkeypatch.setattr(
        workers.subprocess, "Popen", lambda command, **options: popen([sys.executable, str(script)], **options)
    )
    monkeypatch.setattr(workers, "CACHED", 1000)
    outcomes = dict(workers.Pool(iter(range(9)), time.monotonic() + 60, []).outcomes(1))
    assert len(outcomes) == 9 and len(set(outcomes.values())) == 4
    assert outcomes[1] == outcomes[2] == outcomes[3] != outcomes[4]


def test_gradients_of_some_results_are_of_those():
    a = torch.ones(3, requires_grad=True)
    for which, picked in ((1, (3,)), (2, (2,)), (3, (3, 2))):
        (found,) = calls.of_some([a.detach(), a.sum() * 3, {"b": a.sum() * 2}], [a], which)
        (expected,) = calls.gradients([a.sum() * n for n in picked], [a])
        assert found is not None and torch.equal(found, expected)


def test_lines_use_what_all_calls_have():
    w = Writer(random.Random(0), [{"torch": torch, "a": torch.ones(n), "n": n} for n in (3, 2)])
    w.emit("a.split(1)")
    assert w.names == ["a", "v0[0]", "v0[1]"]
    w.emit("n if n > 2 else a")
    assert w.names == ["a", "v0[0]", "v0[1]"] and w.ints == ["n"]


def test_a_part_whose_base_was_written_to_is_asked_for_no_history():
    """One of several views of it raises when it is."""
    w = Writer(random.Random(0), [{"a": torch.ones(4, requires_grad=True) * 1}])
    w.emit("a.split(2)")
    w.do("a.add_(1)")
    assert {mutation.target(w) for _ in range(50)} == {*w.names}


def test_memory_is_shared_where_it_is_in_one_call():
    leaf = torch.ones(2, 2)
    w = Writer(random.Random(0), [{"a": leaf, "b": b, "c": c} for b, c in ((leaf + 1, leaf), (leaf.t(), leaf[:1]))])
    assert mutation.share(w, "a", "b") and mutation.share(w, "a", "c") and not mutation.share(w, "a", "a")
    w = Writer(random.Random(0), [{"a": leaf}, {"a": leaf[:1].expand(2, 2)}])
    with pytest.raises(NoLine):
        mutation.target(w)


def test_no_program_normalizes_a_batch_of_numbers():
    """PyTorch's batch norm of a vector reads a size that is not there: traced with symbols it crashes, an empty one in eager is right."""
    lines = []
    for seed in range(300):
        w = Writer(random.Random(seed), [{"torch": torch, "F": torch.nn.functional, "a": torch.ones(0)}])
        with contextlib.suppress(NoLine):
            norms(w)
        lines += w.lines
    assert any("layer_norm(a" in line for line in lines) and not any("batch_norm" in line for line in lines)


def test_no_circular_pad_shows_uninitialised_memory():
    """Eager fills new memory with NaN here; the pads that programs have must show none of it."""
    torch.use_deterministic_algorithms(True)  # with fill_uninitialized_memory, which is on
    try:
        shows, allowed = 0, 0
        for size, before, after in itertools.product(range(1, 5), range(-3, 5), range(-3, 5)):
            x = torch.ones(1, size)
            with contextlib.suppress(RuntimeError):
                padded = torch.nn.functional.pad(x, (before, after), mode="circular")
                shows += bool(padded.isnan().any())
                if not wraps_itself(x, [before, after]):
                    allowed += 1
                    assert not padded.isnan().any(), (size, before, after)
    finally:
        torch.use_deterministic_algorithms(False)
    assert shows and allowed > 50


LAID_OUT = """
import torch
from tests.fuzz.calls import gradients
from tests.fuzz.tensors import tensor
OPTIONS = {}
def program(c):
    return CALL
def make():
    return program
def drive(f, m, see):
    leaf = tensor((2, 3, 4, 5), torch.float16).requires_grad_()
    r = f(leaf.to(memory_format=torch.channels_last))
    see(gradients(r, [leaf]))
"""


def test_a_gradient_that_aot_autograd_lays_out_is_a_limit():
    """A gradient in the order of the result that it belongs to: beside a returned view `aot_eager` sums it up in eager's order, as eager does."""
    text = LAID_OUT.replace("CALL", "c[:, 1:], c.to(torch.bfloat16)")
    assert judge.judge(text).kind == "limit"
    assert judge.judge(LAID_OUT.replace("CALL", "c[:, 1:] * 1")).kind == "right"


AFTER_A_SECOND_GRADIENT = """
import torch
from tests.fuzz.calls import gradients
from tests.fuzz.tensors import tensor
OPTIONS = {"dynamic": False}
def program(c):
    return torch.maximum(c, c[:, :])
def make():
    return program
def drive(f, m, see):
    for rows in (2, 7):
        leaf = tensor((rows, 3), torch.float32).requires_grad_()
        r = f(leaf.t())
        g = gradients(r, [leaf], create_graph=rows == 2)
        see(g)
        if rows == 2:
            see(gradients(g, [leaf]))
"""


def test_aot_eager_is_asked_for_what_comes_after_a_second_gradient():
    """It has none; of the next call it gives a gradient with the strides that ours has, which are not eager's."""
    verdict = judge.judge(AFTER_A_SECOND_GRADIENT)
    assert verdict.kind == "limit" and {d.kind for d in verdict.differences} == {"stride"}, verdict
