"""`mlirc opt` on files that are made to crash it: one line on standard error, exit code 1 or 2, no traceback, and soon."""

import os
import time

import pytest
from click.testing import CliRunner

from mlirc.cli import opt
from mlirc.lowering.host import host_cpu

F = "func.func @graph(%x: tensor<8xf32>) -> tensor<8xf32> {\n%0 = OP\nreturn %0 : tensor<8xf32>\n}"


def aliases(count: int, sigil: str, first: str, each: str) -> str:
    lines = [f"{sigil}a0 = {first}", *(f"{sigil}a{k + 1} = {each.replace('@', f'{sigil}a{k}')}" for k in range(count))]
    return "\n".join([*lines, f"module attributes {{x.b = {sigil}a{count}}} {{}}"])


def reindex(map_: str) -> str:
    return F.replace("OP", f'"mlirc.reindex"(%x) {{map = "{map_}"}} : (tensor<8xf32>) -> tensor<8xf32>')


def neg(type_: str) -> str:
    return F.replace("8xf32", type_).replace("OP", f'"mlirc.neg"(%x) : (tensor<{type_}>) -> tensor<{type_}>')


def regions(name: str, held: str) -> str:
    return f'func.func @graph() {{ "mlircx.{name}"() {held} : () -> () return }}'


REGIONS = ("", "({})", "({}, {})", "({func.func private @f()})", "({func.func private @f()}, {func.func @g() {return}})",
           "({module {}}, {module {}})", '{callee = "x"}', '{callee = "region_x"}', "({^bb0(%x: i1): })")  # fmt: skip
"""What an op holds whose regions should each hold a function: none, an empty one, no function, no body, no such callee."""

TEXTS: dict[str, str | bytes] = {
    **{
        f"{name} {k}": regions(name, held)
        for name in ("while_loop", "cond", "scan_loop", "invoke")
        for k, held in enumerate(REGIONS)
    },
    "modules": "module {" * 20_000,
    "tuples": "func.func @graph(%x: " + "tuple<" * 30_000,
    "lists": "module attributes {x.a = " + "[" * 50_000,
    "regions": "func.func @graph() {\n" + '"a.b"() ({\n' * 20_000,
    "dictionaries": "module attributes {x.a = " + "{a = " * 20_000,
    "locations": "module {} loc(" + "callsite(" * 20_000,
    "affine": "#m = affine_map<(d0) -> (" + "(" * 20_000,
    "signs": "#m = affine_map<(d0) -> (" + "-" * 200_000 + "d0)>\nmodule {}",
    "opaque": "module attributes {x.a = #foo<" + "(" * 50_000 + ">} {}",
    "digits": "module attributes {x.a = " + "9" * 2_000_000 + " : i64} {}",
    "hexadecimal": "module attributes {x.a = 0x" + "F" * 2_000_000 + " : i64} {}",
    "decimals": "module attributes {x.a = 1." + "9" * 2_000_000 + " : f64} {}",
    "long_string": 'module attributes {x.a = "' + "x" * 5_000_000 + '"} {}',
    "large_type": aliases(60, "!", "f32", "tuple<@, @>"),
    "deep_type": aliases(60_000, "!", "f32", "tuple<@>"),
    "deep_attribute": aliases(60_000, "#", "1", "[@]"),
    "deep_location": "#loc0 = loc(unknown)\n"
    + "".join(f"#loc{k + 1} = loc(callsite(#loc{k} at #loc{k}))\n" for k in range(60_000))
    + "module {} loc(#loc60000)\n",
    "size": F.replace("8x", "9223372036854775808x"),
    "large_size": neg("9223372036854775807xf32"),
    "negative_size": neg('?xf32, {size = "-5"}'),
    "map_brackets": reindex("(" * 30_000 + "d0" + ")" * 30_000),
    "map_signs": reindex("-" * 3_000 + "d0"),
    "map_sum": reindex("d0" + " + d0" * 30_000),
    "map_product": reindex("*".join(["(d0 + s0 + 1)"] * 40)),
    "map_extremes": reindex("max(" * 300 + "d0" + ", 1)" * 300),
    "map_digits": reindex("1" * 5_000),
    "map_by_zero": reindex("d0//0"),
    "map_one_by_zero": reindex("1//0"),
    "not_utf8": b'module attributes {x.a = "\xff\xfe"} {}',
    "name_not_utf8": b'func.func @"gr\xff"() {return}',
    "op_not_utf8": b'"mlirc.fo\xff"() : () -> ()',
    "escape_not_utf8": 'module attributes {x.a = "\\FF\\FE"} {}',
    "name_escape": F.replace("@graph", '@"gr\\FF"'),
    "location_escape": 'module {} loc("a\\FF":1:2)',
    "device_escape": neg(r'8xf32, {device = "\FF"}'),
    "zero": "module {}\0",
}


def fails(path, *options) -> None:
    start = time.perf_counter()
    ran = CliRunner().invoke(opt, [str(path), "-p", "canonicalize", *options])
    assert isinstance(ran.exception, SystemExit), ran.exception
    assert ran.exit_code in (1, 2)
    assert ran.stderr.count("\n") == 1
    assert "Traceback" not in ran.stderr
    assert time.perf_counter() - start < 30


@pytest.mark.parametrize("name", TEXTS)
def test_texts(name, tmp_path):
    text = TEXTS[name]
    path = tmp_path / "a.mlir"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    fails(path)


@pytest.mark.parametrize("name", TEXTS)
def test_texts_from_standard_input(name):
    text = TEXTS[name]
    given = text if isinstance(text, bytes) else text.encode()
    ran = CliRunner().invoke(opt, ["-", "--pipeline", "cpu", "--emit", "asm"], input=given)
    assert isinstance(ran.exception, SystemExit), ran.exception
    assert (ran.exit_code, ran.stderr.count("\n")) == (1, 1)
    assert "Traceback" not in ran.stderr


def test_files_that_are_none(tmp_path):
    fails(tmp_path)
    fails(tmp_path / "absent")
    os.mkfifo(tmp_path / "fifo")
    fails(tmp_path / "fifo")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file(tmp_path):
    path = tmp_path / "a.mlir"
    path.write_text("module {}")
    path.chmod(0)
    fails(path)


@pytest.mark.parametrize("body", ["raise KeyError(1)", "1/0", "def", "import sys; sys.exit(3)"])
def test_an_import_that_raises(body, tmp_path):
    path = tmp_path / "a.mlir"
    path.write_text("module {}")
    script = tmp_path / "mine.py"
    script.write_text(body)
    fails(path, "--import", str(script))


def test_the_output_may_be_the_input(tmp_path):
    path = tmp_path / "a.mlir"
    path.write_text("module {}")
    assert CliRunner().invoke(opt, [str(path), "-p", "canonicalize", "-o", str(path)]).exit_code == 0
    assert path.read_text() == f'module attributes {{mlirc.target = "{host_cpu()}"}} {{\n}}\n'


@pytest.mark.parametrize(
    "text",
    [
        "(" * 50_000,
        "{" * 50_000,
        "canonicalize" * 50_000,
        "a(" * 3_000 + "b" + ")" * 3_000,
        "\0",
        ",,",
        "canonicalize{x=" + "9" * 10_000 + "}",
    ],
)
def test_pipelines(text, tmp_path):
    path = tmp_path / "a.mlir"
    path.write_text("module {}")
    ran = CliRunner().invoke(opt, [str(path), "-p", text])
    assert isinstance(ran.exception, SystemExit), ran.exception
    assert ran.exit_code == 2
    assert ran.stderr.count("\n") == 1
