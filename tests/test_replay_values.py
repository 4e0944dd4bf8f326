"""No value of a recorded call becomes a constant: every function, compiled, on changing data.

What each public operation and method of a tensor gives inside a compiled function equals what it
gives eagerly, call by call, or capture refuses it.
"""

from __future__ import annotations

import copy
import functools
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sweep import NAMES, TABLE, array_of, flat, generator, mapped, samples_of
from thinning import some

import tapegrad as tg
from tapegrad.core.tensor import Tensor, wrap
from tapegrad.ops.table import Op
from tapegrad.replay import CaptureError, Compiled
from tapegrad.testing import make_arguments

pytest.importorskip("llvmlite")

CALLS = 5
#: the first calls have equal data: recordings agree, whatever they took from it
EQUAL = 2
#: samples of an operation that are tried; others differ in sizes and flags
SAMPLES = 9


def changed(x: Tensor, rng: np.random.Generator) -> Tensor:
    """The same values in another order: still valid, if each was."""
    array = x._array
    return wrap(rng.permutation(array.reshape(-1)).reshape(array.shape))


def assert_same(got: Any, expected: Any, what: str) -> None:
    a, b = flat(got), flat(expected)
    assert len(a) == len(b), what
    for x, y in zip(a, b, strict=True):
        if isinstance(y, Tensor):
            assert x.dtype is y.dtype, what
            left, right = array_of(x), array_of(y)
            if left.dtype.kind in "fV":
                left, right = left.astype(np.float64), right.astype(np.float64)
            np.testing.assert_allclose(left, right, rtol=2e-4, atol=2e-5, err_msg=what)
        else:
            assert x == y, what


def compare(function: Callable[..., Any], given: list[list[Any]], what: str) -> bool:
    """Call the plain and the compiled function on each list of arguments; False if refused."""
    compiled: Compiled = tg.compile(function, fullgraph=True)
    for i, arguments in enumerate(given):
        ours, theirs = ([_copied(a) for a in arguments] for _ in range(2))
        tg.manual_seed(i)
        expected = function(*ours)
        tg.manual_seed(i)
        try:
            got = compiled(*theirs)
        except CaptureError:
            assert i == 0, f"{what} was refused in call {i}"
            return False
        assert_same(got, expected, f"{what}, call {i}")
        assert_same(theirs, ours, f"{what}, arguments of call {i}")
    return True


def _copied(x: Any) -> Any:
    if isinstance(x, list):
        return [_copied(item) for item in x]
    return wrap(x._array.copy()) if isinstance(x, Tensor) else x


@pytest.mark.sweep(keep=1 / 2, some="name")
@pytest.mark.parametrize("name", NAMES)
def test_operations_on_changing_data(name: str) -> None:
    op = TABLE[name]
    for number, sample in some(samples_of(name)[:SAMPLES]):
        args, kwargs = make_arguments(sample, generator(name, number), tg.float32, False)
        given = []
        for i in range(CALLS):
            given.append(list(args) if i < EQUAL else _reordered(op, args, kwargs, i))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numbers among the arguments
            compare(functools.partial(_called, op, kwargs), given, f"{name}{sample}")


def _called(op: Op, kwargs: dict[str, Any], *args: Any) -> Any:
    return op.function(*args, **kwargs)


def _reordered(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], seed: int) -> list[Any]:
    """Arguments with other values, unless their order means something."""
    rng = np.random.default_rng(seed)
    order, _ = mapped(lambda x: changed(x, rng), (args, {}))
    try:
        op.function(*order, **kwargs)
    except (RuntimeError, IndexError, ValueError):
        return list(args)
    return list(order)


def _set(x: Tensor, key: Any, value: Any) -> Tensor:
    out = x.clone()
    out[key] = value
    return out


def _retained(x: Tensor) -> Any:
    y = x.detach().clone().requires_grad_() * 2
    y.retain_grad()
    (y * x).sum().backward()
    return y.grad


def _with_data(x: Tensor) -> Tensor:
    out = tg.zeros_like(x)
    out.data = x * 2
    return out + 1


METHODS: dict[str, Callable[[Tensor], Any]] = {
    "mask of bytes": lambda x: x[(x > 0).byte()],
    "as_strided_": lambda x: x.clone().as_strided_((2, 3), (1, 2)) * 2,
    "to_sparse": lambda x: x.relu().to_sparse().to_dense() * 2,
    "to_sparse_coo": lambda x: (x.relu().to_sparse_coo(1) * x).to_dense(),
    "sparse_mask": lambda x: x.sparse_mask(x.relu().to_sparse()).to_dense(),
    "mask": lambda x: x[x > 0],
    "set by a mask": lambda x: _set(x, x > 0, 2.0),
    "set by a mask of bytes": lambda x: _set(x, (x > 0).byte(), 2.0),
    "set by a mask of rows": lambda x: _set(x, (x[:, 0] > 0).byte(), 2.0),
    "set by indices": lambda x: _set(x, x.argmax(1), 0.5),
    "set by an index": lambda x: _set(x, x[0].argmax(), 0.5),
    "set to a part": lambda x: _set(x, 1, x[0]),
    "index": lambda x: x[x[0].argmax()],
    "indices": lambda x: x[:, x.argmax(1)],
    "list of indices": lambda x: x[[0, 2]],
    "view of bits": lambda x: x.view(tg.int32),
    "view of bits of a part": lambda x: (x * 2)[1].view(tg.int32) + 1,
    "view of bytes": lambda x: x.view(tg.uint8),
    "view of wide bits": lambda x: x.double().view(tg.int64),
    "view of halves": lambda x: x.view(tg.int16),
    "view back": lambda x: x.view(tg.int32).view(tg.float32),
    "view of the same type": lambda x: x.view(tg.float32) * 2,
    "deepcopy": lambda x: copy.deepcopy(x) * 2,
    "deepcopy of a result": lambda x: copy.deepcopy(x * 2),
    "copy": lambda x: copy.copy(x) * 2,
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "retain_grad": _retained,
    "data": lambda x: x.data * 2,
    "set data": _with_data,
    "detach": lambda x: x.detach() * 2,
    "numpy": lambda x: tg.tensor(x.numpy()),
    "array": lambda x: tg.tensor(np.asarray(x)),
    "item": lambda x: x * x.sum().item(),
    "tolist": lambda x: tg.tensor(x.tolist()),
    "float": lambda x: x * float(x.sum()),
    "bool": lambda x: x if x.sum() > 0 else -x,
    "int": lambda x: x * int(x.sum()),
    "format": lambda x: f"{x.sum()}",
    "tensor of a tensor": lambda x: tg.tensor(x),
    "tensor of tensors": lambda x: tg.tensor([x[0, 0], x[1, 1]]),
    "as_tensor": lambda x: tg.as_tensor(x) * 2,
    "Tensor": lambda x: tg.Tensor(x),
    "new_tensor": lambda x: x.new_tensor(x),
    "new_full": lambda x: x.new_full((2,), x[0, 0]),
    "full": lambda x: tg.full((2,), x[0, 0]),
    "arange": lambda x: tg.arange(x[0, 0].abs()),
    "linspace": lambda x: tg.linspace(0, x[0, 0], 5),
    "randint": lambda x: tg.randint(0, (x[0, 0].abs() * 9 + 2).long(), (3,)),
    "normal": lambda x: tg.normal(x, x.abs()),
    "bernoulli": lambda x: x.sigmoid().bernoulli(),
    "bernoulli_": lambda x: x.bernoulli_(x.sigmoid()),
    "multinomial": lambda x: x.abs().multinomial(2),
    "uniform_": lambda x: x.uniform_(0, 2),
    "normal_": lambda x: x.normal_(1, 2),
    "exponential_": lambda x: x.exponential_(2),
    "geometric_": lambda x: x.geometric_(0.3),
    "cauchy_": lambda x: x.cauchy_(),
    "log_normal_": lambda x: x.log_normal_(),
    "random_": lambda x: x.random_(5),
    "copy_": lambda x: tg.zeros_like(x).copy_(x),
    "fill_": lambda x: tg.zeros_like(x).fill_(x[0, 0]),
    "fill_diagonal_": lambda x: x.clone().fill_diagonal_(x[0, 0]),
    "zero_": lambda x: x.zero_(),
    "squeeze_": lambda x: (x * 2).unsqueeze_(1).squeeze_(1),
    "transpose_": lambda x: (x * 2).transpose_(0, 1) + 1,
    "t_": lambda x: (x * 2).t_() + 1,
    "where": lambda x: x.where(x > 0, -x),
    "type_as": lambda x: x.type_as(x.double()),
    "to": lambda x: x.to(tg.float64),
    "long": lambda x: (x * 9).long(),
    "bool()": lambda x: (x > 0).bool(),
    "split": lambda x: x.split([1, 2]),
    "split at": lambda x: x.tensor_split((x[0, :1] > 0).long()),
    "iter": lambda x: [row * 2 for row in x],
    "unpack": lambda x: sum(x.unbind()),
    "equal": lambda x: tg.equal(x, x.relu()),
    "allclose": lambda x: tg.allclose(x, x.relu()),
    "is_nonzero": lambda x: x.sum().is_nonzero(),
    "max and argmax": lambda x: x.max(1),
    "requires_grad": lambda x: x.detach().requires_grad_().sum() * 2,
    "zero_grad": lambda x: x.zero_grad(),
    "T": lambda x: x.T @ x.mT.T,
    "dlpack": lambda x: tg.from_dlpack(x) * 2,
    "from_numpy": lambda x: tg.from_numpy(x.numpy()) * 2,
    "eq_": lambda x: x.clone().eq_(x.relu()),
    "ne_": lambda x: x.clone().ne_(x.relu()),
    "not_equal_": lambda x: x.clone().not_equal_(x.relu()),
    "lt_": lambda x: x.clone().lt_(0.2),
    "less_": lambda x: x.clone().less_(0.2),
    "le_": lambda x: x.clone().le_(x.T.reshape(3, 4)),
    "less_equal_": lambda x: x.clone().less_equal_(0.2),
    "gt_": lambda x: x.clone().gt_(0.2),
    "greater_": lambda x: x.clone().greater_(0.2),
    "ge_": lambda x: x.clone().ge_(0.2),
    "greater_equal_": lambda x: x.clone().greater_equal_(0.2),
    "logical_not_": lambda x: x.relu().logical_not_(),
    "float_power_": lambda x: x.double().float_power_(2),
    "heaviside_": lambda x: x.clone().heaviside_(x.abs()),
    "polygamma": lambda x: (x.abs() + 1).polygamma(1),
    "polygamma_": lambda x: (x.abs() + 1).polygamma_(1),
    "apply_": lambda x: x.clone().apply_(lambda value: 2 * value + 1),
    "map_": lambda x: x.clone().map_(x.relu(), lambda a, b: a + 2 * b),
    "map2_": lambda x: x.clone().map2_(x.relu(), x.abs(), lambda a, b, c: a + b * c),
    "storage": lambda x: tg.tensor(list((x * 2).storage())),
    "untyped_storage": lambda x: tg.tensor(list((x * 2).untyped_storage())),
    "resize_": lambda x: (x * 2).resize_(2, 4) + 1,
    "resize_as_": lambda x: (x * 2).resize_as_(tg.zeros(2, 2)) + 1,
    "set_": lambda x: tg.zeros(3, 4).set_(x * 2) + 1,
    "new": lambda x: x.new([1.0, 2.0]) * x[0, 0],
    "as_subclass": lambda x: x.as_subclass(tg.Tensor) * 2,
    "to_device": lambda x: x.to_device("cpu") * 2,
    "grad of a leaf": lambda x: tg.autograd.grad((y := x.detach().requires_grad_()).sum() * 2, y),
}


@pytest.mark.filterwarnings("ignore:a mask of uint8")
@pytest.mark.parametrize("name", METHODS)
def test_methods_on_changing_data(name: str) -> None:
    rng = np.random.default_rng(3)
    data = [tg.tensor(rng.standard_normal((3, 4)).astype(np.float32)) for _ in range(CALLS)]
    given = [[data[max(i, EQUAL - 1)]] for i in range(CALLS)]
    compare(METHODS[name], given, name)


def test_every_method_is_swept() -> None:
    """Methods beside those of the table are named above, or read no values."""
    swept = {m for op in TABLE.values() for m in op.methods}
    silent = {
        *("backward", "byte", "char", "cpu", "cuda", "data_ptr", "detach_", "device", "dim"),
        *("bfloat16", "bool", "double", "dtype", "element_size", "float", "get_device", "grad"),
        *("grad_fn", "half", "id", "int", "is_complex", "is_contiguous", "is_cpu", "is_cuda"),
        *("is_floating_point", "is_leaf", "is_meta", "is_nested", "is_pinned", "is_quantized"),
        *("is_signed", "is_sparse", "itemsize", "mT", "nbytes", "ndim", "ndimension", "nelement"),
        *(
            "new_empty",
            "new_ones",
            "new_zeros",
            "numel",
            "output_nr",
            "pin_memory",
            "record_stream",
            "requires_grad_",
        ),
        *("register_hook", "register_post_accumulate_grad_hook", "retains_grad", "shape", "short"),
        *("size", "storage_offset", "stride", "swapaxes_", "swapdims_", "type", "unsqueeze_"),
        *("H", "cdouble", "cfloat", "chalf", "imag", "mH", "real"),
        *("is_inference", "is_mkldnn", "is_mps", "is_mtia", "is_set_to", "is_sparse_csr"),
        *("is_vulkan", "is_xla", "is_xpu", "layout", "new_empty_strided", "storage_type"),
        *("dense_dim", "is_same_size", "is_shared", "share_memory_", "sparse_dim", "to_dense"),
        "dim_order",
        # They raise.
        *("eig", "lstsq", "solve", "symeig"),
        *("coalesce", "indices", "is_coalesced", "values"),
    }
    found = {n for n in dir(Tensor) if not n.startswith("_")}
    assert found - swept - silent - set(METHODS) == set()
