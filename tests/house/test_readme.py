"""The README's tables are what benchmarks/results has."""

from benchmarks import readme


def test_tables_are_those_of_the_results():
    text = readme.README.read_text()
    assert text.count("<!-- end -->") == len(readme.TABLES)
    assert readme.with_tables(text) == text, "run `make readme`"


def test_a_changed_number_is_noticed():
    text = readme.README.read_text()
    assert readme.with_tables(text.replace("**1.56**", "**9.99**", 1)) == text


def test_the_mean_against_the_best_time_is_the_smaller_one():
    best, same = (line for line in readme.gpu_models().splitlines() if line.startswith("| mean"))
    assert [float(x) for x in best.split("**")[1::2]] <= [float(x) for x in same.split("**")[1::2]]
