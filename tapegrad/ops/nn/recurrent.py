"""Recurrent layers over a whole sequence: the loops of RNN, GRU and LSTM and their gradients.

Comes in: `x`, the input products of all steps (steps, batch, gates * hidden), computed beforehand
by one product; the first states; the hidden weights. Each kind has two composites. One runs a few
steps as one native program; the other runs a sequence of any length in pieces of 8, 4, 2 and 1
steps, so that all lengths share four programs. The public functions are in `sequence.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...core import xp
from ...core.primitive import MIXED_SIZE, NEVER, OPAQUE, Primitive, define
from ..elementwise import comparison as c_
from ..elementwise import exponentials as e
from ..elementwise import extremes
from ..elementwise.rounding import zero
from ..linalg.matmul import matmul_
from ..precision import rounded, widened
from ..reduce.reductions import sum_
from ..shape.joining import cat_
from ..shape.reordering import swapped
from ..shape.reshaping import reshape_
from ..shape.slicing import slice_

#: steps in the largest piece: 50 steps of 32 x 128 take 2.4 ms in pieces of 4, 2.2 ms in pieces of
#: 8, 16 or 32
LONGEST = 8


def _order(count: int, reverse: bool) -> list[int]:
    """The steps in the order in which they run."""
    return list(range(count - 1, -1, -1) if reverse else range(count))


def _pieces(count: int, reverse: bool) -> list[tuple[int, int]]:
    """A sequence in pieces whose lengths are powers of two, in the order in which they run."""
    pieces, start, size = [], 0, LONGEST
    while start < count:
        while size > count - start:
            size //= 2
        pieces.append((start, start + size))
        start += size
    return pieces[::-1] if reverse else pieces


def is_single_piece(count: int) -> bool:
    """Whether a sequence of this length is one piece, which needs no joining."""
    return len(_pieces(count, False)) == 1


def _between(x: Any, start: int, stop: int) -> Any:
    """Some steps of a sequence; None stays None."""
    if x is None or (start == 0 and stop == x.shape[0]):
        return x
    return slice_(x, index=((start, stop, 1), *[None] * (len(x.shape) - 1)))


def _at(x: Any, *position: int) -> Any:
    return slice_(x, index=(*position, *[None] * (len(x.shape) - len(position))))


def _blocks(x: Any, count: int) -> list[Any]:
    """Equal parts of the last dimension."""
    size = x.shape[-1] // count
    lead = [None] * (len(x.shape) - 1)
    return [slice_(x, index=(*lead, (i * size, (i + 1) * size, 1))) for i in range(count)]


def _stacked(parts: Sequence[Any], *, block: int = 0) -> Any:
    """Arrays of one shape along a new first dimension, or along two with `block` in the second."""
    shape = tuple(parts[0].shape)
    whole = cat_(*[reshape_(x, shape=(1, *shape)) for x in parts], dim=0)
    return reshape_(whole, shape=(len(parts) // block, block, *shape)) if block else whole


def _plus(x: Any, y: Any) -> Any:
    return y if x is None else x if y is None else x + y


def _as(*pairs: tuple[Any, Any]) -> tuple[Any, ...]:
    """Gradients, each cast to the dtype of its partner in the pair; None stays None."""
    return tuple(None if found is None else rounded(found, like) for found, like in pairs)


def _flat(x: Any) -> Any:
    return reshape_(x, shape=(x.shape[0] * x.shape[1], x.shape[2]))


def _weight_gradient(g: Any, previous: list[Any]) -> Any:
    """The gradient of the matrix that multiplies the state before each step."""
    return matmul_(swapped(_flat(g)), _flat(_stacked(previous)))


def _before(out: Any, first: Any, reverse: bool, *block: int) -> list[Any]:
    """The state before each step: the first state, or the result of the previous step."""
    shift = 1 if reverse else -1
    order = _order(out.shape[0], reverse)
    states = {t: _at(out, t + shift, *block) for t in order[1:]}
    states[order[0]] = first
    return [states[t] for t in range(out.shape[0])]


# -- sequences of any length -------------------------------------------------------------------


def _run(steps: Primitive, x: Any, states: Any, weights: Any, params: dict[str, Any]) -> Any:
    """Run a whole sequence: the results of all steps, and the last states."""
    parts, count = [], len(states)
    for start, stop in _pieces(x.shape[0], params["reverse"]):
        made = steps(_between(x, start, stop), *states, *weights, **params)
        parts.append(made[:-count])
        states = made[-count:]
    if params["reverse"]:
        parts.reverse()
    if len(parts) == 1:
        return (*parts[0], *states)
    return (*[cat_(*same, dim=0) for same in zip(*parts, strict=True)], *states)


def _run_back(
    steps: Primitive,
    g: Any,
    before: Callable[[int], Any],
    weights: Any,
    made: Any,
    params: dict[str, Any],
    needs: list[bool],
) -> tuple[Any, ...]:
    """The gradients of a whole sequence, the last piece first.

    `before(t)` gives the states before the piece that begins (or, in reverse, ends) at step t.
    """
    reverse = params["reverse"]
    count = len(g) - len(made)
    carried, gradients = list(g[len(made) :]), []
    totals: list[Any] = [None] * len(weights)
    wanted = [True] * (1 + count) + needs[1 + count :]
    edges = [True if want else None for want in wanted]
    for start, stop in reversed(_pieces(made[0].shape[0], reverse)):
        inputs = (None, *before(stop if reverse else start), *weights)
        results = [_between(y, start, stop) for y in made]
        received = [*[_between(part, start, stop) for part in g[: len(made)]], *carried]
        saved = tuple(
            [inputs[i] if what == "in" else results[i] for what, i, _ in steps.slots],
        )
        found = steps.pull(received, edges, saved, params)
        gradients.append(found[0])
        carried = list(found[1 : 1 + count])
        parts = [None if part is None else widened(part) for part in found[1 + count :]]
        totals = [_plus(a, b) for a, b in zip(totals, parts, strict=True)]
    if not reverse:
        gradients.reverse()
    whole = gradients[0] if len(gradients) == 1 else cat_(*gradients, dim=0)
    return whole, *carried, *_as(*zip(totals, weights, strict=True))


def _sequence(name: str, kernel: Any, outputs: tuple[str, ...], joint: Any) -> Primitive:
    """The composite for a whole sequence; each of its pieces is a native program."""
    return define(
        name,
        kernel,
        kind=OPAQUE,
        composite=True,
        outputs=outputs,
        joint=joint,
        native_size=NEVER,
    )


# -- RNN ---------------------------------------------------------------------------------------


def _rnn_steps(x: Any, h: Any, w: Any, *, relu: bool, reverse: bool) -> Any:
    state, wide, weight = widened(h), widened(x), swapped(widened(w))
    out: dict[int, Any] = {}
    for t in _order(x.shape[0], reverse):
        a = _at(wide, t) + matmul_(state, weight)
        state = out[t] = extremes.relu(a) if relu else e.tanh(a)
    whole = _stacked([out[t] for t in range(len(out))])
    return rounded(whole, x), rounded(state, x)


def _rnn_steps_gradient(
    g: Any, h: Any, w: Any, out: Any, relu: bool, reverse: bool, needs: list[bool]
) -> tuple[Any, ...]:
    g_out, carried = (None if part is None else widened(part) for part in g)
    y, weight = widened(out), widened(w)
    found: dict[int, Any] = {}
    for t in reversed(_order(y.shape[0], reverse)):
        state = _at(y, t)
        got = _plus(None if g_out is None else _at(g_out, t), carried)
        dead = c_.less_equal(state, 0) if relu else None
        found[t] = got * (1 - state * state) if dead is None else c_.where(dead, 0.0, got)
        carried = matmul_(found[t], weight)
    g_x = _stacked([found[t] for t in range(len(found))])
    previous = _before(y, widened(h), reverse)
    g_w = _weight_gradient(g_x, previous) if needs[2] else None
    return _as((g_x, out), (carried, h), (g_w, w))


rnn_steps_ = define(
    "rnn_steps",
    _rnn_steps,
    kind=OPAQUE,
    composite=True,
    outputs=("out", "h_n"),
    joint=_rnn_steps_gradient,
    native_size=MIXED_SIZE,
)


def _rnn_gradient(
    g: Any, h: Any, w: Any, out: Any, relu: bool, reverse: bool, needs: list[bool]
) -> tuple[Any, ...]:
    def before(t: int) -> Any:
        return (_state_before(out, h, t, reverse),)

    params = {"relu": relu, "reverse": reverse}
    return _run_back(rnn_steps_, g, before, (w,), (out,), params, needs)


def _state_before(out: Any, first: Any, t: int, reverse: bool, *block: int) -> Any:
    if t == (out.shape[0] if reverse else 0):
        return first
    return _at(out, t if reverse else t - 1, *block)


rnn_ = _sequence(
    "rnn",
    lambda x, h, w, *, relu, reverse: _run(
        rnn_steps_, x, (h,), (w,), {"relu": relu, "reverse": reverse}
    ),
    ("out", "h_n"),
    _rnn_gradient,
)


# -- LSTM --------------------------------------------------------------------------------------


def _lstm_steps(x: Any, h: Any, c: Any, w: Any, p: Any, *, reverse: bool) -> Any:
    """`p` projects the hidden states, or is None. It saves the four gates and the cells."""
    state, cell, wide = widened(h), widened(c), widened(x)
    weight, project = swapped(widened(w)), None if p is None else swapped(widened(p))
    out: dict[int, Any] = {}
    kept: dict[int, tuple[Any, ...]] = {}
    for t in _order(x.shape[0], reverse):
        gates = _blocks(_at(wide, t) + matmul_(state, weight), 4)
        i, f, o = (e.sigmoid(gates[k]) for k in (0, 1, 3))
        n = e.tanh(gates[2])
        cell = f * cell + i * n
        state = o * e.tanh(cell)
        if project is not None:
            state = matmul_(state, project)
        out[t], kept[t] = state, (i, f, n, o, cell)
    steps = range(len(out))
    whole = _stacked([part for t in steps for part in kept[t]], block=5)
    return (
        rounded(_stacked([out[t] for t in steps]), x),
        whole,
        rounded(state, x),
        rounded(cell, x),
    )


def _lstm_steps_gradient(
    g: Any,
    h: Any,
    c: Any,
    w: Any,
    p: Any,
    out: Any,
    kept: Any,
    reverse: bool,
    needs: list[bool],
) -> tuple[Any, ...]:
    g_out, g_kept, g_h, g_c = (None if part is None else widened(part) for part in g)
    weight, project = widened(w), None if p is None else widened(p)
    cells = _before(kept, widened(c), reverse, 4)
    found: dict[int, Any] = {}
    projected: dict[int, Any] = {}
    for t in reversed(_order(kept.shape[0], reverse)):
        i, f, n, o, cell = (_at(kept, t, k) for k in range(5))
        s = e.tanh(cell)
        g_h = _plus(None if g_out is None else _at(g_out, t), g_h)
        if project is not None and g_h is not None:
            projected[t] = g_h
            g_h = matmul_(g_h, project)
        if g_h is None:
            g_h = zero(cell)
        g_c = _plus(g_h * o * (1 - s * s), g_c)
        g_gates = [g_c * n, g_c * cells[t], g_c * i, g_h * s]
        if g_kept is not None:  # a derivative of a derivative
            g_c = g_c + _at(g_kept, t, 4)
            g_gates = [g_c * n, g_c * cells[t], g_c * i, g_h * s]
            g_gates = [a + _at(g_kept, t, k) for k, a in enumerate(g_gates)]
        slopes = (i * (1 - i), f * (1 - f), 1 - n * n, o * (1 - o))
        found[t] = cat_(*[a * b for a, b in zip(g_gates, slopes, strict=True)], dim=1)
        g_h, g_c = matmul_(found[t], weight), g_c * f
    g_x = _stacked([found[t] for t in range(len(found))])
    g_w = g_p = None
    if needs[3]:
        g_w = _weight_gradient(g_x, _before(widened(out), widened(h), reverse))
    if project is not None and needs[4] and projected:
        hidden = [_at(kept, t, 3) * e.tanh(_at(kept, t, 4)) for t in sorted(projected)]
        g_p = _weight_gradient(_stacked([projected[t] for t in sorted(projected)]), hidden)
    return _as((g_x, out), (g_h, h), (g_c, c), (g_w, w), (g_p, p))


lstm_steps_ = define(
    "lstm_steps",
    _lstm_steps,
    kind=OPAQUE,
    composite=True,
    outputs=("out", "kept", "h_n", "c_n"),
    joint=_lstm_steps_gradient,
    native_size=MIXED_SIZE,
)


def _lstm_gradient(
    g: Any,
    h: Any,
    c: Any,
    w: Any,
    p: Any,
    out: Any,
    kept: Any,
    reverse: bool,
    needs: list[bool],
) -> tuple[Any, ...]:
    def before(t: int) -> Any:
        return _state_before(out, h, t, reverse), _state_before(kept, c, t, reverse, 4)

    return _run_back(lstm_steps_, g, before, (w, p), (out, kept), {"reverse": reverse}, needs)


lstm_ = _sequence(
    "lstm",
    lambda x, h, c, w, p, *, reverse: _run(lstm_steps_, x, (h, c), (w, p), {"reverse": reverse}),
    ("out", "kept", "h_n", "c_n"),
    _lstm_gradient,
)


# -- GRU ---------------------------------------------------------------------------------------


def _gru_step_of_arrays(x: Any, h: Any, w: Any, b: Any) -> Any:
    """A single step, for NumPy arrays of float32 or float64."""
    size = h.shape[1]
    kept = np.empty((1, 4, *h.shape), x.dtype)
    product = h.dot(w.T)
    if b is not None:
        product += xp.spread(b, product.shape)
    gates = e.sigmoid.kernel(x[:, : 2 * size] + product[:, : 2 * size])
    r, z, n, hidden = kept[0]
    r[...], z[...] = gates[:, :size], gates[:, size:]
    hidden[...] = product[:, 2 * size :]
    np.tanh(x[:, 2 * size :] + r * hidden, n)
    out = n + z * (h - n)
    return out[None], kept, out.copy()


def _gru_steps(x: Any, h: Any, w: Any, b: Any, *, reverse: bool) -> Any:
    """`b` is the hidden bias, or None. It saves both gates, the new value, its hidden product."""
    if xp.is_plain(x) and x.shape[0] == 1:
        return _gru_step_of_arrays(x[0], h, w, b)
    state, wide, weight = widened(h), widened(x), swapped(widened(w))
    out: dict[int, Any] = {}
    kept: dict[int, tuple[Any, ...]] = {}
    for t in _order(x.shape[0], reverse):
        given = _blocks(_at(wide, t), 3)
        product = matmul_(state, weight)
        hidden = _blocks(product if b is None else product + widened(b), 3)
        r, z = (e.sigmoid(given[k] + hidden[k]) for k in (0, 1))
        n = e.tanh(given[2] + r * hidden[2])
        state = out[t] = n + z * (state - n)
        kept[t] = (r, z, n, hidden[2])
    steps = range(len(out))
    whole = _stacked([part for t in steps for part in kept[t]], block=4)
    return rounded(_stacked([out[t] for t in steps]), x), whole, rounded(state, x)


def _gru_steps_gradient(
    g: Any, h: Any, w: Any, b: Any, out: Any, kept: Any, reverse: bool, needs: list[bool]
) -> tuple[Any, ...]:
    g_out, g_kept, g_h = (None if part is None else widened(part) for part in g)
    weight, states = widened(w), _before(widened(out), widened(h), reverse)
    found: dict[int, Any] = {}
    inner: dict[int, Any] = {}
    for t in reversed(_order(kept.shape[0], reverse)):
        r, z, n, product = (_at(kept, t, k) for k in range(4))
        g_h = _plus(None if g_out is None else _at(g_out, t), g_h)
        if g_h is None:
            g_h = zero(n)
        g_z, g_n = g_h * (states[t] - n), g_h * (1 - z)
        if g_kept is not None:  # a derivative of a derivative
            g_z, g_n = g_z + _at(g_kept, t, 1), g_n + _at(g_kept, t, 2)
        g_sum = g_n * (1 - n * n)
        g_r, g_product = g_sum * product, g_sum * r
        if g_kept is not None:
            g_r, g_product = g_r + _at(g_kept, t, 0), g_product + _at(g_kept, t, 3)
        gates = (g_r * r * (1 - r), g_z * z * (1 - z))
        found[t] = cat_(*gates, g_sum, dim=1)
        inner[t] = cat_(*gates, g_product, dim=1)
        g_h = matmul_(inner[t], weight) + g_h * z
    g_x = _stacked([found[t] for t in range(len(found))])
    g_hidden = _stacked([inner[t] for t in range(len(inner))])
    g_w = _weight_gradient(g_hidden, states) if needs[2] else None
    g_b = sum_(g_hidden, dims=(0, 1), keepdim=False) if needs[3] else None
    return _as((g_x, out), (g_h, h), (g_w, w), (g_b, b))


gru_steps_ = define(
    "gru_steps",
    _gru_steps,
    kind=OPAQUE,
    composite=True,
    outputs=("out", "kept", "h_n"),
    joint=_gru_steps_gradient,
    native_size=MIXED_SIZE,
)


def _gru_gradient(
    g: Any, h: Any, w: Any, b: Any, out: Any, kept: Any, reverse: bool, needs: list[bool]
) -> tuple[Any, ...]:
    def before(t: int) -> Any:
        return (_state_before(out, h, t, reverse),)

    return _run_back(gru_steps_, g, before, (w, b), (out, kept), {"reverse": reverse}, needs)


gru_ = _sequence(
    "gru",
    lambda x, h, w, b, *, reverse: _run(gru_steps_, x, (h,), (w, b), {"reverse": reverse}),
    ("out", "kept", "h_n"),
    _gru_gradient,
)
