"""Results of an operator called from Python that are memory of its operands, where its schema says that they are not."""

import pytest
import torch
import torch._functorch.config as functorch_config

from mlirc.codegen.abi.aliases import alias_of, shares_with


@pytest.mark.parametrize("without", [False, True])
def test_which_tensors_share_memory(without, monkeypatch):
    if without:
        monkeypatch.setattr(alias_of, "_found", [None])
    x, empty = torch.arange(6.0), torch.empty(0)
    shares = shares_with(
        [x, empty] if without else [x, empty, torch.eye(2).to_sparse()]
    )  # which does not tell where it lies
    assert shares(x) and shares(x[2:]) and shares(x.view(2, 3).t())
    assert not shares(x.clone()) and not shares(torch.empty(0)) and not shares(empty + 1)
    assert not shares_with([])(x)


@functorch_config.patch(
    check_custom_op_aliasing=False
)  # of such an operator PyTorch warns; where $CI is set, it raises
def test_a_result_that_is_an_operand_gets_memory_of_its_own():
    with torch.library._scoped_library("result_memory_test", "FRAGMENT") as library:
        library.define("two(Tensor x) -> (Tensor, Tensor)")
        library.impl("two", lambda x: (x[:], x + 1), "CPU")
        library.impl("two", lambda x: (torch.empty_like(x), torch.empty_like(x)), "Meta")
        function = lambda x: torch.ops.result_memory_test.two(x * 2)
        first, second = torch.compile(function, backend="mlirc", options={"fallback": "error"})(torch.ones(4))
        first.add_(1)
        assert first.tolist() == [3.0] * 4 and second.tolist() == [3.0] * 4


@pytest.mark.parametrize("shape", [(3, 4), (0, 4), ()])
@pytest.mark.parametrize("train", [True, False, None])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_dropout_that_may_drop_nothing(share, train, shape):
    """Its meta function gives the operand itself, and a mask of bool; eager copies, and its mask of no elements has the operand's dtype."""

    def function(x):
        return torch.ops.aten.native_dropout(x, share, train)

    x, seen = torch.ones(shape), []
    for run in (function, torch.compile(function, backend="mlirc", options={"fallback": "error"})):
        torch.manual_seed(0)
        seen.append(run(x))
        assert not x.numel() or seen[-1][0].data_ptr() != x.data_ptr()
    for found, wanted in zip(*seen, strict=True):
        torch.testing.assert_close(found, wanted)
        assert (found.stride(), found.dtype) == (wanted.stride(), wanted.dtype)
