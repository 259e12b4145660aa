"""Puts data and the files of page/ together as one HTML file, which needs nothing else and reaches no network.

Styles and scripts are named by their hashes in the page's content-security-policy: nothing else of the file is executed. What comes from
the user's files stands in one block of JSON, and the scripts put it into the page as text.
"""

import base64
import hashlib
import html
import json
from functools import cache
from importlib.resources import files
from typing import Any

STYLES = ("base.css", "views.css")
SCRIPTS = (
    "elements.js",
    "numbers.js",
    "long_text.js",
    "table.js",
    "canvas.js",
    "overview.js",
    "source.js",
    "graph.js",
    "passes.js",
    "memory.js",
    "time.js",
    "page.js",
)


def html_page(data: dict[str, Any], title: str) -> str:
    style, script = joined(STYLES), joined(SCRIPTS)
    policy = f"default-src 'none'; style-src '{hashed(style)}'; script-src '{hashed(script)}'; base-uri 'none'; form-action 'none'"
    head = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{html.escape(title)}</title>
<style>{style}</style>
</head>
<body>
<noscript>This page needs JavaScript: its data stands below, as JSON.</noscript>
<script type="application/json" id="data">"""
    return f"{head}{embedded(data)}</script>\n<script>{script}</script>\n</body>\n</html>\n"


def embedded(data: Any) -> str:
    """JSON that ends no script element, whatever text is in it."""
    text = json.dumps(data, separators=(",", ":"), default=str)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


@cache
def joined(names: tuple[str, ...]) -> str:
    folder = files("mlirc.report") / "page"
    return "\n" + "\n".join((folder / name).read_text(encoding="utf-8") for name in names)


def hashed(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
