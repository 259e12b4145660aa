"""Keeps the order of effects where AOTAutograd traces inputs that share memory as views of one base.

    v.add_(1);  return torch.linalg.cholesky(w)       of inputs v and w in the same memory

For the base it describes the graph anew (`create_synthetic_base_metadata`), and leaves out the tokens, one for each kind of effect, that the
graph takes and gives back: a call then has a result too many (2.11) or an argument too few (from 2.13 on), under every backend.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from mlirc.codegen.abi.reach import reach
from mlirc.frontend.torch_compat.aot_autograd.replaced_function import replacing


def keeping_tokens() -> AbstractContextManager[None]:
    """Within, the description of a graph of such inputs has the tokens of the one that it is made of."""
    around = kept_tokens()
    return nullcontext() if around is None else around()


@reach("kept-tokens", instead="a graph with effects whose inputs share memory raises where it writes to one")
def kept_tokens() -> Callable[[], AbstractContextManager[None]]:
    import torch._dynamo  # noqa: F401  # imports the next one in its order
    from torch._functorch._aot_autograd import runtime_wrappers

    return replacing(runtime_wrappers, "create_synthetic_base_metadata", with_tokens)


def with_tokens(plain: Callable) -> Callable:
    def described(known: Any, *args: Any, **options: Any) -> Any:
        made, *rest = plain(known, *args, **options)
        made.tokens = dict(known.tokens)
        return made, *rest

    return described
