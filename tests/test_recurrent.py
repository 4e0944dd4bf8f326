"""Recurrent layers: compiled equals eager, packed sequences, states, initialisation, errors."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from replaying import callbacks, close, randn, replayed

import tapegrad as tg
from tapegrad import nn
from tapegrad.nn.packed import PackedSequence
from tapegrad.ops.nn.recurrent import LONGEST

NAMES = ["RNN", "LSTM", "GRU"]
CELLS = ["RNNCell", "LSTMCell", "GRUCell"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}], ids=str)
def test_compiled_training_equals_eager(name: str, options: dict[str, Any]) -> None:
    tg.manual_seed(0)
    eager = getattr(nn, name)(6, 8, **options)
    other = copy.deepcopy(eager)

    def step(layer: Any, optimizer: Any, x: Any) -> Any:
        optimizer.zero_grad()
        loss = layer(x)[0].pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss

    optimizers = [tg.optim.SGD(m.parameters(), 0.5) for m in (eager, other)]
    compiled = tg.compile(step)
    losses = []
    for i in range(6):
        x = randn(LONGEST + 3, 4, 6, seed=i // 5)
        expected, got = step(eager, optimizers[0], x), compiled(other, optimizers[1], x)
        close(got, expected)
        losses.append(float(got))
    assert losses[4] < losses[0]
    assert replayed(compiled) == 4
    assert callbacks(compiled) == []
    for p, q in zip(eager.parameters(), other.parameters(), strict=True):
        close(p, q)


@pytest.mark.parametrize("name", CELLS)
def test_compiled_cells(name: str) -> None:
    cell = getattr(nn, name)(3, 4)

    def run(x: Any) -> Any:
        state = None
        for t in range(5):
            state = cell(x[t], state)
        return state[0] if isinstance(state, tuple) else state

    compiled = tg.compile(run)
    for i in range(4):
        x = randn(5, 2, 3, seed=i)
        close(compiled(x), run(x))


@pytest.mark.parametrize("name", NAMES)
def test_pieces_do_not_show(name: str) -> None:
    """A long sequence equals two short ones, the second from the states of the first."""
    layer = getattr(nn, name)(3, 5).double()
    x = randn(3 * LONGEST + 5, 2, 3).double()
    whole, last = layer(x)
    cut = LONGEST - 1
    begin, states = layer(x[:cut])
    end, final = layer(x[cut:], states)
    close(tg.cat([begin, end]), whole, 1e-12)
    for a, b in zip(
        final if name == "LSTM" else [final], last if name == "LSTM" else [last], strict=True
    ):
        close(a, b, 1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_cells_make_the_steps_of_layers(name: str) -> None:
    layer, cell = getattr(nn, name)(3, 4), getattr(nn, f"{name}Cell")(3, 4)
    cell.load_state_dict({k.removesuffix("_l0"): v for k, v in layer.state_dict().items()})
    x = randn(6, 2, 3)
    state = None
    for t in range(6):
        state = cell(x[t], state)
    last = layer(x)[1]
    close(state[0] if name == "LSTM" else state, (last[0] if name == "LSTM" else last)[0])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_packed_sequences_equal_single_ones(name: str, bidirectional: bool) -> None:
    layer = getattr(nn, name)(3, 4, 2, bidirectional=bidirectional).double()
    lengths = [9, 6, 6, 1]
    sequences = [randn(n, 3, seed=n * 10 + i).double() for i, n in enumerate(lengths)]
    rows = [s[t] for t in range(9) for s in sequences if t < len(s)]
    sizes = [sum(n > t for n in lengths) for t in range(9)]
    out, last = layer(PackedSequence(tg.stack(rows), tg.tensor(sizes)))
    assert isinstance(out, PackedSequence)
    start = np.cumsum([0, *sizes])
    for i, sequence in enumerate(sequences):
        expected, state = layer(sequence)
        got = tg.stack([out.data[int(start[t]) + i] for t in range(lengths[i])])
        close(got, expected, 1e-12)
        close((last[0] if name == "LSTM" else last)[:, i], state[0] if name == "LSTM" else state)


def test_packed_sequences_in_a_compiled_function() -> None:
    """Lengths are part of the recording, so they must be known where the packing is made."""
    layer = nn.LSTM(3, 4, bidirectional=True)

    def run(rows: Any) -> Any:
        return layer(PackedSequence(rows, tg.tensor([3, 3, 2, 1])))[0].data

    compiled = tg.compile(run)
    for i in range(4):
        rows = randn(9, 3, seed=i)
        close(compiled(rows), run(rows))
    assert replayed(compiled) == 2
    sizes = tg.tensor([3, 3, 2, 1])
    with pytest.raises(RuntimeError, match="inside a compiled function"):
        tg.compile(lambda rows: layer(PackedSequence(rows, sizes))[0].data, fullgraph=True)(rows)


def test_packed_sequence_is_a_tuple_of_four() -> None:
    data, sizes = randn(3, 2), tg.tensor([2, 1])
    packed = PackedSequence(data, sizes, tg.tensor([1, 0]))
    assert tuple(packed._fields) == ("data", "batch_sizes", "sorted_indices", "unsorted_indices")
    assert packed.unsorted_indices.tolist() == [1, 0]
    assert packed.to(tg.float64).data.dtype is tg.float64
    assert packed.double().sorted_indices.tolist() == [1, 0]
    assert packed.to(tg.float32) is packed
    assert not packed.is_cuda
    with pytest.raises(ValueError, match="batch_sizes"):
        PackedSequence(data)


def test_dropout_lies_between_layers() -> None:
    layer = nn.GRU(3, 4, num_layers=2, dropout=0.5)
    x = randn(5, 2, 3)
    tg.manual_seed(0)
    first = layer(x)[0]
    assert not tg.equal(first, layer(x)[0])
    tg.manual_seed(0)
    assert tg.equal(first, layer(x)[0])
    layer.eval()
    assert tg.equal(layer(x)[0], layer(x)[0])
    whole = nn.GRU(3, 4, num_layers=2, dropout=1.0)
    out, _ = whole(x)
    assert (out.abs().sum() > 0).item()
    with pytest.warns(UserWarning, match="num_layers=1"):
        nn.LSTM(3, 4, dropout=0.5)


@pytest.mark.parametrize("name", [*NAMES, *CELLS])
def test_initialisation(name: str) -> None:
    """All parameters are uniform in ±1 / sqrt(hidden_size)."""
    for p in getattr(nn, name)(30, 64).parameters():
        values = p.detach().numpy()
        assert 0.11 < abs(values).max() <= 0.125
        assert abs(values.mean()) < 0.03


@pytest.mark.parametrize("dtype", [tg.float16, tg.bfloat16])
@pytest.mark.parametrize("name", NAMES)
def test_half_precision(name: str, dtype: Any) -> None:
    layer = getattr(nn, name)(8, 16)
    x = randn(12, 4, 8)
    expected = layer(x)[0]
    layer.to(dtype)
    out, _ = layer(x.to(dtype))
    assert out.dtype is dtype
    close(out.float(), expected, 0.05)
    out.sum().backward()
    assert all(p.grad.dtype is dtype for p in layer.parameters())


def test_layers_are_copied_and_pickled() -> None:
    layer = nn.LSTM(3, 4, 2, bidirectional=True, proj_size=2)
    x = randn(5, 2, 3)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        close(other(x)[0], layer(x)[0])
    layer.flatten_parameters()
    assert [len(group) for group in layer.all_weights] == [5] * 4


def test_no_batch_rows_and_no_steps() -> None:
    layer = nn.LSTM(3, 4)
    out, (h, c) = layer(tg.zeros(5, 0, 3))
    assert out.shape == (5, 0, 4)
    assert h.shape == c.shape == (1, 0, 4)
    with pytest.raises(RuntimeError, match="no time steps"):
        layer(tg.zeros(0, 2, 3))


def test_errors_of_layers() -> None:
    layer, x, z = nn.LSTM(3, 4, 2, bidirectional=True), randn(5, 2, 3), tg.zeros(4, 2, 4)
    for arguments, error, text in (
        ((x[..., :2],), RuntimeError, "input_size = 3, got 2"),
        ((x[0, 0],), ValueError, "or a batch of that, got 1"),
        ((x.double(),), ValueError, "the weights are"),
        ((x, z), RuntimeError, "pair"),
        ((x, (z, z[:2])), RuntimeError, r"hidden\[1\] size \(4, 2, 4\), got \[2, 2, 4\]"),
        ((x, (z[..., :1], z)), RuntimeError, r"hidden\[0\] size"),
        ((x[:, 0], (z, z)), RuntimeError, "unbatched 2-D"),
        ((x, (z[0], z[0])), RuntimeError, "batched 3-D"),
    ):
        with pytest.raises(error, match=text):
            layer(*arguments)
    with pytest.raises(RuntimeError, match=r"hidden size \(1, 2, 4\), got \[1, 1, 4\]"):
        nn.GRU(3, 4)(x, z[:1, :1])


def test_errors_of_options() -> None:
    for make, error, text in (
        (lambda: nn.LSTM(3, 0), ValueError, "hidden_size must be at least 1"),
        (lambda: nn.LSTM(0, 3), ValueError, "input_size must be at least 1"),
        (lambda: nn.LSTM(3, 4, 0), ValueError, "num_layers must be at least 1"),
        (lambda: nn.LSTM(3, 4.0), TypeError, "must be an int"),
        (lambda: nn.LSTM(3, 4, dropout=2.0), ValueError, "dropout"),
        (lambda: nn.LSTM(3, 4, dropout=True), ValueError, "dropout"),
        (lambda: nn.LSTM(3, 4, proj_size=4), ValueError, "less than hidden_size"),
        (lambda: nn.LSTM(3, 4, proj_size=-1), ValueError, "0 .no projection. or more"),
        (lambda: nn.GRU(3, 4, proj_size=2), ValueError, "only LSTM"),
        (lambda: nn.RNN(3, 4, proj_size=2), ValueError, "only LSTM"),
        (lambda: nn.RNN(3, 4, nonlinearity="gelu"), ValueError, "nonlinearity must be"),
        (lambda: nn.RNNBase("QRNN", 3, 4), ValueError, "mode"),
    ):
        with pytest.raises(error, match=text):
            make()


def test_errors_of_cells() -> None:
    x, z = randn(2, 3), tg.zeros(2, 4)
    cell = nn.LSTMCell(3, 4)
    for arguments, error, text in (
        ((x[:, :2],), RuntimeError, "must have 3 features, got 2"),
        ((x[None],), ValueError, r"or \(batch, features\), got 3"),
        ((x, z), TypeError, "hidden, cell"),
        ((x, (z[:1], z)), RuntimeError, "a batch of 2, hidden state 0 one of 1"),
        ((x, (z, z[:, :1])), RuntimeError, "hidden state 1 must have"),
        ((x, (z[None], z)), ValueError, r"hx\[0\] must be \(features,\)"),
    ):
        with pytest.raises(error, match=text):
            cell(*arguments)
    with pytest.raises(RuntimeError, match="nonlinearity must be"):
        nn.RNNCell(3, 4, nonlinearity="gelu")(x)
    with pytest.raises(RuntimeError, match="both biases"):
        tg.gru_cell(x, z, tg.zeros(12, 3), tg.zeros(12, 4), tg.zeros(12))
