"""Starting ranks, and how they end: `tapegrad launch`, plain mpiexec, and what is left behind."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ranks import HERE, MPIEXEC, alone, environment, needs_mpi

from tapegrad.cli import main
from tapegrad.distributed import launch as launching
from tapegrad.distributed.outcome import Reports, judge

PROGRAM = str(HERE / "distributed" / "endings.py")


def run(command):
    """Run a command when no other job runs; returns how it ended and how many seconds it took."""
    with alone():
        began = time.monotonic()
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=60,
            env=environment(),
            cwd=HERE,
            check=False,
        )
        return done, time.monotonic() - began


@pytest.fixture
def launched(monkeypatch, capfd):
    """Runs the program as `tapegrad launch` does; returns the status and what was printed."""
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(HERE)
    monkeypatch.setattr(launching, "PATIENCE", 0.5)

    def launched(*arguments, **options):
        command = launching.command_of([PROGRAM, *arguments])
        with alone():
            began = time.monotonic()
            status = launching.run(launching.Launch(command, 2, **options))
            assert time.monotonic() - began < 30  # about 2 without other load
        return status, *capfd.readouterr()

    return launched


def started(*arguments):
    """Run the program with mpiexec."""
    return run([MPIEXEC, "-n", "2", sys.executable, PROGRAM, *arguments])


# -- ends of ranks -------------------------------------------------------------------------------

EXITS = {
    "error": (1, "ValueError: boom at"),
    "thread": (1, "ValueError: boom at"),
    "exit": (3, "sys.exit(3) at"),
    "unwind": (3, "sys.exit(3) at"),
    "SystemExit": (5, "SystemExit(5) at"),
    "exit()": (6, "SystemExit(6) at"),
    "deep exit": (7, "SystemExit(7) at"),
    "exit with words": (1, "SystemExit('words') at"),
}


@needs_mpi
def test_what_python_ends_a_rank_with():
    """Without MPI: which ends are noticed, with which status and line."""
    names = [*EXITS, "return", "caught", "caught SystemExit", "_exit 4"]
    done, _ = run([sys.executable, PROGRAM, "exits", *names])
    assert done.returncode == 0, done.stdout + done.stderr
    found = dict(part.split("\n", 1) for part in done.stdout.split("## ")[1:])
    for name, (status, words) in EXITS.items():
        assert f"tapegrad: rank 1 of 2: {words}" in found[name], found[name]
        assert "endings.py:" in found[name]
        assert found[name].endswith(f"status {100 + status}\n")
    assert "unwound" in found["unwind"]
    assert "unwound" in found["deep exit"]
    assert found["exit with words"].count("words\n") == 1
    for name in ("return", "caught", "caught SystemExit"):
        assert found[name].endswith("status 0\n"), found[name]
    assert "caught SystemExit 3" in found["caught"]
    assert "caught all" in found["caught SystemExit"]
    assert found["_exit 4"] == "status 4\n"


@needs_mpi
@pytest.mark.parametrize(
    ("name", "status", "words"),
    [
        ("thread", 1, "rank 1 of 2: ValueError: boom at"),
        ("unwind", 3, "rank 1 of 2: sys.exit(3) at"),
        ("SystemExit", 5, "rank 1 of 2: SystemExit(5) at"),
        ("kill", 9, ""),
        ("interrupt", 130, "rank 1 of 2: interrupted while it waited in receive of world at"),
    ],
)
def test_the_end_of_one_rank_ends_all(name, status, words):
    done, seconds = started(name)
    assert done.returncode == status, done.stdout + done.stderr
    assert words in done.stderr
    assert "were here" not in done.stdout
    if words:
        assert "endings.py:" in done.stderr
    assert seconds < 30  # about 1 without other load


@needs_mpi
def test_ranks_that_never_connect():
    done, _ = started("does not connect", "1")
    assert done.returncode != 0
    assert "Timeout" in done.stderr
    assert "in init_process_group" in done.stderr


@needs_mpi
def test_what_does_not_end_a_job():
    """Exits that are caught, children, and workers of loaders."""
    done, _ = started("no end")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("2 ranks were here") == 2
    for words in ("caught SystemExit 3", "caught all", "loaded by fork", "loaded by spawn"):
        assert done.stdout.count(words) == 2


def test_a_process_that_is_no_rank(monkeypatch):
    import tapegrad.distributed as dist
    from tapegrad.data import DistributedSampler

    for name in dist.job.RANK_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(RuntimeError, match=r"`tapegrad launch -n 4 train\.py`, or with `mpiexec"):
        dist.init_process_group("mpi")
    assert not dist.is_initialized()
    with pytest.raises(RuntimeError, match="init_process_group"):
        DistributedSampler([1, 2, 3])


# -- the launcher --------------------------------------------------------------------------------


@needs_mpi
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_lines_arrive_whole_and_at_once(tmp_path, unbuffered):
    """Also: ranks have the variables of torchrun and the program's arguments."""
    command = [sys.executable, "-m", "tapegrad", "launch", "-n", "2", PROGRAM, "lines"]
    with (
        alone(),
        subprocess.Popen(
            [*command, str(tmp_path), "--name", "x"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(PYTHONUNBUFFERED=unbuffered),
            cwd=HERE,
        ) as job,
    ):
        assert job.stdout is not None
        assert job.stderr is not None
        lines = [job.stdout.readline()]
        (tmp_path / "read").touch()
        lines += job.stdout.readlines()
        errors = job.stderr.read()
    assert (job.returncode, errors) == (0, "")
    given = [str(tmp_path), "--name", "x"]
    for rank in range(2):
        lines.remove(f"{rank} 2 {rank} 2 127.0.0.1 {given}\n")
    expected = [f"{rank} counts {i}\n" for rank in range(2) for i in range(300)]
    expected += ["the first line\n", "2 ranks were here\n"] * 2
    assert sorted(lines) == sorted(expected)


@needs_mpi
@pytest.mark.parametrize(
    ("name", "status", "words"),
    [
        ("error", 1, "tapegrad launch: rank 1 of 2 failed: ValueError: boom at "),
        ("exit()", 6, "tapegrad launch: rank 1 of 2 failed: SystemExit(6) at "),
        ("kill", 137, ") was killed by SIGKILL"),
        ("_exit 0", 1, "rank 1 of 2 ended by os._exit(0) at "),
        ("native exit", 1, "rank 1 of 2 ended with exit code 0, but before its program"),
        ("_exit 4", 4, "tapegrad launch: rank 1 of 2 failed: os._exit(4) at "),
        ("does not connect", 1, "rank 1 of 2 ended without calling init_process_group"),
    ],
)
def test_launch_says_which_rank_failed(launched, name, status, words):
    returned, out, error = launched(name)
    assert returned == status, out + error
    assert words in error
    assert "rank 1 of 2" in error


@needs_mpi
def test_restarts(launched):
    status, out, error = launched("restart", restarts=2, size_on_restart=3)
    assert status == 0, error
    assert "was killed by SIGKILL" in error
    assert "starting again with 3 ranks (restart 1 of 2)" in error
    assert out.count("3 ranks were here") == 3


@needs_mpi
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_ending_the_launcher_ends_all(number):
    command = [sys.executable, "-m", "tapegrad", "launch", "-n", "2", PROGRAM, "sleep"]
    with alone():
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), cwd=HERE
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        children = wait_for(ranks)
        process.send_signal(number)
        try:
            _, error = process.communicate(timeout=20)
        finally:
            process.kill()
        assert process.returncode == (130 if number != signal.SIGKILL else -number), error
        wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children))


BLIND_MPIEXEC = """#!{python}
import os, subprocess, sys
ranks = [
    subprocess.Popen(sys.argv[3:], env={{**os.environ, "PMI_RANK": str(rank), "PMI_SIZE": "2"}})
    for rank in range(int(sys.argv[2]))
]
for rank in ranks:
    rank.wait()
"""
MISSED = """
import os, sys, time
from tapegrad.distributed.job import report
report("connecting")
report("started")
if os.environ["RANK"] == "1":
    if sys.argv[1] == "_exit":
        report("left", "os._exit(0) at here")
    os._exit(0)
time.sleep(60)
"""


@needs_mpi
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("_exit", "rank 1 of 2 ended by os._exit(0) at here before rank 0 had finished"),
        ("native", "rank 1 of 2 ended with exit code 0, but before its program was done"),
    ],
)
def test_launch_notices_an_end_that_mpiexec_misses(launched, monkeypatch, tmp_path, name, words):
    mpiexec, program = tmp_path / "mpiexec", tmp_path / "missed.py"
    mpiexec.write_text(BLIND_MPIEXEC.format(python=sys.executable))
    mpiexec.chmod(0o755)
    program.write_text(MISSED)
    monkeypatch.setattr(launching, "find_mpiexec", lambda: str(mpiexec))
    monkeypatch.setattr(sys.modules[__name__], "PROGRAM", str(program))
    status, _, error = launched(name)
    assert status == 1
    assert f"tapegrad launch: {words}\n" in error


def ranks():
    """The processes of the two ranks of the program, once both are there."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            command = (path.parent / "cmdline").read_bytes()
            if (
                PROGRAM.encode() in command
                and b"starter.py" not in command
                and b"PMI_RANK" in path.read_bytes()
            ):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found if len(found) == 2 else []


def wait_for(condition):
    deadline = time.monotonic() + 15
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def test_launch_without_mpi(monkeypatch, capsys):
    monkeypatch.setattr(launching, "find_mpiexec", lambda: None)
    assert main(["launch", "-n", "2", "train.py"]) == 2
    assert "pip install 'tapegrad[mpi]'" in capsys.readouterr().err


def test_launch_needs_a_program(capsys):
    for arguments in (["launch"], ["launch", "-n", "2", "--"], ["launch", "-m"]):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 2
        assert "which program" in capsys.readouterr().err


def test_commands():
    python = sys.executable
    assert launching.command_of(["train.py", "-n", "3"]) == [python, "train.py", "-n", "3"]
    assert launching.command_of(["--", "python", "train.py"]) == [python, "train.py"]
    assert launching.command_of(["package.train"], is_module=True) == [
        python,
        "-m",
        "package.train",
    ]
    assert launching.command_of(["./program", "x.py"]) == ["./program", "x.py"]


def test_judging_ends(tmp_path):
    outcome = judge(Reports(tmp_path), 2, 0, "")
    assert outcome == (0, [])
    outcome = judge(Reports(tmp_path), 2, 7, "")
    assert outcome == (7, ["mpiexec ended with status 7"])
    for rank in range(2):
        (tmp_path / f"started-{rank}").write_text(
            f'{{"rank": {rank}, "pid": {rank + 50}, "state": "started", "why": ""}}'
        )
    outcome = judge(Reports(tmp_path), 2, 0, "")
    assert outcome.status == 1
    assert outcome.failures[0].startswith("rank 0 of 2 ended before its program was done")
    banner = "=   PID 51 RUNNING AT here\n=   EXIT CODE: 11\n"
    outcome = judge(Reports(tmp_path), 2, 11, banner)
    assert outcome == (11, ["rank 1 of 2 (process 51) ended with exit code 11"])
    banner += "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Segmentation fault (signal 11)"
    outcome = judge(Reports(tmp_path), 2, 11, banner)
    assert outcome.status == 139
    assert "rank 1 of 2 (process 51) was killed by SIGSEGV" in outcome.failures[0]
