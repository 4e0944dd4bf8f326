"""Names of PyTorch that packages import, under `tapegrad run`: what they do and refuse."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run(tmp_path, text):
    """What a program prints that runs with tapegrad in the place of PyTorch."""
    script = tmp_path / "program.py"
    script.write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "tapegrad", "run", "--shadow", str(script)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_helpers_of_packages(tmp_path):
    printed = run(
        tmp_path,
        """
import functorch, torch
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from torch.nn import _reduction
from torch.utils._contextlib import _DecoratorContextManager
from torch.utils._foreach_utils import _group_tensors_by_device_and_dtype

parts = [torch.ones(2, 3), torch.arange(4.0)]
flat = _flatten_dense_tensors(parts)
back = _unflatten_dense_tensors(flat, parts)
assert flat.shape == (10,) and all(torch.equal(a, b) for a, b in zip(parts, back))
assert [_reduction.get_enum(n) for n in ("none", "mean", "sum")] == [0, 1, 2]
groups = _group_tensors_by_device_and_dtype(
    [[torch.ones(1), torch.ones(2).double(), torch.ones(3)], []], with_indices=True
)
print([(str(dtype), indices) for (_, dtype), (_, indices) in groups.items()])
assert [x.tolist() for x in torch._foreach_add([torch.ones(2)], 1)] == [[2, 2]]

class Marked(_DecoratorContextManager):
    depth = 0
    def __enter__(self): Marked.depth += 1
    def __exit__(self, *error): Marked.depth -= 1

@Marked()
def numbers():
    yield Marked.depth
    yield Marked.depth

assert [(n, Marked.depth) for n in numbers()] == [(1, 0), (1, 0)]
assert isinstance(torch.ones(2, 2).max(0), torch.return_types.max)
assert isinstance(torch.nn.Conv2d(1, 1, 1), torch.nn.modules.conv._ConvNd)
assert functorch.grad(torch.sin)(torch.tensor(0.0)) == 1 and functorch.vmap is torch.func.vmap
assert torch.functional.einsum is torch.einsum
""",
    )
    assert printed == ["[('torch.float32', [0, 2]), ('torch.float64', [1])]"]


def test_types_of_scripts_are_names(tmp_path):
    printed = run(
        tmp_path,
        """
import torch

def moved(x: torch.Tensor, device: str | torch.DeviceObjType) -> torch.OptionalType: ...
print(torch.DeviceObjType, issubclass(torch.IntType, torch.Type))
print(isinstance(torch.device("cpu"), torch.DeviceObjType))
""",
    )
    assert printed == ["<class 'torch.DeviceObjType'> True", "False"]


@pytest.mark.parametrize(
    "expression",
    [
        "torch.DeviceObjType()",
        "torch.distributed.rpc.init_rpc('a')",
        "torch.distributed.autograd.context()",
        "torch.nn.parallel.scatter_gather.scatter(1, [0])",
        "torch.utils._python_dispatch.TorchDispatchMode()",
        "torch.cuda.nvtx.range('a').__enter__()",
    ],
)
def test_what_is_missing_says_so(tmp_path, expression):
    module = expression.partition("(")[0].rpartition(".")[0]
    (printed,) = run(
        tmp_path,
        f"""
import torch, {module}
try:
    {expression}
except NotImplementedError as error:
    print(error)
""",
    )
    assert "does not exist in tapegrad; " in printed
