"""`torch._dynamo._trace_wrapped_higher_order_op`: a context for computing masks."""

from __future__ import annotations


class TransformGetItemToIndex:
    """A context without effect: `x[i]` with a 0-d tensor `i` never reads the value of `i`."""

    def __enter__(self) -> TransformGetItemToIndex:
        return self

    def __exit__(self, *error: object) -> None:
        pass
