"""Messages and collectives, one function for each, as an introduction would show them."""

from random import Random

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader


def say(name, value):
    print(f"rank {dist.get_rank()}: {name} = {value}")


def blocking(rank, size):
    """Rank 0 sends a number to rank 1, which waits for it."""
    tensor = torch.zeros(1)
    if rank == 0:
        tensor += 1
        dist.send(tensor=tensor, dst=1)
    elif rank == 1:
        dist.recv(tensor=tensor, src=0)
    say("send and recv", tensor[0].item())


def immediate(rank, size):
    """The same with requests."""
    tensor = torch.zeros(1)
    request = None
    if rank == 0:
        tensor += 1
        request = dist.isend(tensor=tensor, dst=1)
    elif rank == 1:
        request = dist.irecv(tensor=tensor, src=0)
    if request is not None:
        request.wait()
    say("isend and irecv", tensor[0].item())


def collectives(rank, size):
    group = dist.new_group(list(range(size)))
    tensor = torch.full((2,), float(rank + 1))
    for name in ("SUM", "PRODUCT", "MAX", "MIN"):
        x = tensor.clone()
        dist.all_reduce(x, op=getattr(dist.ReduceOp, name), group=group)
        say(f"all_reduce {name}", x.tolist())
    x = tensor.clone()
    dist.reduce(x, dst=0)
    if rank == 0:
        say("reduce", x.tolist())
    x = tensor.clone()
    dist.broadcast(x, src=size - 1)
    say("broadcast", x.tolist())
    parts = [torch.zeros(2) for _ in range(size)]
    dist.all_gather(parts, tensor)
    say("all_gather", torch.stack(parts).tolist())
    parts = [torch.zeros(2) for _ in range(size)] if rank == 0 else None
    dist.gather(tensor, parts, dst=0)
    if rank == 0:
        say("gather", torch.stack(parts).tolist())
    x = torch.zeros(2)
    rows = [torch.full((2,), 10.0 * i) for i in range(size)] if rank == 0 else None
    dist.scatter(x, rows, src=0)
    say("scatter", x.tolist())
    work = dist.all_reduce(tensor, async_op=True)
    work.wait()
    say("all_reduce in the background", tensor.tolist())
    names = [None] * size
    dist.all_gather_object(names, {"rank": rank})
    say("objects", names)
    dist.barrier()


def ring_all_reduce(send, receive):
    """A sum over all ranks, passed round the ring."""
    rank, size = dist.get_rank(), dist.get_world_size()
    outgoing, incoming = send.clone(), torch.zeros_like(send)
    total = send.clone()
    left, right = (rank - 1 + size) % size, (rank + 1) % size
    for i in range(size - 1):
        if i % 2 == 0:
            request = dist.isend(outgoing, right)
            dist.recv(incoming, left)
            total[:] += incoming[:]
        else:
            request = dist.isend(incoming, right)
            dist.recv(outgoing, left)
            total[:] += outgoing[:]
        request.wait()
    receive[:] = total[:]


class Partition:
    """Some of the samples of a dataset."""

    def __init__(self, data, index):
        self.data, self.index = data, index

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        return self.data[self.index[i]]


class DataPartitioner:
    """A dataset, cut into random parts of given shares."""

    def __init__(self, data, shares, seed=1234):
        self.data, self.partitions = data, []
        indexes = list(range(len(data)))
        Random(seed).shuffle(indexes)
        for share in shares:
            count = int(share * len(data))
            self.partitions.append(indexes[:count])
            indexes = indexes[count:]

    def use(self, number):
        return Partition(self.data, self.partitions[number])


def average_gradients(model):
    size = float(dist.get_world_size())
    for param in model.parameters():
        dist.all_reduce(param.grad.data, op=dist.ReduceOp.SUM)
        param.grad.data /= size


def train(rank, size):
    """Synchronous SGD by hand: y = 2 x + 1 from noiseless samples."""
    data = [(torch.tensor([i / 32.0]), torch.tensor([i / 16.0 + 1])) for i in range(32)]
    part = DataPartitioner(data, [1.0 / size] * size).use(rank)
    loader = DataLoader(part, batch_size=16 // size, shuffle=False)
    model = nn.Linear(1, 1)
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    for _ in range(60):
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            average_gradients(model)
            optimizer.step()
    say("slope and offset", [round(p.item(), 5) for p in model.parameters()])


def run(rank, size):
    for function in (blocking, immediate, collectives):
        function(rank, size)
    x = torch.arange(3.0) * (rank + 1)
    total = torch.zeros(3)
    ring_all_reduce(x, total)
    say("ring", total.tolist())
    train(rank, size)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    run(dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()
