"""The sweep of single operators (benchmarks/operators.py) measures what it is asked for."""

import json

from benchmarks.operators import calls, main


def test_rows_have_both_times(tmp_path, capsys):
    file = tmp_path / "operators.jsonl"
    assert main(["tril", "diag_embed", "--rounds", "1", "--below", "0", "--output", str(file)]) == 0
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["call"] for row in rows] == ["tril", "diag_embed"]
    assert all(row["eager"] > 0 and row["mlirc"] > 0 and row["way"] == "inference" for row in rows)
    assert "2 calls, 0 below 0.0, 0 failed" in capsys.readouterr().out


def test_what_has_no_gradient_is_left_out(capsys):
    assert main(["one_hot", "tril", "--rounds", "1", "--gradients"]) == 0
    assert "1 calls" in capsys.readouterr().out


def test_calls_have_names_of_their_own():
    names = [(call.group, call.name) for call in calls()]
    assert len(names) == len(set(names)) > 390
