"""Files of PyTorch load by name, and PyTorch's readers of safetensors load ours."""

import collections
import io

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import tapegrad as tg
from tapegrad import nn


def from_torch(value, **options):
    file = io.BytesIO()
    torch.save(value, file, **options)
    return tg.load(io.BytesIO(file.getvalue()))


def bits_of(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def test_a_checkpoint_of_pytorch_loads_by_name():
    theirs = torch.nn.Sequential(torch.nn.Linear(3, 4, bias=False), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.AdamW(theirs.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    x = torch.randn(5, 3)
    # Squares would have gradients of 0 after batch norm, and Adam makes steps of their rounding.
    for _ in range(3):
        optimizer.zero_grad()
        theirs(x).exp().sum().backward()
        optimizer.step()
        scheduler.step()
    loaded = from_torch(
        {
            "model": theirs.state_dict(),
            "optimizer": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(),
        }
    )
    assert isinstance(loaded["model"], collections.OrderedDict)
    ours = nn.Sequential(nn.Linear(3, 4, bias=False), nn.BatchNorm1d(4))
    ours.load_state_dict(loaded["model"])
    update = tg.optim.AdamW(ours.parameters(), lr=0.5)
    update.load_state_dict(loaded["optimizer"])
    optimizer.zero_grad()
    theirs(x).exp().sum().backward()
    optimizer.step()
    ours(tg.tensor(x.numpy())).exp().sum().backward()
    update.step()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_values_and_containers(protocol):
    value = {
        "numbers": [
            1,
            -5,
            300,
            70_000,
            1 << 40,
            -(1 << 100),
            1.5,
            float("inf"),
            True,
            None,
            2 - 3j,
        ],
        "text": ["", "ü\U0001f600", "x" * 300],
        "bytes": [b"", b"abc\xff", bytearray(b"de")],
        "tuples": ((), (1,), (1, 2), (1, 2, 3), (1, 2, 3, (4,))),
        "sets": [{1, 2}, frozenset({3}), set()],
        "ordered": collections.OrderedDict(b=1, a=2),
        "counter": collections.Counter("abca"),
        "default": collections.defaultdict(list, {1: [2]}),
        "deque": collections.deque([1, 2], maxlen=4),
        1: {2: {3: []}},
        (1, "a"): 0,
    }
    loaded = from_torch(value, pickle_protocol=protocol)
    assert repr(loaded) == repr(value)


def test_types_devices_and_numbers_of_numpy():
    loaded = from_torch([torch.bfloat16, torch.device("cpu"), torch.Size([1, 2]), np.float64(2.5)])
    assert loaded == [tg.bfloat16, tg.device("cpu"), tg.Size([1, 2]), np.float64(2.5)]


NAMES = "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool".split()  # noqa: SIM905


@pytest.mark.parametrize("name", NAMES)
def test_every_dtype_to_the_last_bit(name):
    for shape in [(), (0,), (2, 0), (5,), (2, 3, 4)]:
        theirs = (torch.randn(shape) * 100).to(getattr(torch, name))
        ours = from_torch(theirs)
        assert ours.dtype is getattr(tg, name)
        assert tuple(ours.shape) == shape
        assert ours._array.tobytes() == bits_of(theirs)


def test_views_share_memory_as_they_did():
    x = torch.arange(12.0).reshape(3, 4)
    loaded = from_torch(
        {"x": x, "t": x.T, "part": x[1:, ::2], "p": torch.nn.Parameter(x), "e": x[0].expand(5, 4)}
    )
    for name, tensor in {"t": x.T, "part": x[1:, ::2], "e": x[0].expand(5, 4)}.items():
        assert loaded[name].tolist() == tensor.tolist()
    assert isinstance(loaded["p"], nn.Parameter)
    assert loaded["p"].requires_grad
    loaded["x"].zero_()
    assert all((loaded[name] == 0).all() for name in loaded)


def test_requires_grad():
    loaded = from_torch([torch.ones(2, requires_grad=True), torch.ones(2)])
    assert [t.requires_grad for t in loaded] == [True, False]


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (torch.nn.Linear(1, 1), "torch.nn.modules.linear.Linear"),
        ({"f": len}, "builtins.len"),
        (np.zeros(2), "_reconstruct"),
    ],
    ids=["module", "function", "array"],
)
def test_anything_else_is_named(value, name):
    with pytest.raises(tg.SavingError, match=name):
        from_torch(value)


def test_files_from_before_zip():
    with pytest.raises(tg.SavingError, match=r"before 1\.6"):
        from_torch(torch.ones(2), _use_new_zipfile_serialization=False)


def test_safetensors_go_both_ways(tmp_path):
    model = torch.nn.Linear(3, 2)
    save_file({**model.state_dict(), "b": torch.randn(3).bfloat16()}, tmp_path / "theirs")
    ours = tg.load(tmp_path / "theirs")
    assert ours["b"]._array.tobytes() == bits_of(load_file(tmp_path / "theirs")["b"])
    tg.save(ours, tmp_path / "ours")
    again = load_file(tmp_path / "ours")
    assert set(again) == {"weight", "bias", "b"}
    torch.testing.assert_close(again["weight"], model.weight.detach(), rtol=0, atol=0)
    assert again["b"].dtype is torch.bfloat16


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("unique", [False, True])
def test_sparse_tensors_of_files(unique, tmp_path):
    theirs = torch.sparse_coo_tensor([[0, 2, 2], [1, 0, 0]], [1.0, 2.0, 3.0], (3, 2))
    theirs = theirs.coalesce() if unique else theirs
    torch.save({"x": theirs}, tmp_path / "file")
    ours = tg.load(tmp_path / "file")["x"]
    assert ours.is_sparse
    assert ours.is_coalesced() == unique
    assert ours.to_dense().tolist() == theirs.to_dense().tolist()
