"""What a notebook displays: a graph, a stage, a difference and a kernel, each a page in a frame of its own."""

import html
import json
import re

import pytest

from mlirc.execution.captures import CaptureError, read_capture
from tests.report.browser import Browser, executable


@pytest.fixture
def graph(captured):
    return read_capture(captured).graphs[0]


def displayed(x):
    made = x._repr_html_()
    assert made.startswith('<iframe sandbox="allow-scripts" srcdoc="') and made.endswith("</iframe>")
    page = html.unescape(re.search(r'srcdoc="([^"]*)"', made)[1])
    return json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])


def test_a_graph(graph):
    data = displayed(graph)
    assert data["bare"] and [g["name"] for g in data["graphs"]] == ["000_forward"]


def test_a_stage_and_what_another_changed(graph):
    stage = graph.stage("simplify")
    assert displayed(stage)["only"]["lines"] == str(stage).split("\n") and "func.func @graph" in str(stage)
    diff = stage.diff(graph.stage("fuse"))
    assert {"-", "+"} <= {sign for sign, _ in displayed(diff)["only"]["lines"]} and "+ " in str(diff)
    assert {sign for sign, _ in stage.diff(stage).lines} <= {" ", "."}
    with pytest.raises(CaptureError, match="did you mean 'fuse'"):
        graph.stage("fues")


def test_what_a_plain_console_shows_is_a_line(graph, captured):
    found = read_capture(captured)
    stage = graph.stage("fuse")
    for x in (found, graph, found.frames[0], stage, stage.diff(stage)):
        assert len(repr(x)) < 300 and "\n" not in repr(x), x
    assert "000_forward" in repr(found) and "000_forward: fuse" in repr(stage)


def test_a_kernel(graph):
    name = graph.record["report"]["kernels"][0]["name"]
    only = displayed(graph.kernel(name))["only"]
    assert name in only["title"] and only["lines"][0].startswith("func.func") and ["launches", 1] in only["facts"]
    assert graph.kernel("kernel_0").lines
    with pytest.raises(CaptureError, match="nothing_of_that_name"):
        graph.kernel("nothing_of_that_name")


@pytest.mark.skipif(executable() is None, reason="no Chromium here: apt-get install chromium")
def test_cells_in_a_browser(graph, tmp_path):
    """A notebook's page has no policy of ours; the frames are drawn, and have no errors."""
    name = graph.record["report"]["kernels"][0]["name"]
    cells = [graph, graph.stage("fuse"), graph.stage("simplify").diff(graph.stage("fuse")), graph.kernel(name)]
    path = tmp_path / "notebook.html"
    path.write_text("<!doctype html><meta charset=utf-8><body>" + "".join(x._repr_html_() for x in cells))
    browser = Browser(tmp_path / "profile")
    try:
        browser.look(1000, 2000)
        browser.open(path)
        browser.screenshot(tmp_path / "cells.png")
        assert not browser.errors
        assert (tmp_path / "cells.png").stat().st_size > 30_000
    finally:
        browser.close()
