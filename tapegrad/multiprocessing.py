"""`tapegrad.multiprocessing`: Python's `multiprocessing`, and `spawn` of PyTorch.

Tensors are copied when they are sent to another process. Processes started here are not ranks of a
job: `tapegrad launch` and mpiexec start ranks.
"""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable
from multiprocessing import *  # noqa: F403
from multiprocessing.connection import wait
from typing import Any

__all__ = [*multiprocessing.__all__, "ProcessExitedException", "ProcessRaisedException"]
__all__ += ["SpawnContext", "spawn", "start_processes"]


class ProcessExitedException(Exception):
    """A process ended with an error, without a Python exception."""

    def __init__(self, msg: str, error_index: int, error_pid: int, exit_code: int) -> None:
        super().__init__(msg)
        self.error_index = error_index
        self.error_pid = error_pid
        self.exit_code = exit_code


class ProcessRaisedException(Exception):
    """A process has raised an exception."""

    def __init__(self, msg: str, error_index: int, error_pid: int) -> None:
        super().__init__(msg)
        self.error_index = error_index
        self.error_pid = error_pid


def _call(function: Callable[..., Any], index: int, args: tuple[Any, ...], errors: Any) -> None:
    try:
        function(index, *args)
    except KeyboardInterrupt:
        pass
    except Exception:
        errors.send(traceback.format_exc())
        raise SystemExit(1) from None


class SpawnContext:
    """The processes that `spawn` has started."""

    def __init__(self, processes: list[Any], errors: list[Any]) -> None:
        self.processes = processes
        self._errors = errors
        self._running = {process.sentinel: i for i, process in enumerate(processes)}

    def pids(self) -> list[int]:
        """The numbers of the processes."""
        return [int(process.pid) for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait until one process has ended. True if all have; raises if one has failed.

        The others are then terminated, and killed if they still run after `grace_period` seconds.
        """
        if not self._running:
            return True
        failed = None
        for sentinel in wait(list(self._running), timeout):
            index = self._running.pop(sentinel)
            self.processes[index].join()
            if failed is None and self.processes[index].exitcode:
                failed = index
        if failed is None:
            return not self._running
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.join(30 if grace_period is None else grace_period)
            if process.is_alive():
                process.kill()
                process.join()
        self._raise(failed)
        return True

    def _raise(self, index: int) -> None:
        process = self.processes[index]
        try:
            said = self._errors[index].recv()
        except EOFError:  # it ended before it could report
            said = None
        if said is not None:
            message = f"\n\nprocess {index} ended with this error:\n{said}"
            raise ProcessRaisedException(message, index, process.pid)
        raise ProcessExitedException(
            f"process {index} terminated with exit code {process.exitcode}",
            index,
            process.pid,
            process.exitcode,
        )


def start_processes(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> SpawnContext | None:
    """Call `fn(i, *args)` in `nprocs` processes; waits for them, or returns their context."""
    context: Any = multiprocessing.get_context(start_method)
    processes, errors = [], []
    for index in range(nprocs):
        reader, writer = context.Pipe(duplex=False)
        process = context.Process(target=_call, args=(fn, index, args, writer), daemon=daemon)
        process.start()
        writer.close()
        processes.append(process)
        errors.append(reader)
    started = SpawnContext(processes, errors)
    if not join:
        return started
    while not started.join():
        pass
    return None


def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> SpawnContext | None:
    """Call `fn(i, *args)` in `nprocs` new processes; waits for them, or returns their context."""
    return start_processes(fn, args, nprocs, join, daemon, start_method)
