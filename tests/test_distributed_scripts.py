"""Scripts for PyTorch run here: only the imports and the name of the backend are changed.

The scripts of `distributed/scripts/` are written for PyTorch. `MAPPING` says what is replaced. What
each rank prints is compared with what one process computes and, where torch is installed, with what
the untouched script prints in two processes of PyTorch.
"""

from __future__ import annotations

import functools
import importlib.util
import re
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from ranks import HERE, environment, launch, needs_mpi

import tapegrad as tg
from tapegrad import nn

SCRIPTS = HERE / "distributed" / "scripts"
RANKS = 2
#: what is replaced in a script for PyTorch, line by line
MAPPING = [
    (r"^import torch$", "import tapegrad as torch"),
    (r"^import torch\.", "import tapegrad."),
    (r"^from torch\b", "from tapegrad"),
    (r'"gloo"', '"mpi"'),
]
SAID = re.compile(r"rank (\d+): (.+?) = (.*)")


def converted(name: str) -> str:
    """A script of PyTorch's as one of this library's."""
    text = (SCRIPTS / f"{name}.py").read_text()
    for pattern, new in MAPPING:
        text = re.sub(pattern, new, text, flags=re.MULTILINE)
    return text


def numbers(text: str) -> list[float]:
    return [float(x) for x in re.findall(r"-?\d+\.?\d*(?:e-?\d+)?", text)]


def said(output: str) -> dict[tuple[int, str], list[float]]:
    """The numbers that each rank has printed, by rank and name."""
    return {(int(r), name): numbers(value) for r, name, value in SAID.findall(output)}


@functools.cache
def run_here(name: str) -> dict[tuple[int, str], list[float]]:
    """What the converted script prints."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / f"{name}.py"
        script.write_text(converted(name))
        done = launch(RANKS, [sys.executable, str(script), *arguments(name, folder)])
    assert done.returncode == 0, done.stderr[-4000:]
    return said(done.stdout)


def arguments(name: str, folder: str | Path) -> list[str]:
    return ["--save", f"{folder}/digits.pt"] if name == "digits" else []


def run_torch(name: str, folder: Path) -> dict[tuple[int, str], list[float]]:
    """What the script prints as it is, with PyTorch and gloo."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    given = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(RANKS)}
    command = [sys.executable, "-W", "ignore", str(SCRIPTS / f"{name}.py")]
    command += arguments(name, folder)
    started = [
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(**given, RANK=str(rank), LOCAL_RANK=str(rank)),
        )
        for rank in range(RANKS)
    ]
    outputs = [process.communicate(timeout=120) for process in started]
    for process, (_, errors) in zip(started, outputs, strict=True):
        assert process.returncode == 0, errors[-4000:]
    return said("".join(output for output, _ in outputs))


def module_of(name: str, folder: Path) -> Any:
    """A converted script as a module, whose functions one process calls."""
    path = folder / f"{name}_alone.py"
    path.write_text(converted(name))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_imports_and_backend_alone_are_changed() -> None:
    for path in SCRIPTS.glob("*.py"):
        before, after = path.read_text().splitlines(), converted(path.stem).splitlines()
        for old, new in zip(before, after, strict=True):
            assert old == new or old.startswith(("import torch", "from torch")) or "gloo" in old


@needs_mpi
def test_digits(tmp_path: Path) -> None:
    found = run_here("digits")
    digits = module_of("digits", tmp_path)
    data, model = digits.digits(128), digits.Net()
    digits.set_weights(model)
    optimizer = tg.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    pictures, labels = data.tensors
    for epoch in range(3):
        # Two ranks with batches of 16, every second sample each: 32 samples one after another.
        for i in range(0, 128, 32):
            optimizer.zero_grad()
            nn.functional.nll_loss(model(pictures[i : i + 32]), labels[i : i + 32]).backward()
            optimizer.step()
        optimizer.param_groups[0]["lr"] *= 0.7
        with tg.no_grad():
            out = model(pictures)
        loss = nn.functional.nll_loss(out, labels).item()
        accuracy = (out.argmax(1) == labels).float().mean().item()
        for rank in range(RANKS):
            assert found[rank, f"loss of epoch {epoch}"] == pytest.approx([loss], rel=1e-4)
            assert found[rank, f"accuracy of epoch {epoch}"] == pytest.approx([accuracy])
    assert accuracy > 0.8
    weights = sum(p.abs().sum().item() for p in model.parameters())
    for rank in range(RANKS):
        assert found[rank, "weights"] == pytest.approx([weights], rel=1e-4)
        assert found[rank, "parameters"] == [410]


@needs_mpi
def test_messages() -> None:
    found = run_here("messages")
    for rank in range(RANKS):
        mine = {name: values for (r, name), values in found.items() if r == rank}
        assert mine.pop("slope and offset") == pytest.approx([2, 1], abs=0.05)
        if rank == 0:
            assert mine.pop("reduce") == [3, 3]
            assert mine.pop("gather") == [1, 1, 2, 2]
        assert mine == {
            "send and recv": [1],
            "isend and irecv": [1],
            "all_reduce SUM": [3, 3],
            "all_reduce PRODUCT": [2, 2],
            "all_reduce MAX": [2, 2],
            "all_reduce MIN": [1, 1],
            "broadcast": [2, 2],
            "all_gather": [1, 1, 2, 2],
            "scatter": [10 * rank, 10 * rank],
            "all_reduce in the background": [3, 3],
            "objects": [0, 1],
            "ring": [0, 3, 6],
        }


@needs_mpi
def test_tensor_parallel(tmp_path: Path) -> None:
    found = run_here("tensor_parallel")
    script = module_of("tensor_parallel", tmp_path)
    cases = [
        ("tensor parallel", script.MLP(), script.waves(4, 6), None),
        ("rows", script.MLP(), script.waves(4, 6), 0),
        ("sequence", script.Block(), script.waves(2, 4, 6), 1),
    ]
    for name, model, x, dim in cases:
        script.set_weights(model)
        optimizer = tg.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            optimizer.zero_grad()
            squares = model(x).square()
            squares.sum().backward()
            optimizer.step()
            pieces = [squares] * RANKS if dim is None else squares.chunk(RANKS, dim=dim)
            for rank, piece in enumerate(pieces):
                printed = found[rank, f"{name}, step {step}"]
                assert printed == pytest.approx([piece.sum().item()], rel=1e-4, abs=1e-5)


@needs_mpi
@pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="needs torch")
@pytest.mark.parametrize("name", ["digits", "messages", "tensor_parallel"])
def test_pytorch_prints_the_same(name: str, tmp_path: Path) -> None:
    found, expected = run_here(name), run_torch(name, tmp_path)
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        assert found[key] == pytest.approx(values, rel=1e-4, abs=1e-4), key
