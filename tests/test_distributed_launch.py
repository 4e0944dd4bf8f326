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


def launched(*arguments, options=()):
    """Run the program with `tapegrad launch`."""
    command = [sys.executable, "-m", "tapegrad", "launch", "-n", "2", *options, PROGRAM]
    return run([*command, *arguments])


def started(*arguments):
    """Run the program with mpiexec."""
    return run([MPIEXEC, "-n", "2", sys.executable, PROGRAM, *arguments])


# -- ends of ranks under mpiexec -----------------------------------------------------------------


@needs_mpi
@pytest.mark.parametrize(
    ("name", "status", "words"),
    [
        ("error", 1, "rank 1 of 2: ValueError: boom at"),
        ("thread", 1, "rank 1 of 2: ValueError: boom at"),
        ("exit", 3, "rank 1 of 2: sys.exit(3) at"),
        ("unwind", 3, "rank 1 of 2: sys.exit(3) at"),
        ("kill", 9, ""),
        ("interrupt", 130, "rank 1 of 2: interrupted while it waited in receive of world at"),
        ("return", 1, "waits for rank 1, which has ended its program"),
        ("SystemExit", 5, "rank 1 of 2: SystemExit(5) at"),
        ("exit()", 6, "rank 1 of 2: SystemExit(6) at"),
        ("deep exit", 7, "rank 1 of 2: SystemExit(7) at"),
        ("exit with words", 1, "words\ntapegrad: rank 1 of 2: SystemExit('words') at"),
        ("sleep", 1, "did not end within 2 s; the other ranks:\n  rank 1 waits in no collective"),
    ],
)
def test_the_end_of_one_rank_ends_all(name, status, words):
    done, seconds = started(name, "2" if name == "sleep" else "60")
    assert done.returncode == status, done.stdout + done.stderr
    assert words in done.stderr
    assert "were here" not in done.stdout
    if name in ("unwind", "deep exit"):
        assert "unwound" in done.stdout
    if words and name != "kill":
        assert "endings.py:" in done.stderr
    assert seconds < 30  # a few without other load


@needs_mpi
def test_ranks_that_never_connect():
    done, _ = started("does not connect", "2")
    assert done.returncode != 0
    assert "Timeout" in done.stderr
    assert "in init_process_group" in done.stderr


@needs_mpi
def test_what_does_not_end_a_job():
    for name in ("caught", "caught SystemExit", "fork"):
        done, _ = started(name)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("2 ranks were here") == 2
        assert ("caught SystemExit 3" in done.stdout) == (name == "caught")


@needs_mpi
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_data_workers_of_ranks(method):
    done, _ = started(f"{method} loader")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"loaded by {method}") == 2


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
def test_launch_sets_the_variables_of_torchrun():
    done, _ = launched("variables", "--name", "x")
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        assert f"{rank} 2 {rank} 2 127.0.0.1 ['--name', 'x']" in done.stdout
    assert done.stderr == ""


@needs_mpi
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_lines_arrive_whole_and_at_once(tmp_path, unbuffered):
    command = [sys.executable, "-m", "tapegrad", "launch", "-n", "2", PROGRAM, "lines"]
    with (
        alone(),
        subprocess.Popen(
            [*command, str(tmp_path)],
            stdout=subprocess.PIPE,
            text=True,
            env=environment(PYTHONUNBUFFERED=unbuffered),
            cwd=HERE,
        ) as job,
    ):
        assert job.stdout is not None
        lines = [job.stdout.readline()]
        (tmp_path / "read").touch()
        lines += job.stdout.readlines()
    assert job.returncode == 0
    expected = [f"{rank} counts {i}\n" for rank in range(2) for i in range(300)]
    expected += ["the first line\n", "2 ranks were here\n"] * 2
    assert sorted(lines) == sorted(expected)


@needs_mpi
@pytest.mark.parametrize(
    ("name", "status", "words"),
    [
        ("error", 1, "tapegrad launch: rank 1 of 2 failed: ValueError: boom at "),
        ("kill", 137, ") was killed by SIGKILL"),
        ("_exit 0", 1, "rank 1 of 2 ended by os._exit(0) at "),
        ("native exit", 1, "rank 1 of 2 ended with exit code 0, but before its program"),
        ("_exit 4", 4, "tapegrad launch: rank 1 of 2 failed: os._exit(4) at "),
        ("does not connect", 1, "rank 1 of 2 ended without calling init_process_group"),
    ],
)
def test_launch_says_which_rank_failed(name, status, words):
    done, seconds = launched(name)
    assert done.returncode == status, done.stdout + done.stderr
    assert words in done.stderr
    assert "rank 1 of 2" in done.stderr
    assert seconds < 30  # a few without other load


@needs_mpi
def test_restarts():
    options = ("--restarts", "2", "--ranks-on-restart", "3")
    done, _ = launched("restart", options=options)
    assert done.returncode == 0, done.stderr
    assert "was killed by SIGKILL" in done.stderr
    assert "starting again with 3 ranks (restart 1 of 2)" in done.stderr
    assert done.stdout.count("3 ranks were here") == 3


@needs_mpi
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_ending_the_launcher_ends_all(number):
    command = [sys.executable, "-m", "tapegrad", "launch", "-n", "2", PROGRAM, "sleep"]
    with alone():
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), cwd=HERE
        )
        children = wait_for(ranks)
        time.sleep(1.0)  # until they are connected, or nearly so
        process.send_signal(number)
        try:
            _, error = process.communicate(timeout=20)
        finally:
            process.kill()
        assert process.returncode == (130 if number != signal.SIGKILL else -number), error
        wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children))


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
