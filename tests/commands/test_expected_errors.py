"""`mlirc opt --split-input-file` and `--verify-diagnostics`."""

import pytest

from tests.commands.command import bad, good, run

X = "tensor<4xf32>"
RIGHT = f"""func.func @graph(%x: {X}) -> {X} {{
  %0 = "mlirc.exp"(%x) : ({X}) -> {X}
  return %0 : {X}
}}
"""
WRONG = RIGHT.replace("mlirc.exp", "mlirc.expp")
BELOW = WRONG.replace("  %0", "  // expected-error@below {{unregistered operation 'mlirc.expp'}}\n  %0")


def test_parts_are_modules_of_their_own():
    text = good("opt", "-", "-p", "to-kernels", "--split-input-file", text=f"{RIGHT}// -----\n{RIGHT}").stdout
    assert (
        text.count("// -----\n") == 1
        and text.count("module attributes {mlirc.target") == 2
        and text.count("mlircx.kernel") == 2
    )


def test_lines_are_those_of_the_file(tmp_path):
    path = tmp_path / "a.mlir"
    path.write_text(f"{RIGHT}// -----\n{WRONG}")
    assert f"{path}:7:8: unregistered" in bad("opt", path, "-p", "cse", "--split-input-file")


@pytest.mark.parametrize("option", [(), ("--verify-diagnostics",)])
def test_each_part_that_fails_is_told(option):
    done = run(
        "opt", "-", "-p", "cse", "--split-input-file", *option, text=f"{WRONG}// -----\n{RIGHT}// -----\n{WRONG}"
    )
    assert (done.exit_code, done.stdout) == (1, "")
    assert [
        "unregistered" in line and place in line
        for line, place in zip(done.stderr.splitlines(), (":2:8", ":12:8"), strict=True)
    ] == [True, True]


@pytest.mark.parametrize(
    "text",
    [
        BELOW,
        f"{RIGHT}// -----\n{BELOW}// -----\n{RIGHT}",
        BELOW.replace("@below", "@+1"),
        WRONG.replace("  return", "  // expected-error@above {{mlirc.expp}}\n  return"),
        WRONG.replace("f32>\n  return", "f32>  // expected-error {{did you mean 'mlirc.exp'}}\n  return"),
        RIGHT.replace("  %0 =", "  // expected-error@+1 {{takes the kernel form}}\n  %0 ="),
        BELOW.replace("error@below {{unregistered", "error-re @below {{un{{[a-z]+}}"),
    ],
)
def test_expected_errors(text):
    passes = "plan-memory" if "takes the kernel" in text else "cse"
    done = good("opt", "-", "-p", passes, "--split-input-file", "--verify-diagnostics", text=text)
    assert done.stdout.count("func.func @graph") == (2 if text.startswith(RIGHT) else 0)


def test_the_file_with_the_expectations_is_not_written_over(tmp_path):
    path = tmp_path / "a.mlir"
    path.write_text(BELOW)
    words = ["opt", path, "-p", "cse", "--verify-diagnostics", "-o"]
    assert "a.mlir: is an input of this command" in bad(*words, path, code=2) and path.read_text() == BELOW
    good(*words, tmp_path / "left.mlir")
    assert (tmp_path / "left.mlir").read_text() == ""


@pytest.mark.parametrize(
    ("text", "message", "code"),
    [
        (WRONG, "unexpected error: -:2:8: unregistered operation 'mlirc.expp'", 1),
        (
            BELOW.replace("@below", "@+2"),
            "-:3: expected error \"unregistered operation 'mlirc.expp'\" is here, not at line 4",
            1,
        ),
        (
            BELOW.replace("mlirc.expp'}", "mlirc.other'}"),
            "unexpected error, where \"unregistered operation 'mlirc.other'\" was",
            1,
        ),
        (
            BELOW.replace("expected-error", "expected_error"),
            "-:2: not understood; write // expected-error@below {{text}}",
            2,
        ),
        (BELOW.replace("{{", "").replace("}}", ""), "-:2: not understood", 2),
        (
            BELOW.replace("error@below {{", "error-re@below {{{{[}}"),
            "-:2: expected-error-re: unterminated character set",
            2,
        ),
        (RIGHT + "// expected-error 2 {{something}}\n", "-:5: not understood", 2),
        (RIGHT + "// expected-error {{something}}\n", '-:5: expected error "something" was not produced', 1),
        (RIGHT + "// expected-remark {{something}}\n", "-:5: expected-remark: there are errors only", 2),
        (RIGHT + "// expected-error@here {{something}}\n", "write @+1, @-1, @above or @below", 2),
        (BELOW + "// expected-error {{more}}\n", 'expected error "more" was not produced', 1),
    ],
)
def test_other_errors(text, message, code):
    assert message in bad("opt", "-", "-p", "cse", "--verify-diagnostics", text=text, code=code)
