"""The outcome of a job: which ranks failed, and why.

Comes in: the folder with the reports of ranks (`job.report`), the output of mpiexec, its status.
Goes out: one sentence for each rank that failed, and an exit status. Called by `launch.py`.

The states that ranks report: `launched` (the process exists), `connecting` (it waits for all ranks
to call init_process_group), `started` (they are connected), then `done`, `failed` with the reason,
or `left` for os._exit(0). `starter.py` adds `ended`, with the exit code, unless mpiexec killed it
together with its rank. Without such reports, the output of mpiexec is searched.
"""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any, NamedTuple

_PID = re.compile(r"=\s+PID (\d+) RUNNING AT")
_CODE = re.compile(r"=\s+EXIT CODE: (\d+)")
_SIGNAL = re.compile(r"EXIT STRING: .*\(signal (\d+)\)")

_ABORT = re.compile(r"^Abort\((-?\d+)\) on node (\d+).*", re.MULTILINE)

_HINTS = {
    signal.SIGKILL: "; the system does this when memory runs out",
    signal.SIGSEGV: "; native code has failed",
    signal.SIGBUS: "; the system does this when /dev/shm is full",
}


class Outcome(NamedTuple):
    """How a job ended: the exit status, and sentences about the ranks that failed."""

    status: int
    failures: list[str]


class Reports:
    """The reports of the ranks of a job."""

    def __init__(self, folder: Path) -> None:
        self.by_state: dict[str, dict[int, dict[str, Any]]] = {}
        for path in folder.iterdir():
            if path.suffix:
                continue  # still being written
            said = json.loads(path.read_text())
            self.by_state.setdefault(said["state"], {})[said["rank"]] = said

    def ranks(self, state: str) -> dict[int, dict[str, Any]]:
        return self.by_state.get(state, {})

    def rank_of(self, pid: int) -> int | None:
        """The rank of a process."""
        for said in self.by_state.values():
            for rank, one in said.items():
                if one["pid"] == pid:
                    return rank
        return None


def judge(reports: Reports, size: int, returned: int, printed: str) -> Outcome:
    """The outcome of a job of `size` ranks, from its reports and mpiexec's status and output."""
    failed = reports.ranks("failed")
    failures = [
        f"rank {rank} of {size} failed: {said['why']}" for rank, said in sorted(failed.items())
    ]
    status = returned if returned >= 0 else 128 - returned
    if failed:  # the status of mpiexec also depends on the ranks that it kills
        status = int(failed[min(failed)]["status"])
    found = _found_by_starter(reports, size)
    if found is None and not failures:
        # mpiexec may name a process that it has killed itself, so its output is used last.
        failures = ended_early(reports, size)
        if failures:
            return Outcome(1, failures)
        found = _found_by_mpiexec(reports, size, printed)
    if found is not None:
        failures.insert(0, found[0])
        status = found[1]
    if not failures:
        unknown = f"mpiexec ended with status {status}"
        failures = [unknown] if status else _cut_off(reports, size)
    return Outcome(status or int(bool(failures)), failures)


def _found_by_starter(reports: Reports, size: int) -> tuple[str, int] | None:
    """The first rank that ended badly without giving a reason, and the job's exit status."""
    bad = [
        (said["time"], rank, said)
        for rank, said in reports.ranks("ended").items()
        if said["code"] and rank not in reports.ranks("failed")
    ]
    if not bad:
        return None
    _, rank, said = min(bad, key=lambda entry: entry[:2])
    return _told(f"rank {rank} of {size} (process {said['pid']})", said["code"])


def _told(who: str, code: int) -> tuple[str, int]:
    """How a process with an exit code (-n: killed by signal n) ended, and the job's status."""
    if code < 0:
        return f"{who} was killed by {signal_name(-code)}", 128 - code
    return f"{who} ended with exit code {code}", code


def _found_by_mpiexec(reports: Reports, size: int, printed: str) -> tuple[str, int] | None:
    """The process that failed according to mpiexec, and the job's exit status."""
    aborted = _ABORT.search(printed)
    if aborted is not None:
        return f"rank {aborted[2]} of {size}: {aborted[0]}", int(aborted[1]) & 0xFF or 1
    pids, codes = _PID.findall(printed), _CODE.findall(printed)
    if not pids or not codes:
        return None
    pid, code = int(pids[-1]), int(codes[-1])
    rank = reports.rank_of(pid)
    who = f"rank {rank} of {size} (process {pid})" if rank is not None else f"process {pid}"
    ended_by = _SIGNAL.findall(printed)
    return _told(who, -int(ended_by[-1]) if ended_by else code)


def _unfinished(reports: Reports) -> list[int]:
    """Ranks that were connected and have not finished their programs."""
    finished = {*reports.ranks("done"), *reports.ranks("left")}
    return sorted(set(reports.ranks("started")) - finished)


def ended_early(reports: Reports, size: int) -> list[str]:
    """Sentences about ranks that ended with exit code 0 although others still needed them."""
    unfinished = _unfinished(reports)
    ends = reports.ranks("ended")
    ended = [rank for rank in unfinished if rank in ends and ends[rank]["code"] == 0]
    if not unfinished:
        return []
    others = ", ".join(map(str, unfinished))
    left = [
        f"rank {rank} of {size} ended by {said['why']} before rank {others} had finished"
        for rank, said in sorted(reports.ranks("left").items())
    ]
    return left or [
        f"rank {rank} of {size} ended with exit code 0, but before its program was done"
        for rank in ended
    ]


def _cut_off(reports: Reports, size: int) -> list[str]:
    """Sentences about ranks that mpiexec killed without saying why."""
    return [
        f"rank {rank} of {size} ended before its program was done" for rank in _unfinished(reports)
    ]


def signal_name(number: int) -> str:
    """A signal's name, with what usually causes it."""
    try:
        found = signal.Signals(number)
    except ValueError:
        return f"signal {number}"
    return f"{found.name}{_HINTS.get(found, '')}"
