"""Every switch of PyTorch's is guarded, in a key, asked at each call, or of no matter: a new one has to be thought about."""

import importlib
import inspect
import pkgutil
import re

import pytest
import torch
import torch.backends
from torch import nn
from torch._C._dynamo.guards import GlobalStateGuard
from torch.utils._config_module import ConfigModule

from mlirc.codegen.abi import library_settings
from mlirc.codegen.libraries import cublas_plans, cudnn
from mlirc.frontend.cache.trace_text import surroundings
from mlirc.frontend.torch_compat import global_switches

TORCH_2_14 = torch.__version__.startswith("2.14.")
LISTED = TORCH_2_14 or torch.__version__.startswith("2.13.")
pytestmark = pytest.mark.skipif(not LISTED, reason="the lists are those of torch 2.13 and 2.14")

GUARDED = "Dynamo guards it"
EACH_CALL = "asked at each call"
RUN_TIME = "what is called at run time asks it: autograd's engine, an ATen kernel, the processor"
OTHERS = "for something that compiled graphs have not: another device, subclass, JIT, mobile, or debugging"
SAYS = "for messages and warnings only"
OPERATION = "no switch: it writes to a tensor or a thread"

# Setters of torch._C that are in no key: why.
SETTERS = {
    "_set_grad_enabled": GUARDED,
    "set_num_threads": GUARDED,
    "_set_torch_function_state": GUARDED,
    "_set_dispatch_mode": "a mode around a graph keeps it out of the cache of traces; Dynamo guards the stack of modes",
    "_set_skip_next_torch_function": GUARDED,
    "_set_fwd_grad_enabled": "Dynamo does not trace forward-mode gradients",
    "_set_tracing_state": OTHERS,
    "_set_value_trace": OTHERS,
    "_set_multithreading_enabled": RUN_TIME,
    "_set_autograd_fallback_mode": RUN_TIME,
    "_set_grad_layout_enforcement_enabled": RUN_TIME,
    "_set_cached_tensors_enabled": RUN_TIME,
    "_set_fp32_precision_setter": "in float32 kernels of ours are exact; ATen's ask at run time; of a GPU " + EACH_CALL,
    "set_anomaly_enabled": RUN_TIME,
    "set_flush_denormal": "in the key of traces; compiling is not done in it; kernels run in the caller's",
    "set_num_interop_threads": RUN_TIME,
    "_set_sm_carveout_experimental": RUN_TIME,
    "_set_cudnn_depthwise_kernel": RUN_TIME,
    "_set_rocm_fa_preferred_backend": OTHERS,
    "_set_sdp_use_fa3": "the flash attention that it chooses between gives the same",
    "_set_miopen_immediate": OTHERS,
    "_set_qengine": OTHERS,
    "_set_dtensor_allow_implicit_replication": OTHERS,
    "_set_check_sparse_tensor_invariants": OTHERS,
    "_set_only_lift_cpu_tensors": "of Dynamo's and export's own tracing",
    "_set_meta_in_tls_dispatch_include": "of fake tensors while they compute",
    "_set_override_stale_capture_stream": OTHERS,
    "_set_default_mobile_cpu_allocator": OTHERS,
    "_set_graph_exec_group": OTHERS,
    "_set_graph_executor_optimize": OTHERS,
    "_set_should_use_format_with_string_table": OTHERS,
    "_set_throw_on_mutable_data_ptr": OTHERS,
    "_set_generator_metaclass": OTHERS,
    "_set_backcompat_broadcast_warn": SAYS,
    "_set_backcompat_keepdim_warn": SAYS,
    "_set_print_stack_traces_on_fatal_signal": SAYS,
    "_set_warnAlways": SAYS,
    "_set_warn_deprecated_on_mutable_data_ptr": SAYS,
    "_set_warn_on_accumulate_grad_stream_mismatch": SAYS,
    "_set_conj": OPERATION,
    "_set_neg": OPERATION,
    "_set_tensor_metadata": OPERATION,
    "_set_thread_name": OPERATION,
    "_set_worker_pids": OPERATION,
    "_set_worker_signal_handlers": OPERATION,
}
if TORCH_2_14:
    SETTERS |= {
        "_set_cublaslt_prefer_grouped_gemm": RUN_TIME,
        "_set_storage_access_error_msg": OPERATION,
        "_set_storage_data_ptr_access_error_msg": OPERATION,
    }
AUTOCAST = re.compile(r"set_autocast_\w+$")  # guarded, and in the key of traces

# What Dynamo's own guard holds.
STATE = {
    "allow_bf16_reduce",
    "allow_fp16_reduce",
    "allow_tf32",
    "autocast_state",
    "default_dtype",
    "deterministic_algorithms",
    "deterministic_algorithms_warn_only",
    "grad_mode",
    "num_threads",
    "torch_function",
    "torch_function_all_disabled",
}

# Modules of settings: all of AOTAutograd's are in the key of traces; why others' are not.
CONFIGS = {
    "torch._functorch.config": "in the key of traces",
    "torch._dynamo.config": "decides what Dynamo captures: the graph, which is in the key, shows it",
    "torch.fx.experimental._config": "of symbolic sizes, with which nothing traced is kept",
    "torch.compiler.config": "force_disable_caches is asked for; the rest is of Dynamo's own profiles",
    "torch._inductor.config": "not read without Inductor",
    "torch._inductor.config_comms": "not read without Inductor",
    "torch._export.config": "of torch.export",
    "torch.distributed.config": "of collectives, which run in ATen",
    "torch.utils.serialization.config": "of torch.save and torch.load",
}

# Properties of torch.backends' modules that set something -> the switch or setter that it is, or why it does not matter.
BACKENDS = {
    "cuda.matmul": "cublas_allow_*, fp32_precision",
    "cudnn": "cudnn_*, fp32_precision",
    "mkldnn": "mkldnn_*, fp32_precision",
    "opt_einsum": "opt_einsum *",
    "nnpack": "nnpack_enabled",
    "mha": "of nn.MultiheadAttention's fast path, which Dynamo does not take",
    "quantized": OTHERS,
    "xnnpack": OTHERS,
    "miopen": OTHERS,
    "mps": OTHERS,
    "cpu": "tells only",
    "cusparselt": "tells only",
    "kleidiai": "tells only",
    "mkl": SAYS,
    "openmp": "tells only",
    "cuda": "sdp *, linalg and blas preferred backends, sizes of plan caches",
    "cudnn.rnn": "tells only",
    "python_native": "kernels for CUDA, which it registers for operators: overridden_kernels.py sees them",
    "xeon": OTHERS,
    "xeon.run_cpu": OTHERS,
    "_coreml": OTHERS,
    "_coreml.preprocess": OTHERS,
    "_nnapi": OTHERS,
    "_nnapi.prepare": OTHERS,
    "_nnapi.serializer": OTHERS,
}


def test_every_setter_of_torch_is_classified():
    found = {name for name in dir(torch._C) if name.startswith(("_set_", "set_"))}
    keyed = {name for switch in global_switches.switches.or_missing() for name in switch.covers}
    known = keyed | set(SETTERS)
    assert {name for name in found - known if not AUTOCAST.match(name)} == set(), "think about these"
    assert known - found == set(), "PyTorch has these no more"
    assert not keyed & set(SETTERS)


def test_every_field_of_dynamos_guard_is_known():
    import json

    assert set(json.loads(GlobalStateGuard().__getstate__())) == STATE


def test_every_module_of_settings_is_known():
    found = set()
    for module in pkgutil.walk_packages(torch.__path__, "torch.", onerror=lambda name: None):
        if module.name.rpartition(".")[2].startswith(("config", "_config")) and "testing" not in module.name:
            try:
                loaded = importlib.import_module(module.name)
            except ImportError:
                continue
            if isinstance(loaded, ConfigModule):
                found.add(module.name)
    assert found - set(CONFIGS) == set()


def test_every_module_of_backends_is_known():
    prefix = "torch.backends."
    found = {module.name.removeprefix(prefix) for module in pkgutil.walk_packages(torch.backends.__path__, prefix)}
    assert {name for name in found if name not in BACKENDS and name.rpartition(".")[2] not in BACKENDS} == set()


def test_every_setting_of_opt_einsum_is_in_the_key(monkeypatch):
    """Without the package, PyTorch ignores them, and has one value of each."""
    module = torch.backends.opt_einsum
    settings = [name.removeprefix("_") for name in inspect.signature(module.set_flags).parameters]
    assert settings
    for name in settings:
        before = global_switches.read()
        monkeypatch.setattr(module, name, "another")
        assert global_switches.read() != before, name


# ---- flipped between two calls


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(4, 16, 3)
        self.linear = nn.Linear(16, 8)

    def forward(self, x):
        y = self.convolution(x).relu().flatten(2).transpose(1, 2).contiguous()
        y = nn.functional.scaled_dot_product_attention(*3 * (y[:, None],))[:, 0]
        return torch.einsum("bld,de,ef->blf", self.linear(y), *2 * (self.linear.weight[:, :8],))


def others(now):
    if isinstance(now, bool):
        return not now
    if isinstance(now, (list, tuple)) and all(isinstance(x, bool) for x in now):
        return type(now)(not x for x in now)
    return {"highest": "medium", torch.float32: torch.float64}.get(now) if isinstance(now, (str, torch.dtype)) else None


@pytest.fixture(scope="module")
def shared_folder(tmp_path_factory):
    """Entries of the settings as they are: the next switch need not compile with these again."""
    return tmp_path_factory.mktemp("switches")


@pytest.mark.parametrize("switch", global_switches.switches.or_missing(), ids=lambda x: x.name)
def test_a_switch_flipped_between_two_calls(switch, shared_folder, monkeypatch):
    """In this process, and, with all of it forgotten but the disk cache, in the next."""
    was = switch.get()
    value = others(was)
    if value is None or ("einsum" in switch.name and not torch.backends.opt_einsum.is_available()):
        pytest.skip("there is one value only")
    try:
        switch.set(value)
        switch.set(was)
    except RuntimeError as reason:
        pytest.skip(str(reason))
    monkeypatch.setenv("MLIRC_CACHE_DIR", str(shared_folder))
    torch.manual_seed(0)
    module, x = Model().eval(), torch.randn(2, 4, 6, 6)

    def check(run):
        with torch.no_grad():
            torch.testing.assert_close(run(x), module(x), atol=1e-4, rtol=1e-4)

    for _ in range(2):
        torch._dynamo.reset()
        run = torch.compile(module, backend="mlirc", options={"fallback": "error"})
        check(run)
        try:
            switch.set(value)
            check(run)
            torch._dynamo.reset()
            check(torch.compile(module, backend="mlirc", options={"fallback": "error"}))
        finally:
            switch.set(was)
        check(run)


# ---- plans of libraries


def test_one_thread_is_in_the_key_of_traces():
    """Where a convolution's result lies in memory may depend on it (frontend/strides/convolutions.py)."""
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(surroundings())
    finally:
        torch.set_num_threads(before)
    assert found[0] != found[1] == found[2]


def test_plans_are_made_anew_when_settings_change(monkeypatch):
    products, convolutions = cublas_plans.CublasPlans(["product"]), cudnn.CudnnPlans(["convolution"])
    monkeypatch.setattr(cudnn, "make_plan", lambda wanted: cudnn.CudnnPlan())
    convolutions(0)
    products.slots[0] = 8
    first = convolutions.slots[0]
    assert first
    for plans in (products, convolutions):
        plans.forget()
        assert plans.slots[0] == 0
    convolutions(0)
    assert convolutions.slots[0] not in (0, first)


@pytest.mark.parametrize("way", [library_settings.settings_of_c, lambda: None], ids=["torch._C", "torch.backends"])
def test_settings_that_plans_depend_on(way, monkeypatch):
    monkeypatch.setattr(library_settings, "settings_of_c", way)
    before = library_settings.library_settings()
    with torch.backends.cudnn.flags(enabled=False):
        assert library_settings.library_settings() != before
    with torch.backends.cudnn.flags(deterministic=True):
        assert library_settings.library_settings() != before
    assert library_settings.library_settings() == before
