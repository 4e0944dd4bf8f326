"""`tapegrad warmup`: what it compiles, what a script sees, and how it ends."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import weakref

import pytest

from tapegrad.core import acceleration
from tapegrad.demos import common_forms
from tapegrad.replay.cpu import jit
from tapegrad.replay.use import eager

pytest.importorskip("llvmlite")

ROOT = pathlib.Path(__file__).parent.parent

#: a script with a module beside it, which says how it was started
SCRIPT = """
import os
import sys
import beside
import tapegrad as tg

assert __name__ == "__main__"
print("arguments", sys.argv[1:], beside.VALUE, os.path.basename(sys.argv[0]))
f = tg.compile(lambda x: (x * 2 + 1).exp().sum(1) @ x)
for _ in range(4):
    f(tg.ones(3, 3))
"""


def warmup(
    folder: pathlib.Path, *arguments: str, cache: object = None
) -> subprocess.CompletedProcess[str]:
    """Run the command in a folder, with a cache in it if none is named."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "TAPEGRAD_CACHE": str(folder / "cache" if cache is None else cache),
    }
    command = [sys.executable, "-m", "tapegrad", "warmup", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, text=True, capture_output=True)


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "train.py").write_text(SCRIPT)
    (tmp_path / "inside" / "beside.py").write_text("VALUE = 7\n")
    return tmp_path


def test_a_script_runs_as_python_would_run_it(folder: pathlib.Path) -> None:
    done = warmup(folder, "inside/train.py", "--seconds", "3", "-x")
    assert done.returncode == 0, done.stderr
    first, compiled, where = done.stdout.splitlines()
    assert first == "arguments ['--seconds', '3', '-x'] 7 train.py"
    assert compiled.startswith("compiled ")
    assert "new kernels in " in compiled
    assert str(folder / "cache") in where
    assert "all kernels were there already" in warmup(folder, "inside/train.py").stdout


@pytest.mark.parametrize("ignored", [False, True])
def test_a_script_is_stopped_after_some_seconds(folder: pathlib.Path, ignored: bool) -> None:
    script = f"{SCRIPT}\nwhile True:\n    f(tg.ones(3, 3))\n"
    (folder / "inside" / "train.py").write_text(script)
    # A process that a shell starts in the background ignores interrupts.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.SIG_DFL)
    try:
        done = warmup(folder, "--seconds", "3", "inside/train.py")
    finally:
        signal.signal(signal.SIGINT, before)
    assert done.returncode == 0, done.stderr
    assert "stopped inside/train.py after 3 s" in done.stdout
    assert "cache: " in done.stdout


@pytest.mark.parametrize(
    ("ending", "status", "said"),
    [
        ("raise ValueError('no data')", 1, "ValueError: no data"),
        ("sys.exit(3)", 3, "ended with status 3"),
        ("sys.exit('no data')", 1, "no data"),
        ("sys.exit()", 0, ""),
    ],
)
def test_the_end_of_a_script(ending: str, status: int, said: str, folder: pathlib.Path) -> None:
    (folder / "inside" / "train.py").write_text(f"{SCRIPT}\n{ending}\n")
    done = warmup(folder, "inside/train.py")
    assert done.returncode == status
    assert said in done.stderr
    assert ("the kernels so far are kept" in done.stderr) == (status != 0)
    assert "runpy" not in done.stderr
    assert "compiled " in done.stdout
    assert "all kernels were there already" in warmup(folder, "inside/train.py").stdout


def test_wrong_arguments(folder: pathlib.Path) -> None:
    done = warmup(folder, "missing.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no such script: missing.py" in done.stderr
    done = warmup(folder, "--seconds", "5")
    assert done.returncode == 2
    assert "--seconds needs a script" in done.stderr


def test_without_a_cache_there_is_nothing_to_fill(folder: pathlib.Path) -> None:
    (folder / "file").write_text("not a folder")
    (folder / "open").mkdir()
    (folder / "open").chmod(0o777)
    for cache, said in (
        ("0", "the cache is switched off"),
        (folder / "file", "no cache folder that only you can write"),
        (folder / "open", "no cache folder that only you can write"),
    ):
        done = warmup(folder, "inside/train.py", cache=cache)
        assert (done.returncode, done.stdout) == (1, "")
        assert said in done.stderr


def test_a_folder_that_cannot_be_written(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tapegrad.replay.cpu import cache

    def refused(*args: object, **kwargs: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setenv("TAPEGRAD_CACHE", str(tmp_path / "cache"))
    assert cache.problem() is None
    monkeypatch.setattr(cache.tempfile, "mkstemp", refused)
    assert "is not writable: Read-only file system" in str(cache.problem())


@pytest.mark.parametrize("name", ["losses", "large eager operations"])
def test_common_forms_fill_the_cache(
    name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a process that has compiled nothing yet."""
    monkeypatch.setenv("TAPEGRAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(jit, "_functions", weakref.WeakValueDictionary())
    monkeypatch.setattr(acceleration, "_accelerator", eager.Native())
    common_forms.GROUPS[name]()
    assert list((tmp_path / "cache").glob("k*")), "kernels are kept"
