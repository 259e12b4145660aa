"""`mlirc ops --missing`: the calls of ATen that have no op of ours."""

import json

import pytest

from mlirc.execution.missing_ops import near_names
from tests.commands.command import bad, good

SCRIPT = """
import sys, torch

WHOLE = int(sys.argv[1])

@torch.compile
def f(x):
    y = torch.sort(x * 2).values
    return y + torch.linalg.det(x[:4, :4]) if WHOLE else x + 1

f(torch.randn(8, 8))
f(torch.randn(8, 8, requires_grad=True)).sum().backward()
"""


@pytest.fixture
def script(tmp_path):
    file = tmp_path / "script.py"
    file.write_text(SCRIPT)
    return file


def test_what_a_script_calls_and_no_op_is(script, tmp_path):
    out = good("ops", "--missing", script, "--json", tmp_path / "missing.json", "1").stdout
    data = json.loads((tmp_path / "missing.json").read_text())
    missing = {row["name"]: row for row in data["missing"]}
    assert {"aten.sort.default", "aten._linalg_det.default"} <= set(missing)
    assert not any(name in missing for name in ("aten.mul.Tensor", "aten.add.Tensor", "aten.sum.default"))
    sort = missing["aten.sort.default"]
    assert sort["calls"] == 2 and sort["why"] == "no op of ours" and sort["subjects"] == ["f(8x8) with gradients"]
    assert 0 < sort["seconds"] < data["seconds"] and "aten.linalg_lu_solve.default" in missing  # of the backward
    assert data["graphs"] == 3 and "  aten.sort.default: no op of ours; in 1: f(8x8)" in out


def test_nothing_is_missing(script):
    assert good("ops", "--missing", script, "0").stdout.startswith("3 graphs; 0 overloads of ATen's without an op")


def test_opinfo(tmp_path):
    good("ops", "--missing", "opinfo", "--ops", "add,sort", "--json", tmp_path / "missing.json")
    data = json.loads((tmp_path / "missing.json").read_text())
    assert [(r["name"], r["subjects"]) for r in data["missing"] if r["name"] == "aten.sort.default"] == [
        ("aten.sort.default", ["sort"])
    ]
    assert data["graphs"] >= 4 and not data["failed"] and not data["refused"]
    said = bad("ops", "--missing", "opinfo", "--ops", "sortt,adds,sort", code=2)
    assert "no operator 'adds' (did you mean add" in said and ", 'sortt' (did you mean sort" in said


def test_each_way_to_call_an_operator_is_tried():
    said = good("ops", "--missing", "opinfo", "--ops", "median").stdout
    assert "aten.median.default: no op of ours" in said and "aten.median.dim: no op of ours" in said


def test_warnings_of_eager_are_not_shown(recwarn):
    """PyTorch warns that this operator is deprecated, in eager and in each frame that is traced."""
    good("ops", "--missing", "opinfo", "--ops", "nn.functional.upsample_nearest")
    assert not [str(w.message) for w in recwarn if "upsample_nearest" in str(w.message)]


def test_a_first_guess_is_told_the_right_line():
    """An operator in place of a script, no subject at all, an operator behind opinfo: what people try first."""
    right = "mlirc ops --missing opinfo --ops special.zeta,sort"
    for guess in (["special.log_ndtr"], ["aten.sort"], [], ["opinfo", "sort"], ["gelu", "--ops", "gelu"]):
        assert right in bad("ops", "--missing", *guess, code=2)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("aten.special_log_ndtr.default", "special.log_ndtr"),
        ("torch.special.log_ndtr", "special.log_ndtr"),
        ("gelu", "nn.functional.gelu"),
        ("F.gelu", "nn.functional.gelu"),
        ("Sort", "sort"),
    ],
)
def test_names_near_opinfos(name, near):
    assert near_names(name, ["special.log_ndtr", "nn.functional.gelu", "sort", "add"])[0] == near


def test_what_is_wrong_is_one_line(script, tmp_path):
    assert "No such file or directory" in bad("ops", "--missing", tmp_path / "none.py", code=2)
    assert "IndexError" in bad("ops", "--missing", script)
    assert "go with --missing" in bad("ops", "--ops", "add", code=2)
    assert "mlirc.exp" in good("ops").stdout


@pytest.mark.parametrize("command", [("ops", "--missing"), ("profile", "--threads", "1")], ids=" ".join)
def test_a_script_reads_what_explain_found(command, tmp_path):
    file = tmp_path / "explained.py"
    file.write_text(
        "import torch, mlirc\n"
        "found = mlirc.explain(lambda x: torch.special.bessel_j0(x).sum(0))(torch.randn(4, 4))\n"
        "print('the kind is', found.data['graphs'][0]['kind'])\n"
    )
    out = good(*command, file).stdout
    assert "the kind is inference" in out and "bessel_j0" in out
