"""Tables as text: what reads them line by line finds no spaces at the ends of lines, whichever command wrote them."""

import pytest
import torch

import mlirc
from mlirc.frontend.report.profile_table import by_file, profile_table
from mlirc.frontend.table_text import output_width, table_text, trimmed
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


def test_lines_of_a_file_are_one_after_the_other():
    assert by_file(["m/a.py:3", "b.py:4", "m/a.py:10", "n/a.py:10"]) == "a.py:3, 10 b.py:4 a.py:10"


def test_a_row_is_a_line_where_no_terminal_shows_it():
    row = ROW | {"lines": [f"{'x' * 60}{k}.py:{k}" for k in range(40)]}
    lines = table_text(profile_table([row]), output_width(120)).splitlines()
    assert any("0.py:0" in line and "39.py:39" in line for line in lines)
