"""Trains a reader of digits with DistributedDataParallel, each rank on its part of the data."""

import argparse
import os

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
import torch.optim as optim
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, kernel_size=3)
        self.fc = nn.Linear(4 * 3 * 3, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv(x)), 2)
        return F.log_softmax(self.fc(torch.flatten(x, 1)), dim=1)


def digits(count):
    """Noisy pictures, of 8 x 8 points, of ten random patterns."""
    rng = np.random.default_rng(0)
    patterns = rng.standard_normal((10, 1, 8, 8))
    labels = rng.integers(0, 10, count)
    pictures = patterns[labels] + 0.3 * rng.standard_normal((count, 1, 8, 8))
    return TensorDataset(torch.from_numpy(pictures).float(), torch.from_numpy(labels))


def set_weights(model):
    """The same weights in every library."""
    with torch.no_grad():
        for i, p in enumerate(model.parameters()):
            values = np.random.default_rng(i).standard_normal(tuple(p.shape)) * 0.2
            p.copy_(torch.from_numpy(values))


def train(model, device, loader, optimizer):
    model.train()
    total = 0.0
    for data, target in loader:
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


def test(model, device, loader):
    """Losses and hits of all ranks together."""
    model.eval()
    found = torch.zeros(3, device=device)
    with torch.no_grad():
        for data, target in loader:
            data, target = data.to(device), target.to(device)
            output = model(data)
            found[0] += F.nll_loss(output, target, reduction="sum").item()
            found[1] += output.argmax(dim=1, keepdim=True).eq(target.view_as(output[:, :1])).sum()
            found[2] += len(data)
    dist.all_reduce(found, op=dist.ReduceOp.SUM)
    return found[0].item() / found[2].item(), found[1].item() / found[2].item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--save", default="digits.pt")
    args = parser.parse_args()

    dist.init_process_group("gloo", init_method="env://")
    rank, device = dist.get_rank(), torch.device("cpu")
    torch.manual_seed(rank)
    data = digits(128)
    sampler = DistributedSampler(data, shuffle=False)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler, pin_memory=False)
    model = Net().to(device)
    if rank == 0:  # DDP sends the weights of rank 0 to the others
        set_weights(model)
    model = DDP(model)
    optimizer = optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        train(model, device, loader, optimizer)
        scheduler.step()
        loss, accuracy = test(model, device, loader)
        print(f"rank {rank}: loss of epoch {epoch} = {loss:.6f}")
        print(f"rank {rank}: accuracy of epoch {epoch} = {accuracy:.6f}")
    if rank == 0:
        torch.save(model.module.state_dict(), args.save)
    dist.barrier()
    state = torch.load(args.save, map_location=device)
    model.module.load_state_dict(state)
    print(f"rank {rank}: weights = {sum(p.abs().sum().item() for p in state.values()):.5f}")
    print(f"rank {rank}: parameters = {sum(p.numel() for p in model.parameters())}")
    dist.barrier()
    if rank == 0:
        os.remove(args.save)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
