"""PipelineStage: one part of a model on one rank, and its messages with neighbouring stages.

Comes in: the rank's module. A stage receives activations from the previous stage and sends its
results to the next; gradients travel the other way. Shapes and dtypes are exchanged once, in the
first step: they must be the same for all microbatches. Called by the schedules of `pipeline.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..autograd.api import backward
from ..core.dtypes import bfloat16
from ..core.modes import GRAD, LISTENING, STATE
from ..core.tensor import Tensor, wrap
from ..distributed import checks
from ..nn.module import Module
from ..ops.collective.moving import receive_, send_
from ..ops.creation import CREATION
from .members import group_or_self

#: tags of messages: activations, gradients, and shapes
FORWARD, BACKWARD, SHAPES = 11, 12, 13
#: most dimensions of a tensor; a message about one has its dtype, number of dimensions and sizes
_MOST_DIMS = 8
_DTYPES = (
    *("float32", "float64", "float16", "bfloat16", "int64", "int32", "bool", "uint8", "int8"),
    *("int16", "complex64", "complex128"),
)


class PipelineStage:
    """Part `stage_index` of a model that is cut into `num_stages` parts, one per rank.

    The module takes what the previous stage's module returns: one tensor or several. `group` has
    one member per stage; member i has stage i.
    """

    def __init__(
        self,
        submodule: Module,
        stage_index: int,
        num_stages: int,
        device: Any = None,
        input_args: Any = None,
        output_args: Any = None,
        group: Any = None,
    ) -> None:
        self.submod = submodule
        self.stage_index = stage_index
        self.num_stages = num_stages
        self.group = group_or_self(group)
        if num_stages != self.group.size or stage_index != self.group.rank:
            raise ValueError(
                f"stage {stage_index} of {num_stages} must be on member {stage_index} of a group "
                f"of {num_stages}, got member {self.group.rank} of {self.group.size}"
            )
        #: shapes and dtypes of the inputs, known from the first microbatch on
        self._incoming: tuple[tuple[tuple[int, ...], Any], ...] | None = None
        self._has_sent_shapes = False
        #: by microbatch number: inputs and results of microbatches that wait for backward
        self._open: dict[int, tuple[list[Any], list[Any]]] = {}
        self._sending: list[Any] = []

    @property
    def is_first(self) -> bool:
        return self.stage_index == 0

    @property
    def is_last(self) -> bool:
        return self.stage_index == self.num_stages - 1

    # -- messages ----------------------------------------------------------------------------------

    def _send(self, tensor: Any, target: int, tag: int) -> None:
        """Send a tensor, without waiting unless it is on a tape or collectives are checked."""
        tensor = tensor.detach().contiguous()
        if STATE.mode & LISTENING or checks.wanted() or self.group.size == 1:
            send_(tensor, target=target, tag=tag, group=self.group)
        else:
            self._sending.append(self.group.start_send(tensor._array, target, tag))

    def _receive(self, shape: tuple[int, ...], dtype: Any, source: int, tag: int) -> Any:
        token = wrap(np.zeros((), dtype))
        return receive_(token, shape=shape, source=source, tag=tag, group=self.group).detach()

    def finish(self) -> None:
        """Wait until all sends of this rank are complete."""
        for work in self._sending:
            work.wait()
        self._sending.clear()

    def receive_inputs(self) -> list[Any]:
        """Receive a microbatch's inputs from the previous stage."""
        if self.is_first:
            return []
        if self._incoming is None:
            self._incoming = self._receive_shapes()
        source = self.stage_index - 1
        return [self._receive(s, d, source, FORWARD) for s, d in self._incoming]

    def send_results(self, number: int) -> None:
        """Send the results of a microbatch to the next stage."""
        if self.is_last:
            return
        results = self._open[number][1]
        if not self._has_sent_shapes:
            self._send_shapes(results)
            self._has_sent_shapes = True
        for result in results:
            self._send(result, self.stage_index + 1, FORWARD)

    def receive_gradients(self, number: int) -> list[Any]:
        """Receive the gradients of a microbatch's results from the next stage."""
        if self.is_last:
            return []
        target = self.stage_index + 1
        return [
            self._receive(tuple(r.shape), r._array.dtype, target, BACKWARD)
            for r in self._open[number][1]
            if r.dtype.is_floating_point
        ]

    def send_gradients(self, gradients: list[Any]) -> None:
        """Send the gradients of a microbatch's inputs to the previous stage."""
        if not self.is_first:
            for gradient in gradients:
                self._send(gradient, self.stage_index - 1, BACKWARD)

    def _send_shapes(self, tensors: list[Any]) -> None:
        words = np.zeros((len(tensors), 2 + _MOST_DIMS), np.int64)
        for row, tensor in zip(words, tensors, strict=True):
            shape = tuple(tensor.shape)
            if len(shape) > _MOST_DIMS or tensor._array.dtype.name not in _DTYPES:
                raise ValueError(
                    f"stages exchange tensors of up to {_MOST_DIMS} dimensions with the dtypes "
                    f"{', '.join(_DTYPES)}, got {tensor.dtype} of shape {shape}"
                )
            row[:2] = _DTYPES.index(tensor._array.dtype.name), len(shape)
            row[2 : 2 + len(shape)] = shape
        target = self.stage_index + 1
        self.group.send(np.array([len(tensors)], np.int64), target, SHAPES)
        self.group.send(words, target, SHAPES)

    def _receive_shapes(self) -> Any:
        source, int64 = self.stage_index - 1, np.dtype(np.int64)
        count = int(self.group.receive((1,), int64, source, SHAPES)[0])
        words = self.group.receive((count, 2 + _MOST_DIMS), int64, source, SHAPES)
        return tuple(
            (tuple(int(n) for n in row[2 : 2 + row[1]]), _numpy_dtype(_DTYPES[row[0]]))
            for row in words
        )

    # -- computing ---------------------------------------------------------------------------------

    def forward_one(self, number: int, inputs: list[Any], kwargs: dict[str, Any]) -> Any:
        """Run the module on a microbatch; returns its result."""
        if not self.is_first:
            inputs = [
                x.requires_grad_() if x.dtype.is_floating_point and _is_training() else x
                for x in inputs
            ]
        result = self.submod(*inputs, **kwargs)
        results = list(result) if isinstance(result, (tuple, list)) else [result]
        for x in results:
            if not isinstance(x, Tensor):
                raise TypeError(f"a stage must return tensors, got {type(x).__name__}")
        self._open[number] = (inputs, results)
        return result

    def backward_one(self, number: int, loss: Any, gradients: list[Any]) -> list[Any]:
        """Run backward for a microbatch; returns the gradients of its inputs."""
        inputs, results = self._open.pop(number)
        if loss is not None:
            loss.backward()
        else:
            floating = [r for r in results if r.dtype.is_floating_point]
            pairs = [(r, g) for r, g in zip(floating, gradients, strict=True) if r.requires_grad]
            backward([r for r, _ in pairs], [g for _, g in pairs])
        if self.is_first:
            return []
        floating = [x for x in inputs if x.dtype.is_floating_point]
        return [CREATION["zeros_like"](x) if x.grad is None else x.grad for x in floating]

    def drop(self, number: int) -> None:
        """Forget a microbatch that needs no gradients."""
        del self._open[number]


def _is_training() -> bool:
    return bool(STATE.mode & GRAD)


def _numpy_dtype(name: str) -> Any:
    return bfloat16.numpy if name == "bfloat16" else np.dtype(name)
