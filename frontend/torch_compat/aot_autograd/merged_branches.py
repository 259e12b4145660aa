"""Says that torch.cond refused results of its branches for their strides.

While it is traced, PyTorch makes one fake tensor of both branches' results (_higher_order_ops/cond.py, `_merge_output`). It wants the same order of
strides, and takes that of a dimension of size 1 into account: [1, 4] with strides 4, 1 and with 1, 1 are two orders.
"""

MERGING = "_merge_output"


def refuses_branches(error: BaseException) -> bool:
    """Whether the error comes from there. Where PyTorch has another function for it, no error does."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_name == MERGING:
            return True
        trace = trace.tb_next
    return False
