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


def test_states_of_the_generator_are_bytes(tmp_path):
    printed = run(
        tmp_path,
        """
import io, torch

torch.manual_seed(-2)
state = torch.get_rng_state()
drawn = torch.rand(2)
file = io.BytesIO()
torch.save({"rng": state}, file)
file.seek(0)
torch.set_rng_state(torch.load(file)["rng"].cpu().type(torch.ByteTensor))
print(state.dtype, torch.equal(drawn, torch.rand(2)))
torch.random.set_rng_state(state)
print(torch.equal(drawn, torch.rand(2)), torch.random.initial_seed() == 2**64 - 2)
try:
    torch.set_rng_state(torch.zeros(5056, dtype=torch.uint8))
except RuntimeError as error:
    print(str(error).partition(";")[0])
""",
    )
    assert printed == [
        "torch.uint8 True",
        "True True",
        "the state of a generator has 16 bytes here, got 5056",
    ]


def test_switches_are_kept(tmp_path):
    printed = run(
        tmp_path,
        """
import torch, torch.backends.cuda as kernels, torch.multiprocessing as mp

with kernels.sdp_kernel(enable_flash=False):
    print(kernels.flash_sdp_enabled(), torch.backends.cuda.math_sdp_enabled())
kernels.enable_mem_efficient_sdp(False)
print(kernels.flash_sdp_enabled(), kernels.mem_efficient_sdp_enabled(), kernels.is_built())
mp.set_sharing_strategy("file_system")
print(mp.get_sharing_strategy(), sorted(mp.get_all_sharing_strategies()))
torch.set_warn_always(True)
torch.set_deterministic_debug_mode("warn")
print(torch.is_warn_always_enabled(), torch.are_deterministic_algorithms_enabled())
""",
    )
    assert printed == [
        "False True",
        "True False False",
        "file_system ['file_descriptor', 'file_system']",
        "True True",
    ]


def test_functions_with_another_order_of_arguments(tmp_path):
    printed = run(
        tmp_path,
        """
import torch
import torch.nn.functional as F

x, w = torch.randn(3, 4, 5), torch.randn(4)
assert torch.equal(torch.embedding(x[0], torch.tensor([1, 3])), x[0][[1, 3]])
expected = F.batch_norm(x, None, None, w, None, True, 0.1, 1e-5)
assert torch.equal(torch.batch_norm(x, w, None, None, None, True, 0.1, 1e-5, True), expected)
expected = F.instance_norm(x, None, None, w, None, True, 0.1, 1e-5)
assert torch.equal(torch.instance_norm(x, w, None, None, None, True, 0.1, 1e-5, True), expected)
assert torch.equal(torch.alpha_dropout(x, 0.5, False), x)
assert torch.bilinear(x[0], x[0], torch.randn(2, 5, 5)).shape == (4, 2)
print(torch.finfo(torch.float32))
""",
    )
    assert printed == [
        "finfo(resolution=1e-06, min=-3.40282e+38, max=3.40282e+38, eps=1.19209e-07, "
        "smallest_normal=1.17549e-38, tiny=1.17549e-38, dtype=float32)"
    ]


def test_a_refused_file_is_an_unpickling_error(tmp_path):
    printed = run(
        tmp_path,
        """
import io, pickle, torch

class Mine: pass

file = io.BytesIO()
torch.save(Mine(), file)
file.seek(0)
try:
    torch.load(file)
except pickle.UnpicklingError as error:
    print(isinstance(error, RuntimeError))
file = io.BytesIO()
torch.save({"x": torch.ones(2)}, file)
file.seek(0)
place = lambda storage, location: torch.serialization.default_restore_location(storage, "cpu")
print(torch.load(file, map_location=place)["x"].tolist())
""",
    )
    assert printed == ["True", "[1.0, 1.0]"]


def test_private_names_that_packages_import(tmp_path):
    printed = run(
        tmp_path,
        """
from collections import namedtuple
import torch
from torch.autograd.functional import _as_tuple, _grad_postprocess, _tuple_postprocess
from torch.nn.common_types import _size_2_t, _size_any_t, _size_4_t, _size_any_opt_t
from torch.nn.init import _no_grad_fill_, _no_grad_normal_, _no_grad_trunc_normal_
from torch.nn.init import _no_grad_uniform_, _no_grad_zero_, _calculate_correct_fan
from torch.nn.modules.module import _addindent
from torch.utils._pytree import _namedtuple_flatten, _namedtuple_unflatten

w = torch.nn.Parameter(torch.empty(3, 4))
print(_no_grad_fill_(w, 2.0) is w, _no_grad_uniform_(w, 1, 2).min() >= 1)
_no_grad_trunc_normal_(_no_grad_normal_(w, 0, 1), 0, 1, -0.5, 0.5)
print(w.abs().max() <= 0.5, _no_grad_zero_(w).sum().item(), w.requires_grad)
Point = namedtuple("Point", "x y")
print(_namedtuple_unflatten(*_namedtuple_flatten(Point(1, 2))))
print(repr(_addindent("a\\nb", 2)), _size_2_t)
y = w * 2
print(_as_tuple(y, "inputs", "f")[0], _grad_postprocess((y, (y,)), False)[1][0].requires_grad)
print(_tuple_postprocess((1,), False), _tuple_postprocess(((1,), (2,)), (True, False)))
""",
    )
    assert printed == [
        "True tensor(True)",
        "tensor(True) 0.0 True",
        "Point(x=1, y=2)",
        "'a\\n  b' int | tuple[int, int]",
        "False False",
        "1 (1, 2)",
    ]


def test_line_search_and_forks(tmp_path):
    printed = run(
        tmp_path,
        """
import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.optim.lbfgs import _cubic_interpolate, _strong_wolfe

def squares(x, t, d):
    y = (x + t * d).requires_grad_()
    loss = ((y - 1) ** 2).sum()
    return float(loss), torch.autograd.grad(loss, y)[0]

x = torch.zeros(3, dtype=torch.float64)
loss, gradient = squares(x, 0, x)
loss, gradient, t, count = _strong_wolfe(squares, x, 2.0, -gradient, loss, gradient,
                                         -gradient.dot(gradient))
print(loss, gradient.tolist(), t, count)
print(_cubic_interpolate(0.0, 1.0, -2.0, 2.0, 1.0, 2.0))
with unset_fake_temporarily():
    future = torch.jit.fork(torch.add, x, 1)
print(torch.jit.wait(future).tolist(), torch._C._is_tracing(), isinstance(future, torch.Future))
""",
    )
    assert printed == ["0.0 [0.0, 0.0, 0.0] 0.5 2", "1.0", "[1.0, 1.0, 1.0] False True"]
