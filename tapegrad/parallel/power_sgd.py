"""PowerSGD: gradients are sent as two thin matrices, and the error is added to the next gradient.

A gradient M (n, m) is approximated by P Qᵀ with P (n, rank) and Q (m, rank), by one step of power
iteration from the last Q. Ranks send P and Q instead of M. The error of the approximation is added
to the next gradient (error feedback), so that nothing is lost in the long run. Vogels, Karimireddy
and Jaggi, "PowerSGD: Practical low-rank gradient compression for distributed optimization" (2019).

Used by `DistributedDataParallel.register_comm_hook(PowerSGDState(...), powerSGD_hook)`. Names are
PyTorch's: `tapegrad.distributed.algorithms.ddp_comm_hooks.powerSGD_hook`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.tensor import wrap
from ..distributed.process_group import resolved
from ..futures import Future
from ..ops.collective.group import AVG, SUM
from ..replay.trace.options import innermost_capture
from .buckets import GradBucket
from .hooks import averaged


class PowerSGDState:
    """The settings of PowerSGD, and its state, which is kept from step to step.

    `matrix_approximation_rank` is the number of columns of P and Q. The first `start_powerSGD_iter`
    steps average whole gradients, since early gradients are approximated badly. A gradient is
    compressed if that saves more than a factor of `min_compression_rate`. With `use_error_feedback`
    the error is added to the next gradient; with `warm_start` Q is kept from step to step. With an
    `orthogonalization_epsilon` above 0, columns of norm 0 stay finite.
    """

    def __init__(
        self,
        process_group: Any = None,
        matrix_approximation_rank: int = 1,
        start_powerSGD_iter: int = 1000,
        min_compression_rate: float = 2,
        use_error_feedback: bool = True,
        warm_start: bool = True,
        orthogonalization_epsilon: float = 0,
        random_seed: int = 0,
    ) -> None:
        if matrix_approximation_rank < 1:
            raise ValueError(
                f"matrix_approximation_rank must be at least 1, got {matrix_approximation_rank}"
            )
        if (use_error_feedback or warm_start) and start_powerSGD_iter <= 1:
            raise ValueError(
                "start_powerSGD_iter must be greater than 1 with error feedback or a warm start, "
                f"got {start_powerSGD_iter}"
            )
        self.process_group = process_group
        self.matrix_approximation_rank = matrix_approximation_rank
        self.start_powerSGD_iter = start_powerSGD_iter
        self.min_compression_rate = min_compression_rate
        self.use_error_feedback = use_error_feedback
        self.warm_start = warm_start
        self.orthogonalization_epsilon = orthogonalization_epsilon
        self.rng = np.random.RandomState(random_seed)
        #: by bucket index: the errors of the approximation
        self.error_dict: dict[int, Any] = {}
        #: by bucket index and position: the last Q of a gradient
        self.q_memory_dict: dict[tuple[int, int], Any] = {}
        #: number of steps so far
        self.iter = 0
        #: number of elements of gradients, and of elements sent for them
        self.total_numel_before_compression = 0
        self.total_numel_after_compression = 0

    def __getstate__(self) -> dict[str, Any]:
        """The state without its process group, which belongs to one job."""
        return {name: x for name, x in vars(self).items() if name != "process_group"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, process_group=None)

    def compression_stats(self) -> tuple[float, int, int]:
        """The ratio of elements of gradients to elements sent, and both numbers."""
        before, after = self.total_numel_before_compression, self.total_numel_after_compression
        return (before / after if after else 0.0), before, after


def powerSGD_hook(state: PowerSGDState, bucket: GradBucket) -> Future[Any]:
    """Average a bucket of gradients: in the first steps whole, then compressed."""
    capture = innermost_capture()
    if capture is not None:
        capture.refuse(
            "powerSGD_hook decides in each step what it sends and keeps errors from step to step, "
            "which does not happen when a compiled function is replayed; compile the model's "
            "forward pass, and call backward outside"
        )
    compressing = state.iter >= state.start_powerSGD_iter
    state.iter += bucket.is_last()
    if not compressing:
        return averaged(resolved(state.process_group), bucket.buffer())
    future: Future[Any] = Future()
    future.set_result(_compressed_average(state, bucket))
    return future


def _compressed_average(state: PowerSGDState, bucket: GradBucket) -> Any:
    group, buffer = resolved(state.process_group), bucket.buffer()
    given = buffer._array
    wide = given if given.dtype.itemsize >= 4 else given.astype(np.float32)
    flat = wide.copy()
    if state.use_error_feedback and bucket.index() in state.error_dict:
        flat += state.error_dict[bucket.index()]
    out = np.empty_like(flat)
    thin, whole = _divided(state, bucket, flat)
    for at, matrix in thin.items():
        state.total_numel_after_compression += sum(matrix.shape) * _rank(state, *matrix.shape)
        if not state.warm_start or at not in state.q_memory_dict:
            shape = (matrix.shape[1], _rank(state, *matrix.shape))
            state.q_memory_dict[at] = state.rng.randn(*shape).astype(flat.dtype)
    left = _joined([flat[start:end] for start, end in whole], flat.dtype)
    left = group.all_reduce(left, AVG)
    state.total_numel_before_compression += flat.size
    state.total_numel_after_compression += left.size
    # One message for all P, one for all Q.
    matrices = list(thin.values())
    qs = [_orthogonal(state.q_memory_dict[at], state) for at in thin]
    ps = _summed([m @ q for m, q in zip(matrices, qs, strict=True)], group, SUM, flat.dtype)
    ps = [_orthogonal(p, state) for p in ps]
    qs = _summed([m.T @ p for m, p in zip(matrices, ps, strict=True)], group, AVG, flat.dtype)
    error = np.zeros_like(flat)
    for (at, matrix), p, q in zip(thin.items(), ps, qs, strict=True):
        state.q_memory_dict[at] = q
        start = bucket._bucket.offsets[at[1]]
        found = (p @ q.T).reshape(-1)
        out[start : start + found.size] = found
        error[start : start + found.size] = matrix.reshape(-1) - found
    at_left = 0
    for start, end in whole:
        out[start:end] = left[at_left : at_left + end - start]
        at_left += end - start
    if state.use_error_feedback:
        state.error_dict[bucket.index()] = error
    return wrap(out).to(buffer.dtype)


def _rank(state: PowerSGDState, rows: int, columns: int) -> int:
    return min(rows, columns, state.matrix_approximation_rank)


def _divided(state: PowerSGDState, bucket: GradBucket, flat: Any) -> tuple[Any, Any]:
    """Gradients to compress, as matrices by (bucket, position), and the ranges of the others."""
    thin: dict[tuple[int, int], Any] = {}
    whole: list[tuple[int, int]] = []
    held = bucket._bucket
    for at, parameter in enumerate(held.parameters):
        start, size = held.offsets[at], held.sizes[at]
        rows = parameter.shape[0] if parameter.ndim > 1 else 1
        columns = size // max(rows, 1)
        sent = (rows + columns) * _rank(state, rows, columns)
        if rows > 1 and sent * state.min_compression_rate < size:
            thin[bucket.index(), at] = flat[start : start + size].reshape(rows, columns)
        else:
            whole.append((start, start + size))
    return thin, whole


def _joined(parts: list[Any], dtype: Any) -> Any:
    flat = [part.reshape(-1) for part in parts]
    return np.concatenate(flat) if flat else np.zeros(0, dtype)


def _summed(parts: list[Any], group: Any, op: str, dtype: Any) -> list[Any]:
    """Reduce several matrices with one message."""
    reduced = group.all_reduce(_joined(parts, dtype), op)
    ends = np.cumsum([0, *[p.size for p in parts]])
    return [
        reduced[ends[i] : ends[i + 1]].reshape(p.shape).astype(p.dtype, copy=False)
        for i, p in enumerate(parts)
    ]


def _orthogonal(matrix: Any, state: PowerSGDState) -> Any:
    """Orthonormalize the columns of a matrix."""
    if state.orthogonalization_epsilon == 0:
        return np.linalg.qr(matrix)[0]
    out = matrix.copy()
    for i in range(out.shape[1]):
        column = out[:, i : i + 1]
        column /= np.linalg.norm(column) + state.orthogonalization_epsilon
        rest = out[:, i + 1 :]
        rest -= column @ (column.T @ rest)
    return out
