"""`tapegrad launch`: runs a program in many ranks, and says which rank failed and why.

Comes in: the options of the command line. mpiexec runs `starter.py` in every rank, which runs
the program. Ranks write reports to a folder; `outcome.py` reads them when the job has ended. Goes
out: the exit status. Called by `cli.py`.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, NamedTuple

from .job import shared_memory
from .outcome import Outcome, Reports, ended_early, judge

#: seconds after Ctrl-C until ranks that have not ended are killed
GRACE = 5.0
#: seconds until ranks are killed after one has ended that they may wait for: one that never called
#: init_process_group, or whose program was not done
PATIENCE = 3.0
#: bytes at the end of the output that are searched for messages of mpiexec
TAIL = 1 << 16

#: PR_SET_PDEATHSIG of Linux
_DEATH_SIGNAL = 1

MISSING = (
    "tapegrad launch needs mpiexec and mpi4py: install them with `pip install 'tapegrad[mpi]'`"
)


class Launch(NamedTuple):
    """A job: a command in `size` ranks, restarted up to `restarts` times if it fails."""

    command: list[str]
    size: int
    restarts: int = 0
    #: number of ranks after a restart; None: the same
    size_on_restart: int | None = None
    #: the default timeout of collectives in seconds; None: that of `init_process_group`
    timeout: float | None = None


def command_of(program: Sequence[str], is_module: bool = False) -> list[str]:
    """The command that starts the program, with Python inserted before a file like `train.py`."""
    words = list(program)
    if words[:1] == ["--"]:
        del words[0]
    if is_module:
        return [sys.executable, "-m", *words]
    if words and words[0] in ("python", "python3"):
        words[0] = sys.executable
    elif words and words[0].endswith(".py"):
        words.insert(0, sys.executable)
    return words


def find_mpiexec() -> str | None:
    """The mpiexec next to the running Python, or else the one on the PATH."""
    beside = str(Path(sys.executable).parent)
    return shutil.which("mpiexec", path=os.pathsep.join([beside, os.environ.get("PATH", "")]))


def run(launch: Launch) -> int:
    """Run a job, and restart it if it fails; returns the exit status."""
    mpiexec = find_mpiexec()
    if mpiexec is None or find_spec("mpi4py") is None:
        print(MISSING, file=sys.stderr)
        return 2
    size = launch.size
    for attempt in range(launch.restarts + 1):
        outcome = _attempt(launch, mpiexec, size, attempt)
        for failure in outcome.failures:
            _say(failure)
        if outcome.status == 0 or outcome.status == 130:
            return outcome.status
        if attempt < launch.restarts:
            size = launch.size_on_restart or size
            _say(f"starting again with {size} ranks (restart {attempt + 1} of {launch.restarts})")
    return outcome.status


def _say(text: str) -> None:
    print(f"tapegrad launch: {text}", file=sys.stderr, flush=True)


def _attempt(launch: Launch, mpiexec: str, size: int, attempt: int) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="tapegrad-launch-") as folder:
        command = [mpiexec, "-n", str(size), sys.executable, _starter(), *launch.command]
        running = _Running(command, _environment(launch, folder, attempt), Path(folder))
        returned = running.wait()
        if running.is_interrupted:
            return Outcome(130, ["interrupted"])
        reports = Reports(Path(folder))
        if running.ended_because:
            return Outcome(1, [running.ended_because])
        return judge(reports, size, returned, running.printed())


def _starter() -> str:
    return str(Path(__file__).with_name("starter.py"))


def _environment(launch: Launch, folder: str, attempt: int) -> dict[str, str]:
    """The environment of all ranks; `starter.py` adds the variables that differ."""
    environment = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        **os.environ,
        "TAPEGRAD_LAUNCH_FOLDER": folder,
        "TAPEGRAD_RESTART": str(attempt),
    }
    if launch.timeout is not None:
        environment["TAPEGRAD_TIMEOUT"] = f"{launch.timeout:g}"
    return environment


class _Running:
    """A running mpiexec: passes its output on, and keeps the end of it."""

    def __init__(self, command: list[str], environment: dict[str, str], folder: Path) -> None:
        self.folder = folder
        self.is_interrupted = False
        self.ended_because = ""
        self._tail = bytearray()
        self._deadline = 0.0
        self._is_ending = False
        self._memory: set[str] = set()
        # mpiexec has a process group of its own: Ctrl-C reaches only the launcher, which then
        # ends the ranks.
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            # a background process group must not read from a terminal
            stdin=subprocess.DEVNULL if sys.stdin is not None and sys.stdin.isatty() else None,
            process_group=0,
            preexec_fn=_end_with_launcher if sys.platform == "linux" else None,
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._pipes = (self.process.stdout, self.process.stderr)
        self._readers = [
            threading.Thread(target=self._pass_on, args=pair, daemon=True)
            for pair in zip(self._pipes, (sys.stdout, sys.stderr), strict=True)
        ]
        for reader in self._readers:
            reader.start()

    def _pass_on(self, output: IO[bytes], shown: Any) -> None:
        while data := os.read(output.fileno(), 1 << 16):
            self._tail = (self._tail + data)[-TAIL:]
            with suppress(OSError, ValueError):  # the reader is gone; ranks must not block
                os.write(shown.fileno(), data)

    def printed(self) -> str:
        """The end of the output of mpiexec and the ranks."""
        return self._tail.decode(errors="replace")

    def wait(self) -> int:
        """Wait until the job has ended; Ctrl-C and SIGTERM end it. Returns mpiexec's status."""
        before = signal.signal(signal.SIGTERM, _interrupt)
        try:
            while True:
                try:
                    returned = self.process.wait(0.2)
                    break
                except subprocess.TimeoutExpired:
                    self._look()
                except KeyboardInterrupt:
                    self.is_interrupted = True
                    self._end()
        except BaseException:
            self._kill()
            raise
        finally:
            signal.signal(signal.SIGTERM, before)
        for reader, pipe in zip(self._readers, self._pipes, strict=True):
            reader.join(2.0)  # a process that outlives its rank may hold the pipe
            if not reader.is_alive():
                pipe.close()
        self._remove_memory()
        return returned

    def _look(self) -> None:
        now = time.monotonic()
        if self.is_interrupted:
            if now > self._deadline:
                self._kill()
            return
        because = self._missed(Reports(self.folder))
        if not because:
            self._deadline = now + PATIENCE
        elif now > self._deadline:
            self.ended_because = because
            self._kill()

    def _missed(self, reports: Reports) -> str:
        """A message about a rank that has ended and that others may wait for; empty if none."""
        launched = reports.ranks("launched")
        connecting = set(reports.ranks("connecting")) - set(reports.ranks("started"))
        never = [
            rank
            for rank, said in launched.items()
            if rank not in reports.ranks("connecting") and not _is_alive(said["pid"])
        ]
        if connecting and never:
            shown = ", ".join(map(str, sorted(connecting)))
            return (
                f"rank {min(never)} of {len(launched)} ended without calling init_process_group, "
                f"where rank {shown} waits for it"
            )
        # mpiexec then ends the others, but does not always notice
        return "; ".join(ended_early(reports, len(launched)))

    def _end(self) -> None:
        """Send SIGINT to mpiexec, as Ctrl-C does; the second time, kill all ranks."""
        if self._is_ending:
            self._kill()
            return
        self._is_ending = True
        self._deadline = time.monotonic() + GRACE
        self.process.send_signal(signal.SIGINT)

    def _kill(self) -> None:
        """Kill the ranks and mpiexec."""
        for said in Reports(self.folder).ranks("launched").values():
            if _is_alive(said["pid"]):
                self._memory.update(shared_memory(said["pid"]))
                os.kill(said["pid"], signal.SIGKILL)
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(2.0)
            except subprocess.TimeoutExpired:
                self.process.kill()

    def _remove_memory(self) -> None:
        """Remove files of shared memory that ranks have made and could not remove."""
        for said in Reports(self.folder).ranks("started").values():
            self._memory.update(said.get("shared", ()))
        for path in self._memory:
            with suppress(OSError):  # already removed, as it should be
                if os.stat(path).st_uid == os.getuid():
                    os.unlink(path)


def _end_with_launcher() -> None:
    """In the child, before it becomes mpiexec: end when the launcher is killed."""
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGTERM)


def _interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


def _is_alive(pid: int) -> bool:
    """Whether a process of this machine is running; False for zombies."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"
