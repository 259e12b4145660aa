"""Names that passes had before."""

import logging

from mlirc.lowering.pipeline.old_names import NEW
from mlirc.lowering.pipeline.parser import parse
from mlirc.lowering.pipeline.pass_manager import passes


def test_an_old_name_is_taken_for_the_new_one_with_a_hint(caplog):
    for old, new in NEW.items():
        caplog.clear()
        with caplog.at_level(logging.WARNING, "mlirc"):
            (step,) = parse(f"{old}{{option=1}}")
        assert (step.name, step.arguments) == (new, "{option=1}")
        assert f"'{old}' is called '{new}' now" in caplog.text


def test_new_names_are_passes_and_old_ones_are_not():
    assert set(NEW.values()) <= set(passes())
    assert not set(NEW) & set(passes())
