"""Pipeline parallelism: a model in stages, one per rank, which microbatches pass through.

`ScheduleGPipe` runs all forward passes and then all backward passes. `Schedule1F1B` alternates
forward and backward passes once the pipeline is full, so that a stage keeps at most one microbatch
more than there are stages after it. Both compute the gradients of one process on the whole batch.
Names are PyTorch's: `tapegrad.distributed.pipelining`.

In every exchange of two neighbours both sides order messages "first forward, then backward", so no
two stages wait for each other, even where a send blocks until it is received, as during capture.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.modes import no_grad
from ..core.tensor import Tensor
from ..core.tree import map_leaves
from ..ops.shape.joining import cat
from .pipeline_stage import PipelineStage


class PipelineSchedule:
    """Base of the schedules: microbatches, losses, and the parts of a step."""

    def __init__(
        self,
        stage: PipelineStage,
        n_microbatches: int,
        loss_fn: Callable[..., Any] | None = None,
        args_chunk_spec: Any = None,
        kwargs_chunk_spec: Any = None,
        output_merge_spec: Any = None,
        scale_grads: bool = True,
    ) -> None:
        if n_microbatches < 1:
            raise ValueError(f"n_microbatches must be at least 1, got {n_microbatches}")
        self._stage = stage
        self._n_microbatches = n_microbatches
        self._loss_fn = loss_fn
        self.scale_grads = scale_grads

    def step(
        self,
        *args: Any,
        target: Any = None,
        losses: list[Any] | None = None,
        return_outputs: bool = True,
        **kwargs: Any,
    ) -> Any:
        """Run forward and backward of a batch, as `n_microbatches` microbatches.

        The first stage passes the inputs, the last one `target` and a list for the losses of the
        microbatches. Gradients are those of the mean of the losses, or of their sum with
        `scale_grads=False`. Returns the results of the whole batch on the last stage, None on the
        others. Without a loss function only forward passes run.
        """
        stage, count = self._stage, self._n_microbatches
        run = PipelineStep(self, _cut(args, count), _cut(kwargs, count), _cut(target, count))
        if stage.is_last and self._loss_fn is not None and target is None:
            raise ValueError("the last stage needs target=... for its loss function")
        if self._loss_fn is None:
            with no_grad():
                for i in range(count):
                    run.forward(i, stage.receive_inputs())
                    stage.send_results(i)
                    stage.drop(i)
        else:
            self._run(run)
        stage.finish()
        if not stage.is_last:
            return None
        if losses is not None:
            losses[:] = run.losses
        return _merged(run.results) if return_outputs else None

    def eval(
        self, *args: Any, target: Any = None, losses: list[Any] | None = None, **kwargs: Any
    ) -> Any:
        """Run forward passes of a batch; the last stage also computes losses."""
        stage, count = self._stage, self._n_microbatches
        run = PipelineStep(self, _cut(args, count), _cut(kwargs, count), _cut(target, count))
        with no_grad():
            for i in range(count):
                run.forward(i, stage.receive_inputs(), with_loss=target is not None)
                stage.send_results(i)
                stage.drop(i)
        stage.finish()
        if losses is not None and stage.is_last:
            losses[:] = run.losses
        return _merged(run.results) if stage.is_last else None

    def _run(self, run: PipelineStep) -> None:
        """Run the forward and backward passes of this stage, in the order of the schedule."""
        raise NotImplementedError


class PipelineStep:
    """One step: its microbatches, their losses and results."""

    def __init__(self, schedule: PipelineSchedule, args: Any, kwargs: Any, targets: Any) -> None:
        self.schedule = schedule
        self.stage = schedule._stage
        self.args, self.kwargs, self.targets = args, kwargs, targets
        self.losses: list[Any] = []
        self.results: list[Any] = []

    def forward(self, number: int, inputs: list[Any], with_loss: bool = True) -> None:
        """Run forward for a microbatch; the last stage also computes its loss."""
        stage, loss_fn = self.stage, self.schedule._loss_fn
        given = list(self.args[number]) if stage.is_first else inputs
        result = stage.forward_one(number, given, self.kwargs[number])
        if stage.is_last:
            self.results.append(map_leaves(_detached, result))
            if loss_fn is not None and with_loss:
                self.losses.append(loss_fn(result, self.targets[number]))

    def backward(self, number: int, gradients: list[Any]) -> list[Any]:
        """Run backward for a microbatch; returns the gradients of its inputs."""
        stage, loss = self.stage, None
        if stage.is_last:
            loss = self.losses[number]
            if self.schedule.scale_grads:
                loss = loss / self.schedule._n_microbatches
            self.losses[number] = self.losses[number].detach()
        return stage.backward_one(number, loss, gradients)


class ScheduleGPipe(PipelineSchedule):
    """All forward passes, then all backward passes."""

    def _run(self, run: PipelineStep) -> None:
        stage, count = self._stage, self._n_microbatches
        for i in range(count):
            run.forward(i, stage.receive_inputs())
            stage.send_results(i)
        for i in range(count):
            stage.send_gradients(run.backward(i, stage.receive_gradients(i)))


class Schedule1F1B(PipelineSchedule):
    """Alternating forward and backward passes, once the pipeline is full."""

    def _run(self, run: PipelineStep) -> None:
        stage, count = self._stage, self._n_microbatches
        ahead = min(stage.num_stages - 1 - stage.stage_index, count)
        for i in range(ahead):
            run.forward(i, stage.receive_inputs())
            stage.send_results(i)
        inputs = stage.receive_inputs() if ahead < count else []
        for i in range(ahead, count):
            run.forward(i, inputs)
            stage.send_results(i)
            gradients = run.backward(i - ahead, stage.receive_gradients(i - ahead))
            inputs = stage.receive_inputs() if i + 1 < count else []
            stage.send_gradients(gradients)
        for i in range(count - ahead, count):
            stage.send_gradients(run.backward(i, stage.receive_gradients(i)))


def _detached(x: Any) -> Any:
    return x.detach() if isinstance(x, Tensor) else x


def _cut(value: Any, count: int) -> list[Any]:
    """A value per microbatch: pieces of tensors along the first dimension; the rest is repeated."""

    def part(i: int) -> Any:
        def cut(x: Any) -> Any:
            if not isinstance(x, Tensor) or x.ndim == 0:
                return x
            if x.shape[0] % count:
                raise ValueError(
                    f"a batch of {x.shape[0]} cannot be cut into {count} equal microbatches"
                )
            size = x.shape[0] // count
            return x[i * size : (i + 1) * size]

        return map_leaves(cut, value)

    return [part(i) for i in range(count)]


def _merged(results: list[Any]) -> Any:
    """Join the results of all microbatches; 0-D tensors stay in a list."""
    first = results[0]
    if isinstance(first, (tuple, list)):
        merged = [_merged(list(parts)) for parts in zip(*results, strict=True)]
        return type(first)(*merged) if hasattr(first, "_fields") else type(first)(merged)
    return cat(results) if first.ndim else results
