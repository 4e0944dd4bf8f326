"""Communication hooks: other ways to average a bucket of gradients than one plain all-reduce.

A hook gets its state and a `GradBucket`, and returns a `Future` of the flat tensor of averages.
`DistributedDataParallel.register_comm_hook` takes it. Names and paths are PyTorch's:
`distributed.algorithms.ddp_comm_hooks`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.dtypes import DType, bfloat16, float16
from ..core.modes import no_grad
from ..core.tensor import Tensor
from ..distributed.process_group import resolved
from ..ops.collective.group import AVG
from ..ops.collective.reducing import all_reduce_start_, all_reduce_wait_
from .buckets import GradBucket


class Future:
    """A value that is there when somebody waits for it."""

    def __init__(self, compute: Callable[[], Any] | None = None) -> None:
        self._compute = compute
        self._value: Any = None
        self._is_set = False

    def set_result(self, value: Any) -> None:
        """Say what the value is."""
        self._value, self._is_set = value, True

    def wait(self) -> Any:
        """The value."""
        if not self._is_set:
            if self._compute is None:
                raise RuntimeError("nobody has set the result of this future")
            self.set_result(self._compute())
        return self._value

    value = wait

    def done(self) -> bool:
        """Whether the value is there."""
        return self._is_set

    def then(self, callback: Callable[[Future], Any]) -> Future:
        """A future of what a function makes of this one."""

        def compute() -> Any:
            self.wait()
            return callback(self)

        return Future(compute)


def averaged(group: Any, flat: Tensor) -> Future:
    """A future of the average of all ranks' tensors; its reduction starts now."""
    with no_grad():
        handle = all_reduce_start_(flat, op=AVG, group=group)

    def compute() -> Any:
        with no_grad():
            return all_reduce_wait_(handle, flat, group=group)

    return Future(compute)


def allreduce_hook(process_group: Any, bucket: GradBucket) -> Future:
    """The average, as without a hook."""
    return averaged(resolved(process_group), bucket.buffer())


def _compressed(process_group: Any, bucket: GradBucket, dtype: DType) -> Future:
    flat = bucket.buffer()
    with no_grad():
        half = flat.to(dtype)
    future = averaged(resolved(process_group), half)

    def widened(done: Future) -> Any:
        with no_grad():
            return done.value().to(flat.dtype)

    return future.then(widened)


def fp16_compress_hook(process_group: Any, bucket: GradBucket) -> Future:
    """The average of gradients in float16: half the bytes."""
    return _compressed(process_group, bucket, float16)


def bf16_compress_hook(process_group: Any, bucket: GradBucket) -> Future:
    """The average of gradients in bfloat16: half the bytes, and float32's range."""
    return _compressed(process_group, bucket, bfloat16)


def noop_hook(state: Any, bucket: GradBucket) -> Future:
    """Each rank's own gradients: to see what communication costs."""
    future = Future()
    future.set_result(bucket.buffer())
    return future


def _wrapper(hook: Callable[..., Future], dtype: DType) -> Callable[..., Future]:
    def wrapped(state: Any, bucket: GradBucket) -> Future:
        flat = bucket.buffer()
        with no_grad():
            bucket.set_buffer(flat.to(dtype))
        return hook(state, bucket).then(lambda done: done.value().to(flat.dtype))

    return wrapped


def fp16_compress_wrapper(hook: Callable[..., Future]) -> Callable[..., Future]:
    """A hook on gradients in float16."""
    return _wrapper(hook, float16)


def bf16_compress_wrapper(hook: Callable[..., Future]) -> Callable[..., Future]:
    """A hook on gradients in bfloat16."""
    return _wrapper(hook, bfloat16)
