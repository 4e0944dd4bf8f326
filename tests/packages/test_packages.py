"""Packages written for PyTorch, unmodified: the same results on tapegrad as on PyTorch.

`make packages` installs them without PyTorch and sets TAPEGRAD_PACKAGES to that Python; without it
the tests are skipped. PyTorch itself is that of the Python that runs the tests.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parent
PROGRAMS = sorted(path.stem.removeprefix("run_") for path in HERE.glob("run_*.py"))
PYTHON = os.environ.get("TAPEGRAD_PACKAGES")

#: differences relative to the largest value; these compute in float32, or parts of it
TOLERANCE = {
    "accelerate": 1e-5,
    "keras": 1e-5,
    "neuralop": 1e-5,
    "peft": 1e-5,
    "snntorch": 1e-5,
    "stable_baselines3": 1e-5,
    "transformers": 1e-5,
    "transformers_more": 1e-5,
}


@pytest.mark.skipif(PYTHON is None, reason="make packages installs the packages")
@pytest.mark.skipif(find_spec("torch") is None, reason="needs PyTorch to compare with")
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_those_of_torch(name, tmp_path):
    program = HERE / f"run_{name}.py"
    site = subprocess.run(
        [PYTHON, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    root = str(HERE.parents[1])
    run(PYTHON, "-m", "tapegrad", "run", program, tmp_path / "ours.npz", path=root)
    run(sys.executable, HERE / "on_torch.py", program, tmp_path / "theirs.npz", path=site)
    ours, theirs = (np.load(tmp_path / f"{which}.npz") for which in ("ours", "theirs"))
    assert ours.files == theirs.files
    for key in theirs.files:
        expected, found = theirs[key], ours[key]
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype), key
        if expected.dtype.kind in "fc" and expected.size:
            allowed = TOLERANCE.get(name, 1e-6) * (np.abs(expected).max() + 1e-3)
            np.testing.assert_allclose(found, expected, rtol=0, atol=allowed, err_msg=key)
        else:
            np.testing.assert_array_equal(found, expected, err_msg=key)


def run(*command, path):
    environment = {**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    environment["KERAS_BACKEND"] = "torch"
    done = subprocess.run(
        [str(part) for part in command],
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
