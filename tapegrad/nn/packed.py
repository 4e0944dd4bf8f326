"""PackedSequence: sequences of several lengths as the rows of one tensor, ordered by step.

Recurrent layers take and return it. The first `batch_sizes[0]` rows are the first step of all
sequences, the longest sequence first; then follows the second step of all sequences that have one,
and so on.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

from ..core.tensor import Tensor
from ..ops.creation import CREATION


class _Packed(NamedTuple):
    data: Any
    batch_sizes: Any
    sorted_indices: Any
    unsorted_indices: Any


def invert_permutation(permutation: Any) -> Any:
    """The order that undoes an order; None for None."""
    return None if permutation is None else permutation.argsort()


class PackedSequence(_Packed):
    """Rows of several sequences; made by `pack_padded_sequence`, rarely by hand.

    `sorted_indices` is the order of the sequences by length, if they were not sorted before.
    """

    __slots__ = ()

    def __new__(
        cls,
        data: Any,
        batch_sizes: Any = None,
        sorted_indices: Any = None,
        unsorted_indices: Any = None,
    ) -> Self:
        if batch_sizes is None:
            if not isinstance(data, (tuple, list)) or len(data) != 2:
                raise ValueError("PackedSequence needs data and batch_sizes")
            data, batch_sizes = data
        if not isinstance(batch_sizes, Tensor):
            batch_sizes = CREATION["tensor"](list(batch_sizes))
        if batch_sizes.device.type != "cpu":
            raise ValueError(
                "batch_sizes must be on the CPU; pack_sequence and pack_padded_sequence make a "
                "PackedSequence that is right"
            )
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def _with(self, data: Any) -> Self:
        """The same sequence lengths with other data."""
        if data is self.data:
            return self
        indices = [
            None if i is None else i.to(data.device)
            for i in (self.sorted_indices, self.unsorted_indices)
        ]
        return type(self)(data, self.batch_sizes, *indices)

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """The data moved or converted, as `Tensor.to` does."""
        return self._with(self.data.to(*args, **kwargs))

    def cpu(self) -> Self:
        """This sequence on the CPU."""
        return self.to("cpu")

    def cuda(self, device: Any = None) -> Self:
        """This sequence on a GPU."""
        return self._with(self.data.cuda() if device is None else self.data.cuda(device))

    def double(self) -> Self:
        """This sequence as float64."""
        return self._with(self.data.double())

    def float(self) -> Self:
        """This sequence as float32."""
        return self._with(self.data.float())

    def half(self) -> Self:
        """This sequence as float16."""
        return self._with(self.data.half())

    def long(self) -> Self:
        """This sequence as int64."""
        return self._with(self.data.long())

    def int(self) -> Self:
        """This sequence as int32."""
        return self._with(self.data.int())

    @property
    def is_cuda(self) -> bool:
        """Whether the data is on a GPU."""
        return bool(self.data.device.type == "cuda")

    def is_pinned(self) -> bool:
        """Whether the data is in pinned memory."""
        return bool(self.data.is_pinned())

    def pin_memory(self) -> Self:
        """This sequence with its data in pinned memory; itself if it is there, or without a GPU."""
        return self._with(self.data.pin_memory())
