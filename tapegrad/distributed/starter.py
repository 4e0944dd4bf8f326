"""The start of a rank: sets torchrun's environment variables, runs the program, tells how it ended.

`launch.py` lets mpiexec run this file, by its path, in every rank: `python starter.py program
arguments...`. It imports nothing of tapegrad. When the program has ended, this process writes down
how, and ends in the same way. Only then does mpiexec kill the other ranks, and these processes with
them, so what is written is what ended the job.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time

#: torchrun's variables, and those in which starters of MPI programs say the same
VARIABLES = {
    "RANK": ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"),
    "WORLD_SIZE": ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"),
    "LOCAL_RANK": ("MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"),
    "LOCAL_WORLD_SIZE": ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE"),
}
#: what Linux calls PR_SET_PDEATHSIG
_DEATH_SIGNAL = 1
#: signals that mpiexec sends to the process group of a rank; they are for the program
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def main(command: list[str]) -> None:
    """Run `command`, a program and its arguments, and end as it does."""
    for name, others in VARIABLES.items():
        found = next((os.environ[other] for other in others if other in os.environ), None)
        if found is not None:
            os.environ[name] = found
    child = os.fork()
    if child == 0:
        _become(command)
    for number in _FORWARDED:
        signal.signal(number, signal.SIG_IGN)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    _report("ended", child, code=code, time=time.time())
    if code < 0:
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        _without_core()
        os.kill(os.getpid(), -code)
    os._exit(code)


def _become(command: list[str]) -> None:
    """In the child: be the program, and end with the starter."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
    _report("launched", os.getpid())
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"tapegrad launch: cannot run {command[0]}: {error.strerror}", file=sys.stderr)
        sys.stderr.flush()
        os._exit(127)


def _report(state: str, pid: int, **more: float) -> None:
    """Leave word for the launcher, as `job.report` does."""
    folder = os.environ.get("TAPEGRAD_LAUNCH_FOLDER")
    if folder is None:
        return
    rank = os.environ.get("RANK", "0")
    path = os.path.join(folder, f"{state}-{rank}")
    said = {"rank": int(rank), "pid": pid, "state": state, "why": "", **more}
    try:
        with open(path + ".new", "w") as file:
            json.dump(said, file)
        os.replace(path + ".new", path)
    except OSError:
        pass  # a machine that does not see the launcher's folder


def _without_core() -> None:
    """The program has left a core file if one is wanted; this process leaves none."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main(sys.argv[1:])
