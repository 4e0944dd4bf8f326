"""PyTorch's import path of pipeline parallelism."""

from ...parallel.pipeline import PipelineSchedule, Schedule1F1B, ScheduleGPipe
from ...parallel.pipeline_stage import PipelineStage

__all__ = ["PipelineSchedule", "PipelineStage", "Schedule1F1B", "ScheduleGPipe"]
