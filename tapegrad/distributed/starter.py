"""The start of a rank: sets torchrun's variables, runs the program, and reports how it ended.

`launch.py` makes mpiexec run this file, by its path, in every rank: `python starter.py program
arguments...`. It imports nothing of tapegrad. When the program has ended, this process reports how,
and ends in the same way. Only then does mpiexec kill the other ranks together with their starters,
so the reports say what ended the job.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time

#: torchrun's variables, and those of launchers of MPI programs with the same meaning
VARIABLES = {
    "RANK": ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"),
    "WORLD_SIZE": ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"),
    "LOCAL_RANK": ("MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"),
    "LOCAL_WORLD_SIZE": ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE"),
}
#: PR_SET_PDEATHSIG of Linux
_DEATH_SIGNAL = 1
#: signals that mpiexec sends to the process group of a rank; the starter ignores them
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
    """In the child: run the program, which is killed if the starter ends."""
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
    """Report to the launcher, as `job.report` does."""
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
        pass  # this machine does not see the launcher's folder


def _without_core() -> None:
    """Write no core file for this process: if enabled, the program has written its own."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main(sys.argv[1:])
