"""Names of cases on the command line of benchmarks."""

from unittest import mock

from click.testing import CliRunner

from benchmarks.passes import CASES, main


def test_a_pass_without_a_case_is_an_error():
    """It was measured nowhere, and nothing was said."""
    result = CliRunner().invoke(main, ["no-such-pass"])
    assert result.exit_code == 2 and "no case of 'no-such-pass'" in result.output and CASES[0].name in result.output


def test_a_pass_means_all_of_its_cases():
    cases = [case.name for case in CASES if case.drops == "hoist-gathers" and case.device == "cuda"]
    with mock.patch("torch.cuda.is_available", return_value=False):
        result = CliRunner().invoke(main, ["hoist-gathers", "--device", "cuda"])
    assert [line.split()[0] for line in result.output.splitlines()] == cases
