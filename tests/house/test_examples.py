"""The programs in examples/ do what they say, in fewer than 80 lines."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", ROOT / "examples" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_an_example_is_short_and_has_a_test(file):
    assert len(file.read_text().splitlines()) < 80
    assert f"test_{file.stem}" in globals()


def test_train_gpt():
    module = load("train_gpt")
    losses = module.main(60)
    assert losses[-1] < 0.7 * losses[0]


def test_serve_resnet():
    assert max(load("serve_resnet").main()) < 1e-5


def test_custom_op():
    """In a process of its own: ops are defined before the first graph is compiled."""
    program = "import custom_op, torch; r = custom_op.main(); torch.testing.assert_close(*r['gradients']); assert not r['aten']"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT / "examples", check=True, timeout=300)
