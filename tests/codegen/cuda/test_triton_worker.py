"""The process that compiles Triton kernels, without Triton."""

import pickle
import socket

import pytest

from mlirc.codegen.cuda import triton_worker


@pytest.mark.parametrize("size", [0, 1 << 20])
@pytest.mark.parametrize("asked", [1, 2])
def test_a_worker_ends_quietly_with_the_process_that_asks(monkeypatch, size, asked):
    """As where a program is killed, or exits, while one of its kernels is compiled: a traceback would be in its output."""
    asks, answers = socket.socketpair()

    def compile_one(kernel, capability):
        if kernel == asked:
            asks.close()
        return {"cubin": bytes(size * (kernel == asked)), "capability": capability}

    monkeypatch.setattr(triton_worker, "compile_one", compile_one)
    for kernel in range(1, asked + 1):
        asks.sendall(pickle.dumps((kernel, 90)))
    triton_worker._serve(answers)
    assert asks.fileno() == -1


def test_a_kernel_of_another_signature_is_refused():
    """A launch passes so many pointers as kernels read; a Triton that appends more would read past them."""
    ptx = ".visible .entry add(\n\t.param .u64 .ptr .global .align 1 add_param_0,\n\t.param .u32 add_param_1{}\n)\n{{ ld.param }}"
    scratch = ",\n\t.param .u64 add_param_2,\n\t.param .u64 add_param_3"
    triton_worker.check_parameters(ptx.format(scratch), 2)
    for more in ("", scratch + ",\n\t.param .u64 add_param_4"):
        with pytest.raises(triton_worker.TritonError, match="appends"):
            triton_worker.check_parameters(ptx.format(more), 2)
