"""Kinds of models of transformers at a modest size, each built from a config with random weights; nothing is downloaded.

Two layers of 256 columns, sequences of 128, images of 64x64 or 128x128.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

WIDTH, HEADS, LENGTH, VOCABULARY, BATCH, LABELS = 256, 4, 128, 1000, 2, 10

COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "intermediate_size": 4 * WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
}
# What models of other schools call the same.
GPT: dict[str, Any] = {"vocab_size": VOCABULARY, "n_embd": WIDTH, "n_layer": 2, "n_head": HEADS, "n_positions": 512}
TEXTS: dict[str, Any] = {"vocab_size": VOCABULARY}
SMALL: dict[str, Any] = {**TEXTS, "hidden_size": WIDTH}
BART: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": WIDTH,
    "max_position_embeddings": 512,
    **{f"{part}_layers": 2 for part in ("encoder", "decoder")},
    **{f"{part}_ffn_dim": 4 * WIDTH for part in ("encoder", "decoder")},
    **{f"{part}_attention_heads": HEADS for part in ("encoder", "decoder")},
}
IMAGE: dict[str, Any] = {
    name: value for name, value in COMMON.items() if name not in ("vocab_size", "max_position_embeddings")
}
EXPERTS: dict[str, Any] = {"num_experts_per_tok": 2, "moe_intermediate_size": 256}
LATENT: dict[str, Any] = {
    "kv_lora_rank": 64,
    "q_lora_rank": 96,
    "qk_rope_head_dim": 32,
    "qk_nope_head_dim": 32,
    "v_head_dim": 64,
    "num_key_value_heads": HEADS,
    "n_routed_experts": 8,
    "first_k_dense_replace": 1,
}


class Built(NamedTuple):
    """A module in float32, and its keyword arguments for a batch and a length (of text; images have their own)."""

    module: nn.Module
    inputs: Callable[[int, int], dict[str, torch.Tensor]]


def build(prefix: str, kind: str, fields: dict[str, Any], config: str = "Config") -> nn.Module:
    """`{prefix}{kind}` of transformers from `{prefix}{config}`, without dropout, caches and external kernels."""
    import transformers

    made = without_dropout(getattr(transformers, prefix + config)(**fields))
    torch.manual_seed(0)
    module = getattr(transformers, prefix + kind)(made)
    for part in module.modules():
        if isinstance(part, (nn.Conv2d, nn.BatchNorm2d)):
            part.reset_parameters()  # under weights of 0.02 deep stacks of filters and norms vanish, below what float32 holds
    return module


def without_dropout(config: Any) -> Any:
    """The config and those within it with every probability of dropping something at zero, so that steps can be repeated."""
    for name, value in vars(config).items():
        if hasattr(value, "to_diff_dict"):
            without_dropout(value)
        elif isinstance(value, float) and ("drop" in name or "mask_time_prob" in name or "mask_ratio" in name):
            setattr(config, name, 0.0)
    if hasattr(config, "use_cache"):
        config.use_cache = False
    return config


def tokens(batch: int, length: int) -> torch.Tensor:
    return torch.randint(3, VOCABULARY, (batch, length))


def text(
    prefix: str, kind: str = "ForCausalLM", fields: dict | None = None, masked: bool = True, **options: Any
) -> Any:
    """A model of text; the first row is padded by three tokens where `masked`."""

    def inputs(batch: int, length: int) -> dict[str, torch.Tensor]:
        given = {"input_ids": tokens(batch, length)}
        if masked:
            given["attention_mask"] = torch.ones(batch, length, dtype=torch.long)
            given["attention_mask"][0, -3:] = 0
        if kind == "ForConditionalGeneration":
            given["decoder_input_ids"] = tokens(batch, length // 2)
        return given

    config = options.pop("config", "Config")
    return lambda: Built(build(prefix, kind, {**(COMMON if fields is None else fields), **options}, config), inputs)


def bert_like(prefix: str, **options: Any) -> Any:
    return text(prefix, "ForMaskedLM", **options)


def images(
    prefix: str, side: int = 64, kind: str = "ForImageClassification", fields: dict | None = None, **options
) -> Any:
    """A model of images with `side` pixels a side; they do not depend on the length."""

    def inputs(batch: int, length: int) -> dict[str, torch.Tensor]:
        return {"pixel_values": torch.randn(batch, 3, side, side)}

    config = options.pop("config", "Config")
    labels = {"num_labels": LABELS} if kind.startswith("For") else {}
    return lambda: Built(build(prefix, kind, {**(fields or {}), **labels, **options}, config), inputs)


def pairs(prefix: str, **options: Any) -> Any:
    """Contrastive models of texts and images."""
    vision = {**IMAGE, "image_size": 64, "patch_size": 8}
    words = {**COMMON, "max_position_embeddings": 64, "eos_token_id": VOCABULARY - 1}

    def inputs(batch: int, length: int) -> dict[str, torch.Tensor]:
        ids = tokens(batch, 64)
        ids[:, -1] = VOCABULARY - 1
        return {"input_ids": ids, "pixel_values": torch.randn(batch, 3, 64, 64)}

    return lambda: Built(build(prefix, "Model", {"text_config": words, "vision_config": vision, **options}), inputs)


def whisper() -> Built:
    sizes = {"num_mel_bins": 80, "max_source_positions": LENGTH, "max_target_positions": LENGTH}
    tokens_of = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}

    def inputs(batch: int, length: int) -> dict[str, torch.Tensor]:
        return {"input_features": torch.randn(batch, 80, 2 * LENGTH), "decoder_input_ids": tokens(batch, length // 2)}

    return Built(build("Whisper", "ForConditionalGeneration", {**BART, **sizes, **tokens_of}), inputs)


def waves(prefix: str, **options: Any) -> Any:
    sizes = {**COMMON, "vocab_size": 32, "apply_spec_augment": False, "conv_dim": (128,) * 7}

    def inputs(batch: int, length: int) -> dict[str, torch.Tensor]:
        return {"input_values": torch.randn(batch, 160 * length)}

    return lambda: Built(build(prefix, "ForCTC", {**sizes, **options}), inputs)


def llava() -> Built:
    from transformers import CLIPVisionConfig, LlamaConfig

    vision = CLIPVisionConfig(**IMAGE, image_size=64, patch_size=8)
    words = LlamaConfig(**COMMON, num_key_value_heads=2)
    fields = {"vision_config": vision, "text_config": words, "image_token_id": 1, "image_seq_length": 64}
    module = build("Llava", "ForConditionalGeneration", fields)

    def inputs(batch: int, length: int) -> dict[str, torch.Tensor]:
        ids = torch.cat([torch.ones(batch, 64, dtype=torch.long), tokens(batch, length // 2)], 1)
        return {"input_ids": ids, "pixel_values": torch.randn(batch, 3, 64, 64), "attention_mask": torch.ones_like(ids)}

    return Built(module, inputs)


def detr() -> Built:
    from transformers import ResNetConfig

    sizes = {"embedding_size": 32, "hidden_sizes": [64, 64, 128, 128], "depths": [1, 1, 1, 1]}
    kind: Any = ResNetConfig
    backbone = kind(**sizes, out_features=["stage4"])
    fields = {**BART, "use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None}
    return images("Detr", 128, "ForObjectDetection", fields, backbone_config=backbone, num_queries=20)()


def series() -> Built:
    sizes = {"prediction_length": 24, "context_length": 48, "lags_sequence": [1, 2, 7], "num_time_features": 2}
    module = build("TimeSeriesTransformer", "ForPrediction", {**BART, **sizes, "d_model": WIDTH})

    def inputs(batch: int, length: int) -> dict[str, torch.Tensor]:
        return {
            "past_values": torch.rand(batch, 55) + 1,
            "past_time_features": torch.randn(batch, 55, 2),
            "past_observed_mask": torch.ones(batch, 55),
            "future_values": torch.rand(batch, 24),
            "future_time_features": torch.randn(batch, 24, 2),
        }

    return Built(module, inputs)


def patches() -> Built:
    sizes = {"num_input_channels": 7, "context_length": 256, "patch_length": 16, "patch_stride": 8}
    fields = {**sizes, "prediction_length": 24, "d_model": WIDTH, "num_hidden_layers": 2, "ffn_dim": 512}
    module = build("PatchTST", "ForPrediction", {**fields, "num_attention_heads": HEADS})
    return Built(module, lambda batch, length: {"past_values": torch.randn(batch, 256, 7)})


def vocoder() -> Built:
    rates = {"upsample_rates": [4, 4], "upsample_kernel_sizes": [8, 8]}
    module = build(
        "SpeechT5", "HifiGan", {"model_in_dim": 80, "upsample_initial_channel": 128, **rates}, "HifiGanConfig"
    )
    return Built(module, lambda batch, length: {"spectrogram": torch.randn(batch, length, 80)})


def video() -> Built:
    module = build("Timesformer", "ForVideoClassification", {**IMAGES, "num_frames": 4})
    return Built(module, lambda batch, length: {"pixel_values": torch.randn(batch, 4, 3, 64, 64)})


WINDOWS: dict[str, Any] = {
    "image_size": 64,
    "patch_size": 2,
    "embed_dim": 64,
    "depths": [2, 2],
    "num_heads": [2, 4],
    "window_size": 8,
}
STAGES: dict[str, Any] = {"num_stages": 3, "hidden_sizes": [64, 128, 256], "depths": [2, 2, 2]}
IMAGES: dict[str, Any] = {**IMAGE, "image_size": 64, "patch_size": 8}
