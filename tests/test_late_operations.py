"""Files of operations that are imported at first use: nobody can tell that they were not there.

Each program runs in a process of its own, because this one has imported everything.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

LOADED = """
import sys
def loaded(*files):
    return [f"tapegrad.ops.{file}" in sys.modules for file in files]
"""


def run(program: str) -> None:
    subprocess.run([sys.executable, "-c", LOADED + program], check=True, timeout=300)


def test_importing_tapegrad_imports_no_layers():
    run("""
import tapegrad
from tapegrad.ops.late import LATE
assert not any(loaded(*LATE)), [f for f in LATE if loaded(f)[0]]
from tapegrad.ops.late import LAYERS
import tapegrad.nn.functional
assert all(loaded(*LAYERS))
""")


@pytest.mark.parametrize(
    "use",
    [
        "tg.conv2d(x[None, None], w[None, None]).sum()",
        "tg.layer_norm(x, (4,)).square().sum()",
        "tg.max_pool1d(x[None], 2).sum()",
        "tg.logcumsumexp(x, 0).sum()",
        "x.mvlgamma(2).sum()",
    ],
)
def test_functions_and_methods_of_a_late_file(use):
    run(f"""
import tapegrad as tg
x = (tg.arange(16.0).reshape(4, 4) / 16 + 2).requires_grad_()
w = tg.ones(2, 2)
{use}.backward()
assert x.grad.isfinite().all()
""")


def test_directory_lists_late_functions():
    run("""
import tapegrad as tg
assert {"conv2d", "lstm_cell", "dropout", "stft"} <= set(dir(tg))
assert not any(loaded("window.convolution", "fourier.short_time"))
""")


def test_attention_by_hand_goes_in_tiles_without_another_import():
    """Which program runs must not depend on what else was imported."""
    run("""
import tapegrad as tg
from tapegrad.replay.ir.program import Attention

q, k, v = (tg.randn(1, 8, 1024, 16) for _ in range(3))
step = tg.compile(lambda q, k, v: tg.softmax(q @ k.transpose(-2, -1), dim=-1) @ v)
for _ in range(3):
    step(q, k, v)
(replay,) = step.replays
assert any(isinstance(i, Attention) for i in replay.executable.program.instructions)
""")


def test_a_late_function_that_a_file_names(tmp_path: Path):
    path = tmp_path / "model"
    run(f"""
import tapegrad as tg
from tapegrad import nn
class Applied(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function
    def forward(self, x):
        return self.function(x, 0)
tg.serialization.add_safe_globals([Applied])
tg.save(Applied(tg.logcumsumexp), {str(path)!r})
""")
    run(f"""
import tapegrad as tg
from tapegrad import nn
class Applied(nn.Module):
    def forward(self, x):
        return self.function(x, 0)
tg.serialization.add_safe_globals([Applied])
assert not loaded("reduce.running")[0]
model = tg.load({str(path)!r})
x = tg.tensor([0.5, 1.5])
assert tg.equal(model(x), x.logcumsumexp(0))
""")
