"""Object code on disk: who uses it, what is not believed, and what a bad disk may not break."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tapegrad.replay import cache, native

pytest.importorskip("llvmlite")

ROOT = pathlib.Path(__file__).parent.parent

#: compiles a function and says how many kernels were compiled, and the sum of its results
PROGRAM = """
import tapegrad as tg
from tapegrad.replay import native
plain, compiled = native._object_of, []
native._object_of = lambda text: compiled.append(text) or plain(text)
f = tg.compile(lambda x: (x * 2 + 1).exp().sum(1) @ x)
x = tg.arange(12.0).reshape(4, 3)[:3] / 10
for _ in range(4):
    total = f(x).sum().item()
print(len(compiled), total)
"""

TEXT = "define i64 @NAME() {{\n  ret i64 {}\n}}"


def started(folder: object) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TAPEGRAD_CACHE": str(folder)}
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM], env=environment, text=True, stdout=subprocess.PIPE
    )


def finished(process: subprocess.Popen[str]) -> tuple[int, str]:
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    count, total = out.split()
    return int(count), total


@pytest.fixture
def place(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """An empty folder that is the cache."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("TAPEGRAD_CACHE", str(folder))
    return folder


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that are compiled from now on."""
    texts: list[str] = []
    plain = native._object_of

    def counted(text: str) -> bytes:
        texts.append(text)
        return plain(text)

    monkeypatch.setattr(native, "_object_of", counted)
    return texts


def called(number: int) -> int:
    """Compile a function that returns a number, in memory that is gone afterwards, and call it."""
    import ctypes

    (function,) = native.functions([TEXT.format(number)]).values()
    answer: int = ctypes.CFUNCTYPE(ctypes.c_int64)(function.address)()
    return answer


def names(folder: pathlib.Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# -- processes -----------------------------------------------------------------------------------


def test_a_second_process_compiles_nothing(tmp_path: pathlib.Path) -> None:
    first = finished(started(tmp_path / "cache"))
    second = finished(started(tmp_path / "cache"))
    assert first[0] > 0
    assert second == (0, first[1])
    assert all(cache.OWN.fullmatch(name) for name in names(tmp_path / "cache"))


def test_processes_that_write_the_same_kernels_at_once(tmp_path: pathlib.Path) -> None:
    together = [started(tmp_path / "cache") for _ in range(4)]
    totals = {finished(process)[1] for process in together}
    assert len(totals) == 1
    assert finished(started(tmp_path / "cache")) == (0, *totals)
    assert not [name for name in names(tmp_path / "cache") if name.endswith(cache.UNFINISHED)]


def test_without_a_cache_every_process_compiles(tmp_path: pathlib.Path) -> None:
    assert finished(started(0))[0] > 0
    assert finished(started(0))[0] > 0


# -- files ---------------------------------------------------------------------------------------


def _flip(data: bytes) -> bytes:
    return data[:-5] + bytes([data[-5] ^ 1]) + data[-4:]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:10],
        lambda data: data[: cache.CHECKSUM],
        lambda data: data[:-1],
        lambda data: data + b"\0",
        lambda data: bytes([data[0] ^ 128]) + data[1:],
        _flip,
        lambda data: b"x" * len(data),
    ],
    ids=["empty", "short", "no code", "truncated", "longer", "checksum", "flipped", "other"],
)
def test_a_damaged_file_is_ignored_and_replaced(
    damage: Callable[[bytes], bytes], place: pathlib.Path, compiled: list[str]
) -> None:
    assert called(11) == 11
    (file,) = place.iterdir()
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    assert called(11) == 11
    assert len(compiled) == 2
    assert file.read_bytes() == whole
    assert called(11) == 11
    assert len(compiled) == 2


def test_a_folder_in_the_place_of_a_file_is_left_alone(
    place: pathlib.Path, compiled: list[str]
) -> None:
    assert called(12) == 12
    (file,) = place.iterdir()
    file.unlink()
    file.mkdir()
    assert called(12) == 12
    assert names(place) == [file.name]


def test_files_belong_to_the_user_alone(place: pathlib.Path) -> None:
    assert called(13) == 13
    (file,) = place.iterdir()
    assert place.stat().st_mode & 0o077 == 0
    assert file.stat().st_mode & 0o077 == 0


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs users")
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o722])
def test_a_folder_that_others_can_write_is_not_used(
    mode: int, place: pathlib.Path, compiled: list[str]
) -> None:
    place.mkdir()
    place.chmod(mode)
    assert called(14) == 14
    assert cache.folder() is None
    assert names(place) == []


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs users")
def test_a_folder_of_another_user_is_not_used(
    place: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.mkdir(mode=0o700)
    mine = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: mine + 1)
    assert cache.folder() is None
    assert called(15) == 15
    assert names(place) == []


def test_a_folder_that_cannot_be_made(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("TAPEGRAD_CACHE", str(tmp_path / "file" / "cache"))
    assert called(16) == 16
    assert cache.folder() is None


def test_a_read_only_disk(place: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: Any, **kwargs: Any) -> Any:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(cache.tempfile, "mkstemp", refused)
    assert called(17) == 17
    assert names(place) == []


def test_a_full_disk_leaves_nothing_behind(
    place: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = os.fdopen

    class Full:
        def __init__(self, handle: int, mode: str) -> None:
            self.file = plain(handle, mode)

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *error: object) -> None:
            self.file.close()

        def write(self, data: bytes) -> None:
            self.file.write(data[:10])
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache.os, "fdopen", Full)
    assert called(18) == 18
    assert names(place) == []


def test_zero_keeps_nothing(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TAPEGRAD_CACHE", "0")
    assert cache.folder() is None
    assert called(19) == 19
    assert names(tmp_path) == []


def test_a_relative_folder_stays_where_it_was(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TAPEGRAD_CACHE", "here-and-nowhere-else")
    first = cache.folder()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert cache.folder() == first == tmp_path / "here-and-nowhere-else"


# -- pruning -------------------------------------------------------------------------------------


def test_the_oldest_half_goes_and_files_of_others_stay(
    place: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.mkdir(mode=0o700)
    own = [f"k{i:064x}" for i in range(10)]
    for age, name in enumerate(own):
        (place / name).write_bytes(b"code")
        os.utime(place / name, (age, age))
    (place / "letters").mkdir()
    (place / "thesis.tex").write_text("do not delete")
    os.utime(place / "thesis.tex", (0, 0))
    monkeypatch.setattr(cache, "MOST_FILES", 10)
    cache._folder.cache_clear()
    assert cache.folder() == place
    assert len(names(place)) == 12
    monkeypatch.setattr(cache, "MOST_FILES", 9)
    cache._folder.cache_clear()
    assert cache.folder() == place
    assert names(place) == [*own[5:], "letters", "thesis.tex"]


def test_a_file_that_another_process_removes_first(
    place: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.mkdir(mode=0o700)
    for i in range(4):
        (place / f"k{i:064x}").write_bytes(b"code")
    plain = os.scandir

    def late(folder: Any) -> Any:
        entries = list(plain(folder))
        entries[0].stat()
        for path in place.iterdir():
            path.unlink()
        return iter(entries)

    monkeypatch.setattr(cache, "MOST_FILES", 2)
    monkeypatch.setattr(cache.os, "scandir", late)
    cache._folder.cache_clear()
    assert cache.folder() == place
