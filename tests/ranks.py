"""Runs functions of a file in several ranks, for the tests of `tapegrad.distributed`.

`run_ranks("distributed/programs.py", 2, ["name", ...])` starts `mpiexec`. Every rank calls the
functions one after another and writes a file with what each returned. If a rank wrote no file, it
did not finish, and the test fails with the end of the output. One job runs at a time, since waiting
ranks occupy whole cores.
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
MPIEXEC = shutil.which(
    "mpiexec", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
)
MISSING = importlib.util.find_spec("mpi4py") is None or MPIEXEC is None
needs_mpi = pytest.mark.skipif(MISSING, reason="needs the mpi extra: pip install '.[mpi]'")


@contextmanager
def alone() -> Iterator[None]:
    """Run one job at a time, also across pytest processes."""
    with open(Path(tempfile.gettempdir()) / f"tapegrad-ranks-{os.getuid()}", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def environment(**more: str) -> dict[str, str]:
    """The environment of ranks: one thread each, since they share the cores."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(HERE.parent), str(HERE)]),
        "OMP_NUM_THREADS": "1",
        "TAPEGRAD_QUIET": "1",
        **more,
    }


def launch(
    size: int, command: Sequence[str], timeout: float = 120, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run a command in `size` ranks and wait for its end."""
    assert MPIEXEC is not None
    with alone():
        return subprocess.run(
            [MPIEXEC, "-n", str(size), *command],
            capture_output=True,
            text=True,
            timeout=timeout,
            env=environment(**more),
            cwd=HERE,
            check=False,
        )


def run_ranks(
    file: str, size: int, names: Sequence[str], timeout: float = 240, **more: str
) -> list[dict[str, Any]]:
    """The results of functions of a file in each rank, by name."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(HERE / "ranks.py"), str(HERE / file), folder, *names]
        done = launch(size, command, timeout, **more)
        found = [Path(folder) / f"{rank}.json" for rank in range(size)]
        said = f"{done.stdout[-4000:]}\n{done.stderr[-6000:]}"
        assert done.returncode == 0, f"the job ended with {done.returncode}:\n{said}"
        missing = [i for i, path in enumerate(found) if not path.exists()]
        assert not missing, f"ranks {missing} did not come to their end:\n{said}"
        return [json.loads(path.read_text()) for path in found]


def main(path: str, folder: str, names: Sequence[str]) -> None:
    """One rank: call the functions and write their results to a file."""
    spec = importlib.util.spec_from_file_location("programs", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["programs"] = module
    import tapegrad.distributed as dist

    dist.init_process_group("mpi", timeout=60)
    spec.loader.exec_module(module)
    results = {}
    for name in names:
        results[name] = getattr(module, name)()
        dist.barrier()
    rank = dist.get_rank()
    marker = Path(folder) / f"{rank}.json"
    marker.with_suffix(".new").write_text(json.dumps(results))
    marker.with_suffix(".new").rename(marker)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
