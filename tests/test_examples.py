"""The examples, shortened: every script runs by itself and says what it found."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ranks import launch as launch_ranks
from ranks import needs_mpi

import tapegrad as tg

FOLDER = Path(__file__).parent.parent / "examples"
SCRIPTS = sorted(FOLDER.glob("*.py"))
ALONE = [path for path in SCRIPTS if not path.stem.endswith("_ranks")]

#: what the last lines of each script tell
FOUND = {
    "custom_function": r"gradient of Cube is right: True\n(.*\n)*accuracy .* \d+\.\d%",
    "digits": r"test accuracy \d+\.\d%",
    "gpt": r"step +0  loss 4\.\d+\n",
    "pinn": r"relative error against the exact solution \d\.\d\de[+-]\d\d",
    "vae": r"(.*\n){8}\Z",
}


@pytest.mark.parametrize("script", ALONE, ids=lambda path: path.stem)
def test_script_runs(script, tmp_path, capsys, monkeypatch):
    compiled = []

    def compile(function):
        compiled.append(tg.replay.compile(function))
        return compiled[-1]

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [script.name, "--steps", "6"])
    monkeypatch.setattr(tg, "compile", compile)
    spec = importlib.util.spec_from_file_location(f"example_{script.stem}", script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main()
    assert re.search(FOUND[script.stem], capsys.readouterr().out)
    (step,) = compiled
    told = step.explain(full=True)
    assert re.search(r"replayed [1-9]\d* time\(s\)", told)
    assert " and 0 callbacks" in told
    assert not list(tmp_path.iterdir())


@needs_mpi
def test_digits_with_two_ranks_go_on_from_a_checkpoint(tmp_path):
    script = [sys.executable, str(FOLDER / "digits_ranks.py")]
    command = [*script, "--epochs", "3", "--checkpoints", str(tmp_path)]
    whole = launch_ranks(2, command)
    assert whole.returncode == 0, whole.stderr
    lines = whole.stdout.splitlines()
    assert [line.split()[1] for line in lines] == ["0", "1", "2"]
    assert float(lines[-1].split()[-1].rstrip("%")) > 90
    for file in tmp_path.glob("*-step-2.*"):
        file.unlink()
    again = launch_ranks(2, command)
    assert again.returncode == 0, again.stderr
    assert again.stdout.splitlines() == lines[2:]  # digit for digit


@needs_mpi
def test_gpt_with_two_ranks():
    done = launch_ranks(2, [sys.executable, str(FOLDER / "gpt_ranks.py"), "--steps", "6"])
    assert done.returncode == 0, done.stderr
    assert re.search(r"step +0  loss 4\.\d+\n", done.stdout)
    assert "predicted for a latency of 5 µs" in done.stdout


def test_every_script_is_listed():
    listed = re.findall(r"\]\((\w+)\.py\)", (FOLDER / "README.md").read_text())
    assert sorted(listed) == [path.stem for path in SCRIPTS]


def test_help_and_wrong_arguments():
    script = FOLDER / "custom_function.py"
    for arguments, code in ((["--help"], 0), (["--steps", "x"], 2)):
        command = [sys.executable, str(script), *arguments]
        environment = {"PYTHONPATH": str(FOLDER.parent)}
        ended = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert ended.returncode == code
        assert "--steps" in ended.stdout + ended.stderr
