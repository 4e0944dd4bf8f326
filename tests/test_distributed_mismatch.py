"""Ranks whose programs differ get an error that names the lines of both."""

import re
import sys

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
    "nothing": "rank 1 waits in no collective",
    "leaves": "waits for rank 1, which has ended its program",
}


@pytest.mark.parametrize("name", mismatches.ENDING)
def test_what_only_a_timeout_can_end(name):
    program = [sys.executable, str(HERE / "distributed" / "mismatches.py"), name, "2"]
    done = launch(2, program, timeout=30, TAPEGRAD_DEBUG="collectives")
    assert done.returncode != 0
    assert re.search(r"rank \d of 2: .* at .*mismatches\.py:\d+", done.stderr), done.stderr
    if name in WORDS:
        assert WORDS[name] in done.stderr
    else:
        assert re.search(r"rank \d waits in .* at .*mismatches\.py:\d+", done.stderr), done.stderr
