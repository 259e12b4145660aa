"""Numbered rewrites: every pass asks before each of them, so that an empty range leaves the IR as it was."""

import re
from collections import defaultdict

import pytest

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.lowering.module.target_attribute import set_target
from mlirc.lowering.pipeline.ledger import Ledger
from mlirc.lowering.pipeline.parser import PipelineError, parse
from mlirc.lowering.pipeline.pass_manager import PipelineRun, passes, run_pipeline
from mlirc.lowering.pipeline.rewrites import Rewrites, check_names, parse_limits, print_limits
from mlirc.lowering.target import parse_target
from tests.lowering.pipeline.test_filecheck import FILES, options_of

CLEAN = "canonicalize,cse,canonicalize"  # what a refused rewrite had built already, and what nobody read


def files_by_pass():
    """The files of tests/filecheck in whose pipeline a pass is."""
    found = defaultdict(list)
    for file in FILES:
        for step in parse(options_of(file.read_text())["-p"]):
            found[step.name].append(file)
    return found


BY_PASS = files_by_pass()


def module_of(file):
    text = file.read_text()
    module, options = ir.Module.parse(text), options_of(text)
    if "--target" in options:
        set_target(module, parse_target(options["--target"]))
    return module, parse(options["-p"])


def run(module, pipeline, *limits):
    rewrites = Rewrites(parse_limits(limits))
    run_pipeline(module, pipeline, record=PipelineRun(ledger=Ledger(rewrites=rewrites)), verify=False)
    return rewrites


def cleaned(module):
    """The module's text, but for what no pass rewrites: a clean-up's work, and names."""
    module = ir.Module.parse(str(module))
    run_pipeline(module, CLEAN, verify=False)
    return str(module)


def test_every_pass_has_a_file():
    ours = {name for name, cls in passes().items() if cls.__module__.startswith("mlirc.lowering.")}
    assert ours <= set(BY_PASS), f"no file of tests/filecheck runs {sorted(ours - set(BY_PASS))}"


@pytest.mark.thinned(24)
@pytest.mark.parametrize(
    "name", sorted(n for n, cls in passes().items() if cls.__module__.startswith("mlirc.lowering."))
)
def test_a_pass_changes_nothing_that_it_does_not_ask_for(name):
    changed = 0
    for file in BY_PASS[name]:
        with context():
            module, steps = module_of(file)
            before = [step.name for step in steps].index(name)
            if before:
                run_pipeline(module, ",".join(map(str, steps[:before])), verify=False)
            given, whole = str(module), ir.Module.parse(str(module))
            asked = run(module, str(steps[before]), f"{name}=none")
            assert cleaned(module) == cleaned(ir.Module.parse(given)), f"{name} on {file.name}, with no rewrite allowed"
            every = run(whole, str(steps[before]))
            changed += cleaned(whole) != cleaned(ir.Module.parse(given))
            if cleaned(whole) != cleaned(ir.Module.parse(given)):
                assert asked.of(name) and every.of(name), f"{name} rewrites {file.name} and did not ask"
    assert changed, f"no file of tests/filecheck has anything that {name} changes"


@pytest.mark.parametrize("name", sorted({"fuse-elementwise", "to-kernels", "fold-constants", "plan-memory"}))
def test_what_comes_before_a_limit_is_as_in_the_whole_run(name):
    """The first n + 1 questions do not depend on what is refused after n: a bisection can rely on it."""
    for file in BY_PASS[name]:
        with context():
            module, steps = module_of(file)
            before = [step.name for step in steps].index(name)
            if before:
                run_pipeline(module, ",".join(map(str, steps[:before])), verify=False)
            given = str(module)
            every = run(ir.Module.parse(given), str(steps[before])).of(name)
            for n in range(len(every)):
                some = run(ir.Module.parse(given), str(steps[before]), f"{name}=0-{n}").of(name)
                assert [r.subject for r in some[: n + 1]] == [r.subject for r in every[: n + 1]]
                assert [r.allowed for r in some] == [r.number <= n for r in some]


def test_several_passes_and_ranges():
    limits = parse_limits(["fuse-elementwise=0-41,50,60-", "cse=none"])
    assert limits == {"fuse-elementwise": ((0, 41), (50, 50), (60, None)), "cse": ()}
    assert print_limits(limits) == ["fuse-elementwise=0-41,50,60-", "cse=none"]
    rewrites = Rewrites(limits)
    allowed = [rewrites.allows("fuse-elementwise", str(k)) for k in range(70)]
    assert [k for k, one in enumerate(allowed) if one] == [*range(42), 50, *range(60, 70)]
    assert not rewrites.allows("cse", "x") and rewrites.allows("canonicalize", "x")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cse", "'cse' is not PASS=RANGES"),
        ("=1", "is not PASS=RANGES"),
        ("cse=", "'' in 'cse=' is no range"),
        ("cse=5-3", "'5-3' in 'cse=5-3' is no range"),
        ("cse=1,x", "'x' in 'cse=1,x' is no range"),
        ("cse=-4", "is no range"),
    ],
)
def test_what_is_no_limit_says_so(text, message):
    with pytest.raises(PipelineError, match=re.escape(message)):
        parse_limits([text])


def test_a_limit_of_a_pass_that_does_not_run():
    with pytest.raises(
        PipelineError, match=r"rewrites of 'fuse-elementwis': no such pass runs.*fuse-elementwise.*the pipeline is "
    ):
        check_names(parse_limits(["fuse-elementwis=1"]), ["cse", "fuse-elementwise"])
    with pytest.raises(PipelineError, match="'cse' is there twice"):
        parse_limits(["cse=1", "cse=2"])
