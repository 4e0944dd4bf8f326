"""The classifier of handwritten digits, trained by several processes.

Start it with `tapegrad launch -n 2 examples/digits_ranks.py`. With `--restarts 3` after `-n 2` and
`--checkpoints folder` at the end, a training that fails resumes after its last saved epoch.
"""

import argparse

from digits import Net

import tapegrad as torch
import tapegrad.distributed as dist
import tapegrad.nn.functional as F
from tapegrad import nn
from tapegrad.demos.data import load_digits
from tapegrad.nn.parallel import DistributedDataParallel
from tapegrad.utils.data import DataLoader, DistributedSampler, TensorDataset


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--checkpoints", help="folder in which each epoch is saved")
    args = parser.parse_args()

    dist.init_process_group("mpi")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)  # dropout differs between ranks; the weights are those of rank 0

    images, labels = load_digits()
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    train, test = order[:1347], order[1347 + rank :: ranks]  # each rank tests its part
    data = TensorDataset(images[train], labels[train])
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=64 // ranks, sampler=sampler, drop_last=True)

    # Batch norm uses the statistics of all ranks' batches.
    model = DistributedDataParallel(nn.SyncBatchNorm.convert_sync_batchnorm(Net()))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs)

    first = 0
    if args.checkpoints:
        checkpoint = torch.Checkpoint(
            args.checkpoints, model=model, optimizer=optimizer, scheduler=scheduler
        )
        saved = checkpoint.restore()
        first = saved.step + 1 if saved else 0

    @torch.compile
    def train_step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()  # averages the gradients of all ranks
        optimizer.step()
        return loss

    for epoch in range(first, args.epochs):
        sampler.set_epoch(epoch)
        model.train()
        for x, y in loader:
            loss = train_step(x, y)
        scheduler.step()

        model.eval()
        with torch.no_grad():
            right = (model(images[test]).argmax(dim=1) == labels[test]).float().sum()
        dist.all_reduce(loss)
        dist.all_reduce(right)
        if rank == 0:
            accuracy = right.item() / (len(images) - len(train))
            print(f"epoch {epoch:2d}  loss {loss.item() / ranks:.4f}  accuracy {accuracy:.1%}")
        if args.checkpoints:
            checkpoint.save(epoch)  # all ranks call it

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
