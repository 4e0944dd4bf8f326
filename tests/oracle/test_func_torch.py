"""`func`, `vmap` and forward mode against PyTorch: programs that run with either library."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tapegrad

Point = namedtuple("Point", ["x", "y"])

Program = Callable[..., Any]

#: PyTorch's forward mode compiles some of its rules, and warns of its own compiler
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node"),
]


def values(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).normal(size=shape)


def run(library: Any, program: Program) -> Any:
    def make(*shape: int, seed: int = 0) -> Any:
        return library.tensor(values(*shape, seed=seed), dtype=library.float64)

    return program(library, make)


def flat(result: Any) -> list[tuple[str, Any]]:
    """The leaves of nested results with the way that leads to each."""
    if isinstance(result, dict):
        return [(f"[{k}]{w}", v) for k in sorted(result) for w, v in flat(result[k])]
    if isinstance(result, (tuple, list)):
        kind = "list" if isinstance(result, list) else "tuple"
        return [(f"({kind} {i}){w}", v) for i, r in enumerate(result) for w, v in flat(r)]
    return [("", result)]


def _way(way: str) -> str:
    return way.replace("list", "tuple")


def compare(program: Program, history: bool = True) -> None:
    ours, theirs = flat(run(tapegrad, program)), flat(run(torch, program))
    # PyTorch's vectorized Jacobians are lists or tuples, as it happens.
    assert [_way(w) for w, _ in ours] == [_way(w) for w, _ in theirs]
    for (way, a), (_, b) in zip(ours, theirs, strict=True):
        if not isinstance(b, torch.Tensor):
            assert a == b, way
            continue
        assert tuple(a.shape) == tuple(b.shape), way
        assert str(a.dtype).split(".")[-1] == str(b.dtype).split(".")[-1], way
        if a.requires_grad != b.requires_grad:
            assert not a.requires_grad, way
            assert not history, way
        np.testing.assert_allclose(
            a.detach().numpy(), b.detach().numpy(), rtol=1e-9, atol=1e-12, err_msg=way
        )


def inplace_view(t: Any, x: Any) -> Any:
    y = x.clone()
    y[0].mul_(3)
    y.view(-1)[1:3].sin_()
    return (y * x).sum()


def under_no_grad(t: Any, x: Any) -> Any:
    with t.no_grad():
        shift = x**2
    return (x**2 - shift).sum()


PROGRAMS: dict[str, Program] = {
    # -- gradients
    "grad": lambda t, a: t.func.grad(lambda x: x.sin().sum())(a(3)),
    "grad twice": lambda t, a: t.func.grad(t.func.grad(t.sin))(a()),
    "grad of argnums": lambda t, a: t.func.grad(
        lambda x, y, z: (x * y**2).sum() + z, argnums=(1, 0)
    )(a(3), a(3, seed=1), 2.0),
    "grad of the last": lambda t, a: t.func.grad(lambda x, y: (x * y).sum(), argnums=-1)(
        a(3), a(3, seed=1)
    ),
    "grad of a dict": lambda t, a: t.func.grad(lambda d: (d["a"] * d["b"][0]).sum())(
        {"a": a(2), "b": [a(2, seed=1)]}
    ),
    "grad with aux": lambda t, a: t.func.grad(
        lambda x: ((x**2).sum(), {"twice": x * 2}), has_aux=True
    )(a(3)),
    "value and grad": lambda t, a: t.func.grad_and_value(lambda x: (x**3).sum())(a(3)),
    "value, grad and aux": lambda t, a: t.func.grad_and_value(
        lambda x: ((x**3).sum(), x.exp()), has_aux=True
    )(a(3)),
    "grad of what does not matter": lambda t, a: t.func.grad(
        lambda x, y: y.sum(), argnums=(0, 1)
    )(a(3), a(2)),
    "grad with keywords": lambda t, a: t.func.grad(lambda x, *, s: (x * s).sum())(a(3), s=a(3)),
    "grad of writes": lambda t, a: t.func.grad(lambda x: inplace_view(t, x))(a(4, 2)),
    "grad of no_grad": lambda t, a: t.func.grad(lambda x: under_no_grad(t, x))(a(4)),
    "grad of detach": lambda t, a: t.func.grad(lambda x: (x * x.detach()).sum())(a(4)),
    "grad inside of no_grad": lambda t, a: _inside_no_grad(t, a),
    "vjp": lambda t, a: _vjp(t, lambda x: x.sin(), [a(3)], a(3, seed=1)),
    "vjp of two": lambda t, a: _vjp(t, lambda x, y: x * y, [a(3), a(3, seed=2)], a(3, seed=1)),
    "vjp to a dict": lambda t, a: _vjp(
        t, lambda x: {"a": x * 2, "b": x.sum()}, [a(3)], {"a": a(3, seed=1), "b": a(seed=2)}
    ),
    "vjp to a tuple": lambda t, a: _vjp(
        t, lambda x: (x * 2, x.sum()), [a(3)], (a(3, seed=1), a(seed=2))
    ),
    # -- jvp
    "jvp": lambda t, a: t.func.jvp(lambda x: x.sin().cumsum(0), (a(3),), (a(3, seed=1),)),
    "jvp of two": lambda t, a: t.func.jvp(
        lambda x, y: (x * y, x + 1), (a(3), a(3, seed=1)), (a(3, seed=2), a(3, seed=3))
    ),
    "jvp with aux": lambda t, a: t.func.jvp(
        lambda x: (x**2, x.exp()), (a(3),), (a(3, seed=1),), has_aux=True
    ),
    "jvp of a constant": lambda t, a: t.func.jvp(lambda x: t.ones(2), (a(3),), (a(3),)),
    "jvp of grad": lambda t, a: t.func.jvp(
        t.func.grad(lambda x: (x**3).sum()), (a(3),), (a(3, seed=1),)
    ),
    "grad of jvp": lambda t, a: t.func.grad(
        lambda x: t.func.jvp(lambda x: (x**3).sum(), (x,), (a(3, seed=1),))[1]
    )(a(3)),
    "jvp of jvp": lambda t, a: t.func.jvp(
        lambda x: t.func.jvp(t.exp, (x,), (x * 2,))[1], (a(3),), (a(3, seed=1),)
    ),
    "jvp of writes": lambda t, a: t.func.jvp(
        lambda x: inplace_view(t, x), (a(4, 2),), (a(4, 2, seed=1),)
    ),
    "linearize": lambda t, a: _linearize(t, lambda x, y: (x * y).sin(), [a(3), a(3, seed=1)], a),
    # -- Jacobians
    "jacrev": lambda t, a: t.func.jacrev(lambda x: x.sin().outer(x))(a(3)),
    "jacfwd": lambda t, a: t.func.jacfwd(lambda x: x.sin().outer(x))(a(3)),
    "jacrev of two": lambda t, a: t.func.jacrev(lambda x, y: x @ y, argnums=(0, 1))(
        a(2, 3), a(3, seed=1)
    ),
    "jacfwd of two": lambda t, a: t.func.jacfwd(lambda x, y: x @ y, argnums=(0, 1))(
        a(2, 3), a(3, seed=1)
    ),
    "jacrev to a dict": lambda t, a: t.func.jacrev(lambda x: {"s": x.sum(), "e": x.exp()})(a(3)),
    "jacfwd to a tuple": lambda t, a: t.func.jacfwd(
        lambda x, y: (x.sum() * y, x.exp()), argnums=(0, 1)
    )(a(3), a(2)),
    "jacrev with aux": lambda t, a: t.func.jacrev(lambda x: (x**2, x.sum()), has_aux=True)(a(3)),
    "jacfwd with aux": lambda t, a: t.func.jacfwd(lambda x: (x**2, x.sum()), has_aux=True)(a(3)),
    "jacrev in chunks": lambda t, a: t.func.jacrev(lambda x: x.exp() * x.sum(), chunk_size=2)(a(5)),
    "jacrev of jacrev": lambda t, a: t.func.jacrev(t.func.jacrev(lambda x: x.exp().prod()))(a(3)),
    "jacfwd of jacfwd": lambda t, a: t.func.jacfwd(t.func.jacfwd(lambda x: x.exp().prod()))(a(3)),
    "hessian": lambda t, a: t.func.hessian(lambda x: (x**3).sum() * x[0])(a(3)),
    "hessian of a vector": lambda t, a: t.func.hessian(lambda x: x**3)(a(2)),
    "hessian of two": lambda t, a: t.func.hessian(lambda x, y: (x**2 * y).sum(), argnums=(0, 1))(
        a(2), a(2, seed=1)
    ),
    # -- vmap
    "vmap": lambda t, a: t.func.vmap(t.dot)(a(3, 4), a(3, 4, seed=1)),
    "vmap of dims": lambda t, a: t.func.vmap(t.mv, in_dims=(None, 1), out_dims=1)(a(2, 3), a(3, 4)),
    "vmap of negative dims": lambda t, a: t.vmap(lambda x: x.sum(0), in_dims=-1, out_dims=-1)(
        a(2, 3, 4)
    ),
    "vmap of a dict": lambda t, a: t.vmap(
        lambda d, z: d["x"] * d["y"] + z, in_dims=({"x": 0, "y": None}, 0)
    )({"x": a(3, 2), "y": a(2)}, a(3)),
    "vmap of an ordered dict": lambda t, a: t.vmap(lambda d: OrderedDict(a=d["x"], b=d["x"] * 2))(
        OrderedDict(x=a(3, 2))
    ),
    "vmap to a named tuple": lambda t, a: tuple(t.vmap(lambda x: Point(x, x * 2))(a(3, 2))),
    "vmap of vmap": lambda t, a: t.vmap(t.vmap(t.mul, (None, 0)), (0, None))(a(3), a(4)),
    "vmap in chunks": lambda t, a: t.vmap(lambda x: x.cumsum(0), chunk_size=2)(a(5, 3)),
    "vmap of a list": lambda t, a: t.vmap(lambda xs: [xs[0] + xs[1], xs[0]])([a(3), a(3, seed=1)]),
    "vmap of a shared result": lambda t, a: t.vmap(lambda x: t.ones(2), out_dims=0)(a(3)),
    "vmap of grad": lambda t, a: t.vmap(
        t.func.grad(lambda w, x: (w * x).sin().sum(), argnums=(0, 1)), in_dims=(None, 0)
    )(a(4), a(3, 4, seed=1)),
    "grad of vmap": lambda t, a: t.func.grad(lambda x: t.vmap(t.sin)(x).sum())(a(3, 2)),
    "vmap of vjp": lambda t, a: t.vmap(
        lambda x, v: t.func.vjp(lambda x: x.sin() * x.sum(), x)[1](v)[0]
    )(a(3, 4), a(3, 4, seed=1)),
    "vjp of vmap": lambda t, a: _vjp(t, t.vmap(lambda x: x.sin()), [a(3, 2)], a(3, 2, seed=1)),
    "vmap of jvp": lambda t, a: t.vmap(
        lambda x, v: t.func.jvp(lambda x: x.softmax(0), (x,), (v,))[1]
    )(a(3, 4), a(3, 4, seed=1)),
    "jvp of vmap": lambda t, a: t.func.jvp(
        t.vmap(lambda x: x.softmax(0)), (a(3, 4),), (a(3, 4, seed=1),)
    ),
    "vmap of hessian": lambda t, a: t.vmap(t.func.hessian(lambda x: x.exp().prod()))(a(3, 2)),
    "vmap of writes": lambda t, a: t.vmap(lambda x: inplace_view(t, x))(a(3, 4, 2)),
    "vmap of grad of writes": lambda t, a: t.vmap(t.func.grad(lambda x: inplace_view(t, x)))(
        a(3, 4, 2)
    ),
    "vmap of indexing": lambda t, a: t.vmap(lambda x, i: x[i] * x[:, None][0])(
        a(3, 4), t.tensor([[0, 1], [3, 3], [2, 0]])
    ),
    "vmap of where": lambda t, a: t.vmap(lambda x: t.where(x > 0, x, x * 0.1))(a(3, 4)),
    "vmap of sort": lambda t, a: t.vmap(lambda x: x.sort().values * x.argsort())(a(3, 4)),
    "vmap of batch norm": lambda t, a: t.vmap(
        lambda x: t.nn.functional.batch_norm(x, None, None, training=True)
    )(a(3, 4, 2)),
    "vmap of convolution": lambda t, a: t.vmap(t.nn.functional.conv2d, (0, 0))(
        a(3, 1, 2, 5, 5), a(3, 4, 2, 3, 3)
    ),
    "vmap of attention": lambda t, a: t.vmap(t.nn.functional.scaled_dot_product_attention)(
        a(3, 2, 5, 4), a(3, 2, 6, 4, seed=1), a(3, 2, 6, 4, seed=2)
    ),
    "shapes inside": lambda t, a: _shapes(t, a),
    # -- other paths to the same
    "functional jacobian": lambda t, a: t.autograd.functional.jacobian(
        lambda x, y: (x * y).exp(), (a(2), a(2, seed=1)), vectorize=True
    ),
    "functional forward jacobian": lambda t, a: t.autograd.functional.jacobian(
        lambda x, y: ((x * y).exp(), x), (a(2), a(2, seed=1)), vectorize=True,
        strategy="forward-mode",
    ),
    "functional hessian": lambda t, a: t.autograd.functional.hessian(
        lambda x, y: (x**2 * y).sum(), (a(2), a(2, seed=1)), vectorize=True,
        outer_jacobian_strategy="forward-mode",
    ),
    "functional jvp": lambda t, a: t.autograd.functional.jvp(
        lambda x: (x**2).cumsum(0), a(3), a(3, seed=1)
    ),
    "functional hvp": lambda t, a: t.autograd.functional.hvp(
        lambda x: (x**3).sum(), a(3), a(3, seed=1)
    ),
    "functional vhp": lambda t, a: t.autograd.functional.vhp(
        lambda x, y: (x**3 * y).sum(), (a(3), a(3, seed=2)), (a(3, seed=1), a(3))
    ),
    "batched gradients": lambda t, a: _batched_gradients(t, a),
    "dual numbers": lambda t, a: _dual_numbers(t, a),
    "stacked modules": lambda t, a: _ensemble(t, a),
    "functional call": lambda t, a: t.func.functional_call(
        t.nn.Linear(3, 2).double(), {"weight": a(2, 3), "bias": a(2)}, (a(4, 3),)
    ),
}  # fmt: skip


def _inside_no_grad(t: Any, a: Any) -> Any:
    with t.no_grad():
        return t.func.grad(lambda x: (x**3).sum())(a(3))


def _vjp(t: Any, function: Any, primals: Any, cotangents: Any) -> Any:
    out, pull = t.func.vjp(function, *primals)
    return out, pull(cotangents)


def _linearize(t: Any, function: Any, primals: Any, a: Any) -> Any:
    out, along = t.func.linearize(function, *primals)
    return out, along(a(3, seed=2), a(3, seed=3))


def _shapes(t: Any, a: Any) -> Any:
    seen: list[Any] = []

    def look(x: Any) -> Any:
        seen.append((tuple(x.shape), x.dim(), x.numel(), x.requires_grad, x.size(0)))
        return x

    t.vmap(look, in_dims=1)(a(3, 4, 5))
    return seen


def _batched_gradients(t: Any, a: Any) -> Any:
    x = a(3).requires_grad_()
    rows = t.autograd.grad(x**2, x, t.eye(3, dtype=t.float64), is_grads_batched=True)
    return rows[0]


def _dual_numbers(t: Any, a: Any) -> Any:
    ad = t.autograd.forward_ad
    with ad.dual_level():
        x = ad.make_dual(a(3), a(3, seed=1))
        y = x.clone()
        y[1:].mul_(x[0])
        out = ad.unpack_dual((y * x).sum())
        return out.primal, out.tangent, ad.unpack_dual(x.detach()).tangent is None


def _ensemble(t: Any, a: Any) -> Any:
    models = [t.nn.Linear(3, 2).double() for _ in range(2)]
    for i, m in enumerate(models):
        with t.no_grad():
            m.weight.copy_(a(2, 3, seed=i))
            m.bias.copy_(a(2, seed=i))
    params, buffers = t.func.stack_module_state(models)

    def call(p: Any, b: Any, x: Any) -> Any:
        return t.func.functional_call(models[0], (p, b), (x,))

    return params, t.vmap(call, in_dims=(0, 0, None))(params, buffers, a(4, 3))


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    # PyTorch's forward-over-reverse Hessian keeps a history that nobody asked for.
    compare(PROGRAMS[name], history=name != "functional hessian")


#: programs that raise in both libraries, an error of the same class
ERRORS: dict[str, Program] = {
    "no inputs": lambda t, a: t.vmap(lambda: 1)(),
    "in_dims list": lambda t, a: t.vmap(t.sin, in_dims=[0])(a(3)),
    "in_dims too many": lambda t, a: t.vmap(t.sin, in_dims=(0, 0))(a(3)),
    "in_dims out of range": lambda t, a: t.vmap(t.sin, in_dims=1)(a(3)),
    "in_dims negative out of range": lambda t, a: t.vmap(t.sin, in_dims=-2)(a(3)),
    "in_dims of a number": lambda t, a: t.vmap(t.add)(a(3), 1.0),
    "in_dims all None": lambda t, a: t.vmap(t.sin, in_dims=(None,))(a(3)),
    "in_dims string": lambda t, a: t.vmap(t.sin, in_dims=("a",))(a(3)),
    "sizes differ": lambda t, a: t.vmap(t.add)(a(3), a(4)),
    "no tensor returned": lambda t, a: t.vmap(lambda x: 3)(a(3)),
    "no tensor in a tuple": lambda t, a: t.vmap(lambda x: (x, "a"))(a(3)),
    "out_dims None of a batch": lambda t, a: t.vmap(t.sin, out_dims=None)(a(3)),
    "out_dims of another structure": lambda t, a: t.vmap(t.sin, out_dims=(0, 0))(a(3)),
    "out_dims out of range": lambda t, a: t.vmap(t.sin, out_dims=2)(a(3)),
    "out_dims string": lambda t, a: t.vmap(t.sin, out_dims="a")(a(3)),
    "chunk of 0": lambda t, a: t.vmap(t.sin, chunk_size=0)(a(3)),
    "unknown randomness": lambda t, a: t.vmap(t.sin, randomness="no")(a(3)),
    "draw in error mode": lambda t, a: t.vmap(lambda x: x + t.rand(2))(a(3, 2)),
    "dropout in error mode": lambda t, a: t.vmap(
        lambda x: t.nn.functional.dropout(x, 0.5, True)
    )(a(3, 2)),
    "item": lambda t, a: t.vmap(lambda x: x.item())(a(3)),
    "control flow": lambda t, a: t.vmap(lambda x: x if x > 0 else -x)(a(3)),
    "mask": lambda t, a: t.vmap(lambda x: x[x > 0])(a(3, 4)),
    "nonzero": lambda t, a: t.vmap(lambda x: x.nonzero())(a(3, 4)),
    "write into one example": lambda t, a: t.vmap(lambda x: t.zeros(2).add_(x))(a(3, 2)),
    "batch norm with statistics": lambda t, a: t.vmap(t.nn.BatchNorm1d(2).double())(a(3, 4, 2)),
    "function without vmap": lambda t, a: t.vmap(_plain(t).apply)(a(3)),
    "grad of a vector": lambda t, a: t.func.grad(t.sin)(a(3)),
    "grad of a number": lambda t, a: t.func.grad(lambda x: 3.0)(a(3)),
    "grad without aux": lambda t, a: t.func.grad(lambda x: x.sum(), has_aux=True)(a(3)),
    "grad of argnum 2": lambda t, a: t.func.grad(lambda x: x.sum(), argnums=2)(a(3)),
    "grad of integers": lambda t, a: t.func.grad(lambda x: x.sum())(t.tensor([1, 2])),
    "jvp without tuples": lambda t, a: t.func.jvp(t.sin, a(3), a(3)),
    "jvp of other shapes": lambda t, a: t.func.jvp(t.sin, (a(3),), (a(4),)),
    "jvp of nothing": lambda t, a: t.func.jvp(lambda: 1, (), ()),
    "jvp of few tangents": lambda t, a: t.func.jvp(t.add, (a(3), a(3)), (a(3),)),
    "jvp strict": lambda t, a: t.func.jvp(lambda x: t.ones(2), (a(3),), (a(3),), strict=True),
    "vjp of other structure": lambda t, a: t.func.vjp(lambda x: (x, x), a(3))[1](a(3)),
    "jacrev to a number": lambda t, a: t.func.jacrev(lambda x: 3.0)(a(3)),
    "linearize of other shapes": lambda t, a: t.func.linearize(t.sin, a(3))[1](a(4)),
    "dual without a level": lambda t, a: t.autograd.forward_ad.make_dual(a(3), a(3)),
    "exit without a level": lambda t, a: t.autograd.forward_ad.exit_dual_level(),
    "jacobian of another strategy": lambda t, a: t.autograd.functional.jacobian(
        t.sin, a(3), strategy="sideways"
    ),
    "jacobian forward without vectorize": lambda t, a: t.autograd.functional.jacobian(
        t.sin, a(3), strategy="forward-mode"
    ),
    "stack of two classes": lambda t, a: t.func.stack_module_state([t.nn.ReLU(), t.nn.Tanh()]),
    "stack of nothing": lambda t, a: t.func.stack_module_state([]),
}  # fmt: skip


def _plain(t: Any) -> Any:
    class Twice(t.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(x: Any) -> Any:
            return x * 2

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2

    return Twice


def raised(library: Any, program: Program) -> type[BaseException] | None:
    try:
        run(library, program)
    except Exception as error:
        return type(error)
    return None


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    theirs = raised(torch, ERRORS[name])
    assert theirs is not None, "PyTorch accepts it"
    ours = raised(tapegrad, ERRORS[name])
    assert ours is not None, "accepted here"
    assert issubclass(ours, theirs) or issubclass(theirs, ours), f"{ours} for {theirs}"


def test_functionalize() -> None:
    def run(library: Any) -> Any:
        x = library.ones(3)
        call = library.func.functionalize(lambda a, scale=2: a.add_(1).mul(scale))
        views = library.func.functionalize(lambda a: a[:2].mul_(2), remove="mutations_and_views")
        found = [call(x).tolist(), call(x, scale=3).tolist(), views(x).tolist(), x.tolist()]
        with pytest.raises(RuntimeError):
            library.func.functionalize(lambda a: a, remove="views")(x)
        return found

    assert run(tapegrad) == run(torch)
