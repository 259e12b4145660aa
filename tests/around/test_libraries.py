"""Libraries around PyTorch with models that are compiled in place, `model.compile(backend="mlirc")`: each where its package is installed.

Each test is a script of one library (docs/features.md). What it gives is compared with the same script without the line that compiles.
"""

import pytest
import torch
from torch import nn

from mlirc.frontend import statistics

pytestmark = [pytest.mark.full, pytest.mark.filterwarnings("ignore")]


def needed(name):
    return pytest.importorskip(name, reason=f"{name} is not installed", exc_type=ImportError)


def compared(script):
    """script(compile) with and without compiling gives the same; all graphs of the former are compiled. Returns the graphs."""
    torch.manual_seed(0)
    expected = script(lambda module: None)
    torch._dynamo.reset()
    statistics.reset()
    torch.manual_seed(0)
    found = script(lambda module: module.compile(backend="mlirc", options={"fallback": "error"}))
    torch.testing.assert_close(found, expected, rtol=2e-3, atol=2e-4)
    assert statistics.graphs and not statistics.fallbacks
    return statistics.graphs


def small_llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    return LlamaForCausalLM(LlamaConfig(vocab_size=64, max_position_embeddings=64, **sizes))


class Network(nn.Module):
    """A class of one's own: PyTorch skips `nn.Sequential(...).compile()`."""

    def __init__(self, *sizes):
        super().__init__()
        self.first, self.second = nn.Linear(*sizes[:2]), nn.Linear(*sizes[1:])

    def forward(self, x):
        return self.second(nn.functional.gelu(self.first(x)))


class Sentences(torch.utils.data.Dataset):
    def __init__(self):
        self.tokens = torch.randint(0, 64, (16, 12), generator=torch.Generator().manual_seed(1))

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, k):
        return {"input_ids": self.tokens[k], "labels": self.tokens[k]}


def weights(model):
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def test_trainer(tmp_path):
    needed("accelerate")
    from transformers import Trainer, TrainingArguments

    def script(compile):
        model = small_llama()
        compile(model)
        arguments = TrainingArguments(
            str(tmp_path),
            max_steps=3,
            per_device_train_batch_size=4,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            seed=0,
        )
        Trainer(model=model, args=arguments, train_dataset=Sentences()).train()
        return weights(model)

    assert {graph.kind for graph in compared(script)} == {"forward", "backward"}


def test_accelerate():
    accelerate = needed("accelerate")

    def script(compile):
        model = Network(8, 16, 1)
        compile(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(12, 8)), batch_size=4)
        accelerator = accelerate.Accelerator(cpu=True)
        model, optimizer, data = accelerator.prepare(model, optimizer, data)
        for (x,) in data:
            optimizer.zero_grad()
            accelerator.backward(model(x).square().mean())
            optimizer.step()
        return weights(accelerator.unwrap_model(model))

    assert {graph.kind for graph in compared(script)} == {"forward", "backward"}


def test_lightning():
    lightning = needed("lightning")

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = Network(8, 16, 1)

        def training_step(self, batch, index):
            return self.model(batch[0]).square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    def script(compile):
        module = Module()
        compile(module.model)
        data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(12, 8)), batch_size=4)
        quiet = {
            "logger": False,
            "enable_progress_bar": False,
            "enable_checkpointing": False,
            "enable_model_summary": False,
        }
        lightning.Trainer(max_epochs=1, accelerator="cpu", **quiet).fit(module, data)
        return weights(module)

    assert {graph.kind for graph in compared(script)} == {"forward", "backward"}


def test_diffusers():
    diffusers = needed("diffusers")

    def script(compile):
        unet = diffusers.UNet2DModel(
            sample_size=8, in_channels=1, out_channels=1, block_out_channels=(8, 8), norm_num_groups=4, layers_per_block=1,
            down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"), attention_head_dim=4,
        )  # fmt: skip
        pipeline = diffusers.DDIMPipeline(unet=unet, scheduler=diffusers.DDIMScheduler())
        pipeline.set_progress_bar_config(disable=True)
        compile(pipeline.unet)
        made = pipeline(generator=torch.Generator().manual_seed(0), num_inference_steps=3, output_type="np").images
        return torch.as_tensor(made)

    assert {graph.kind for graph in compared(script)} == {"inference"}


def test_peft():
    peft = needed("peft")

    def script(compile):
        config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
        model = peft.get_peft_model(small_llama(), config)
        compile(model)
        tokens = Sentences()[0]["input_ids"][None]
        model(input_ids=tokens, labels=tokens).loss.backward()
        return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}

    assert {graph.kind for graph in compared(script)} == {"forward", "backward"}


@pytest.mark.parametrize("config", ["Int8WeightOnlyConfig", "Int8DynamicActivationInt8WeightConfig"])
def test_torchao(config):
    quantization = needed("torchao.quantization")

    def script(compile):
        model = Network(64, 64, 32).eval()
        quantization.quantize_(model, getattr(quantization, config)())
        compile(model)
        with torch.no_grad():
            return model(torch.randn(4, 64))

    assert {graph.kind for graph in compared(script)} == {"inference"}
