"""The worlds of `worlds_*.py`, and every operation, in compiled functions on a GPU.

Where there is no GPU, these tests run on a stand-in for CuPy (`stand_in_cupy.py`). A thinned run
takes a tenth of the worlds.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import sweep
from thinning import some
from worlds import cases, judge

import tapegrad as tg
from tapegrad.core.tensor import Tensor
from tapegrad.replay.cuda.target import CUDA

pytest.importorskip("llvmlite")

#: worlds with NumPy's memory in them, which stays on the CPU
OF_NUMPY = {
    *("random_array_of_numpy", "array_shared_inside_and_changed_in_place", "array_replaced"),
    *("array_as_a_mask", "overlap_of_captured_tensors", "overlap_of_flipped_memory"),
}


#: on a GPU, changes through `.data` count as changes, in eager code too
OF_DATA = {
    *("data_of_a_saved_value", "data_in_a_checkpoint", "data_of_one_of_several_views"),
}

#: worlds with bad data: on a GPU their errors come when somebody waits, and nothing is changed
OF_BAD_DATA = {
    *("embedding_with_a_bad_index_after_a_write", "overlap_that_fails_midway"),
    *("bad_batch_in_the_middle",),
}


@pytest.fixture
def on_gpu(gpu: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tensors are made on the GPU, and shown to NumPy by a copy."""
    plain = Tensor.numpy

    def numpy(self: Tensor, *, force: bool = False) -> Any:
        return plain(self.cpu() if self.is_cuda else self, force=force)

    monkeypatch.setattr(Tensor, "numpy", numpy)
    tg.set_default_device("cuda")
    yield
    tg.set_default_device(None)


@pytest.mark.parametrize("part", range(20))
def test_compiled_equals_eager(part: int, on_gpu: None) -> None:
    apart = OF_NUMPY | OF_DATA
    if CUDA().missing() is None and not CUDA().device(0).is_synchronous:
        apart |= OF_BAD_DATA
    names = [name for name in sorted(cases()) if name not in apart]
    for name in some(names[part::20], 0.1):
        complaint = judge(cases()[name]).complaint
        assert complaint is None, complaint


@pytest.mark.sweep(some="name")
@pytest.mark.parametrize("name", [n for n in sweep.NAMES if not sweep.TABLE[n].random])
def test_operations_in_compiled_functions(name: str, gpu: None) -> None:
    for number, op, sample, given in sweep.numbered_cases(name, tg.float64):
        if any(callable(x) for x in (*given[0], *given[1].values()) if not isinstance(x, Tensor)):
            continue

        def function(*args: Any, op: Any = op, **kwargs: Any) -> Any:
            return op.function(*args, **kwargs)

        compiled = tg.compile(function)
        moved = sweep.mapped(lambda x: x.detach().to("cuda"), given)
        expected = sweep.flat(op.function(*moved[0], **moved[1]))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of operations that read values
            results = [compiled(*moved[0], **moved[1]) for _ in range(4)]
        for found in results:
            for a, b in zip(sweep.flat(found), expected, strict=True):
                if not isinstance(b, Tensor):
                    assert a == b or a != a
                    continue
                assert (a.device, a.dtype, a.shape) == (b.device, b.dtype, b.shape)
                np.testing.assert_allclose(
                    a.detach().cpu().numpy(), b.detach().cpu().numpy(), rtol=1e-7, atol=1e-9,
                    err_msg=f"{name}{sample} {number}",
                )  # fmt: skip
