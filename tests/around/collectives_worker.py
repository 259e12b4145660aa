"""One of two processes of test_collectives.py: `python collectives_worker.py RANK FILE [data-parallel]`."""

import sys
import warnings
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import mlirc

OPTIONS: dict[str, Any] = {"fallback": "error"}
NATIVE = ("all_reduce", "wait_tensor")


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = torch.nn.LayerNorm(32), torch.nn.Linear(32, 64), torch.nn.Linear(64, 32)

    def forward(self, x):
        return x + self.down(torch.nn.functional.silu(self.up(self.norm(x))))


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(Block())


def losses(step_model, parameters, rank):
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    found = []
    for step in range(3):
        x = torch.randn(8, 32, generator=torch.Generator().manual_seed(10 * step + rank))
        loss = step_model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    return found


def same_losses(prepare, rank):
    """Three steps, in eager and compiled."""
    eager, compiled = prepare(), prepare()
    expected = losses(eager, eager.parameters(), rank)
    actual = losses(torch.compile(compiled, backend="mlirc", options=OPTIONS), compiled.parameters(), rank)
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)


def sharded(mesh):
    made = model()
    for block in made:
        fully_shard(block, mesh=mesh)
    return fully_shard(made, mesh=mesh)


def parallel(mesh):
    made = model()
    for block in made:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return made


def several(x):
    group: Any = dist.group.WORLD
    summed = collectives.all_reduce(x.sin(), "sum", group)
    beside = (x.cos() * 2).tanh()
    gathered = torch.ops._c10d_functional.wait_tensor(
        torch.ops._c10d_functional.all_gather_into_tensor(x.cos(), 2, group.group_name)
    )
    part = torch.ops._c10d_functional.wait_tensor(
        torch.ops._c10d_functional.reduce_scatter_tensor(x.exp(), "sum", 2, group.group_name)
    )
    both = torch.ops._c10d_functional.all_reduce_coalesced([x * 2, x * 3], "sum", group.group_name)
    twice = [torch.ops._c10d_functional.wait_tensor(y) for y in both]
    return summed.sin() + beside, gathered.exp(), part * 2, *twice


def collectives_are_native(mesh, rank):
    x = torch.randn(64, generator=torch.Generator().manual_seed(rank))
    compiled = torch.compile(several, backend="mlirc", fullgraph=True, options=OPTIONS)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), several(x))
    (graph,) = mlirc.explain(several)(x).data["graphs"]
    assert not any(name.split(".")[1] in NATIVE for name in graph["through_python"]), graph["through_python"]
    assert {e["action"] for e in graph["ledger"] if e["pass_name"] == "schedule-collectives"} == {"issue", "wait"}
    same_losses(lambda: parallel(mesh), rank)
    torch._dynamo.reset()
    with torch.no_grad():
        graphs = mlirc.explain(parallel(mesh))(torch.ones(8, 32)).data["graphs"]
    calls = [(name, count) for graph in graphs for name, (count, _) in graph["aten"].items() if "c10d" in name]
    python = [name for graph in graphs for name in graph["through_python"] if "c10d" in name]
    assert sum(count for _, count in calls) >= 2 and not python, (calls, python)


def run(rank: int, file: str, data_parallel: bool) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    if data_parallel:
        same_losses(lambda: DistributedDataParallel(model()), rank)
        same_losses(lambda: sharded(mesh), rank)
    else:
        collectives_are_native(mesh, rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    run(int(sys.argv[1]), sys.argv[2], sys.argv[3:] == ["data-parallel"])
