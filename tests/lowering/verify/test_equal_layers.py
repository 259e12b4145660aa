"""A rule that one layer has kept is not proved again for the next: verifying a deep graph costs little more than one layer."""

import pytest

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.lowering.module.rules import StageError
from mlirc.lowering.pipeline.pass_manager import functions, run_pipeline
from mlirc.lowering.verify.index_proofs import Space
from mlirc.lowering.verify.stage import verify_stage

X, FLAT = "tensor<8x16xf32>", "tensor<128xf32>"
VIEW = f'{{map = "d0//16, d0 % 16", offset = "0"}} : ({X}) -> {FLAT}'


def layers(count, last=""):
    """`count` layers alike, behind them the line `last`, which may read %x0."""
    lines = [
        f"""%f{k} = "mlirc.view"(%x{k}) {VIEW}
        %e{k} = "mlirc.exp"(%f{k}) : ({FLAT}) -> {FLAT}
        %v{k} = "mlirc.view"(%e{k}) {{map = "16*d0 + d1", offset = "0"}} : ({FLAT}) -> {X}
        %x{k + 1} = "mlirc.neg"(%v{k}) : ({X}) -> {X}"""
        for k in range(count)
    ]
    return ir.Module.parse(
        f"func.func @graph(%x0: {X}) -> {X} {{\n{chr(10).join(lines)}\n{last}\nreturn %x{count} : {X}\n}}"
    )


def verified(module, form):
    (function,) = functions(module)
    verify_stage(function, form)


@pytest.mark.parametrize("passes", ["", "to-kernels", "to-kernels,fuse-elementwise{max-ops=1}"])
def test_proofs_are_as_many_as_layers_that_differ(passes, monkeypatch):
    asked, nonnegative = [], Space.nonnegative
    monkeypatch.setattr(Space, "nonnegative", lambda space, goal: asked.append(goal) or nonnegative(space, goal))

    def proofs(count):
        module = layers(count)
        run_pipeline(module, passes, verify=False)
        asked.clear()
        verified(module, "kernel" if passes else "graph")
        return sum(not isinstance(goal, int) for goal in asked)

    with context():
        proofs(2)  # what ops mean is kept by the process
        assert 0 < proofs(12) == proofs(2)


@pytest.mark.parametrize(
    "wrong",
    [
        VIEW.replace("d0//16", "d0//16 + 1"),
        VIEW.replace('offset = "0"', 'offset = "1"'),
        VIEW.replace(X, "tensor<8x15xf32>"),
        VIEW.replace("128", "129"),
    ],
)
def test_a_layer_that_differs_is_refused(wrong):
    given = '%s = "mlirc.iota"() {expr = "d0"} : () -> tensor<8x15xf32>\n' if "8x15" in wrong else ""
    name = "%s" if given else "%x0"
    with context():
        verified(layers(3), "graph")
        with pytest.raises(StageError, match=r"mlirc\.view"):
            verified(layers(3, f'{given}%w = "mlirc.view"({name}) {wrong}'), "graph")
