"""A toy model whose layers are divided among the ranks, with whole and with divided inputs."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(6, 8)
        self.relu = nn.ReLU()
        self.out_proj = nn.Linear(8, 6)

    def forward(self, x):
        return self.out_proj(self.relu(self.in_proj(x)))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(6)
        self.mlp = MLP()

    def forward(self, x):
        return x + self.mlp(self.norm(x))


def waves(*shape, step=0.7):
    """Numbers that every library computes alike."""
    count = 1
    for n in shape:
        count *= n
    return torch.sin(torch.arange(count).float() * step).reshape(shape)


def set_weights(model):
    with torch.no_grad():
        for i, p in enumerate(model.parameters()):
            p.copy_(waves(*p.shape, step=0.3 + 0.1 * i) * 0.5)


def train(name, model, x, rank):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i in range(3):
        optimizer.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        optimizer.step()
        print(f"rank {rank}: {name}, step {i} = {loss.item():.5f}")


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    rank, size = mesh.get_local_rank(), mesh["tp"].size()

    # All ranks have the input and the result.
    model = MLP()
    set_weights(model)
    plan = {"in_proj": ColwiseParallel(), "out_proj": RowwiseParallel()}
    model = parallelize_module(model, mesh, plan)
    train("tensor parallel", model, waves(4, 6), rank)

    # Each rank has its rows of the input and of the result.
    model = MLP()
    set_weights(model)
    plan = {
        "in_proj": ColwiseParallel(input_layouts=Shard(0)),
        "out_proj": RowwiseParallel(output_layouts=Shard(0)),
    }
    model = parallelize_module(model, mesh, plan)
    train("rows", model, waves(4, 6).chunk(size)[rank], rank)

    # The norm works on pieces of the sequence, the layers between on the whole.
    model = Block()
    set_weights(model)
    plan = {
        "norm": SequenceParallel(),
        "mlp": PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate()),
        "mlp.in_proj": ColwiseParallel(),
        "mlp.out_proj": RowwiseParallel(output_layouts=Shard(1)),
    }
    model = parallelize_module(model, mesh["tp"], plan)
    train("sequence", model, waves(2, 4, 6).chunk(size, dim=1)[rank], rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
