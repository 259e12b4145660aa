"""The field's words: names and prose of the code have left the words that were ours alone.

A name is a file's, a class's, a function's, a pass's or an option's, split into its words. A word that is right in another meaning
stands in EXCEPTIONS with that meaning. PHRASES have the old meaning in any sentence.
"""

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from mlirc.frontend.options import Options
from mlirc.lowering.pipeline.pass_manager import passes

ROOT = Path(__file__).parents[2]
CODE = ("dialects", "lowering", "codegen", "frontend", "mlirc", "benchmarks", "examples")

# Words that names do not have, and the field's word.
WORDS = {
    "product": "matmul (the graph), gemm (the generated code)",
    "turned": "transposed",
    "turns": "transposes",
    "square": "transposed; a tile that is transposed in registers",
    "unit": "work item, chunk; column block",
    "share": "split among threads; part of a thread",
    "piece": "chunk (threads), subgraph (data-dependent sizes)",
    "stream": "non-temporal stores",
    "summand": "addend; FMA contraction",
    "power": "exponential",
    "sibling": "horizontal fusion",
    "box": "slice",
    "origin": "provenance",
    "settle": "bufferization, copy elision",
    "piecewise": "subgraphs at data-dependent sizes",
    "word": "slot, field",
}

# Names in which such a word is right: by name or by file, with its meaning there.
EXCEPTIONS = {
    "product": {
        "product": "symbols.product: the product of sizes",
        "_is_product": "of sizes",
        "_end_of_product": "of sizes",
        "with_product": "of two numbers, which an FMA adds up unrounded",
        "products_of": "Winograd's elementwise products of transformed tiles",
        "dot_product.py": "a dot product",
        "generate_dot_products.py": "dot products",
        "GenerateDotProducts": "dot products",
        "generate-dot-products": "dot products",
    },
    "square": {
        "square": "ATen's square: x * x",
        "one_minus_square": "1 - x * x",
        "squares_in_one_pass": "sums of squares",
        "squares": "of numbers, in a benchmark's formula",
    },
    "unit": {
        "without_unit_dims": "a unit dimension has size 1",
        "is_unit_stride": "a unit stride is 1",
        "unit_stride_pointer": "a unit stride is 1",
        "unit_stride_axis": "a unit stride is 1",
    },
    "share": {
        "shares_memory": "views share memory",
        "shares_with": "tensors share memory",
        "shares": "tensors share memory",
        "shares_heads": "heads of queries share keys, as in grouped-query attention",
        "share_heads": "likewise",
    },
    "stream": {
        "raw_stream.py": "a CUDA stream",
        "raw_stream": "a CUDA stream",
        "current_stream_handle": "a CUDA stream",
    },
    "power": {
        "power.py": "ATen's pow",
        "integer_power": "x to an integer power",
        "_power": "ATen's pow",
        "power_of_two": "2 to an integer power",
        "next_power": "the next power of two",
        "_scaled_by_power": "ldexp: x * 2**y",
    },
    "turns": {"_may_take_turns": "groups of warps take turns"},
    "word": {
        "noise_in_words": "a sentence for people",
    },
}

# What sentences do not say, and what they say instead.
PHRASES = {
    r"units? of (work|columns)|a thread's units?\b|one unit at a time": "work items, column blocks",
    r"\bsummands?\b": "addend",
    r"row behind|saved rows?\b(?! statistics)|row pairs": "software-pipelined epilogue, saved row statistics",
    r"\bsiblings?\b": "horizontal fusion",
    r"run-together|compute-what-is-read|gather-early|choose-attention|activate-products": "the pass's new name",
    r"absent gradients?|smaller saves|saved layouts": "undefined tangents, activation compression, saved-activation layouts",
    r"kept traces?|kept answers?": "trace cache, answer cache",
    r"turned (around|over)|turns? (tiles|squares)|turning (tiles|squares)": "transposed",
    r"product of (float32|bfloat16|half types)|products? of ours|the product's (tile|panel|epilogue)": "matmul, gemm",
    r"pieces? (of the graph|by chunk)|piecewise": "subgraph, chunk",
    r"matrix units?": "tensor cores",
    r"word `?k`? of the arguments": "slot",
}


def sources(*folders: str) -> list[Path]:
    listed = subprocess.run(["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=True)
    found = [ROOT / line for line in listed.stdout.splitlines()]
    return [file for file in found if file.is_file() and not file.is_symlink()]


FILES = [file for file in sources(*CODE) if file.suffix == ".py"]
DOCUMENTS = [file for file in sources("docs", "README.md", "CONTRIBUTING.md") if file.suffix == ".md"]


def words_of(name: str) -> set[str]:
    """Of a name in any case, without the ends of a plural: {"has", "product"} of has_products, HasProducts or has-products."""
    parts = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name.removesuffix(".py"))
    found = {word.lower() for word in re.split(r"[\W_]+", parts)}
    return found | {word.removesuffix("s") for word in found} | {word.removesuffix("es") for word in found}


def wrong_words(name: str) -> list[str]:
    return sorted(word for word in words_of(name) & set(WORDS) if name not in EXCEPTIONS.get(word, {}))


def told(where: str, name: str) -> str:
    """What to do about a name with wrong words, or ""."""
    instead = [f"'{word}' is: {WORDS[word]}" for word in wrong_words(name)]
    right = "where it is right, EXCEPTIONS in tests/house/test_words.py has the name and its meaning"
    return f"{where}: the name '{name}' has a word that is ours alone: {'; '.join(instead)}; {right}" if instead else ""


def names(text: str) -> Iterator[str]:
    """Of classes, functions, and a module's constants."""
    module = ast.parse(text)
    for node in ast.walk(module):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            yield node.name
    for statement in module.body:
        if isinstance(statement, (ast.Assign, ast.AnnAssign)):
            yield from (node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and node.id.isupper())


def prose(text: str) -> str:
    """Docstrings and comments."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    found = [ast.get_docstring(node) or "" for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return "\n".join(found + [token.string for token in tokens if token.type == tokenize.COMMENT])


@pytest.mark.parametrize("folder", [*CODE, "docs"])
def test_names_are_the_fields(folder):
    for file in sources(folder):
        where = str(file.relative_to(ROOT))
        for name in (file.name, *(names(file.read_text()) if file.suffix == ".py" else ())):
            assert not wrong_words(name), told(where, name)


def our_passes() -> set[str]:
    """Tests register others."""
    return {name for name, cls in passes().items() if cls.__module__.startswith("mlirc.")}


def test_passes_and_options_have_the_fields_words():
    for what, found in (("a pass", our_passes()), ("an option", [field.name for field in fields(Options)])):
        for name in found:
            assert not wrong_words(name), told(what, name)


@pytest.mark.parametrize("folder", CODE)
def test_sentences_are_the_fields(folder):
    for file in FILES:
        if file.relative_to(ROOT).parts[0] == folder:
            text = prose(file.read_text())
            for phrase, better in PHRASES.items():
                found = re.search(phrase, text, re.IGNORECASE)
                assert not found, f"{file.relative_to(ROOT)}: '{found[0]}' is: {better}"


def test_a_docstring_is_read_without_its_neighbours():
    """It names its subject: "The sums of a block", where "Of a block" would need the function's name before it. A table of fields comes second."""
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                first = (ast.get_docstring(node) or "").partition("\n")[0]
                wrong = re.match(r"(Of|Those|That of) ", first) or re.match(r"[a-z][\w, ]*\w {2,}\S", first)
                assert not wrong, f"{file.relative_to(ROOT)}: {node.name}: {first}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda file: file.name)
def test_documents_are_the_fields(document):
    for phrase, better in PHRASES.items():
        found = re.search(phrase, document.read_text(), re.IGNORECASE)
        assert not found, f"'{found[0]}' is: {better}"
    for heading in re.findall(r"^#+ (.+)", document.read_text(), re.MULTILINE):
        if heading != "What the process shares":  # as memory and files are shared
            assert not wrong_words(heading), told(document.name, heading)


def test_each_exception_is_there():
    there = {name for file in FILES for name in (file.name, *names(file.read_text()))} | our_passes()
    assert not {name for found in EXCEPTIONS.values() for name in found} - there


@pytest.mark.parametrize("name", ["MergeProducts", "share_units", "units.py", "pad-products", "boxes", "row_squares"])
def test_an_old_word_is_seen(name):
    assert wrong_words(name)


def test_a_wrong_word_is_told_with_what_to_write():
    text = told("dialects/ops/softsign_square.py", "softsign_square.py")
    assert text.startswith(
        "dialects/ops/softsign_square.py: the name 'softsign_square.py' has a word that is ours alone: "
    )
    assert "'square' is: transposed; a tile" in text and "EXCEPTIONS in tests/house/test_words.py" in text
    assert "'product' is: matmul (the graph)" in told("a pass", "negated-products")
    assert not told("dialects/ops/elementwise/power.py", "power.py")


SHOWN = (
    "mlirc/commands",
    "mlirc/bisection",
    "mlirc/execution",
    "mlirc/measurement",
    "mlirc/report",
    "frontend/explain",
)
COUNTED = re.compile(
    r"\}? (graphs|passes|ops|lines|kernels|entries|calls|rewrites|fusions|pairs|rows|cores|threads|arguments|results|inputs|boxes|edges)"
    r"\b(?! and )"
)


@pytest.mark.parametrize("folder", SHOWN)
def test_a_number_agrees_with_its_noun(folder):
    """ "1 graph": `counted` says it, `several` in a page."""
    found = []
    for path in (ROOT / folder).rglob("*"):
        if path.suffix not in (".py", ".js"):
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            numbers = re.findall(r"\{[^{}\"]*(?:len\(|\.length|count|number|total|repeat)[^{}\"]*\}[^{}\"]*", line)
            found += [f"{path}:{number}: {x}" for x in numbers if COUNTED.match(x[x.rindex("}") :])]
    assert not found, "\n".join(found)
