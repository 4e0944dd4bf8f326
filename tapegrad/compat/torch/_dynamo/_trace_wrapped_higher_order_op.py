"""`torch._dynamo._trace_wrapped_higher_order_op`: a context that masks are computed in."""

from __future__ import annotations


class TransformGetItemToIndex:
    """A context in which `x[i]` with a 0-d tensor `i` reads no value; that is so anyway."""

    def __enter__(self) -> TransformGetItemToIndex:
        return self

    def __exit__(self, *error: object) -> None:
        pass
