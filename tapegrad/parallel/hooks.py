"""Communication hooks: alternatives to a plain all-reduce for averaging a bucket of gradients.

A hook gets its state and a `GradBucket`, and returns a `Future` of the flat tensor of averages.
`DistributedDataParallel.register_comm_hook` registers it. Names and paths are PyTorch's:
`distributed.algorithms.ddp_comm_hooks`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.dtypes import DType, bfloat16, float16
from ..core.modes import no_grad
from ..core.tensor import Tensor
from ..distributed.process_group import resolved
from ..futures import Future
from ..ops.collective.group import AVG
from ..ops.collective.reducing import all_reduce_start_, all_reduce_wait_
from .buckets import GradBucket


def averaged(group: Any, flat: Tensor) -> Future[Any]:
    """Start to average a tensor over the ranks; returns a future of the average."""
    with no_grad():
        handle = all_reduce_start_(flat, op=AVG, group=group)

    def compute() -> Any:
        with no_grad():
            return all_reduce_wait_(handle, flat, group=group)

    return Future(compute)


def allreduce_hook(process_group: Any, bucket: GradBucket) -> Future[Any]:
    """Average the gradients, as without a hook."""
    return averaged(resolved(process_group), bucket.buffer())


def _compressed(process_group: Any, bucket: GradBucket, dtype: DType) -> Future[Any]:
    flat = bucket.buffer()
    with no_grad():
        half = flat.to(dtype)
    future = averaged(resolved(process_group), half)

    def widened(done: Future[Any]) -> Any:
        with no_grad():
            return done.value().to(flat.dtype)

    return future.then(widened)


def fp16_compress_hook(process_group: Any, bucket: GradBucket) -> Future[Any]:
    """Average the gradients in float16: half the bytes."""
    return _compressed(process_group, bucket, float16)


def bf16_compress_hook(process_group: Any, bucket: GradBucket) -> Future[Any]:
    """Average the gradients in bfloat16: half the bytes, and the range of float32."""
    return _compressed(process_group, bucket, bfloat16)


def noop_hook(state: Any, bucket: GradBucket) -> Future[Any]:
    """Keep each rank's own gradients, to measure the cost of communication."""
    future: Future[Any] = Future()
    future.set_result(bucket.buffer())
    return future


def _wrapper(hook: Callable[..., Future[Any]], dtype: DType) -> Callable[..., Future[Any]]:
    def wrapped(state: Any, bucket: GradBucket) -> Future[Any]:
        flat = bucket.buffer()
        with no_grad():
            bucket.set_buffer(flat.to(dtype))
        return hook(state, bucket).then(lambda done: done.value().to(flat.dtype))

    return wrapped


def fp16_compress_wrapper(hook: Callable[..., Future[Any]]) -> Callable[..., Future[Any]]:
    """Wrap a hook so that it gets the gradients in float16."""
    return _wrapper(hook, float16)


def bf16_compress_wrapper(hook: Callable[..., Future[Any]]) -> Callable[..., Future[Any]]:
    """Wrap a hook so that it gets the gradients in bfloat16."""
    return _wrapper(hook, bfloat16)
