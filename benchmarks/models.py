"""The six models that mlirc is measured on: built from a config with random weights, nothing is downloaded.

Attention stays as transformers chooses it. Dropout is off, so that a training step can be compared with float64.
Each model has a `small` variant of the same structure for tests (hidden 64, 2 layers, 64x64 images, vocabulary 512).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn


@dataclass(frozen=True)
class Model:
    """A module, and how to feed it.

    make           builds the module in float32; its output has `.logits`, and `.loss` when it is given labels
    make_inputs    batch size -> keyword arguments with labels; the first dimension of each is the batch
    batch          the batch size to measure at
    gflop          matmuls and convolutions of one forward call at that batch, in units of 1e9 operations
    """

    name: str
    make: Callable[[], nn.Module]
    make_inputs: Callable[[int], dict[str, torch.Tensor]]
    batch: int
    gflop: float

    def build(self, dtype: torch.dtype = torch.float32, training: bool = False) -> nn.Module:
        """The module with the same random weights at every call."""
        torch.manual_seed(0)
        return self.make().to(dtype).train(training)

    def inputs(self, batch: int, dtype: torch.dtype, training: bool = False) -> dict[str, torch.Tensor]:
        """Keyword arguments for one call, the same for the same batch; with labels for training."""
        torch.manual_seed(batch)
        inputs = self.make_inputs(batch)
        if not training:
            del inputs["labels"]
        return {name: value.to(dtype) if value.is_floating_point() else value for name, value in inputs.items()}

    @staticmethod
    def loss(output: Any) -> torch.Tensor:
        """The 0-d loss of a call that got labels."""
        return output.loss


def bert(small: bool = False) -> Model:
    from transformers import BertConfig, BertForMaskedLM

    sizes = text_sizes(small, intermediate_size=3072, vocab_size=30522)
    config = BertConfig(**sizes, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    return text_model("bert", BertForMaskedLM, config, small, gflop=26.6)


def gpt2(small: bool = False) -> Model:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 512} if small else {"n_layer": 4}
    config = GPT2Config(**sizes, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)
    config.use_cache = False

    def make(config: GPT2Config) -> nn.Module:
        module = GPT2LMHeadModel(config)
        module.loss_type = "ForCausalLM"  # otherwise its forward call logs a warning, which breaks the graph
        return module

    return text_model("gpt2", make, config, small, gflop=34.3)


def llama(small: bool = False) -> Model:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = text_sizes(small, intermediate_size=2048, vocab_size=32000)
    config = LlamaConfig(**sizes, num_key_value_heads=2 if small else 4, use_cache=False)
    return text_model("llama", LlamaForCausalLM, config, small, gflop=25.5)


def resnet(small: bool = False) -> Model:
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(
        layer_type="basic",
        embedding_size=16 if small else 64,
        hidden_sizes=[16, 32, 64] if small else [64, 128, 256, 512],
        depths=[1, 1, 1] if small else [2, 2, 2, 2],
        **labels_of_images(small),
    )
    return image_model("resnet", ResNetForImageClassification, config, small, batch=4, gflop=14.5)


def vit(small: bool = False) -> Model:
    from transformers import ViTConfig, ViTForImageClassification

    sizes = text_sizes(small, intermediate_size=3072)
    config = ViTConfig(**sizes, image_size=64 if small else 224, patch_size=16, **labels_of_images(small))
    return image_model("vit", ViTForImageClassification, config, small, batch=2, gflop=22.4)


def mlp(small: bool = False) -> Model:
    width, hidden = (64, 64) if small else (784, 512)

    def inputs(batch: int) -> dict[str, torch.Tensor]:
        return {"x": torch.randn(batch, width), "labels": torch.randint(10, (batch,))}

    return Model("mlp", lambda: Mlp(width, hidden), inputs, batch=4 if small else 64, gflop=0.085)


class MlpOutput(NamedTuple):
    logits: torch.Tensor
    loss: torch.Tensor | None


class Mlp(nn.Module):
    """width-hidden-hidden-10 with a layer norm before each activation."""

    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(width, hidden),
            nn.LayerNorm(hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.LayerNorm(hidden),
            nn.GELU(),
            nn.Linear(hidden, 10),
        )

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> MlpOutput:
        logits = self.layers(x)
        loss = None if labels is None else nn.functional.cross_entropy(logits.float(), labels)
        return MlpOutput(logits, loss)


def text_sizes(small: bool, intermediate_size: int, **vocabulary: int) -> dict[str, int]:
    if small:
        sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
        return sizes | dict.fromkeys(vocabulary, 512)
    return {
        "hidden_size": 768,
        "num_hidden_layers": 4,
        "num_attention_heads": 12,
        "intermediate_size": intermediate_size,
        **vocabulary,
    }


def labels_of_images(small: bool) -> dict[str, Any]:
    # Left to itself, transformers decides the kind of problem in the first forward call and writes it to the config.
    return {"num_labels": 10 if small else 1000, "problem_type": "single_label_classification"}


def text_model(name: str, kind: Callable[[Any], nn.Module], config: Any, small: bool, gflop: float) -> Model:
    length = 16 if small else 128

    def inputs(batch: int) -> dict[str, torch.Tensor]:
        tokens = torch.randint(config.vocab_size, (batch, length))
        return {"input_ids": tokens, "labels": tokens.roll(1, 1)}

    return Model(name, lambda: kind(config), inputs, batch=2, gflop=gflop)


def image_model(
    name: str, kind: Callable[[Any], nn.Module], config: Any, small: bool, batch: int, gflop: float
) -> Model:
    side = 64 if small else 224

    def inputs(batch: int) -> dict[str, torch.Tensor]:
        labels = torch.randint(config.num_labels, (batch,))
        return {"pixel_values": torch.randn(batch, 3, side, side), "labels": labels}

    return Model(name, lambda: kind(config), inputs, batch=batch, gflop=gflop)


MODELS: dict[str, Callable[[bool], Model]] = {
    "mlp": mlp,
    "bert": bert,
    "gpt2": gpt2,
    "llama": llama,
    "resnet": resnet,
    "vit": vit,
}
