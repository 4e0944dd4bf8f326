"""The command line: what it prints, what it refuses, how it ends."""

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ranks import launch, needs_mpi

from tapegrad import __version__, get_num_threads, set_num_threads
from tapegrad.cli import main
from tapegrad.demos.report import Report

ROOT = Path(__file__).parent.parent


def test_info_tells_what_is_there(capsys):
    assert main(["info"]) == 0
    printed = capsys.readouterr().out
    for word in (
        __version__,
        "numpy",
        "llvmlite",
        "threads",
        "cache",
        "GPUs",
        "ranks",
        "operations on",
    ):
        assert word in printed


@needs_mpi
def test_info_of_ranks():
    command = [sys.executable, "-m", "tapegrad", "info"]
    done = launch(2, command)
    assert done.returncode == 0, done.stderr
    rows = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert rows["tapegrad"] == __version__  # one rank prints
    assert rows["ranks"].startswith("2 on 1 machine, with 1 thread each; ")
    assert "collectives in the background run " in rows["ranks"]


def test_info_without_a_cache_or_compiler(capsys, monkeypatch):
    monkeypatch.setenv("TAPEGRAD_CACHE", "0")
    monkeypatch.setenv("TAPEGRAD_COMPILE", "0")
    assert main(["info"]) == 0
    printed = capsys.readouterr().out
    assert "none (TAPEGRAD_CACHE=0" in printed
    assert "compile is off: TAPEGRAD_COMPILE=0" in printed


@pytest.mark.parametrize("arguments", [["--help"], ["demo", "--help"], ["bench", "--help"]])
def test_help(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0
    assert "usage: tapegrad" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "required"),
        (["demos"], "invalid choice"),
        (["demo", "mnist"], "invalid choice: 'mnist'"),
        (["demo", "--steps", "0"], "expected a whole number from 1 on, got '0'"),
        (["demo", "--epochs", "many"], "expected a whole number from 1 on, got 'many'"),
        (["demo", "--seed", "-1"], "expected a whole number from 0 on"),
        (["demo", "--threads", "0"], "expected a whole number from 1 on"),
        (["demo", "--steps", "1", "--epochs", "1"], "not allowed with"),
        (["demo", "gpt", "--epochs", "1"], "demo gpt has no epochs; say how many --steps"),
        (["bench", "--seconds", "x"], "expected a whole number from 1 on, got 'x'"),
    ],
)
def test_wrong_arguments(arguments, message, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_output_that_is_no_folder(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit) as ended:
        main(["demo", "--steps", "1", "--output", str(tmp_path / "file")])
    assert ended.value.code == 2
    assert "--output" in capsys.readouterr().err


def test_demo_without_a_compiler_is_eager(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("TAPEGRAD_COMPILE", "0")
    assert main(["demo", "--steps", "5", "--output", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "runs eagerly: TAPEGRAD_COMPILE=0" in printed
    assert "times as fast" not in printed


def test_threads(tmp_path):
    before = get_num_threads()
    try:
        main(["demo", "vae", "--steps", "1", "--threads", "1", "--output", str(tmp_path)])
        assert get_num_threads() == 1
    finally:
        set_num_threads(before)


def test_progress_on_a_terminal_is_a_bar():
    from rich.console import Console

    report = Report()
    report.console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with report.progress("digits", 3) as advance:
        for loss in (3.0, 2.0, 0.000152345):
            advance(loss)
    drawn = report.console.file.getvalue()
    assert "3/3" in drawn
    assert "loss 0.0001523" in drawn
    assert "nan" not in drawn  # before the first step there is no loss


@pytest.mark.skipif(sys.platform == "win32", reason="sends a signal of POSIX")
def test_an_interrupt_ends_cleanly(tmp_path):
    command = [sys.executable, "-u", "-m", "tapegrad", "demo", "vae", "--steps", "1000000"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        # Jobs in the background of a shell ignore the signal, and so would what they start.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:  # fmt: skip
        assert "demo vae" in process.stdout.readline()
        process.stdout.readline()
        time.sleep(0.3)  # somewhere among the steps
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert errors.strip() == "interrupted"
    assert not list(tmp_path.iterdir())
