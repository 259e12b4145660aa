"""ONNX's own node tests: nothing that mlirc takes is wrong, and little is not taken."""

from collections import Counter, defaultdict

import pytest

pytest.importorskip("onnx")
from tests.frontend.onnx import node_cases

# Operators of which no case passes: they make what is no tensor, or sizes by rules that PyTorch has no operator for.
UNSUPPORTED = {
    *(
        "ConcatFromSequence",
        "SequenceAt",
        "SequenceConstruct",
        "SequenceEmpty",
        "SequenceErase",
        "SequenceInsert",
        "SequenceLength",
    ),
    *("SequenceMap", "SplitToSequence", "Optional", "OptionalGetElement", "OptionalHasElement", "ImageDecoder"),
    *("StringConcat", "StringNormalizer", "StringSplit", "RegexFullMatch", "TfIdfVectorizer"),
}


def outcomes(cases):
    found = {case.name: node_cases.run(case) for case in cases}
    return {name: why for name, why in found.items() if why.startswith("failed")}, found


def test_a_few_cases_of_many_operators():
    """One case of every eightieth operator, the same in every run."""
    by_operator = defaultdict(list)
    for case in node_cases.cases():
        by_operator[node_cases.operator(case)].append(case)
    names = [name for name in sorted(by_operator) if name not in UNSUPPORTED][::80]
    failed, found = outcomes([by_operator[name][len(by_operator[name]) // 2] for name in names])
    assert not failed
    assert Counter(why.partition(":")[0] for why in found.values())["passed"] >= 0.7 * len(found)


def test_rules_agree_with_all_cases_in_eager():
    """The rules alone, without compiling: as fast as ONNX makes the cases."""
    found = {case.name: node_cases.run(case, eager=True) for case in node_cases.cases()[::4]}
    assert not {name: why for name, why in found.items() if why.startswith("failed")}
    assert sum(why == "passed" for why in found.values()) > 0.92 * len(found)


@pytest.mark.full
@pytest.mark.parametrize("part", range(20))
def test_all_cases(part):
    failed, found = outcomes(node_cases.cases()[part::20])
    assert not failed
    assert Counter(why.partition(":")[0] for why in found.values())["passed"] > 0.88 * len(found)
