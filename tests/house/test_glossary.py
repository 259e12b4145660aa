"""docs/glossary.md: at most 40 terms, one line each, and each term stands in the file that its line names."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINE = re.compile(r"\* \*\*(?P<term>[^*]+)\*\*: .+ \((?P<file>[\w/]+\.py)\)")
TEXT = (ROOT / "docs" / "glossary.md").read_text()
LINES = [line for line in TEXT.splitlines() if line.startswith("*")]


def entry(line: str) -> tuple[str, str]:
    match = LINE.fullmatch(line)
    assert match, f"'* **term**: meaning (file)' is the form of a line: {line}"
    return match["term"], match["file"]


def test_terms_are_few_and_in_order():
    terms = [entry(line)[0] for line in LINES]
    assert len(terms) <= 40 and terms == sorted(set(terms), key=str.lower)
    assert all(len(line) <= 180 for line in LINES)


@pytest.mark.parametrize("line", LINES, ids=lambda line: entry(line)[0])
def test_a_term_lives_where_its_line_says(line):
    term, file = entry(line)
    text = re.sub(r"[\s_-]+", " ", (ROOT / file).read_text().lower())
    assert re.sub(r"[\s-]+", " ", term.lower()) in text


@pytest.mark.parametrize("document", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_it_is_linked(document):
    assert "glossary.md" in (ROOT / document).read_text()
