"""The page in a browser: every view, keys, dark mode, a graph of thousands of ops; nothing of the data is executed."""

import json

import pytest

from mlirc.report.html_page import html_page
from tests.report.browser import Browser, executable
from tests.report.test_page import HOSTILE, PAIR, data_of, with_candidates

pytestmark = pytest.mark.skipif(executable() is None, reason="no Chromium here: apt-get install chromium")
VIEWS = ["source", "graph", "passes", "ir", "ledger", "memory", "code", "time"]
ROW = {"kind": "kernel", "label": "softmax_add", "lines": ["model.py:5"], "times": 2, "dtype": "float32"}
SIZES = {"read": 4096, "written": 4096, "flops": 65536}
ROWS = [
    ROW | SIZES | {"waited": 0.31, "seconds": 4e-6, "share": 0.8, "floor": 1e-6, "bound": "memory", "of_floor": 0.25},
    ROW
    | SIZES
    | {"label": "copy", "seconds": 1e-6, "share": 0.2, "flops": 0, "floor": None, "bound": "", "of_floor": None},
]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    found = Browser(tmp_path_factory.mktemp("profile"))
    found.look(1200, 800)
    yield found
    found.close()


@pytest.fixture(scope="module")
def page(captured, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(html_page(data_of(captured, {"000_forward": ROWS}), "test"))
    return path


def opened(browser, path, fragment=""):
    browser.errors.clear()
    browser.requests.clear()
    browser.open(path, fragment)


def text(browser):
    return browser.evaluate("document.querySelector('main').innerText")


def quiet(browser):
    assert not browser.errors and all(url.startswith(("file:", "about:")) for url in browser.requests)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [420, 1200])
def test_every_view(browser, page, dark, width):
    browser.look(width, 800, dark)
    opened(browser, page, "#0-source")
    for k, view in enumerate(VIEWS):
        browser.press(str(k + 1))
        assert browser.evaluate("location.hash") == f"#0-{view}"
        assert len(text(browser)) > 150, view
        assert browser.evaluate("document.documentElement.scrollWidth") <= width, view
    browser.press("0")
    assert "graph break" in text(browser) and "compiled again" in text(browser)
    background = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (max(map(int, background[4:-1].split(","))) < 64) == dark
    quiet(browser)


def test_keys(browser, page):
    browser.look(1200, 800)
    opened(browser, page, "#0-ledger")
    browser.press("]")
    assert browser.evaluate("location.hash") == "#1-ledger"
    browser.press("[")
    rows = "document.querySelector('.table').querySelectorAll('tbody tr:not(.space)').length"
    whole = browser.evaluate(rows)
    browser.press("/")
    for key in "fuse-horizontally":
        browser.press(key)
    assert 0 <= browser.evaluate(rows) < whole and browser.evaluate("location.hash") == "#0-ledger"
    browser.press("Escape")
    browser.press("3")
    browser.evaluate("document.querySelector('.steps').focus()")
    before = browser.evaluate("document.querySelector('.column h1').textContent")
    browser.press("ArrowDown")
    assert browser.evaluate("document.querySelector('.column h1').textContent") != before
    browser.press("2")
    browser.evaluate("document.querySelector('canvas').focus()")
    for _ in range(2):
        browser.press("ArrowDown")
    assert "reads" in text(browser)
    browser.press("?")
    assert browser.evaluate("document.querySelector('dialog').open")
    quiet(browser)


def test_a_table_is_sorted_by_its_heads(browser, page):
    browser.look(1200, 800)
    opened(browser, page, "#0-ledger")
    column = "[...document.querySelector('.table').querySelectorAll('tbody tr:not(.space) td:nth-child(1)')].map(x => x.textContent)"
    for sort, order in ((sorted, "ascending"), (lambda x: sorted(x, reverse=True), "descending")):
        browser.evaluate("document.querySelector('th button').click()")
        names = browser.evaluate(column)
        assert names == sort(names) and len(names) > 3
        assert browser.evaluate("document.querySelector('th').getAttribute('aria-sort')") == order


def test_pairs_that_fusion_looked_at(browser, captured, tmp_path):
    pairs = [PAIR, PAIR | {"measured": {"gain": -30.0}}, PAIR | {"measured": {"failed": "no inputs"}}]
    with_candidates(captured, tmp_path, "".join(json.dumps(x) + "\n" for x in pairs))
    (tmp_path / "report.html").write_text(html_page(data_of(tmp_path), "test"))
    opened(browser, tmp_path / "report.html", "#0-ledger")
    shown = text(browser)
    assert all(part in shown for part in ("ONE SPACE", "1.00 KiB", "120 ns", "\u221230 ns", "no inputs"))
    browser.evaluate("document.querySelectorAll('.table')[1].focus()")
    browser.press("ArrowDown")
    assert "fuse, taken by ONE SPACE" in text(browser) and "of to-kernels" in text(browser)
    quiet(browser)


def test_times_and_floors(browser, page):
    opened(browser, page, "#0-time")
    shown = text(browser)
    assert "softmax_add" in shown and "25%" in shown and "4.0 µs" in shown
    assert "Threads waited for a processor 31% of the time" in shown
    assert browser.evaluate("document.querySelectorAll('svg .dot').length") == 1
    browser.look(1200, 800)
    for view in "80":  # each table is there whole
        browser.press(view)
        assert browser.evaluate("(x => x.scrollWidth <= x.clientWidth)(document.querySelector('.table.short'))"), view


def test_nothing_of_the_data_is_executed(browser, page, tmp_path, captured):
    def hostile(x):
        if isinstance(x, dict):
            return {k: hostile(v) for k, v in x.items()}
        if isinstance(x, list):
            return [hostile(v) for v in x]
        return x + HOSTILE if isinstance(x, str) else x

    path = tmp_path / "hostile.html"
    path.write_text(html_page(hostile(data_of(captured)), HOSTILE))
    opened(browser, path, "#0-source")
    for key in "123456780":
        browser.press(key)
    assert browser.evaluate("window.hit") is None and browser.evaluate("document.images.length") == 0
    assert browser.evaluate("document.scripts.length") == 2
    quiet(browser)


def test_five_thousand_ops(browser, captured, tmp_path):
    """Each view is there at once, with few elements."""
    data = data_of(captured)
    graph = json.loads(json.dumps(data["graphs"][0]))
    node = {
        "t": "relu_sum_softmax",
        "k": "kernel",
        "o": ["relu", "sum", "softmax"],
        "l": ["model.py:5"],
        "s": ["tensor<8xf32>"],
    }
    graph["drawing"]["nodes"] = [node | {"x": 30 * (k % 4), "y": 90 * (k // 2), "w": 150, "h": 80} for k in range(5000)]
    graph["drawing"]["edges"] = [[k, k + j] for k in range(4990) for j in (1, 7)]
    graph["ledger"] *= 5000 // len(graph["ledger"]) + 1
    graph["memory"]["slots"] = [
        graph["memory"]["slots"][0] | {"offset": 64 * (k % 50), "bytes": 64, "first": k, "last": k + 9}
        for k in range(5000)
    ]
    graph["memory"]["steps"] = ["relu"] * 5010
    graph["source"] = [graph["source"][0] | {"line": k} for k in range(5000)]
    graph["passes"][1]["lines"] = [["+-~ "[k % 4], f"%{k} = op"] for k in range(50000)]
    data["graphs"] = [graph]
    path = tmp_path / "large.html"
    path.write_text(html_page(data, "large"))
    browser.look(1200, 800)
    opened(browser, path, "#0-time")
    for key in "12345678":
        took = browser.evaluate(
            f"new Promise((done) => {{ const start = performance.now(); document.dispatchEvent(new KeyboardEvent('keydown', {{key: '{key}'}}));"
            "requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - start))); })"
        )
        assert took < 2000, (VIEWS[int(key) - 1], took)
        assert browser.evaluate("document.getElementsByTagName('*').length") < 4000
    quiet(browser)
