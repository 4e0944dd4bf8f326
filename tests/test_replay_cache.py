"""Object code on disk: who uses it, what is not believed, and what a bad disk may not break."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.core.primitive import PRIMITIVES, Primitive, define
from tapegrad.replay.cpu import budget, cache, jit, progress, stored, tuning, vectors
from tapegrad.replay.ir.program import Program
from tapegrad.replay.native.plan import Plan

pytest.importorskip("llvmlite")

ROOT = pathlib.Path(__file__).parent.parent

#: compiles a function and says how many kernels were compiled and how many programs went through
#: the passes, and the sum of its results
PROGRAM = """
import tapegrad as tg
from tapegrad.replay.cpu import jit
from tapegrad.replay.cpu import budget
plain, compiled = jit._object_of, []
jit._object_of = lambda text: compiled.append(text) or plain(text)
planned = budget.planned
budget.planned = lambda program, *more: compiled.append(program) or planned(program, *more)
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
    plain = jit._object_of

    def counted(text: str) -> bytes:
        texts.append(text)
        return plain(text)

    monkeypatch.setattr(jit, "_object_of", counted)
    return texts


def called(number: int) -> int:
    """Compile a function that returns a number, in memory that is gone afterwards, and call it."""
    import ctypes

    (function,) = jit.functions([TEXT.format(number)]).values()
    answer: int = ctypes.CFUNCTYPE(ctypes.c_int64)(function.address)()
    gone = weakref.ref(function)
    del function
    end = time.monotonic() + 10
    while gone() is not None and time.monotonic() < end:
        time.sleep(0.001)  # the thread that compiled it may not have forgotten it yet
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


# -- whole programs ------------------------------------------------------------------------------


def step(x: tg.Tensor, index: tg.Tensor) -> tg.Tensor:
    table = tg.tensor([1.0, 2.0, 3.0]) * 2
    return (x * 2 + 1).exp().sum(1) @ x + table[index]


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[Program]:
    """The programs that go through the passes from now on."""
    programs: list[Program] = []
    plain = budget.planned

    def counted(program: Program, *more: Any) -> Plan:
        programs.append(program)
        return plain(program, *more)

    monkeypatch.setattr(budget, "planned", counted)
    return programs


def replayed(function: Callable[..., Any] = step, **options: Any) -> tuple[Any, Any]:
    """A compiled function after its first replay, and what that gave."""
    compiled = tg.compile(function, **options)
    x, index = tg.arange(12.0).reshape(4, 3)[:3] / 10, tg.tensor([0, 2, 1])
    for _ in range(3):
        result = compiled(x, index)
    return compiled, result.numpy()


def program_file(folder: pathlib.Path) -> pathlib.Path:
    (found,) = folder.glob("p*")
    return found


def test_a_stored_program_is_not_passed_again(place: pathlib.Path, passes: list[Program]) -> None:
    _, first = replayed()
    assert len(passes) == 1
    _, second = replayed()
    assert len(passes) == 1
    assert first.tobytes() == second.tobytes()


def test_what_became_of_a_stored_program_can_still_be_asked(
    place: pathlib.Path, passes: list[Program]
) -> None:
    first, _ = replayed()
    second, _ = replayed()
    assert len(passes) == 1
    texts = [f.explain(code="assembly").splitlines() for f in (first, second)]
    times = [[line for line in text if "compiled in" not in line] for text in texts]
    assert times[0] == times[1]
    assert len(passes) == 2


@pytest.mark.parametrize("at", [0, 20, 33, 45, 100, -400, -100, -1])
def test_a_flipped_byte_of_a_program_is_noticed(
    at: int, place: pathlib.Path, passes: list[Program]
) -> None:
    _, first = replayed()
    file = program_file(place)
    whole = file.read_bytes()
    file.write_bytes(b"".join(bytes([b ^ (i == at % len(whole))]) for i, b in enumerate(whole)))
    _, second = replayed()
    assert len(passes) == 2
    assert first.tobytes() == second.tobytes()
    assert file.read_bytes() == whole


@pytest.mark.parametrize("length", [0, 10, cache.CHECKSUM, cache.CHECKSUM + 4, 200, -1])
def test_a_truncated_program_is_noticed(
    length: int, place: pathlib.Path, passes: list[Program]
) -> None:
    _, first = replayed()
    file = program_file(place)
    whole = file.read_bytes()
    file.write_bytes(whole[:length])
    _, second = replayed()
    assert len(passes) == 2
    assert first.tobytes() == second.tobytes()
    assert file.read_bytes() == whole


@pytest.mark.parametrize(
    "change",
    [
        lambda content: b"",
        lambda content: content[:-8],
        lambda content: content + b"\0",
        lambda content: content.replace(b'"name": "p', b'"name": "q'),
        lambda content: (2).to_bytes(8, "little") + b"[]",
        lambda content: (2).to_bytes(8, "little") + b"{}",
    ],
    ids=["empty", "shorter", "longer", "another name", "a list", "nothing in it"],
)
def test_a_program_that_something_else_has_written_is_not_believed(
    change: Callable[[bytes], bytes], place: pathlib.Path, passes: list[Program]
) -> None:
    _, first = replayed()
    file = program_file(place)
    whole = file.read_bytes()
    cache.store(file.name, change(whole[cache.CHECKSUM :]))
    _, second = replayed()
    assert len(passes) == 2
    assert first.tobytes() == second.tobytes()
    assert file.read_bytes() == whole


def test_a_program_whose_kernel_is_gone_is_made_anew(
    place: pathlib.Path, passes: list[Program], compiled: list[str]
) -> None:
    _, first = replayed()
    for file in place.glob("k*"):
        file.unlink()
    jit._functions.clear()
    count = len(compiled)
    _, second = replayed()
    assert len(passes) == 2
    assert len(compiled) > count
    assert first.tobytes() == second.tobytes()


def test_an_error_in_a_stored_program_names_its_line(
    place: pathlib.Path, passes: list[Program]
) -> None:
    for _ in range(2):
        compiled, result = replayed()
        executable = compiled.replays[0].executable
        arrays = np.ones((3, 3), np.float32), np.array([0, 3, 1]), np.empty_like(result)
        with pytest.raises(IndexError, match=r"in step: return .* table\[index\]"):
            executable.run(arrays)
        assert len(passes) == 1


def test_a_stored_program_runs_with_another_number_of_threads(
    place: pathlib.Path, passes: list[Program]
) -> None:
    x = tg.tensor(np.random.default_rng(0).standard_normal((600, 500)))
    results = []
    threads = tg.get_num_threads()
    try:
        for _ in range(2):
            function = tg.compile(lambda x: (x.sin() * 2).sum(1) + 1)
            for count in (2, 2, 2, 1, 3, 2):
                tg.set_num_threads(count)
                results.append(function(x).numpy())
    finally:
        tg.set_num_threads(threads)
    assert len(passes) == 2  # once to make it, and once more for other numbers of threads
    np.testing.assert_allclose(results, [results[0]] * len(results), rtol=1e-12)


def recorded(function: Callable[..., Any], *inputs: tg.Tensor) -> Program:
    compiled = tg.compile(function)
    for _ in range(2):
        compiled(*inputs)
    program: Program = compiled.replays[0].program
    return program


def test_what_decides_about_a_program_is_in_its_name(
    place: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = tg.arange(6.0).reshape(2, 3)
    constant = np.arange(10_000.0, dtype=np.float32)
    other = constant.copy()
    other[5000] += 1
    programs = [
        recorded(lambda x: x * 2, x),
        recorded(lambda x: x * 2.5, x),
        recorded(lambda x: x * 2, x.double()),
        recorded(lambda x: x * 2, tg.arange(6.0).reshape(3, 2)),
        recorded(lambda x: x * 2, tg.arange(6.0).reshape(3, 2).t()),
        recorded(lambda x: 2 - x, x),
        recorded(lambda x: x.sum(0), x),
        recorded(lambda x: x.sum(1), x),
        recorded(lambda x: x.sum() + tg.tensor(constant), x),
        recorded(lambda x: x.sum() + tg.tensor(other), x),
        recorded(lambda x: x.add_(2), x),
    ]
    names = [stored.name_of(program, False, 2) for program in programs]
    names += [stored.name_of(programs[0], False, 1), stored.name_of(programs[0], True, 2)]
    monkeypatch.setenv("TAPEGRAD_WITHOUT", "fuse")
    names.append(stored.name_of(programs[0], False, 2))
    monkeypatch.delenv("TAPEGRAD_WITHOUT")
    with monkeypatch.context() as patch:
        other_processor = not vectors.multiplies_bfloat16()
        patch.setattr(vectors, "multiplies_bfloat16", lambda: other_processor)
        names.append(stored.name_of(programs[0], False, 2))
    monkeypatch.setattr(stored, "_circumstances", lambda: "another version")
    names.append(stored.name_of(programs[0], False, 2))
    assert None not in names
    assert len(set(names)) == len(names)
    monkeypatch.undo()
    monkeypatch.setenv("TAPEGRAD_CACHE", str(place))
    assert stored.name_of(recorded(lambda x: x * 2, x + 1), False, 2) == names[0]


def test_programs_with_operations_of_users_are_not_stored(place: pathlib.Path) -> None:
    program = recorded(lambda x: x * 2, tg.arange(6.0))
    (apply,) = program.applied()
    known, kernel = apply.primitive, lambda x, y: x * y
    unnamed = Primitive("mul", known.kernel, known.kind, known.inputs, expression="x * y")
    theirs = define("mul_of_users", kernel, kind=known.kind, expression="x * y")
    try:
        for primitive, storable in ((known, True), (unnamed, False), (theirs, False)):
            changed = program.with_instructions([replace(apply, primitive=primitive)])
            assert (stored.name_of(changed, False, 1) is not None) == storable
    finally:
        del PRIMITIVES["mul_of_users"]


# -- what takes long -----------------------------------------------------------------------------


class Clock:
    """A clock on which every look takes some seconds."""

    def __init__(self, tick: float) -> None:
        self.tick, self.now = tick, 0.0

    def __call__(self) -> float:
        self.now += self.tick
        return self.now


def test_what_takes_long_says_what_it_does_once_for_each_stage(
    place: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _ = tg.ones(300, 1000) * 2  # what all programs need is there
    monkeypatch.setattr(jit, "_functions", weakref.WeakValueDictionary())
    monkeypatch.delenv("TAPEGRAD_QUIET")
    monkeypatch.setattr(progress, "clock", Clock(0.5))
    replayed()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    patterns = [r"passes over \d+ operations … \d+\.\d s", r"\d+ kernels, \d+ cached … \d+\.\d s"]
    for line, pattern in zip(lines, patterns, strict=True):
        assert re.fullmatch(f"tapegrad: compiling step: {pattern}", line)


def test_what_is_quick_says_nothing(
    place: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TAPEGRAD_QUIET")
    monkeypatch.setattr(progress, "clock", Clock(0.01))
    replayed()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("there", [True, False])
def test_nobody_is_told_who_does_not_want_to_know(
    there: bool,
    place: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(progress, "clock", Clock(0.5))
    monkeypatch.setenv("TAPEGRAD_QUIET", "1" if there else "0")
    if not there:
        monkeypatch.setattr(sys, "stderr", None)
    replayed()
    assert capsys.readouterr().err == ""


# -- pruning -------------------------------------------------------------------------------------


def test_the_oldest_go_and_files_of_others_stay(
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
    monkeypatch.setattr(tuning, "MAX_CACHE_FILES", 10)
    monkeypatch.setattr(tuning, "CACHE_FILES_PRUNED_AT_ONCE", 3)
    cache.prune(place)
    assert len(names(place)) == 12
    monkeypatch.setattr(tuning, "MAX_CACHE_FILES", 9)
    cache.prune(place)
    assert names(place) == [*own[3:], "letters", "thesis.tex"]


def test_storing_keeps_the_number_of_files_small(
    place: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "MAX_CACHE_FILES", 20)
    monkeypatch.setattr(tuning, "CACHE_FILES_PRUNED_AT_ONCE", 8)
    monkeypatch.setattr(tuning, "STORES_FOR_EACH_PRUNING", 4)
    cache._folder.cache_clear()
    most = 0
    for i in range(1000):
        cache.store(f"k{i:064x}", b"code")
        most = max(most, len(names(place)))
    assert most < 120  # the chance of more is far below that of a defect of the machine
    assert f"k{999:064x}" in names(place)


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

    monkeypatch.setattr(tuning, "MAX_CACHE_FILES", 2)
    monkeypatch.setattr(cache.os, "scandir", late)
    cache.prune(place)
    assert names(place) == []
