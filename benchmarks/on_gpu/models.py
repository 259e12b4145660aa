"""The five models that mlirc is measured on with a GPU: full size, bfloat16, random weights, nothing is downloaded."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True)
class GpuModel:
    """A model with its inputs.

    make          gives the module, on the CPU in float32
    make_inputs   make_inputs(batch, device) gives keyword arguments, with labels
    causal        whether a token attends only to itself and those before it
    """

    name: str
    make: Callable[[], nn.Module]
    make_inputs: Callable[[int, str], dict[str, torch.Tensor]]
    batch: int
    causal: bool = False

    def build(self, training: bool, device: str = "cuda") -> nn.Module:
        torch.manual_seed(0)
        with torch.device(device):
            return self.make().to(torch.bfloat16).train(training)

    def inputs(self, batch: int, training: bool, device: str = "cuda") -> dict[str, torch.Tensor]:
        torch.manual_seed(batch)
        inputs = self.make_inputs(batch, device)
        if not training:
            del inputs["labels"]
        return inputs


def bert() -> GpuModel:
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    return text_model("bert", BertForMaskedLM, config, 16, 512)


def gpt2() -> GpuModel:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False)

    def make(config: Any) -> nn.Module:
        module = GPT2LMHeadModel(config)
        module.loss_type = "ForCausalLM"
        return module

    return text_model("gpt2", make, config, 8, 1024, causal=True)


def llama() -> GpuModel:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 16, "num_attention_heads": 32}
    config = LlamaConfig(**sizes, num_key_value_heads=8, use_cache=False)
    return text_model("llama", LlamaForCausalLM, config, 4, 1024, causal=True)


def resnet() -> GpuModel:
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(num_labels=1000, problem_type="single_label_classification")
    return image_model("resnet50", ResNetForImageClassification, config, 64)


def vit() -> GpuModel:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(num_labels=1000, problem_type="single_label_classification")
    return image_model("vit", ViTForImageClassification, config, 64)


def text_model(
    name: str, kind: Callable[[Any], nn.Module], config: Any, batch: int, length: int, causal: bool = False
) -> GpuModel:
    def inputs(batch: int, device: str) -> dict[str, torch.Tensor]:
        tokens = torch.randint(config.vocab_size, (batch, length), device=device)
        return {"input_ids": tokens, "labels": tokens.roll(1, 1)}

    return GpuModel(name, lambda: kind(config), inputs, batch, causal)


def image_model(name: str, kind: Callable[[Any], nn.Module], config: Any, batch: int) -> GpuModel:
    def inputs(batch: int, device: str) -> dict[str, torch.Tensor]:
        pixels = torch.randn(batch, 3, 224, 224, device=device, dtype=torch.bfloat16)
        return {"pixel_values": pixels, "labels": torch.randint(config.num_labels, (batch,), device=device)}

    return GpuModel(name, lambda: kind(config), inputs, batch)


MODELS: dict[str, Callable[[], GpuModel]] = {"bert": bert, "gpt2": gpt2, "llama": llama, "resnet50": resnet, "vit": vit}


@contextlib.contextmanager
def without_masks() -> Iterator[None]:
    """Within it transformers passes no attention masks, which here say nothing (BERT) or "causal" (GPT-2, Llama).

    Attention that is given no mask is called with is_causal instead, which faster kernels take."""
    changed = []
    for name, module in list(sys.modules.items()):
        if name.startswith("transformers.models.") and ".modeling_" in name:
            for function in ("create_bidirectional_mask", "create_causal_mask"):
                if function in vars(module):
                    changed.append((module, function, getattr(module, function)))
                    setattr(module, function, no_mask)
    try:
        yield
    finally:
        for module, function, old in changed:
            setattr(module, function, old)


def no_mask(*args: Any, **options: Any) -> None:
    return None
