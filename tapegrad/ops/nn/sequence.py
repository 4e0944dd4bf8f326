"""Recurrent networks as functions: `lstm`, `gru`, `rnn_tanh`, `rnn_relu` and single cells.

Comes in: sequences, states, and lists of parameters in PyTorch's order. Goes out: the results of
all steps and the last states. One product computes the input parts of all steps; the loops over
steps are in `recurrent.py`. `run_layers` also takes packed sequences. The layers in
`nn/recurrent.py` call it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...core.casting import Policy, applied
from ...core.dtypes import float32
from ..linalg.matmul import linear
from ..precision import check_floating, check_same_dtype
from ..shape.joining import cat_, stack
from ..shape.reordering import swapped
from ..shape.reshaping import reshape_
from ..shape.slicing import slice_
from ..table import In, Sample, op
from .embedding import dropout as dropped
from .recurrent import gru_, gru_steps_, is_single_piece, lstm_, lstm_steps_, rnn_, rnn_steps_

if TYPE_CHECKING:
    from ...core.tensor import Tensor

#: for each kind of recurrent network, the number of its states, and below that of its gates
STATES = {"RNN_TANH": 1, "RNN_RELU": 1, "GRU": 1, "LSTM": 2}
GATES = {"RNN_TANH": 1, "RNN_RELU": 1, "GRU": 3, "LSTM": 4}

Segments = list[tuple[int, int]]


def segments_of(batch_sizes: Sequence[int]) -> Segments:
    """Runs of steps with equal batch sizes, from the batch sizes of all steps."""
    return [(len(list(same)), size) for size, same in itertools.groupby(batch_sizes)]


def _rows(x: Any, start: int, stop: int) -> Any:
    if start == 0 and stop == x._array.shape[0]:
        return x
    return slice_(x, index=((start, stop, 1), *[None] * (x._array.ndim - 1)))


def _joined(parts: list[Any]) -> Any:
    return parts[0] if len(parts) == 1 else cat_(*parts, dim=0)


class RecurrentWeights:
    """The parameters of one layer in one direction."""

    def __init__(self, params: Sequence[Any], biases: bool) -> None:
        self.w_ih, self.w_hh = params[:2]
        self.b_ih: Any = params[2] if biases else None
        self.b_hh: Any = params[3] if biases else None
        rest = params[4 if biases else 2 :]
        self.w_hr = rest[0] if rest else None

    def product(self, kind: str, flat: Any) -> Any:
        """The input's part of all gates; a GRU keeps its hidden bias separate."""
        bias = self.b_ih if kind == "GRU" or self.b_ih is None else self.b_ih + self.b_hh
        return linear(flat, self.w_ih, bias)

    def run(self, kind: str, x: Any, states: list[Any], reverse: bool) -> tuple[Any, list[Any]]:
        """All steps of (steps, batch, gates) and the last states."""
        single = is_single_piece(x._array.shape[0])
        if kind == "LSTM":
            run = lstm_steps_ if single else lstm_
            out, _, *last = run(x, *states, self.w_hh, self.w_hr, reverse=reverse)
        elif kind == "GRU":
            run = gru_steps_ if single else gru_
            out, _, *last = run(x, *states, self.w_hh, self.b_hh, reverse=reverse)
        else:
            run = rnn_steps_ if single else rnn_
            out, *last = run(x, *states, self.w_hh, relu=kind == "RNN_RELU", reverse=reverse)
        return out, last


def _run_direction(
    kind: str,
    flat: Any,
    segments: Segments,
    first: list[Any],
    weights: RecurrentWeights,
    reverse: bool,
) -> tuple[Any, list[Any]]:
    """One layer in one direction over sequences packed as rows; forward, some end before others."""
    x = weights.product(kind, flat)
    spans, start = [], 0
    for steps, batch in segments:
        spans.append((start, steps, batch))
        start += steps * batch
    states = [_rows(s, 0, spans[-1 if reverse else 0][2]) for s in first]
    outs: list[Any] = []
    ended: list[list[Any]] = []
    for start, steps, batch in reversed(spans) if reverse else spans:
        had = states[0]._array.shape[0]
        if had > batch:
            ended.append([_rows(s, batch, had) for s in states])
            states = [_rows(s, 0, batch) for s in states]
        elif had < batch:
            states = [
                _joined([s, _rows(f, had, batch)]) for s, f in zip(states, first, strict=True)
            ]
        rows = _rows(x, start, start + steps * batch)
        steps_of = reshape_(rows, shape=(steps, batch, x._array.shape[1]))
        out, states = weights.run(kind, steps_of, states, reverse)
        outs.append(reshape_(out, shape=(steps * batch, out._array.shape[2])))
    whole = _joined(outs[::-1] if reverse else outs)
    return whole, [_joined(list(same)) for same in zip(states, *reversed(ended), strict=True)]


def _choice_on_cpu(
    kind: str, flat: Any, segments: Segments, hx: list[Any], params: Any, *options: Any
) -> str | None:
    """PyTorch's autocast choice on the CPU, where some kinds keep the dtype of their states."""
    packed_cells = kind == "LSTM" and options[-1] and not _is_projected(hx)
    return _by_state(hx[-1]) if kind == "GRU" or packed_cells else "lower"


def _is_projected(hx: list[Any]) -> bool:
    """Whether hidden states are smaller than the cells."""
    return len(hx) == 2 and hx[0]._array.shape[-1] != hx[1]._array.shape[-1]


def _by_state(state: Any) -> str:
    return "full" if state.dtype is float32 else "lower"


#: the autocast policy of layers
AUTOCAST: Policy = {"cpu": _choice_on_cpu, "cuda": "lower"}


def run_layers(
    kind: str,
    flat: Any,
    segments: Segments,
    hx: list[Any],
    params: Sequence[Any],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    packed: bool = False,
) -> tuple[Any, list[Any]]:
    """`_run_layers` in the dtype that autocast chooses, if it is on."""
    options = (has_biases, num_layers, dropout, train, bidirectional, packed)
    out, last = _run_cast(kind, flat, segments, hx, params, *options)
    if _is_projected(hx) and flat.device.type == "cpu":  # here autocast does not cast cells
        last[1] = last[1].to(hx[1].dtype)
    return out, last


def _run_layers(
    kind: str,
    flat: Any,
    segments: Segments,
    hx: list[Any],
    params: Sequence[Any],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    packed: bool,
) -> tuple[Any, list[Any]]:
    """All layers: rows of the last one's results, and each state as (layers, batch, size)."""
    directions = 2 if bidirectional else 1
    runs = num_layers * directions
    if len(params) % runs:
        raise RuntimeError(f"{len(params)} parameters do not fit {runs} layers and directions")
    each = len(params) // runs
    lasts: list[list[Any]] = []
    for layer in range(num_layers):
        outs = []
        for direction in range(directions):
            n = layer * directions + direction
            weights = RecurrentWeights(params[n * each : (n + 1) * each], has_biases)
            first = [_layer_of(s, n) for s in hx]
            _check_dtypes(kind, flat, weights, first)
            out, last = _run_direction(kind, flat, segments, first, weights, direction == 1)
            outs.append(out)
            lasts.append(last)
        flat = outs[0] if len(outs) == 1 else cat_(*outs, dim=1)
        if dropout and train and layer < num_layers - 1:
            flat = dropped(flat, dropout)
    return flat, [stack(list(same)) for same in zip(*lasts, strict=True)]


_run_cast = applied(_run_layers, AUTOCAST)


def _check_dtypes(kind: str, x: Any, weights: RecurrentWeights, states: list[Any]) -> None:
    if kind != "RNN_RELU":  # PyTorch accepts integers for RNN_RELU
        check_floating(x, kind)
    check_same_dtype(kind, x, weight=weights.w_ih, hidden=states[0])


def _layer_of(states: Any, n: int) -> Any:
    return slice_(states, index=(n, None, None))


def _over_batches(
    kind: str,
    input: Any,
    hx: list[Any],
    params: Sequence[Any],
    batch_first: bool,
    **options: Any,
) -> tuple[Any, ...]:
    """Sequences of one length: (steps, batch, features), or (batch, steps, features)."""
    if input._array.ndim != 3:
        raise RuntimeError(f"{kind} needs an input of 3 dimensions, got {tuple(input.shape)}")
    x = swapped(input, 0, 1) if batch_first else input
    steps, batch, size = x._array.shape
    if not steps:
        raise RuntimeError("the input has no time steps")
    flat = reshape_(x, shape=(steps * batch, size))
    out, last = run_layers(kind, flat, [(steps, batch)], hx, params, **options)
    whole = reshape_(out, shape=(steps, batch, out._array.shape[1]))
    return (swapped(whole, 0, 1) if batch_first else whole, *last)


def _samples(kind: str) -> list[Sample]:
    """Calls with one layer, with two in both directions, without biases, longer than a piece."""
    many, gates = STATES[kind], GATES[kind]

    def params(inputs: int, hidden: int, layers: int, directions: int, biases: bool) -> list[Any]:
        made = []
        for layer in range(layers):
            width = hidden * directions if layer else inputs
            for _ in range(directions):
                made += [In(gates * hidden, width, low=-0.7, high=0.7)]
                made += [In(gates * hidden, hidden, low=-0.7, high=0.7)]
                made += [In(gates * hidden)] * 2 if biases else []
        return made

    def sample(
        shape: tuple[int, int, int], layers: int, directions: int, biases: bool, first: bool = False
    ) -> Sample:
        batch = shape[0] if first else shape[1]
        state = In(layers * directions, batch, 2)
        weights = params(shape[2], 2, layers, directions, biases)
        hx = state if many == 1 else [state] * many
        return Sample(shape, hx, weights, biases, layers, 0.0, False, directions == 2, first)

    return [
        sample((3, 2, 2), 1, 1, True),
        sample((1, 2, 3), 2, 2, True),
        sample((2, 3, 2), 1, 2, False, True),
        sample((11, 1, 1), 1, 1, False),
    ]


def _projected() -> Sample:
    """An LSTM whose hidden states are projected from 3 to 2 features."""
    weights = [In(12, 2), In(12, 2), In(12), In(12), In(2, 3)]
    return Sample((2, 2, 2), [In(1, 2, 2), In(1, 2, 3)], weights, True, 1, 0.0, False, False, False)


@op(
    method=False,
    samples=lambda: [*_samples("LSTM"), _projected()],
    autocast=AUTOCAST,
    applies=True,
    result="tuple[Tensor, Tensor, Tensor]",
)
def lstm(
    input: Tensor,
    hx: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Any:
    """A network of LSTM layers: (results of all steps, last hidden states, last cells).

    `input` is (times, batch, features), or (batch, times, features) with `batch_first`. Both
    tensors of `hx` are (layers * directions, batch, hidden). `params` lists w_ih, w_hh and, with
    `has_biases`, b_ih, b_hh of each layer and direction.

    >>> import tapegrad
    >>> state = tapegrad.zeros(1, 2, 4), tapegrad.zeros(1, 2, 4)
    >>> weights = tapegrad.ones(16, 3), tapegrad.ones(16, 4)
    >>> out, h, c = tapegrad.lstm(
    ...     tapegrad.ones(5, 2, 3), state, weights, False, 1, 0.0, False, False, False
    ... )
    >>> out.shape, h.shape, c.shape
    (Size([5, 2, 4]), Size([1, 2, 4]), Size([1, 2, 4]))
    """
    return _over_batches(
        "LSTM",
        input,
        list(hx),
        params,
        batch_first,
        has_biases=has_biases,
        num_layers=num_layers,
        dropout=dropout,
        train=train,
        bidirectional=bidirectional,
    )


def _enter(name: str, kind: str, what: str) -> None:
    """The function of a kind that has one state."""

    def call(
        input: Tensor,
        hx: Tensor,
        params: Sequence[Tensor],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> Any:
        return _over_batches(
            kind,
            input,
            [hx],
            params,
            batch_first,
            has_biases=has_biases,
            num_layers=num_layers,
            dropout=dropout,
            train=train,
            bidirectional=bidirectional,
        )

    call.__doc__ = f"""A network of {what} layers: (results of all steps, last hidden states).

    `input` is (times, batch, features), or (batch, times, features) with `batch_first`. `hx` is
    (layers * directions, batch, hidden). `params` lists w_ih, w_hh and, with `has_biases`, b_ih,
    b_hh of each layer and direction.

    >>> import tapegrad
    >>> weights = tapegrad.ones({4 * GATES[kind]}, 3), tapegrad.ones({4 * GATES[kind]}, 4)
    >>> out, h = tapegrad.{name}(
    ...     tapegrad.ones(5, 2, 3),
    ...     tapegrad.zeros(1, 2, 4),
    ...     weights,
    ...     has_biases=False,
    ...     num_layers=1,
    ...     dropout=0.0,
    ...     train=False,
    ...     bidirectional=False,
    ...     batch_first=False,
    ... )
    >>> out.shape, h.shape
    (Size([5, 2, 4]), Size([1, 2, 4]))
    """
    op(
        name,
        method=False,
        samples=lambda: _samples(kind),
        autocast=AUTOCAST,
        applies=True,
        result="tuple[Tensor, Tensor]",
    )(call)


_enter("gru", "GRU", "GRU")
_enter("rnn_tanh", "RNN_TANH", "tanh")
_enter("rnn_relu", "RNN_RELU", "ReLU")


# -- cells -------------------------------------------------------------------------------------


def _step(kind: str, input: Any, states: list[Any], params: list[Any]) -> Any:
    """One step of one layer; input and states may be without a batch."""
    if (params[2] is None) != (params[3] is None):
        raise RuntimeError(f"{kind}: give both biases, or none")
    biases = params[2] is not None
    weights = RecurrentWeights(params if biases else params[:2], biases)
    _check_step(kind, input, states, weights.w_ih, weights.w_hh)
    if STATES[kind] == GATES[kind] == 1:
        both = linear(input, weights.w_ih, weights.b_ih) + linear(
            states[0], weights.w_hh, weights.b_hh
        )
        return both.relu() if kind == "RNN_RELU" else both.tanh()
    _check_dtypes(kind, input, weights, states)
    alone = input._array.ndim == 1
    rows = [reshape_(s, shape=(1, *s._array.shape)) if alone else s for s in (input, *states)]
    x = weights.product(kind, rows[0])
    _, last = weights.run(kind, reshape_(x, shape=(1, *x._array.shape)), rows[1:], False)
    made = [reshape_(s, shape=s._array.shape[1:]) if alone else s for s in last]
    return made[0] if len(made) == 1 else tuple(made)


def _check_step(kind: str, input: Any, states: list[Any], w_ih: Any, w_hh: Any) -> None:
    if input._array.shape[-1] != w_ih._array.shape[1]:
        raise RuntimeError(
            f"the input must have {w_ih._array.shape[1]} features, got {input._array.shape[-1]}"
        )
    for i, state in enumerate(states):
        if state._array.ndim != input._array.ndim or input._array.ndim not in (1, 2):
            raise RuntimeError(
                f"{kind}: input and states need 2 dimensions, or 1 without a batch, got "
                f"{tuple(input.shape)} and {tuple(state.shape)}"
            )
        if state._array.shape[:-1] != input._array.shape[:-1]:
            raise RuntimeError(
                f"the input has a batch of {input._array.shape[0]}, hidden state {i} one of "
                f"{state._array.shape[0]}"
            )
        if state._array.shape[-1] != w_hh._array.shape[1]:
            raise RuntimeError(
                f"hidden state {i} must have {w_hh._array.shape[1]} features, got "
                f"{state._array.shape[-1]}"
            )


def _cell_samples(kind: str) -> list[Sample]:
    rows = GATES[kind] * 2
    state = In(3, 2) if STATES[kind] == 1 else [In(3, 2), In(3, 2)]
    return [
        Sample((3, 4), state, (rows, 4), (rows, 2), (rows,), (rows,)),
        Sample((3, 4), state, (rows, 4), (rows, 2)),
    ]


def _choice_of_cell(input: Any, hx: Any, *params: Any) -> str:
    """PyTorch's autocast choice: the states keep their dtype."""
    return _by_state(hx[-1] if isinstance(hx, (list, tuple)) else hx)


_OF_CELLS: Policy = {"cpu": _choice_of_cell, "cuda": "lower"}


@op(
    method=False,
    samples=lambda: _cell_samples("LSTM"),
    autocast=_OF_CELLS,
    result="tuple[Tensor, Tensor]",
)
def lstm_cell(
    input: Tensor,
    hx: Sequence[Tensor],
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Any:
    """One step of an LSTM layer: the next hidden state and cell.

    i, f, g, o = the four parts of input @ w_ih.T + hx[0] @ w_hh.T + biases;
    cell = sigmoid(f) * hx[1] + sigmoid(i) * tanh(g); hidden = sigmoid(o) * tanh(cell).
    `input` is (batch, features), both tensors of `hx` are (batch, hidden), `w_ih` is
    (4 * hidden, features), `w_hh` (4 * hidden, hidden).

    >>> import tapegrad
    >>> state = tapegrad.zeros(2, 4), tapegrad.zeros(2, 4)
    >>> h, c = tapegrad.lstm_cell(
    ...     tapegrad.ones(2, 3), state, tapegrad.ones(16, 3), tapegrad.ones(16, 4)
    ... )
    >>> h.shape, c.shape
    (Size([2, 4]), Size([2, 4]))
    """
    if not isinstance(hx, (tuple, list)):
        raise TypeError(f"lstm_cell needs a pair (hidden, cell), got {type(hx).__name__}")
    return _step("LSTM", input, list(hx), [w_ih, w_hh, b_ih, b_hh])


@op(method=False, samples=lambda: _cell_samples("GRU"), autocast=_OF_CELLS)
def gru_cell(
    input: Tensor,
    hx: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Any:
    """One step of a GRU layer: the next hidden state.

    `input` is (batch, features), `hx` (batch, hidden), `w_ih` (3 * hidden, features), `w_hh`
    (3 * hidden, hidden).

    >>> import tapegrad
    >>> weights = tapegrad.ones(12, 3), tapegrad.ones(12, 4)
    >>> tapegrad.gru_cell(tapegrad.ones(2, 3), tapegrad.zeros(2, 4), *weights).shape
    Size([2, 4])
    """
    return _step("GRU", input, [hx], [w_ih, w_hh, b_ih, b_hh])


@op(method=False, samples=lambda: _cell_samples("RNN_TANH"), autocast={"cuda": "lower"})
def rnn_tanh_cell(
    input: Tensor,
    hx: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Any:
    """tanh(input @ w_ih.T + hx @ w_hh.T + biases).

    >>> import tapegrad
    >>> one = tapegrad.ones(1, 1)
    >>> tapegrad.rnn_tanh_cell(one, one, one, -one)
    tensor([[0.]])
    """
    return _step("RNN_TANH", input, [hx], [w_ih, w_hh, b_ih, b_hh])


@op(method=False, samples=lambda: _cell_samples("RNN_RELU"), autocast={"cuda": "lower"})
def rnn_relu_cell(
    input: Tensor,
    hx: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Any:
    """relu(input @ w_ih.T + hx @ w_hh.T + biases).

    >>> import tapegrad
    >>> one = tapegrad.ones(1, 1)
    >>> tapegrad.rnn_relu_cell(one, one, one, one)
    tensor([[2.]])
    """
    return _step("RNN_RELU", input, [hx], [w_ih, w_hh, b_ih, b_hh])
