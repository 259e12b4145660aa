"""Tables as text: what reads them line by line finds no spaces at the ends of lines, whichever command wrote them."""

import pytest
import torch

import mlirc
from mlirc.frontend.report.profile_table import profile_table
from mlirc.frontend.table_text import table_text, trimmed
from mlirc.measurement.comparison_table import table

ROW = {
    "seconds": 1e-5,
    "share": 1.0,
    "floor": None,
    "of_floor": None,
    "bound": "",
    "times": 1,
    "read": None,
    "written": None,
    "kind": "kernel",
    "label": "[red]exp",
    "lines": ["a b/ä.py:3", "c.py:4"],
}


def comparison():
    made = table()
    made.add_row("A", "0.050")
    return made


@pytest.mark.parametrize("width", [40, 120, 200])
@pytest.mark.parametrize("make", [lambda: profile_table([ROW]), comparison])
def test_no_line_ends_with_spaces(make, width):
    lines = table_text(make(), width).splitlines()
    assert len(lines) > 3 and all(line == line.rstrip() and len(line) <= width for line in lines)


def test_labels_are_text():
    assert "[red]exp" in table_text(profile_table([ROW]), 120)


def test_what_explain_and_options_print():
    with torch.no_grad():
        explained = mlirc.explain(lambda x: x.exp().sum(), profile=True, candidates=True)(torch.randn(4, 5))
    for text in (str(explained), str(mlirc.options())):
        assert text == trimmed(text)
