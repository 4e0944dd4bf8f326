"""A training that can be killed at any moment and goes on from its last checkpoint.

Run in ranks by `soak_ranks.py` and `test_distributed_launch.py`: `python resumed_training.py
FOLDER STEPS [compiled]`. Rank 0 saves every third step and, at the end, the bytes of the parameters
in `FOLDER/result`. Each rank leaves its process id in `FOLDER/pid-RANK`.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import tapegrad as tg
import tapegrad.distributed as dist
from tapegrad.nn.parallel import DistributedDataParallel

#: seconds that a step takes at least, so that kills meet the training and not its start
STEP = 0.02


def main(folder: Path, steps: int, is_compiled: bool) -> None:
    dist.init_process_group("mpi", timeout=60)
    rank = dist.get_rank()
    tg.manual_seed(rank)
    model = tg.nn.Sequential(tg.nn.Linear(8, 32), tg.nn.Tanh(), tg.nn.Linear(32, 1))
    parallel = DistributedDataParallel(model)
    optimizer = tg.optim.AdamW(model.parameters(), lr=0.01)
    checkpoint = tg.Checkpoint(
        folder / "checkpoints", random_state=False, model=model, optimizer=optimizer
    )
    saved = checkpoint.restore()

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = ((parallel(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    call = tg.compile(step) if is_compiled else step
    (folder / f"pid-{rank}").write_text(str(os.getpid()))
    for i in range(saved.step + 1 if saved else 0, steps):
        generator = tg.Generator().manual_seed(1000 * i + rank)
        x = tg.randn(16, 8, generator=generator)
        call(x, x.sum(1, keepdim=True))
        if i % 3 == 2:
            checkpoint.save(i)
        time.sleep(STEP)
    if rank == 0:
        data = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
        (folder / "result.new").write_bytes(data)
        (folder / "result.new").rename(folder / "result")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), "compiled" in sys.argv[3:])
