"""Programs of ranks that save and restore; `test_distributed_sharding.py` runs them.

`FOLDER` in the environment is where the files go.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import numpy as np
import pytest
from distributed.sharding import BATCH, data, divided, mean, step_of

import tapegrad as tg
import tapegrad.distributed as dist
from tapegrad.data import DataLoader, DistributedSampler, TensorDataset
from tapegrad.distributed import checkpoint as job_files
from tapegrad.saving import sharded


def _training(way: str) -> tuple[dict[str, Any], Any]:
    model, optimizer = divided("mlp", "adam", way)
    x, y = data()
    dataset = TensorDataset(tg.tensor(x.reshape(-1, 5, 6)), tg.tensor(y.reshape(-1, 5, 3)))
    size, rank = (dist.get_world_size(), dist.get_rank()) if dist.is_initialized() else (1, 0)
    loader = DataLoader(
        dataset, batch_size=BATCH // size, sampler=DistributedSampler(dataset, size, rank, seed=3)
    )
    schedule = tg.optim.lr_scheduler.StepLR(optimizer, 2, 0.9)
    inner = model.module if way.startswith("zero") else model
    return {"model": inner, "optimizer": optimizer, "schedule": schedule, "loader": loader}, model


def _steps(parts: dict[str, Any], model: Any, count: int) -> list[float]:
    step = step_of(model, parts["optimizer"])
    losses = []
    for (x, y), _ in zip(parts["loader"], range(count), strict=False):
        losses.append(mean(step(x, y)))
        parts["schedule"].step()
    return losses


def save_states() -> dict[str, Any]:
    """Train, save in the middle of an epoch, and go on: the losses after it."""
    folder, found = os.environ["FOLDER"], {}
    for way in ("zero", "sharded"):
        parts, model = _training(way)
        checkpoint = tg.Checkpoint(f"{folder}/{way}", keep=2, **parts)
        _steps(parts, model, 2)
        checkpoint.save(2, loss=1.0)
        parts["loader"].load_state_dict(parts["loader"].state_dict())
        _steps(parts, model, 1)
        path = checkpoint.save(3, loss=0.5, extra={"note": "hello"})
        plain = {"model": parts["model"], "optimizer": parts["optimizer"], "step": 3}
        job_files.save(plain, f"{folder}/{way}-job")
        draws = tg.rand(2).tolist()
        parts["loader"].load_state_dict(parts["loader"].state_dict())
        found[way] = {"losses": _steps(parts, model, 4), "path": str(path), "draws": draws}
    return found


def load_states() -> dict[str, Any]:
    """Restore what another job has saved, and go on."""
    folder, found = os.environ["FOLDER"], {}
    for way in ("zero", "sharded"):
        parts, model = _training(way)
        checkpoint = tg.Checkpoint(f"{folder}/{way}", keep=2, **parts)
        saved = checkpoint.restore()
        assert saved is not None
        assert (saved.step, saved.metrics, saved.extra) == (3, {"loss": 0.5}, {"note": "hello"})
        assert [s.step for s in checkpoint] == [2, 3]
        draws = tg.rand(2).tolist()
        losses = _steps(parts, model, 4)

        other, _ = _training(way)
        wanted = {"model": other["model"], "optimizer": other["optimizer"], "step": 0}
        job_files.load(wanted, f"{folder}/{way}-job")
        assert wanted["step"] == 3
        checkpoint.restore()
        for p, q in zip(parts["model"].parameters(), other["model"].parameters(), strict=True):
            np.testing.assert_array_equal(p.detach().numpy(), q.detach().numpy())
        for p, q in zip(
            parts["optimizer"].state.values(), other["optimizer"].state.values(), strict=True
        ):
            for key in p:
                np.testing.assert_array_equal(p[key].numpy(), q[key].numpy())
        found[way] = {"losses": losses, "draws": draws}
    return found


def plain_losses(folder: str) -> list[float]:
    """One process without a job restores what a job has saved, and goes on."""
    parts, model = _training("one")
    saved = tg.Checkpoint(folder, **parts).restore()
    assert saved is not None
    assert saved.step == 3
    return _steps(parts, model, 4)


def save_plain(folder: str) -> list[float]:
    """One process without a job saves, and goes on."""
    parts, model = _training("one")
    _steps(parts, model, 3)
    tg.Checkpoint(folder, **parts).save(3)
    parts["loader"].load_state_dict(parts["loader"].state_dict())
    return _steps(parts, model, 4)


def load_plain() -> dict[str, Any]:
    """A job restores what one process has saved."""
    found = {}
    for way in ("zero", "sharded"):
        parts, model = _training(way)
        assert tg.Checkpoint(os.environ["FOLDER"], **parts).restore() is not None
        found[way] = _steps(parts, model, 4)
    return found


def failing_saves() -> dict[str, Any]:
    """One rank cannot write: all raise, and what was saved before is still there."""
    folder = f"{os.environ['FOLDER']}/failing"
    parts, _ = _training("sharded")
    checkpoint = tg.Checkpoint(folder, **parts)
    checkpoint.save(1)
    write, last = sharded.write, dist.get_world_size() - 1

    def full(layout: Any, path: str) -> None:
        raise OSError(28, "No space left on device", path)

    sharded.write = full if dist.get_rank() == last else write
    try:
        with pytest.raises(tg.SavingError, match=f"rank {last} could not save.*No space left"):
            checkpoint.save(2)
    finally:
        sharded.write = write
    dist.barrier()
    files = sorted(os.listdir(folder))
    assert len(files) == 1 + dist.get_world_size(), files
    saved = checkpoint.restore()
    assert saved is not None
    assert saved.step == 1
    dist.barrier()  # all have looked before a file is damaged

    # a damaged part file of the newest state: all ranks go back to the one before
    checkpoint.save(2)
    if dist.get_rank() == 0:
        (path,) = [p for p in os.listdir(folder) if "step-2" in p and f"part-{last}" in p]
        with open(f"{folder}/{path}", "r+b") as file:
            file.seek(-1, os.SEEK_END)
            byte = file.read(1)
            file.seek(-1, os.SEEK_END)
            file.write(bytes([byte[0] ^ 1]))
    dist.barrier()
    with pytest.warns(UserWarning, match="damaged"):
        saved = checkpoint.restore()
    assert saved is not None
    return {"step": saved.step}


def killed() -> None:
    """Save step 1; a rank is killed in the middle of saving step 2."""
    parts, _ = _training("sharded")
    checkpoint = tg.Checkpoint(f"{os.environ['FOLDER']}/killed", **parts)
    checkpoint.save(1)
    who, when = os.environ["KILLED"].split()
    write = sharded.write

    def dying(layout: Any, path: str) -> None:
        if ("part-" in path) == (when == "part"):
            while not any(
                "step-2" in name for name in os.listdir(f"{os.environ['FOLDER']}/killed")
            ):
                time.sleep(0.01)  # until the other rank has written its part
            os.kill(os.getpid(), signal.SIGKILL)
        write(layout, path)

    if dist.get_rank() == int(who):
        sharded.write = dying
    checkpoint.save(2)


def after_kill() -> dict[str, Any]:
    """The state before the kill is whole, and the next save removes what was left over."""
    folder = f"{os.environ['FOLDER']}/killed"
    parts, _ = _training("sharded")
    checkpoint = tg.Checkpoint(folder, **parts)
    saved = checkpoint.restore()
    assert saved is not None
    step = saved.step
    checkpoint.save(3)
    dist.barrier()
    left = [n for n in os.listdir(folder) if "step-2" in n]
    return {"step": step, "left": left, "now": [s.step for s in checkpoint]}
