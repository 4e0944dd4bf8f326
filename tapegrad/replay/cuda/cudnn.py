"""cuDNN: attention on a GPU, through NVIDIA's wheel `nvidia-cudnn-frontend`.

Comes in: an `Attention` of half precision without mask and dropout. Goes out: a plan, which
enqueues the work for some addresses in a stream; graphs can record it. A plan takes about a second
to make, so equal instructions share one. Called by `gpu.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from ...core import dtypes
from ..ir.program import Access, Attention


@functools.cache
def _library() -> Any:
    found = import_module("cudnn")
    found.backend_version()  # loads the C library
    return found


@functools.cache
def missing() -> str | None:
    """Why the library cannot be used; None if it can."""
    try:
        _library()
    except Exception as error:
        return f"cuDNN does not load ({error}): pip install 'tapegrad[cuda]'"
    return None


def new_handle(stream: int) -> Any:
    """A handle of the library for the current context and a stream."""
    handle = _library().create_handle()
    _library().set_stream(handle=handle, stream=stream)
    return handle


class AttentionPlan:
    """Attention of given shapes and strides, or its gradients; batches have two dimensions."""

    def __init__(self, attention: Attention, handle: Any, deterministic: bool) -> None:
        cudnn = _library()
        kind = cudnn.data_type.BFLOAT16
        if attention.operands[0].value.dtype != dtypes.bfloat16.numpy:
            kind = cudnn.data_type.HALF
        single = cudnn.data_type.FLOAT
        graph = cudnn.pygraph(
            io_data_type=kind,
            intermediate_data_type=single,
            compute_data_type=single,
            handle=handle,
        )
        batch = list(attention.batch)

        def described(access: Access, rows: int, columns: int, dtype: Any = kind) -> Any:
            # Dimensions of one element may have any stride; the library requires one above 0.
            steps = [step or 1 for step in access.strides]
            return graph.tensor(dim=[*batch, rows, columns], stride=steps, data_type=dtype)

        queries, keys = attention.queries, attention.keys
        wide, narrow = attention.features, attention.value_features
        q = described(attention.operands[0], queries, wide)
        k = described(attention.operands[1], keys, wide)
        v = described(attention.operands[2], keys, narrow)
        options = {"attn_scale": attention.scale, "use_causal_mask": attention.causal}
        if attention.backward:
            received = described(attention.operands[3], queries, narrow)
            lse = described(attention.operands[4], queries, 1, single)
            out = described(attention.operands[5], queries, narrow)
            if deterministic:
                options["use_deterministic_algorithm"] = True
            results = graph.sdpa_backward(
                q=q, k=k, v=v, o=out, dO=received, stats=lse, name="gradients", **options
            )
            given: tuple[Any, ...] = (q, k, v, received, lse, out)
        else:
            results = graph.sdpa(q=q, k=k, v=v, is_inference=False, name="attention", **options)
            given = (q, k, v)
        shapes = attention.shapes()
        for result, access, shape in zip(results, attention.results, shapes, strict=True):
            result.set_output(True)
            result.set_dim(list(shape)).set_stride([step or 1 for step in access.strides])
            result.set_data_type(single if access.value.dtype == np.float32 else kind)
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        graph.check_support()
        graph.build_plans()
        self._graph = graph
        self._tensors = (*given, *results)
        #: bytes of its workspace
        self.workspace = int(graph.get_workspace_size())

    def run(self, addresses: Sequence[int], handle: Any, workspace: int) -> None:
        """Enqueue the work for operands and results at addresses in the stream of a handle."""
        found = dict(zip(self._tensors, addresses, strict=True))
        self._graph.execute(found, workspace, handle=handle)


def key_of(attention: Attention) -> tuple[Any, ...]:
    """All that a plan depends on."""
    accesses = (*attention.operands, *attention.results)
    return (
        *(attention.batch, attention.queries, attention.keys, attention.features),
        *(attention.value_features, attention.scale, attention.causal, attention.backward),
        *((access.strides, str(access.value.dtype)) for access in accesses),
    )
