"""The second derivative of `ctc_loss`: how its gradient changes with the log-probabilities.

The gradient contains the probability that a path is in a state at a time. Along a change of the
log-probabilities, the logarithm of that probability changes by the expected change over the paths
through that state, minus the expected change over all paths. Both expectations are computed in the
same loops over times as the sums over paths. All operations are primitives, so that higher
derivatives work too.
"""

from __future__ import annotations

from typing import Any

from ..elementwise import comparison as c
from ..elementwise.exponentials import exp
from ..elementwise.extremes import maximum
from ..elementwise.functions import logaddexp
from ..index.gather import gather_, scatter_add_, zeros_as
from ..precision import rounded, widened
from ..reduce.reductions import sum_
from ..reduce.statistics import logsumexp_
from ..shape.expanding import expand_
from ..shape.joining import cat_
from ..shape.reshaping import reshape_
from ..shape.slicing import slice_

#: used as log(0), because differences of -inf are NaN
NEVER = -1e30


def _part(x: Any, *index: Any) -> Any:
    return slice_(x, index=index)


def _moved(x: Any, by: int, fill: Any) -> Any:
    """States shifted right by `by`, or left if it is negative; `fill` fills the gap."""
    count = x.shape[1]
    border = _part(fill, None, (0, min(abs(by), count), 1))
    if abs(by) >= count:
        return border if border.shape[1] == count else _part(border, None, (0, count, 1))
    if by > 0:
        return cat_(border, _part(x, None, (0, count - by, 1)), dim=1)
    return cat_(_part(x, None, (-by, count, 1)), border, dim=1)


def _step(
    reached: Any, expected: Any, jumps: Any, by: int, never: Any, nothing: Any
) -> tuple[Any, Any]:
    """The log-sum over the three ways into each state, and the expected change over them."""
    ways = [
        reached,
        _moved(reached, by, never),
        c.where(jumps, _moved(reached, 2 * by, never), NEVER),
    ]
    total = logaddexp(logaddexp(ways[0], ways[1]), ways[2])
    values = [expected, _moved(expected, by, nothing), _moved(expected, 2 * by, nothing)]
    mean = sum([exp(w - total) * v for w, v in zip(ways, values, strict=True)])
    return total, mean


def changed(
    change: Any, log_p: Any, states: Any, skips: Any, ends: Any, lengths: Any, zero_infinity: bool
) -> Any:
    """The directional derivative of the gradient of `ctc_loss` along `change` of `log_p`."""
    like, change, log_p = log_p, widened(change), widened(log_p)
    times, samples, _ = log_p.shape
    count = states.shape[1]
    index = expand_(reshape_(states, shape=(1, samples, count)), shape=(times, samples, count))
    emitted = maximum(gather_(log_p, index, dim=2), NEVER)
    cost = gather_(change, index, dim=2)
    column = reshape_(lengths, shape=(samples, 1))
    nothing = zeros_as(log_p, shape=(samples, count))
    never = nothing + NEVER

    def at(x: Any, t: int) -> Any:
        return _part(x, t, None, None)

    # Forwards: the change up to a state. Paths begin in the first state, before the first time.
    first = zeros_as(log_p, shape=(samples, 1))
    reached = first if count == 1 else cat_(first, _part(never, None, (1, count, 1)), dim=1)
    before = nothing
    forwards = []
    for t in range(times):
        total, mean = _step(reached, before, skips, 1, never, nothing)
        active = c.greater(column, t)
        reached = c.where(active, at(emitted, t) + total, reached)
        before = c.where(active, at(cost, t) + mean, before)
        forwards.append((reached, before))
    last = c.where(ends, reached, NEVER)
    whole = logsumexp_(last, dims=(1,), keepdim=True)
    mean_of_all = sum_(exp(last - whole) * before, dims=(1,), keepdim=True)

    # Backwards: the change after a state.
    jumps = c.greater(_moved(c.where(skips, nothing + 1, nothing), -2, nothing), 0)
    finish = c.where(ends, nothing, never)
    left, after = never, nothing
    rows = []
    for t in range(times - 1, -1, -1):
        is_last = c.equal(column, t + 1)
        left, after = c.where(is_last, finish, left), c.where(is_last, nothing, after)
        reached, before = forwards[t]
        share = exp(reached + left - whole) * (before + after - mean_of_all)
        rows.append(reshape_(c.where(c.greater(column, t), share, 0.0), shape=(1, samples, count)))
        if t:
            left, after = _step(
                left + at(emitted, t), after + at(cost, t), jumps, -1, never, nothing
            )
    moved = cat_(*reversed(rows), dim=0)
    bent = scatter_add_(zeros_as(log_p, shape=tuple(log_p.shape)), index, moved, dim=2)
    counted = _counted(times, column, log_p)
    out = c.where(counted, change * exp(log_p) - bent, 0.0)
    hopeless = reshape_(c.less(whole, NEVER / 2), shape=(1, samples, 1))
    bad = c.logical_and(hopeless, counted)
    return rounded(c.where(bad, 0.0 if zero_infinity else float("nan"), out), like)


def _counted(times: int, column: Any, log_p: Any) -> Any:
    """A mask of the times within each sample's length, (times, samples, 1)."""
    samples = column.shape[0]
    rows = [reshape_(c.greater(column, t), shape=(1, samples, 1)) for t in range(times)]
    return cat_(*rows, dim=0)
