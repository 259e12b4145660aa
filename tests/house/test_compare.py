"""benchmarks/compare.py reports what changed beyond noise, and only that."""

import json

from click.testing import CliRunner

from benchmarks.compare import changes, main


def row(median, spread=0.01, **more):
    steady = {"median": median, "samples": [median * (1 + spread * k / 5) for k in range(-5, 6)]}
    return {"steady": steady, "error": {"outputs": 1e-7, "gradients": 0.0}, "setting": "mlp", "backend": "mlirc"} | more


def test_what_samples_do_not_tell_apart_is_noise():
    assert changes(row(1.0, spread=0.3), row(1.1, spread=0.3)) == []
    assert changes(row(1.0), row(1.1)) == ["steady: 1 -> 1.1 (+10.0%)"]


def test_a_small_difference_is_noise_however_steady():
    assert changes(row(1.0, spread=0.0), row(1.01, spread=0.0)) == []


def test_counts_errors_first_calls_and_failures():
    before = row(1.0, kernels=5, first_call=1.0)
    assert changes(before, row(1.0, kernels=4, first_call=1.05)) == ["kernels: 5 -> 4"]
    assert changes(before, row(1.0, kernels=5, first_call=1.5)) == ["first_call: 1 -> 1.5 (+50.0%)"]
    worse = row(1.0) | {"error": {"outputs": 3e-7, "gradients": 0.0}}
    assert changes(row(1.0), worse) == ["error of outputs: 1e-07 -> 3e-07 (+200.0%)"]
    assert changes(before, {"failure": "it broke"}) == ["failed: no -> it broke"]


def test_command(tmp_path):
    files = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for file, median in zip(files, (1.0, 0.5), strict=True):
        file.write_text(json.dumps(row(median)) + "\n")
    output = CliRunner().invoke(main, [str(file) for file in files]).output
    assert output == "mlp mlirc: steady: 1 -> 0.5 (-50.0%)\n1 changes beyond noise in 1 rows\n"
