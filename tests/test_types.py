"""What type checkers see: a user's program goes through mypy, and stubs say more than `Any`."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tapegrad
from tapegrad import Tensor
from tapegrad.nn import functional as F
from tapegrad.ops import TABLE
from tapegrad.testing import make_arguments

PACKAGE = Path(tapegrad.__file__).parent

# `assert_type` fails where a type is another one, and an ignored error that does not come is one.
PROGRAM = """
from collections.abc import Callable
from typing import Any, assert_type

import tapegrad
import tapegrad.nn.functional as F
from tapegrad import Size, Tensor, nn, optim


@tapegrad.compile
def scaled(x: Tensor, n: int) -> Tensor:
    return x * n


@tapegrad.compile(check=100)
def counted(x: Tensor, n: int = 2) -> tuple[Tensor, int]:
    return x * n, n


class Trainer:
    @tapegrad.compile(keep_grads=False)
    def step(self, x: Tensor) -> float:
        return 0.5


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4, batch_first=True)
        self.layer = nn.Linear(4, 2)

    def forward(self, x: Tensor, last: bool = True) -> Tensor:
        out, (hidden, cell) = self.lstm(x)
        assert_type(hidden, Tensor)
        return self.layer(hidden if last else out)


class Unannotated(nn.Module):
    def forward(self, x):  # type: ignore[no-untyped-def]
        return x


x = tapegrad.ones(2, 5, 3, dtype=tapegrad.float64, device="cpu")
model = Model()

# Compiled functions, methods and modules are called as what they were.
assert_type(scaled(x, 2), Tensor)
assert_type(counted(x), tuple[Tensor, int])
assert_type(scaled.explain(), str)
assert_type(len(counted.replays), int)
scaled("x", 2)  # type: ignore[arg-type]
scaled(x)  # type: ignore[call-arg]
counted(x, n="2")  # type: ignore[arg-type]
assert_type(Trainer().step(x), float)
Trainer().step(3)  # type: ignore[arg-type]
assert_type(tapegrad.compile(model), Model)
assert_type(tapegrad.compile(model, check=True)(x), Tensor)
tapegrad.compile(scaled, chekc=1)  # type: ignore[call-overload]

# Modules are called as their `forward`.
assert_type(nn.Linear(3, 2)(x), Tensor)
assert_type(model(x, last=False), Tensor)
assert_type(nn.CrossEntropyLoss()(x, x), Tensor)
assert_type(nn.MaxPool2d(2)(x), Tensor)
assert_type(nn.GRUCell(3, 4)(x), Tensor)
model(3)  # type: ignore[arg-type]
nn.Linear(3)  # type: ignore[call-arg]
assert_type(Unannotated()(x), Any)
layers: list[Callable[[Tensor], Tensor]] = [nn.ReLU(), F.relu, tapegrad.relu, Tensor.relu]


def any_module(module: nn.Module) -> None:
    assert_type(module(x, 1), Any)


# Tensors.
assert_type(x.item(), int | float)
assert_type(x.tolist(), list[Any])
assert_type(x.shape, Size)
assert_type(x.shape[0], int)
assert_type(x.shape[1:], Size)
assert_type(x.size(), Size)
assert_type(x.size(0), int)
assert_type(x.grad, Tensor | None)
assert_type(x.dtype, tapegrad.DType)
assert_type(x.device, tapegrad.Device)
assert_type(1 - x @ x.T + x[0] ** 2, Tensor)
assert_type(x > 0, Tensor)
assert_type(x == 0, Tensor)
assert_type(x.to("cpu", tapegrad.float32), Tensor)
assert_type(x.float(), Tensor)
assert_type(x.view(-1, 3), Tensor)
assert_type(x.type(), str)
x.add_(x, alpha=2).squeeze_(0).clamp_(min=0)
x + None  # type: ignore[operator]
x.sum(dim="0")  # type: ignore[arg-type]
x.relu(1)  # type: ignore[call-arg]

# Results that depend on the arguments.
assert_type(x.max(), Tensor)
assert_type(x.max(dim=1).values, Tensor)
assert_type(tapegrad.max(x, 1).indices, Tensor)
assert_type(x.max(x), Tensor)
values, indices = x.sort(descending=True)
assert_type(values, Tensor)
assert_type(x.topk(2).indices, Tensor)
assert_type(x.median(0).values, Tensor)
assert_type(x.aminmax().min, Tensor)
assert_type(tapegrad.var_mean(x), tuple[Tensor, Tensor])
assert_type(x.split(2), tuple[Tensor, ...])
assert_type(x.nonzero(), Tensor)
assert_type(x.nonzero(as_tuple=True), tuple[Tensor, ...])
assert_type(x.unique(), Tensor)
assert_type(tapegrad.where(x > 0, x, 0.0), Tensor)
assert_type(F.max_pool2d(x, 2), Tensor)
assert_type(F.max_pool2d(x, 2, return_indices=True), tuple[Tensor, Tensor])
assert_type(tapegrad.linalg.slogdet(x).sign, Tensor)
tapegrad.cat(x)  # type: ignore[arg-type]

# A step of training.
optimizer = optim.SGD(model.parameters(), lr=0.1)
optim.Adam([{"params": [x], "lr": 0.1}, {"params": model.parameters()}])
optim.AdamW(model.named_parameters(), lr=tapegrad.tensor(0.1))
optim.Adam(0.1)  # type: ignore[arg-type]

# Names that do not exist.
optim.Adamm  # type: ignore[attr-defined]
nn.Linaer  # type: ignore[attr-defined]
F.reluu  # type: ignore[attr-defined]
tapegrad.conv_2d  # type: ignore[attr-defined]
tapegrad.autograd.gradd  # type: ignore[attr-defined]
loss = F.cross_entropy(model(x), tapegrad.zeros(2, dtype=tapegrad.int64))
assert_type(loss, Tensor)
loss.backward()
optimizer.step()
optimizer.zero_grad()
"""


def test_a_users_program_is_typed(tmp_path):
    pytest.importorskip("mypy")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    config = PACKAGE.parent / "pyproject.toml"
    command = [sys.executable, "-m", "mypy", "--config-file", str(config), str(program)]
    checked = subprocess.run(command, cwd=PACKAGE.parent, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


STUBS = sorted(PACKAGE.rglob("*.pyi"))


@pytest.mark.parametrize("path", STUBS, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_stubs_have_types(path):
    """At most one parameter in 25 and one result in 50 is `Any`."""
    functions = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.FunctionDef)]
    parameters = [
        a
        for f in functions
        for a in (*f.args.args, *f.args.kwonlyargs, f.args.vararg, f.args.kwarg)
        if a is not None and a.arg != "self"
    ]
    untyped = [a.arg for a in parameters if ast.unparse(a.annotation) == "Any"]
    unknown = [f.name for f in functions if ast.unparse(f.returns) == "Any"]
    assert len(untyped) <= len(parameters) / 25, untyped
    assert len(unknown) <= len(functions) / 50, unknown


# -- what `help` shows -----------------------------------------------------------------------------


def results_of(function):
    """The types that a signature says a function may return."""
    annotation = inspect.signature(function).return_annotation
    return annotation.replace("Tensor | None]", "Tensor]").split(" | ")


@pytest.mark.parametrize("name", sorted(TABLE))
def test_operations_return_what_they_show(name):
    op = TABLE[name]
    shown = results_of(op.function)
    for sample in op.samples() if op.samples is not None else ():
        args, kwargs = make_arguments(sample, np.random.default_rng(0), tapegrad.float64, False)
        value = op.function(*args, **kwargs)
        kinds = {type(value).__name__}
        if type(value) is tuple:
            kinds = {"tuple[Tensor, ...]", f"tuple[{', '.join(['Tensor'] * len(value))}]"}
            assert all(isinstance(v, Tensor | None) for v in value)
        assert kinds & set(shown), f"{name} shows {shown} and returns {kinds}"


def test_help_shows_types():
    assert str(inspect.signature(tapegrad.add)) == (
        "(input: 'Operand', other: 'Operand', scaled: 'Tensor | None' = None, *, "
        "alpha: 'Number' = 1) -> 'Tensor'"
    )
    assert results_of(tapegrad.ones(2).max) == ["Tensor", "Extreme"]
    assert results_of(F.max_pool2d) == ["Tensor", "tuple[Tensor, Tensor]"]
    assert list(inspect.signature(tapegrad.ones(2).squeeze_).parameters) == ["dim"]
    assert list(inspect.signature(F.elu_).parameters) == ["input", "alpha"]
    assert list(inspect.signature(tapegrad.nn.LSTM).parameters)[:2] == ["input_size", "hidden_size"]
