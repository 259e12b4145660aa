"""The text of a side: pipelines, insertions, passes, backends; what is wrong is said."""

import pytest

from mlirc.lowering.pipeline.pipelines import pipeline
from mlirc.measurement.sides import SideError, read_side


def test_a_standard_pipeline_and_its_insertions():
    assert read_side("cpu").pipeline_text() == pipeline("cpu")
    side = read_side("cpu + fuse-elementwise{max-ops=2},cse after fuse-elementwise + canonicalize before plan")
    assert side.options["insert"] == {
        "after fuse-elementwise": "fuse-elementwise{max-ops=2},cse",
        "before plan": "canonicalize",
    }
    assert "fuse-elementwise,fuse-elementwise{max-ops=2},cse,fuse-reductions" in side.pipeline_text()
    assert "schedule-collectives,canonicalize,plan-memory" in side.pipeline_text()


def test_two_insertions_at_one_place_are_both_there():
    assert (
        "fuse-elementwise,cse,canonicalize,fuse-reductions"
        in read_side("cpu + cse after fuse-elementwise + canonicalize after fuse-elementwise").pipeline_text()
    )


def test_passes_are_left_out():
    left = read_side("cpu - hoist-gathers - cse").pipeline_text().split(",")
    assert left == [name for name in pipeline("cpu").split(",") if name not in ("hoist-gathers", "cse")]


def test_a_pass_is_replaced():
    side = read_side("cpu + fuse-elementwise{max-ops=2} before fuse-elementwise - fuse-elementwise")
    assert side.pipeline_text() == pipeline("cpu").replace("fuse-elementwise", "fuse-elementwise{max-ops=2}")


def test_passes_go_all_the_way_down():
    assert read_side("decompose,to-kernels").pipeline_text() == "decompose,to-kernels,plan-memory,lower-kernels"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cpux", "'cpux' is no pipeline, pass or backend; did you mean 'cpu'?"),
        ("cpu + cse", "after a + come passes and their place"),
        ("cpu + cse after fuze", "no stage or pass 'fuze' in this pipeline; did you mean 'fuse'?"),
        ("cpu + fuse-elementwis after fuse", "fuse-elementwis"),
        ("cpu + fuse-elementwise{max=1} after fuse", "max"),
        ("eager + cse after fuse", "eager has none"),
        ("cpu - hoist-gather", "no pass 'hoist-gather' in this pipeline; did you mean 'hoist-gathers'?"),
        ("cpu - to-kernels", "'to-kernels' cannot be left out: every graph goes through the kernel form"),
        ("", "a pipeline comes before the first"),
        ("+ cse after fuse", "is not a pass"),
    ],
)
def test_what_is_wrong(text, said):
    with pytest.raises(SideError) as raised:
        read_side(text)
    assert said in str(raised.value)
