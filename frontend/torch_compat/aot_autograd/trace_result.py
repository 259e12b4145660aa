"""Rebuilds AOTAutograd's callable for a graph from stored metadata, as AOTAutograd's own cache does.

A reach for versions 2.13 and 2.14 alone: what tracing leaves behind is known of these.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from mlirc.codegen.abi.reach import LeftOut, reach
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.frontend.torch_compat.aot_autograd import trace_metadata

VERSIONS = ("2.13.", "2.14.")


@dataclass(frozen=True)
class Results:
    """What it takes.

    configure  (graph, inputs): parameters that are no inputs, and AOTAutograd's configuration
    call       (forward, backward, serialized, metadata, detach, configuration, symbols saved for backward = 0): the callable
    detach     (backward graph, metadata): inputs that the backward pass detaches
    plain      the class that says that an input is no tensor subclass
    to_data    a configuration as what json takes
    from_data  such a configuration again, for `call` alone
    """

    configure: Callable[[GraphModule, Sequence[Any]], tuple[Any, Any]]
    call: Callable[..., Callable]
    detach: Callable[[GraphModule, Any], list[int]]
    plain: type
    to_data: Callable[[Any], dict[str, Any]]
    from_data: Callable[[dict[str, Any]], Any]


@reach("trace-result", instead="each process traces each graph")
def results() -> Results:
    """The functions of AOTAutograd's that do this."""
    if not torch.__version__.startswith(VERSIONS):
        known = " and ".join(f"{version}*" for version in VERSIONS)
        raise LeftOut(f"torch is {torch.__version__}, and what its tracing leaves behind is known of {known} alone")
    trace_metadata.modules.or_missing()
    from torch._functorch._aot_autograd.aot_autograd_result import BundledAOTAutogradResult, BundledCompiledBackward
    from torch._functorch._aot_autograd.graph_compile import _compute_indices_of_inps_to_detach
    from torch._functorch._aot_autograd.runtime_wrappers import EffectTokensWrapper
    from torch._functorch._aot_autograd.schemas import CacheableAOTConfig, PlainTensorMeta
    from torch._functorch.aot_autograd import prepare_aot_config

    apply = BundledAOTAutogradResult._apply_runtime_wrappers

    def configure(gm: GraphModule, inputs: Sequence[Any]) -> tuple[Any, Any]:
        parameters, *_, config = prepare_aot_config(gm, inputs, {}, True, False)
        return parameters, config

    def call(
        forward: Callable,
        backward: Any,
        serialized: Any,
        metadata: Any,
        detach: list[int],
        config: Any,
        saved_symbols: int = 0,
    ) -> Callable:
        result: Any = object.__new__(BundledAOTAutogradResult)
        result.runtime_metadata, result.dispatch_wrappers, result.indices_of_inps_to_detach = metadata, [], detach
        result.maybe_subclass_meta = result.num_fw_outs_saved_for_bw = None
        result.serialized_bw_module = serialized  # for compiled autograd
        result.compiled_bw = None if backward is None else BundledCompiledBackward(None, [], saved_symbols)  # type: ignore[type-var]
        # torch's own cache keeps no graph with effects, whose forward graph takes a token for each kind of them, and gives it back
        forward = EffectTokensWrapper().post_compile(forward, config, runtime_metadata=metadata)
        return apply(result, forward, backward, backward is not None, config)

    def detached(backward: GraphModule, known: Any) -> list[int]:
        return _compute_indices_of_inps_to_detach(backward, None, known, known)

    def to_data(config: Any) -> dict[str, Any]:
        static = config.static_input_indices
        return {
            "num_params_buffers": config.num_params_buffers,
            "aot_id": config.aot_id,
            "keep_inference_input_mutations": config.keep_inference_input_mutations,
            "dynamic_shapes": config.dynamic_shapes,
            "static_input_indices": None if static is None else list(static),
        }

    return Results(
        configure, call, detached, PlainTensorMeta, to_data, lambda data: CacheableAOTConfig(**data, enable_log=False)
    )
