"""Training steps over all GPUs of a machine: DDP, FSDP2 and tensor parallel under eager, Inductor and mlirc, which alternate.

python -m benchmarks.on_gpu.distributed [--backends eager,mlirc] [--kinds ddp,fsdp,tensor] [--rounds 10] [--small]

A Llama of 4 layers in bfloat16, one process for each GPU (NCCL); `--small` is a tiny one in two processes on a CPU (gloo). A line
for each kind and backend: milliseconds of a step (the median over rounds of the slowest process), its ratio to the first backend's,
and the losses of the first steps, which all backends begin with the same weights and data.
"""

import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import click
import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

KINDS = ("ddp", "fsdp", "tensor")
BACKENDS = ("eager", "inductor", "mlirc")
OPTIONS: dict[str, Any] = {"mlirc": {"fallback": "error"}}
STEPS = 4  # whose losses are shown


def llama(small: bool) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes: dict[str, Any] = {
        "hidden_size": 2048,
        "intermediate_size": 5632,
        "num_attention_heads": 16,
        "vocab_size": 32000,
    }
    tiny = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "vocab_size": 512}
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**(tiny if small else sizes), num_hidden_layers=4, use_cache=False))


def compiled(module: nn.Module, backend: str) -> Any:
    return module if backend == "eager" else torch.compile(module, backend=backend, options=OPTIONS.get(backend))


def spread_over(model: Any, kind: str, backend: str, mesh: DeviceMesh) -> nn.Module:
    """The model over the mesh: DDP is compiled as a whole, the layers of the other two one by one, as their users do."""
    if kind == "ddp":
        return compiled(DistributedDataParallel(model), backend)
    for i, layer in enumerate(model.model.layers):
        if kind == "tensor":
            ways = {f"self_attn.{name}_proj": ColwiseParallel() for name in "qkv"}
            ways |= {"self_attn.o_proj": RowwiseParallel(), "mlp.down_proj": RowwiseParallel()}
            ways |= {"mlp.gate_proj": ColwiseParallel(), "mlp.up_proj": ColwiseParallel()}
            parallelize_module(layer, mesh, ways)
        model.model.layers[i] = compiled(layer, backend)
        if kind == "fsdp":
            fully_shard(model.model.layers[i], mesh=mesh)
    return fully_shard(model, mesh=mesh) if kind == "fsdp" else model


def step_of(model: nn.Module, kind: str, rank: int, small: bool, device: torch.device) -> Callable[[], torch.Tensor]:
    """A training step, which gives its loss. Under tensor parallel all processes have the same data."""
    whole = [p for p in model.parameters() if not isinstance(p, DTensor)]
    parts = [p for p in model.parameters() if isinstance(p, DTensor)]  # an update of many parameters takes one kind
    optimizer = torch.optim.AdamW([{"params": group} for group in (whole, parts) if group], lr=1e-4, foreach=True)
    made = torch.Generator().manual_seed(0 if kind == "tensor" else rank)
    batch, length, words = (2, 16, 512) if small else (4, 2048, 32000)
    tokens = torch.randint(words, (batch, length), generator=made).to(device)

    def step() -> torch.Tensor:
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def seconds(step: Callable[[], Any], device: torch.device, repeats: int) -> float:
    """Seconds of one step in the slowest process."""
    wait = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    dist.barrier()
    wait()
    start = time.perf_counter()
    for _ in range(repeats):
        step()
    wait()
    taken = torch.tensor((time.perf_counter() - start) / repeats, device=device)
    dist.all_reduce(taken, dist.ReduceOp.MAX)
    return taken.item()


def run(rank: int, world: int, file: str, backends: list[str], kinds: list[str], rounds: int, small: bool) -> None:
    warnings.simplefilter("ignore")
    device = torch.device("cpu") if small else torch.device("cuda", rank)
    torch.set_num_threads(1)
    if not small:
        torch.cuda.set_device(device)
    dist.init_process_group("gloo" if small else "nccl", init_method=f"file://{file}", rank=rank, world_size=world)
    mesh = init_device_mesh(device.type, (world,))
    for kind in kinds:
        steps, losses, first = {}, {}, {}
        for backend in backends:
            torch._dynamo.reset()
            model = llama(small).to(device, torch.float32 if small else torch.bfloat16)
            steps[backend] = step_of(spread_over(model, kind, backend, mesh), kind, rank, small, device)
            start = time.perf_counter()
            losses[backend] = [steps[backend]().item() for _ in range(STEPS)]
            first[backend] = time.perf_counter() - start
        times: dict[str, list[float]] = {backend: [] for backend in backends}
        for _ in range(rounds):
            for backend in backends:
                times[backend].append(seconds(steps[backend], device, 1 if small else 3))
        medians = {backend: statistics.median(found) for backend, found in times.items()}
        for backend in backends if rank == 0 else ():
            ratio = medians[backends[0]] / medians[backend]
            shown = " ".join(f"{loss:.5f}" for loss in losses[backend])
            print(
                f"{kind:7} {backend:9} {medians[backend] * 1e3:9.2f} ms {ratio:5.2f}x  losses {shown}  first steps {first[backend]:.1f} s"
            )
        del steps
    dist.destroy_process_group()


@click.command()
@click.option("--backends", default=",".join(BACKENDS))
@click.option("--kinds", default=",".join(KINDS))
@click.option("--rounds", default=10)
@click.option("--small", is_flag=True)
def main(backends: str, kinds: str, rounds: int, small: bool) -> None:
    world = 2 if small else torch.cuda.device_count()
    with tempfile.TemporaryDirectory() as folder:
        arguments = (world, f"{folder}/rendezvous", backends.split(","), kinds.split(","), rounds, small)
        torch.multiprocessing.spawn(run, arguments, nprocs=world)


if __name__ == "__main__":
    main()
