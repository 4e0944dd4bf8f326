"""Connectionist temporal classification: a loss of sequences with unknown alignment.

A path emits one label or a blank at each time. The loss is -log of the total probability of all
paths that give the targets, by the forward-backward algorithm (Graves et al., 2006). One primitive
computes the losses and their gradients; only `ctc_loss` calls it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import numeric, xp
from ...core.batch_rules import joined, separated, size_of, spread
from ...core.dtypes import int64
from ...core.modes import STATE, TAPE
from ...core.primitive import NEVER, OPAQUE, define
from ...core.tensor import Tensor, wrap
from ...core.wrapped import whole_of
from ..checks import checked
from ..elementwise import comparison as c
from ..index.gather import gather_
from ..index.indexing import take_
from ..precision import check_floating
from ..reduce.cumulative import cumsum_
from ..shape.reordering import roll
from ..shape.reshaping import reshape_
from ..table import In, Sample, op
from .regression import check_reduction, reduced

if TYPE_CHECKING:
    from collections.abc import Sequence

F = "nn.functional"

_ROWS = In(values=[[1, 1], [2, 0]], kind="int")
_FLAT = In(values=[1, 1, 2], kind="int")
_TIMES = In(values=[5, 4], kind="int")
_COUNTS = In(values=[2, 1], kind="int")

# -- the primitive -----------------------------------------------------------------------------
#
# States 0, 2, 4, ... of a path are blanks, states 1, 3, ... the labels. `states` has the class of
# each, `skips` marks states whose preceding blank may be skipped, `ends` the possible last states.


def _sum_of_paths(stay: Any, step: Any, jump: Any, may_jump: Any) -> Any:
    jump = np.where(may_jump, jump, -math.inf)
    return np.logaddexp(np.logaddexp(stay, step), jump)


def _forwards(emitted: Any, skips: Any, lengths: Any) -> Any:
    """log-probabilities of reaching each state, (times + 1, samples, states), from time -1."""
    times, samples, states = emitted.shape
    reached = xp.module(emitted).full((times + 1, samples, states + 2), -math.inf, emitted.dtype)
    reached[0, :, 2] = 0
    for t in range(times):
        before = reached[t]
        now = emitted[t] + _sum_of_paths(before[:, 2:], before[:, 1:-1], before[:, :-2], skips)
        reached[t + 1, :, 2:] = np.where(t < lengths, now, before[:, 2:])
    return reached[:, :, 2:]


def _backwards(emitted: Any, skips: Any, ends: Any, lengths: Any) -> Any:
    """log-probabilities of the rest of the path after each state, (times, samples, states)."""
    times, samples, states = emitted.shape
    module = xp.module(emitted)
    left = module.empty((times, samples, states), emitted.dtype)
    after = module.full((samples, states + 2), -math.inf, emitted.dtype)
    jumps = module.concatenate([skips[:, 2:], skips[:, :2]], axis=1)
    finish = np.where(ends, 0.0, -math.inf).astype(emitted.dtype)
    for t in range(times - 1, -1, -1):
        inner = _sum_of_paths(after[:, :-2], after[:, 1:-1], after[:, 2:], jumps)
        left[t] = np.where(t == lengths - 1, finish, inner)
        after[:, :-2] = left[t] + emitted[t]
    return left


def _ctc(
    log_p: Any, states: Any, skips: Any, ends: Any, lengths: Any, *, zero_infinity: bool
) -> Any:
    """The loss of each sample, and its gradient for the logits whose log_softmax is `log_p`."""
    times, samples, classes = log_p.shape
    dtype, log_p = log_p.dtype, xp.widened(log_p)
    xp.check_index(states, classes, "ctc_loss", RuntimeError)
    module = xp.module(log_p)
    index = module.broadcast_to(states, (times, *states.shape))
    emitted = np.take_along_axis(log_p, index, 2)
    column = lengths[:, None]
    reached = _forwards(emitted, skips, column)
    loss = _minus_log_total(reached[-1], ends)
    counted = module.arange(times)[:, None, None] < column
    with np.errstate(invalid="ignore"):
        share = np.exp(reached[1:] + _backwards(emitted, skips, ends, column) + loss[:, None])
    gradient = np.where(counted, np.exp(log_p), 0.0).astype(log_p.dtype)
    place = (module.arange(times)[:, None, None], module.arange(samples)[:, None], states)
    xp.add_at(gradient, place, np.where(counted, -share, 0.0))
    hopeless = np.isinf(loss)
    bad = np.logical_and(counted, hopeless[:, None])
    gradient = np.where(bad, 0.0 if zero_infinity else math.nan, gradient).astype(dtype)
    return (np.where(hopeless, 0.0, loss) if zero_infinity else loss).astype(dtype), gradient


def _minus_log_total(reached: Any, ends: Any) -> Any:
    last = np.where(ends, reached, -math.inf)
    top = last.max(1, keepdims=True)
    base = np.where(np.isinf(top), 0.0, top)
    with np.errstate(divide="ignore"):
        return -(np.log(np.exp(last - base).sum(1)) + base[:, 0]).astype(reached.dtype)


def _log_sum_in_loops(body: Any, dtype: Any, stay: Any, step: Any, jump: Any, may_jump: Any) -> Any:
    """A node: the logarithm of the sum of three exponentials, the third only if `may_jump`."""
    x, y, z = body.read(stay), body.read(step), body.read(jump)
    z = body.compute("where(m, z, -inf)", dtype, m=body.read(may_jump), z=z)
    top = body.compute("maximum(maximum(x, y), z)", dtype, x=x, y=y, z=z)
    return body.compute(
        "where(t == -inf, -inf, t + log(exp(x - t) + exp(y - t) + exp(z - t)))",
        dtype,
        x=x,
        y=y,
        z=z,
        t=top,
    )


def _ctc_in_loops(
    b: Any,
    outs: Any,
    log_p: Any,
    states: Any,
    skips: Any,
    ends: Any,
    lengths: Any,
    *,
    zero_infinity: bool,
) -> None:
    loss, gradient = outs
    times, samples, _ = log_p.shape
    if b.widest(log_p.dtype) != log_p.dtype:
        # As in the kernel: compute in float32, and round at the end.
        wide = [b.new(out.shape, b.widest(out.dtype)) for out in outs]
        given = (b.widened(log_p), states, skips, ends, lengths)
        _ctc_in_loops(b, wide, *given, zero_infinity=zero_infinity)
        for out, found in zip(outs, wide, strict=True):
            b.rounded(out, found)
        return
    count, dtype = states.shape[1], log_p.dtype
    clock = b.constant(np.arange(times, dtype=lengths.dtype))
    index = np.broadcast_to(states, (times, samples, count))
    column = lengths[:, None]
    emitted = b.new((times, samples, count), dtype)
    b.copy(emitted, b.along(log_p, index, 2))

    reached = b.new((times + 1, samples, count + 2), dtype)
    b.fill(reached, -math.inf)
    b.fill(reached[0, :, 2], 0)
    for t in range(times):
        body = b.over((samples, count))
        old = reached[t]
        total = _log_sum_in_loops(body, dtype, old[:, 2:], old[:, 1:-1], old[:, :-2], skips)
        now = body.compute(
            "where(t < n, e + x, old)",
            dtype,
            t=body.read(clock[t : t + 1]),
            n=body.read(column),
            e=body.read(emitted[t]),
            x=total,
            old=body.read(old[:, 2:]),
        )
        body.store(reached[t + 1, :, 2:], now)
        body.done()

    lasts, top = b.new((samples, count), dtype), b.new((samples, 1), dtype)
    b.each(lasts, "where(e, x, -inf)", e=ends, x=reached[times, :, 2:])
    body = b.over(lasts.shape)
    body.fold(top, body.read(lasts), "maximum(a, x)", (1,))
    base, mass, found = (b.new((samples, 1), dtype) for _ in range(3))
    b.each(base, "where(x == -inf, 0, x)", x=top)
    body = b.over(lasts.shape)
    power = body.compute("exp(x - y)", dtype, x=body.read(lasts), y=body.read(base))
    body.fold(mass, power, "a + x", (1,))
    b.each(found, "where(x == 0, inf, -log(x) - y)", x=mass, y=base)
    b.each(loss, "where(x == inf, 0, x)" if zero_infinity else "x", x=found[:, 0])

    left = b.new((times, samples, count), dtype)
    after = b.new((times + 1, samples, count + 2), dtype)
    b.fill(after, -math.inf)
    jumps = b.new((samples, count), skips.dtype)
    b.fill(jumps, False)
    b.copy(jumps[:, :-2], skips[:, 2:])
    for t in range(times - 1, -1, -1):
        body = b.over((samples, count))
        old = after[t + 1]
        total = _log_sum_in_loops(body, dtype, old[:, :-2], old[:, 1:-1], old[:, 2:], jumps)
        now = body.compute(
            "where(t == n - 1, where(end, 0, -inf), x)",
            dtype,
            t=body.read(clock[t : t + 1]),
            n=body.read(column),
            end=body.read(ends),
            x=total,
        )
        body.store(left[t], now)
        body.store(
            after[t, :, :-2],
            body.compute("x + e", dtype, x=now, e=body.read(emitted[t])),
        )
        body.done()

    moment = clock[:, None, None]
    bad = "0" if zero_infinity else "nan"
    b.each(
        gradient,
        f"where(t < n, where(l == inf, {bad}, exp(x)), 0)",
        t=moment,
        n=column,
        l=found,
        x=log_p,
    )
    share = b.new((times, samples, count), dtype)
    b.each(
        share,
        "where(t < n, where(l == inf, 0, -exp(x + y + l)), 0)",
        t=moment,
        n=column,
        l=found,
        x=reached[1:, :, 2:],
        y=left,
    )
    b.add(b.along(gradient, index, 2), share)


def _ctc_gradient(
    g: Any,
    log_p: Any,
    states: Any,
    skips: Any,
    ends: Any,
    lengths: Any,
    gradient: Any,
    zero_infinity: bool,
) -> tuple[Any, ...]:
    g_loss, g_gradient = g
    first = None if g_loss is None else reshape_(g_loss, shape=(-1, 1)) * gradient
    if g_gradient is None:
        return (first, None, None, None, None)
    from .ctc_curvature import changed  # few programs need second derivatives

    # The Hessian is symmetric, so its product with a direction is also the vjp.
    second = changed(g_gradient, log_p, states, skips, ends, lengths, zero_infinity)
    return (second if first is None else first + second, None, None, None, None)


def _ctc_batch(p: Any, inputs: Any, batched: Any, params: dict[str, Any]) -> Any:
    """Fold the examples of the batch into the samples."""
    size = size_of(inputs, batched)
    log_p, *others = spread(inputs, batched)
    loss, gradient = p(joined(log_p, 1), *[joined(x) for x in others], **params)
    return separated(loss, size), separated(gradient, size, 1)


ctc_ = define(
    "ctc_loss",
    _ctc,
    kind=OPAQUE,
    outputs=("out", "gradient"),
    joint=_ctc_gradient,
    lower=_ctc_in_loops,
    # A program has loops for each time, so each length needs its own compilation. That pays in a
    # compiled function, but not for a single call.
    native_size=NEVER,
    batch=_ctc_batch,
)

# -- the function ------------------------------------------------------------------------------


def _lengths(name: str, values: Any, samples: int, most: int | None, like: Any) -> Any:
    """Lengths as an int64 tensor with one value for each sample."""
    given = values if isinstance(values, Tensor) else wrap(np.asarray(values, np.int64))
    if not numeric.is_integer(given._array.dtype):
        raise RuntimeError(f"ctc_loss: {name} must be integers, got {given.dtype}")
    if given._array.size != samples:
        raise RuntimeError(
            f"ctc_loss: {name} needs one value for each of {samples} samples, got shape "
            f"{tuple(given.shape)}"
        )
    allowed = "at least 0" if most is None else f"between 0 and {most}"
    message = f"ctc_loss: {name} must be {allowed}, got {{}}"
    given = checked(given, low=0, high=math.inf if most is None else most, message=message)
    return reshape_(given, shape=(samples,)).to(int64, device=like.device)


def _padded_targets(targets: Any, lengths: Any, samples: int) -> Any:
    """Targets as a matrix (samples, longest), from all targets concatenated in one row."""
    total = targets._array.size
    # On a tape, later runs may have other lengths, up to that of all targets together.
    longest = total if STATE.mode & TAPE else int(whole_of(lengths)._array.max()) if samples else 0
    starts = cumsum_(lengths, dim=0, reverse=False) - lengths
    steps = wrap(xp.module(targets._array).arange(longest))
    places = reshape_(starts, shape=(samples, 1)) + steps
    inside = c.less(steps, reshape_(lengths, shape=(samples, 1)))
    return take_(targets, c.where(inside, places, 0), dims=(0,))


@op(
    module=F,
    samples=lambda: [
        # The gradient is by design only right for the result of a log_softmax.
        Sample(In(5, 2, 4, low=-3, high=-0.5, grad=False), _ROWS, _TIMES, _COUNTS),
        Sample(In(5, 2, 4, low=-3, high=-0.5, grad=False), _ROWS, _TIMES, _COUNTS, 3, "none"),
        Sample(In(5, 2, 4, low=-3, high=-0.5, grad=False), _FLAT, _TIMES, _COUNTS, reduction="sum"),
        Sample(
            In(5, 4, low=-3, high=-0.5, grad=False),
            In(values=[1, 1], kind="int"),
            In(values=4, kind="int"),
            In(values=2, kind="int"),
        ),
    ],
    autocast={"cpu": "full"},
)
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[int],
    target_lengths: Tensor | Sequence[int],
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Any:
    """-log of the total probability of all alignments of `targets` with `log_probs`.

    `log_probs` is (times, samples, classes) or (times, classes). Targets are (samples, longest), or
    concatenated in one row. "mean" first divides each loss by its number of targets. The gradient
    is only right if `log_probs` is the result of a log_softmax, as in PyTorch.

    `input_lengths` and `target_lengths` are (samples,): the number of times and of targets of each
    sample. `blank` is the class of blanks; `zero_infinity` gives 0 to samples whose targets do not
    fit into their times.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> log_probs = tapegrad.zeros(4, 1, 3).log_softmax(2)
    >>> F.ctc_loss(log_probs, tapegrad.tensor([[1, 2]]), [4], [2])
    tensor(0.8432)
    """
    check_reduction(reduction)
    check_floating(log_probs, "ctc_loss")
    shape = tuple(log_probs._array.shape)
    if len(shape) not in (2, 3):
        raise RuntimeError(f"ctc_loss needs (times, samples, classes), got shape {shape}")
    if 0 in shape:
        raise RuntimeError(f"ctc_loss needs log_probs with elements, got shape {shape}")
    batched = len(shape) == 3
    times, classes = shape[0], shape[-1]
    samples = shape[1] if batched else 1
    if not 0 <= blank < classes:
        raise RuntimeError(f"ctc_loss: blank must lie between 0 and {classes - 1}, got {blank}")
    if numeric.is_boolean(targets._array.dtype):
        raise RuntimeError("ctc_loss needs integer targets, got a bool tensor")
    labels = targets.to(int64)
    wide = targets._array.ndim == 2
    lengths = _lengths("input_lengths", input_lengths, samples, times, log_probs)
    counts = _lengths(
        "target_lengths",
        target_lengths,
        samples,
        targets._array.shape[1] if wide else None,
        log_probs,
    )
    if wide and targets._array.shape[0] != samples:
        raise RuntimeError(
            f"ctc_loss: {samples} samples need as many rows of targets, got {tuple(targets.shape)}"
        )
    if not wide:
        size = targets._array.size
        shape = tuple(targets._array.shape)
        message = f"ctc_loss: target_lengths ask for {{}} targets in one row, got shape {shape}"
        if len(shape) != 1:
            raise RuntimeError(message.format("all"))
        counts = checked(counts, counts.sum(), low=size, high=size, message=message)
        labels = _padded_targets(labels, counts, samples)
    states, skips, ends = _states(labels, counts, samples, int(blank))
    log_p = log_probs if batched else reshape_(log_probs, shape=(times, 1, classes))
    loss, _ = ctc_(log_p, states, skips, ends, lengths, zero_infinity=bool(zero_infinity))
    if reduction == "mean":
        loss = loss / c.where(c.greater(counts, 0), counts, 1).to(loss.dtype)
    return reduced(loss if batched else reshape_(loss, shape=()), reduction)


def _states(labels: Any, counts: Any, samples: int, blank: int) -> tuple[Any, Any, Any]:
    """The `states`, `skips` and `ends` of the targets."""
    longest = labels._array.shape[1]
    column = reshape_(counts, shape=(samples, 1))
    number = wrap(xp.module(labels._array).arange(2 * longest + 1))
    inside = c.less(number // 2, column)
    odd = c.equal(number % 2, 1)
    if not longest:
        states = number * 0 + blank + column * 0
        return states, c.not_equal(states, states), c.equal(number, 2 * column)
    # After its targets a sample has blanks, so that padding is never used as a class.
    place = c.where(c.logical_and(odd, inside), number // 2, 0)
    taken = gather_(labels, place, dim=1)
    states = c.where(c.logical_and(odd, inside), taken, blank)
    before = roll(states, 2, 1)
    skips = c.logical_and(c.logical_and(odd, c.not_equal(states, before)), c.greater(number, 2))
    skips = c.logical_and(skips, c.not_equal(states, blank))
    ends = c.logical_or(c.equal(number, 2 * column), c.equal(number, 2 * column - 1))
    return states, skips, ends
