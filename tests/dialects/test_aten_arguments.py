"""ATen arguments as text: what is encoded comes back, exactly."""

import json
import math

import pytest
import torch

from mlirc.dialects.core import aten_arguments
from mlirc.dialects.core.symbols import symbol

CONSTANTS = [
    None,
    True,
    3,
    2**70,
    -0.0,
    0.1,
    5e-324,
    math.inf,
    -math.inf,
    complex(1.5, -math.inf),
    "reflect",
    [1, [2, None], "x"],
    (1, (2,), []),
    {"a": [1], 2: "b"},
    torch.float8_e5m2,
    torch.device("cuda:1"),
    torch.strided,
    torch.channels_last,
    torch.ops.aten.add.Tensor,
]


@pytest.mark.parametrize("value", CONSTANTS, ids=str)
def test_a_constant_comes_back(value):
    text = aten_arguments.encode([value], {"key": value}, lambda x: 0, [])
    json.loads(text, parse_constant=pytest.fail)  # no NaN and Infinity, which are not JSON
    (positional,), keywords = aten_arguments.decode(text, [], {}, [])
    for got in (positional, keywords["key"]):
        assert got == value and type(got) is type(value) and repr(got) == repr(value)


def test_nan_comes_back():
    (value,), _ = aten_arguments.decode(aten_arguments.encode([math.nan], {}, lambda x: 0, []), [], {}, [])
    assert math.isnan(value)


def test_sizes_and_operands_are_filled_in():
    text = aten_arguments.encode([[symbol("s0") * 2, 4]], {"n": symbol("s1")}, lambda x: 0, [])
    assert aten_arguments.size_expressions(text) == ["2*s0", "s1"]
    assert aten_arguments.decode(text, [], {"s0": 3, "s1": 5}, []) == (([6, 4],), {"n": 5})
    x, y = torch.zeros(1), torch.ones(1)
    (first, (second,)), _ = aten_arguments.decode('[{"$": 1}, {"tuple": [{"$": 0}]}]', [x, y], {}, [])
    assert first is y and second is x


def test_a_list_is_a_new_one_each_time():
    fill = aten_arguments.arguments("[[1, 2]]", [])
    (first,), _ = fill([], int)
    first.append(3)
    assert fill([], int) == (([1, 2],), {})


def test_what_has_no_text_goes_to_the_side_table_once():
    objects: list = []
    generator = torch.Generator()
    text = aten_arguments.encode([generator, len, generator], {}, lambda x: 0, objects)
    assert objects == [generator, len] and json.loads(text) == [{"object": 0}, {"object": 1}, {"object": 0}]
    assert aten_arguments.decode(text, [], {}, objects)[0] == (generator, len, generator)
    with pytest.raises(ValueError, match="object 0 of a table that has 0"):
        aten_arguments.decode(text, [], {}, [])


def test_wrong_text():
    for text, reason in (
        ("[1", "must be JSON"),
        ("{}", "must be a JSON list"),
        ('[{"dtype": "nn"}]', "stands for nothing"),
        ('[{"eval": "1"}]', "stands for nothing"),
        ('[{"a": 1, "b": 2}]', "one key"),
    ):
        with pytest.raises(ValueError, match=reason):
            aten_arguments.decode(text, [], {}, [])
    with pytest.raises(ValueError, match=r"no operator 'aten.nothing.default'"):
        aten_arguments.resolve("aten.nothing.default")
    with pytest.raises(ValueError, match="no operator of PyTorch"):
        aten_arguments.resolve("aten.__name__")


def test_operators_are_found_by_name():
    assert aten_arguments.resolve("aten.add.Tensor") is torch.ops.aten.add.Tensor
    assert aten_arguments.resolve("higher_order.cond") is torch.ops.higher_order.cond
    assert aten_arguments.resolve("prims.sin.default") is torch.ops.prims.sin.default
