"""The examples, shortened: every script runs by itself and says what it found."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tapegrad as tg

FOLDER = Path(__file__).parent.parent / "examples"
SCRIPTS = sorted(FOLDER.glob("*.py"))

#: what the last lines of each script tell
FOUND = {
    "custom_function": r"gradient of Cube is right: True\n(.*\n)*accuracy .* \d+\.\d%",
    "digits": r"test accuracy \d+\.\d%",
    "gpt": r"step +0  loss 4\.\d+\n",
    "pinn": r"relative error against the exact solution \d\.\d\de[+-]\d\d",
    "vae": r"(.*\n){8}\Z",
}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
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
