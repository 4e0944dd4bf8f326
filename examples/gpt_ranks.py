"""The character-level transformer, trained by several processes that shard the optimizer's state.

Start it with `tapegrad launch -n 2 examples/gpt_ranks.py`.
"""

import argparse

from gpt import BATCH_SIZE, BLOCK_SIZE, GPT

import tapegrad as torch
import tapegrad.distributed as dist
import tapegrad.nn.functional as F
from tapegrad import nn
from tapegrad.demos.data import load_text
from tapegrad.distributed.optim import ZeroRedundancyOptimizer
from tapegrad.nn.parallel import DistributedDataParallel


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    args = parser.parse_args()

    dist.init_process_group("mpi")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)  # batches differ between ranks; the weights are those of rank 0

    text = load_text()
    chars = sorted(set(text))
    stoi = {c: i for i, c in enumerate(chars)}
    data = torch.tensor([stoi[c] for c in text])

    model = DistributedDataParallel(GPT(len(chars)))
    # Each rank keeps AdamW's averages for its shard of the parameters.
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=3e-3)

    def get_batch():
        starts = torch.randint(len(data) - BLOCK_SIZE, (BATCH_SIZE,)).tolist()
        x = torch.stack([data[i : i + BLOCK_SIZE] for i in starts])
        y = torch.stack([data[i + 1 : i + 1 + BLOCK_SIZE] for i in starts])
        return x, y

    @torch.compile
    def train_step(x, y):
        optimizer.zero_grad()
        logits = model(x)
        loss = F.cross_entropy(logits.view(-1, logits.size(-1)), y.view(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    for step in range(args.steps):
        loss = train_step(*get_batch())
        if step % 100 == 0:
            dist.all_reduce(loss, op=dist.ReduceOp.AVG)
            if rank == 0:
                print(f"step {step:4d}  loss {loss.item():.4f}")

    if rank == 0:
        print(train_step.scale(ranks=[ranks, 8, 64], latency=5e-6, bandwidth=10e9))
        start = torch.tensor([[stoi["\n"]]])
        written = model.module.generate(start, max_new_tokens=min(300, args.steps))
        print("".join(chars[i] for i in written[0].tolist()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
