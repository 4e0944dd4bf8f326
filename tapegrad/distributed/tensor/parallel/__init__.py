"""PyTorch's import path of tensor parallelism, and the divided layers themselves."""

from ....parallel.tensor_parallel import (
    ColumnParallelLinear,
    ParallelAttention,
    ParallelEmbedding,
    ParallelMLP,
    ParallelTransformerBlock,
    RowParallelLinear,
    parallel_cross_entropy,
)
from ....parallel.tensor_styles import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleInputOutput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

__all__ = [
    "ColumnParallelLinear",
    "ColwiseParallel",
    "ParallelAttention",
    "ParallelEmbedding",
    "ParallelMLP",
    "ParallelStyle",
    "ParallelTransformerBlock",
    "PrepareModuleInput",
    "PrepareModuleInputOutput",
    "PrepareModuleOutput",
    "RowParallelLinear",
    "RowwiseParallel",
    "SequenceParallel",
    "parallel_cross_entropy",
    "parallelize_module",
]
