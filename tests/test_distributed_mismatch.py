"""Ranks whose programs differ get an error that names the lines of both."""

import re
import sys
import time

import pytest
from distributed import mismatches
from ranks import HERE, launch, needs_mpi, run_ranks

pytestmark = needs_mpi


def check(text, name):
    """An error names both ranks, each with an operation and a line of the program."""
    told = re.findall(r"^  ranks? ([\d, ]+): (.+) at .*mismatches\.py:(\d+)", text, re.MULTILINE)
    assert [ranks for ranks, _, _ in told] == ["0", "1"], f"{name}: {text}"
    assert told[0][1] != told[1][1], f"{name}: {text}"


def test_there_are_enough_programs():
    programs = [
        *mismatches.EAGER,
        *mismatches.COMPILED,
        *mismatches.MESSAGES,
        *mismatches.ENDING,
    ]
    assert len(set(programs)) >= 50


@pytest.mark.parametrize(
    ("function", "programs", "raising"),
    [
        ("run_eager", mismatches.EAGER, (0, 1)),
        ("run_messages", mismatches.MESSAGES, (1,)),
    ],
)
def test_eager_programs(function, programs, raising):
    found = run_ranks("distributed/mismatches.py", 2, [function], TAPEGRAD_DEBUG="collectives")
    for rank, results in enumerate(found):
        assert list(results[function]) == list(programs)
        for name, text in results[function].items():
            if rank in raising:
                check(text, name)
            else:
                assert text == "", f"{name}: {text}"


def test_compiled_functions_without_asking_for_checks():
    found = run_ranks("distributed/mismatches.py", 2, ["run_compiled"])
    for results in found:
        assert list(results["run_compiled"]) == list(mismatches.COMPILED)
        for name, text in results["run_compiled"].items():
            check(text, name)


MESSAGES = ["waited_backwards", "several_tags", "named_and_anybody", "from_itself"]


@pytest.mark.parametrize("debug", ["", "collectives"])
def test_messages_from_anybody(debug):
    checked = ["one_that_differs"] if debug else []
    found = run_ranks(
        "distributed/messages.py", 3, [*MESSAGES, *checked], TAPEGRAD_DEBUG=debug, timeout=40
    )
    if debug:
        text = found[0]["one_that_differs"]
        assert "rank 0: message of float32[1], tag 0 at " in text
        assert "rank 1: message of float32[2], tag 0 at " in text


#: what the error says beside the lines
WORDS = {
    "nothing": "did not end within 1 s; the other ranks:\n  rank 1 waits in no collective",
    "leaves": "waits for rank 1, which has ended its program",
    "other group": "ranks called different collectives at the same time:",
}


@pytest.mark.parametrize("name", mismatches.ENDING)
def test_what_only_a_timeout_can_end(name):
    program = [sys.executable, str(HERE / "distributed" / "mismatches.py"), name, "1"]
    done = launch(2, program, timeout=30, TAPEGRAD_DEBUG="collectives")
    assert done.returncode != 0
    assert re.search(r"rank \d of 2: .* at .*mismatches\.py:\d+", done.stderr, re.DOTALL)
    if name in WORDS:
        assert WORDS[name] in done.stderr
    else:
        assert re.search(r"rank \d waits in .* at .*mismatches\.py:\d+", done.stderr), done.stderr


#: what the error says of each rank, beside its line; one text if there is one alone
DEPARTURES = {
    "save, reduce": ("rank 0: Checkpoint.save(step 1) at", "rank 1: all_reduce at"),
    "save, background": (
        "rank 0: Checkpoint.save(step 1) at",
        "rank 1: all_reduce in the background at",
    ),
    "save, replay": (
        "rank 0: Checkpoint.save(step 1) at",
        "rank 1: the call of the compiled function compiled_sum at",
    ),
    "save, end": ("Checkpoint.save(step 1) of world at", "for rank 1, which has ended its program"),
    "states, broadcast": ("rank 0: distributed.checkpoint.save() at", "rank 1: broadcast at"),
    "silent, wait": (
        "rank 0: all_reduce at",
        " of the compiled function silent_from_the_start, without a collective at",
    ),
    "one call more, reduce": (
        "rank 0: all_reduce at",
        "rank 1: the call of the compiled function compiled_sum at",
    ),
    "two threads": ("two threads call collectives of world at the same time: all_reduce of world",),
}


@pytest.mark.parametrize("name", DEPARTURES)
def test_one_rank_that_does_something_else(name, tmp_path):
    program = [sys.executable, str(HERE / "distributed" / "departures.py"), name, str(tmp_path)]
    began = time.monotonic()
    done = launch(2, program, timeout=50)
    assert done.returncode == 1, done.stdout + done.stderr
    for words in DEPARTURES[name]:
        assert words in done.stderr, done.stderr
    assert "departures.py:" in done.stderr
    assert time.monotonic() - began < 40  # about 2 without other load; the timeout is 60
