"""Random tensors.

Comes in: a size and the state of a generator (`tapegrad/random.py`). Goes out: random numbers, and
the state advanced past them. `random_` is the draw as a primitive, so that tapes and compiled
functions repeat it; `random_array` calls it and advances the generator. Dropout, other random
operations and the functions of the main namespace call `random_array`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import random
from ..core import dtypes, numeric, xp
from ..core.batch_rules import leading
from ..core.device import ASKED, Device, as_device, get_default_device, to_device
from ..core.inplace import rebind
from ..core.modes import STATE, TAPE, TRANSFORM, unrecorded
from ..core.outputs import created_into, put
from ..core.primitive import OPAQUE, SITES, Primitive, accelerator, define, record
from ..core.tensor import Tensor, wrap
from ..transforms.batching import drawn_in_batches
from .checks import checked
from .creation import as_size, creation, made, made_like, numpy_dtype, without_values
from .elementwise.complexes import complex_
from .precision import check_floating
from .reduce.sorting import argsort_
from .table import attach

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..random import Generator
    from .annotations import DeviceLike, DTypeLike


#: so many uniform draws do not wait for native code
FEW_DRAWS = 100
#: numbers of a draw from which on threads pay: a million normal numbers take 5 ms in NumPy
MANY_NUMBERS = 1 << 17


def _words(kind: str, count: int, dtype: Any) -> int:
    """The number of 64-bit words that a draw takes: half a word for each float32."""
    if kind == "words":
        return count
    wide = dtype == np.float64 or kind == "integers"
    return count + count % 2 if wide else -(-count // 2)


def _draw(
    state: Any, *, kind: str, shape: tuple[int, ...], dtype: Any, low: int, high: int
) -> tuple[Any, Any]:
    """A random array, and the state with its offset advanced past the blocks used."""
    count = math.prod(shape)
    size = _words(kind, count, dtype)
    words = random.words_at(*random.pair_of(state), size)
    if kind == "words":
        flat = (words ^ np.uint64(1 << 63)).view(np.int64)
    elif kind == "integers":
        flat = (words[:count] % np.uint64(high - low)).astype(np.int64) + low
    elif kind == "normal":
        flat = random.normal(words, count, dtype)
    elif dtype == np.float64:
        flat = random.uniform64(words[:count])
    else:
        flat = random.uniform32(words, count)
    return flat.reshape(shape).astype(dtype, copy=False), random.moved(state, size)


_RADIUS = "sqrt(-2.0 * log(1.0 - ({})))"
_COSINE = "sine_of_turn(fabs(({0}) - 0.5) - 0.25)"
_SINE = "sine_of_turn(copysign(0.25 - fabs(fabs(({0}) - 0.5) - 0.25), 0.5 - ({0})))"


def _uniforms(word: str, wide: bool) -> tuple[str, ...]:
    """Expressions for the floats in [0, 1) that a word gives: one of 53 bits, or two of 24."""
    if wide:
        return (f"as_float64({word} >> 11) * {2.0**-53!r}",)
    halves = (f"({word} >> 8) & 16777215", f"{word} >> 40")
    return tuple(f"as_float32(as_int32({half})) * {2.0**-24!r}" for half in halves)


def _expressions(kind: str, wide: bool, low: int, high: int) -> list[str]:
    """Expressions for the values that a pair of words `x` and `y` gives, in order."""
    if kind == "words":
        return [f"as_int64({word} ^ {1 << 63})" for word in "xy"]
    if kind == "integers":
        return [f"cast(as_int64(remainder({word}, {high - low})) + {low})" for word in "xy"]
    u = [*_uniforms("x", wide), *_uniforms("y", wide)]
    if kind == "normal":
        pairs = zip(u[::2], u[1::2], strict=True)
        parts = (_COSINE, _SINE)
        u = [f"{_RADIUS.format(a)} * {part.format(b)}" for a, b in pairs for part in parts]
    return [f"cast({value})" for value in u]


def _draw_in_loops(
    b: Any, outs: Any, state: Any, *, kind: str, shape: Any, dtype: Any, low: int, high: int
) -> None:
    """A loop over blocks of four words, and one for the partial block at the end."""
    out, after = outs
    body = b.over((2,))
    taken = body.position((-(-_words(kind, out.size, dtype) // 4),))
    body.store(after, body.compute("x + taken", np.int64, x=body.read(state), taken=taken))
    body.done()
    flat = out.reshape(-1)
    pair = _expressions(kind, dtype == np.float64, low, high)
    each = 2 * len(pair)
    blocks, rest = divmod(out.size, each)
    for first, count, values in ((0, blocks, each), (blocks, 1, rest)):
        if count == 0 or values == 0:
            continue
        body = b.over((count,))
        seed, offset = body.read(state[:1]), body.read(state[1:])
        place = body.position((1,), first)
        words = [
            body.compute(
                f"philox(as_uint64(seed), as_uint64(offset + place), {which})",
                np.uint64,
                seed=seed,
                offset=offset,
                place=place,
            )
            for which in range(4)
        ]
        part = flat[first * each : first * each + (count - 1) * each + values]
        for i in range(values):
            start = i // len(pair) * 2
            x, y = words[start : start + 2]
            value = body.compute(pair[i % len(pair)], out.dtype, x=x, y=y)
            body.store(part[i::each], value)
        body.done()


random_: Primitive = define(
    "random",
    _draw,
    kind=OPAQUE,
    outputs=("out", "after"),
    lower=_draw_in_loops,
    abstract=lambda state, *, shape, dtype, **rest: ((tuple(shape), np.dtype(dtype)), state),
)


def _reserve_in_loops(b: Any, outs: Any, state: Any, *, words: int) -> None:
    before, after = outs
    body = b.over((2,))
    x = body.read(state)
    body.store(before, x)
    taken = f"x + place * {-(-words // 4)}"
    body.store(after, body.compute(taken, np.int64, x=x, place=body.along(0)))
    body.done()


reserve_: Primitive = define(
    "reserve",
    lambda state, *, words: (state.copy(), random.moved(state, words)),
    kind=OPAQUE,
    outputs=("before", "after"),
    lower=_reserve_in_loops,
    abstract=lambda state, *, words: (state, state),
)


def reserved_state(count: int) -> Tensor:
    """The state for a draw of uniform float32 in another primitive; see `uniform_at`.

    It advances the generator as `random_array` does.
    """
    source = random.default_generator
    words = _words("uniform", count, np.dtype(np.float32))
    for tape in STATE.tapes:
        tape.value_of(source.state)
        tape.will_write(source.state)
    before = source.take(words)
    out = wrap(before)
    if STATE.mode & TAPE:
        params = {"words": words}
        arrays = (before, random.moved(before, words))
        moved = wrap(arrays[1])
        record(reserve_, params, (source.state,), [before], arrays, (out, moved), TAPE)
        rebind(source.state, moved)
    return out


def uniform_at(state: Any, shape: tuple[int, ...]) -> Any:
    """Uniform float32 drawn at a state; a Tensor if the state is one, else an array."""
    params = {"kind": "uniform", "shape": shape, "dtype": np.dtype(np.float32)}
    return random_(state, **params, low=0, high=0)[0]


def random_array(
    kind: str,
    shape: tuple[int, ...],
    dtype: Any,
    generator: Any = None,
    low: int = 0,
    high: int = 0,
    device: Device | None = None,
) -> Tensor:
    """A random tensor; on an explicit tape the draw is an entry.

    Complex numbers are drawn part by part; each part of a normal number has half of the variance.
    """
    dtype = np.dtype(dtype)
    if dtype.kind in numeric.COMPLEX:
        real = dtypes.from_numpy_dtype(dtype).to_real().numpy
        pairs: Any = random_array(kind, (*shape, 2), real, generator, low, high, device)
        pairs = pairs * math.sqrt(0.5) if kind == "normal" else pairs
        made_of: Tensor = complex_(pairs[..., 0], pairs[..., 1])
        return made_of
    mode = STATE.mode
    # Numbers are the same on each device, because the host draws them.
    target = device if device is not None and device.type == "cuda" else None
    if mode & TRANSFORM:
        return drawn_in_batches(
            shape, lambda whole: _drawn(kind, whole, dtype, generator, low, high, mode, target)
        )
    return _drawn(kind, shape, dtype, generator, low, high, mode, target)


def _numbers(before: Any, params: dict[str, Any]) -> tuple[Any, Any]:
    """The numbers of a draw, and the state after it; as native code if they are few or very many.

    Of few, native code draws whole blocks of four words, of which the end may remain unused.
    """
    kind, shape, dtype = params["kind"], params["shape"], params["dtype"]
    count = math.prod(shape)
    if count >= MANY_NUMBERS and kind in ("normal", "uniform"):
        found = _aside(accelerator().kernel, random_, (before,), params)
        if found is not NotImplemented:
            return found[0], found[1]
    elif count and (kind == "normal" or (kind == "uniform" and _is_frequent(dtype))):
        each = 4 if dtype == np.float64 else 8
        same = {name: value for name, value in params.items() if name != "shape"}
        site = SITES.get((random_, *same.values()))
        blocks = -(-count // each)
        found = None if site is None else site(before, (blocks,))
        if found.__class__ is not tuple:
            found = _aside(accelerator().draw, random_, before, blocks, each, same)
        if found is not NotImplemented:
            flat, after = found
            return (flat if flat.size == count else flat[:count].copy()).reshape(shape), after
    drawn: tuple[Any, Any] = random_.kernel(before, **params)
    return drawn


def _aside(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function that may trace and compile; no tape and no observer sees that."""

    def call() -> Any:
        with unrecorded():
            return function(*args)

    return STATE.tapes[-1].unobserved(call) if STATE.tapes else call()


#: how many uniform draws there were of each dtype
_draws: dict[Any, int] = {}


def _is_frequent(dtype: Any) -> bool:
    """Whether native code should draw: not for a few draws, as those that initialize a model.

    NumPy draws the same bits, so earlier calls may decide.
    """
    _draws[dtype] = count = _draws.get(dtype, 0) + 1
    return count > FEW_DRAWS


def _drawn(
    kind: str,
    shape: tuple[int, ...],
    dtype: Any,
    generator: Any,
    low: int,
    high: int,
    mode: int,
    target: Device | None,
) -> Tensor:
    source = generator or random.default_generator
    params = {"kind": kind, "shape": shape, "dtype": dtype, "low": low, "high": high}
    for tape in STATE.tapes:
        tape.value_of(source.state)  # the value before the draw changes it
        tape.will_write(source.state)
    before = source.take(_words(kind, math.prod(shape), params["dtype"]))
    array, after = _numbers(before, params)
    if target is not None:
        array = to_device(array, target)
    out = made(array)
    if mode & TAPE:
        moved = wrap(after)
        record(random_, params, (source.state,), [before], (array, after), (out, moved), TAPE)
        rebind(source.state, moved)
    return out


def _wanted(device: Any) -> Device | None:
    """The requested device of a draw; None for the CPU."""
    if device is None and not ASKED:
        return None
    return get_default_device() if device is None else as_device(device)


def _finished(out: Tensor, target: Device | None, requires_grad: bool) -> Tensor:
    if target is not None and target.type != "cuda":
        array = to_device(out._array, target)
        if target.type == "meta":
            return without_values(array, requires_grad)
    return out.requires_grad_() if requires_grad else out


def _drawable(dtype: DTypeLike | None) -> Any:
    """A dtype of numbers that can be drawn from a continuous distribution."""
    kind = numpy_dtype(dtype)
    if numeric.is_exact(kind):
        raise NotImplementedError(f"random numbers are floating ones, not {kind}; use randint")
    return kind


@creation
def rand(
    *size: int | Sequence[int],
    generator: Generator | None = None,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    out: Tensor | None = None,
    **unused: Any,
) -> Tensor:
    """Uniform random numbers in [0, 1): `rand(2, 3)` has the shape (2, 3)."""
    if out is not None:
        return created_into(
            out,
            rand,
            *size,
            dtype=dtype,
            requires_grad=requires_grad,
            generator=generator,
            **unused,
        )
    target = _wanted(device)
    shape = as_size(size, unused)
    drawn = random_array("uniform", shape, _drawable(dtype), generator, device=target)
    return _finished(drawn, target, requires_grad)


@creation
def randn(
    *size: int | Sequence[int],
    generator: Generator | None = None,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    out: Tensor | None = None,
    **unused: Any,
) -> Tensor:
    """Normal random numbers (mean 0, standard deviation 1): `randn(2, 3)` has the shape (2, 3)."""
    if out is not None:
        return created_into(
            out,
            randn,
            *size,
            dtype=dtype,
            requires_grad=requires_grad,
            generator=generator,
            **unused,
        )
    target = _wanted(device)
    shape = as_size(size, unused)
    drawn = random_array("normal", shape, _drawable(dtype), generator, device=target)
    return _finished(drawn, target, requires_grad)


@creation
def randint(
    low: int = 0,
    high: int | Sequence[int] | None = None,
    size: Sequence[int] | None = None,
    *,
    generator: Generator | None = None,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    out: Tensor | None = None,
    **unused: Any,
) -> Tensor:
    """Random integers with low <= x < high: `randint(10, (2, 3))`, `randint(5, 10, (2, 3))`."""
    if out is not None:
        return created_into(
            out,
            randint,
            low,
            high,
            size,
            dtype=dtype,
            requires_grad=requires_grad,
            generator=generator,
        )
    end: Any = high
    if isinstance(end, (tuple, list)) and size is None:  # randint(high, size)
        low, end, size = 0, low, end
    elif end is None:  # randint(high, size=size)
        low, end = 0, low
    if size is None:
        raise TypeError("randint needs a size, such as randint(10, (2, 3))")
    for bound in (low, end):
        if isinstance(bound, float):
            raise TypeError(f"randint needs whole numbers as bounds, got {bound}")
    if end is None or end <= low:
        raise RuntimeError(f"randint needs low < high, got {low} and {end}")
    if dtype is not None:
        _check_bounds(low, end - 1, dtypes.as_dtype(dtype))
    shape, target = as_size((size,), unused), _wanted(device)
    drawn = random_array("integers", shape, np.int64, generator, int(low), int(end), target)
    if dtype is not None:
        drawn = drawn.to(dtypes.as_dtype(dtype))
    return _finished(drawn, target, requires_grad)


@creation
def randperm(
    n: int,
    *,
    generator: Generator | None = None,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    out: Tensor | None = None,
    **unused: Any,
) -> Tensor:
    """The integers 0 to n - 1 in random order."""
    if out is not None:
        return created_into(
            out, randperm, n, dtype=dtype, generator=generator, requires_grad=requires_grad
        )
    (n,) = as_size((n,), unused)
    if dtype is not None and n - 1 > _last_whole(dtypes.as_dtype(dtype)):
        raise RuntimeError(
            f"randperm: {dtypes.as_dtype(dtype)} does not hold all numbers below {n}"
        )
    target = _wanted(device)
    words = random_array("words", (n,), np.int64, generator, device=target)
    drawn = argsort_(words, dim=0, descending=False)
    if dtype is not None:
        drawn = drawn.to(dtypes.as_dtype(dtype))
    return _finished(drawn, target, requires_grad)


def _check_bounds(low: int, last: int, dtype: Any) -> None:
    most = dtypes.finfo(dtype).max if dtype.is_floating_point else _last_whole(dtype)
    least = -most if dtype.is_floating_point else dtypes.iinfo(dtype).min if most > 1 else 0
    if low < least or last > most:
        raise RuntimeError(f"randint: {dtype} does not hold all numbers from {low} to {last}")


def _last_whole(dtype: Any) -> int:
    """The largest number up to which a dtype represents every integer."""
    if dtype.is_floating_point:
        return int(2 / dtypes.finfo(dtype).eps)
    return 1 if dtype is dtypes.bool_ else int(dtypes.iinfo(dtype).max)


@creation
def rand_like(input: Tensor, **options: Any) -> Tensor:
    """Uniform random numbers in the shape of a tensor."""
    return made_like(rand, input, options)


@creation
def randn_like(input: Tensor, **options: Any) -> Tensor:
    """Normal random numbers in the shape of a tensor."""
    return made_like(randn, input, options)


@creation
def randint_like(input: Tensor, low: int = 0, high: int | None = None, **options: Any) -> Tensor:
    """Random integers in the shape of a tensor."""
    low, high = (0, low) if high is None else (low, high)
    return made_like(lambda size, **o: randint(low, high, size, **o), input, options)


def _check_deviation(std: Any) -> None:
    if isinstance(std, Tensor):
        checked(std, low=0, message="normal: a standard deviation must be 0 or more, got {}")
    elif std < 0:
        raise RuntimeError(f"normal: a standard deviation must be 0 or more, got {std}")


@creation
def normal(
    mean: Tensor | float = 0.0,
    std: Tensor | float = 1.0,
    size: Sequence[int] | None = None,
    *,
    generator: Generator | None = None,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    out: Tensor | None = None,
    **unused: Any,
) -> Tensor:
    """Normal random numbers with the given mean and standard deviation.

    Gradients of a mean or deviation are 0; `distributions.Normal.rsample` has those of the draw.
    """
    as_size((0,), unused)
    if out is not None:
        return put("normal", out, normal(mean, std, size, generator=generator))
    _check_deviation(std)
    for given in (mean, std):
        if isinstance(given, Tensor):
            check_floating(given, "normal", complex=True)
    like = [v for v in (mean, std) if isinstance(v, Tensor)]
    if size is None:
        try:
            size = np.broadcast_shapes(*[v._array.shape for v in like]) if like else ()
        except ValueError:
            raise RuntimeError(
                f"normal: a mean and a deviation of shapes {[tuple(v.shape) for v in like]} do not "
                "broadcast"
            ) from None
    kind = like[0].dtype if like and dtype is None else dtype
    middle, spread = (v.detach() if isinstance(v, Tensor) else v for v in (mean, std))
    drawn: Tensor = randn(size, generator=generator, dtype=kind, device=device) * spread + middle
    drawn = _without_gradient(drawn, mean, std)
    return drawn.requires_grad_() if requires_grad else drawn


def _without_gradient(drawn: Any, *given: Any) -> Any:
    """The drawn tensor, with a history in which all given tensors get gradients of 0."""
    for x in given:
        if isinstance(x, Tensor) and x.requires_grad:
            from .shape.uncommon import blank_

            drawn = drawn + blank_(x)
    return drawn


def as_chance(what: str, p: Any) -> Any:
    """A probability (number or tensor), checked to lie between 0 and 1."""
    message = f"{what} needs probabilities between 0 and 1, got {{}}"
    if isinstance(p, Tensor):
        return checked(p, low=0, high=1, message=message)
    if not 0 <= p <= 1:
        raise RuntimeError(message.format(p))
    return p


@creation
def bernoulli(
    input: Tensor,
    p: float | Tensor | None = None,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """1 with the probability that each element gives, else 0."""
    if out is not None:
        return put("bernoulli", out, bernoulli(input, p, generator=generator))
    if p is None:
        check_floating(input, "bernoulli")
    chance = as_chance("bernoulli", input.detach() if p is None else p)
    draw = rand(tuple(input._array.shape), generator=generator, device=input.device)
    drawn: Tensor = _without_gradient((draw < chance).to(input.dtype), input)
    return drawn


def _multinomial(weights: Any, u: Any, *, count: int, replacement: bool) -> Any:
    """Indices picked by uniform numbers `u`: one per draw with replacement, else one per weight."""
    rows = weights.astype(np.float64, copy=False)
    rows = rows.reshape(-1, rows.shape[-1])
    if (rows < 0).any() or not np.isfinite(rows).all() or (rows.sum(1) <= 0).any():
        raise RuntimeError("multinomial needs finite weights of at least 0 with a sum above 0")
    if replacement:
        u = u.reshape(-1, count)
        ends = np.cumsum(rows, axis=1)
        found = xp.module(u).empty(u.shape, np.int64)
        for row, end, v in zip(found, ends, u, strict=True):
            row[...] = np.searchsorted(end, v * end[-1], side="right")
        found = np.minimum(found, rows.shape[1] - 1)
    else:
        if rows.size and count > (rows > 0).sum(1).min():
            raise RuntimeError(
                f"cannot draw {count} different indices where fewer have a weight above 0"
            )
        # Exponential races: sorting by u**(1/w) draws without replacement.
        races = -np.log1p(-u.reshape(rows.shape)) / np.where(rows > 0, rows, 1.0)
        found = np.argsort(np.where(rows > 0, races, np.inf), axis=1)[:, :count]
    return found.reshape(*weights.shape[:-1], count).astype(np.int64)


multinomial_: Primitive = define(
    "multinomial",
    _multinomial,
    kind=OPAQUE,
    batch=leading,
    abstract=lambda weights, u, *, count, replacement: (
        (*weights[0][:-1], count),
        np.dtype(np.int64),
    ),
)


@creation
def multinomial(
    input: Tensor,
    num_samples: int,
    replacement: bool = False,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Indices drawn with the weights of each row: (rows, n) gives (rows, num_samples)."""
    if out is not None:
        if out.dtype is not dtypes.int64:
            raise RuntimeError(f"multinomial gives indices: out= must be int64, not {out.dtype}")
        indices = multinomial(input, num_samples, replacement, generator=generator)
        return put("multinomial", out, indices)
    if num_samples < 1:
        raise RuntimeError(f"multinomial draws at least 1 index, got {num_samples}")
    if input._array.ndim not in (1, 2):
        raise RuntimeError(f"multinomial needs 1 or 2 dimensions, got shape {tuple(input.shape)}")
    check_floating(input, "multinomial")
    if not input._array.size:
        raise RuntimeError(f"multinomial needs weights, got shape {tuple(input.shape)}")
    shape = tuple(input._array.shape)
    drawn = (*shape[:-1], num_samples) if replacement else shape
    u = random_array("uniform", drawn, np.float64, generator, device=input.device)
    picked: Tensor = multinomial_(
        input.detach(), u, count=int(num_samples), replacement=bool(replacement)
    )
    return picked


attach(bernoulli=bernoulli, multinomial=multinomial)
