"""Training with many processes: the programs of distributed/data_parallel.py in 2 and 4 ranks."""

from __future__ import annotations

import pytest
from ranks import needs_mpi, run_ranks

pytestmark = needs_mpi
PROGRAMS = "distributed/data_parallel.py"


@pytest.mark.parametrize("size", [2, 4])
def test_training_equals_one_process(size: int) -> None:
    names = ["eager", "compiled", "bucket_views", "accumulation"]
    for result in run_ranks(PROGRAMS, size, names):
        for name in ("eager", "compiled", "bucket_views"):
            for case, worst in result[name].items():
                assert worst < 1e-6, (name, case)
        assert result["accumulation"] < 1e-12


def test_compressed_gradients_are_close() -> None:
    for result in run_ranks(PROGRAMS, 2, ["compressed"]):
        found = result["compressed"]
        assert found["none"] < 1e-6
        assert 1e-12 < found["bf16"] < 0.05
        assert 1e-12 < found["fp16"] < 0.01


def test_what_ranks_have_in_common() -> None:
    names = [
        "unused_parameters",
        "forgotten_parameters",
        "uneven_batches",
        "uneven_accumulation",
        "uneven_buffers",
        "uneven_compiled",
        "buffers_follow_the_first_rank",
        "starts_alike",
        "different_models",
        "sparse_gradients",
    ]
    results = run_ranks(PROGRAMS, 2, names)
    for rank, result in enumerate(results):
        assert result["unused_parameters"] == [1.0, 1.0, None]
        assert "layers.1.weight" in result["forgotten_parameters"]
        assert "find_unused_parameters" in result["forgotten_parameters"]
        assert result["uneven_batches"][1] == rank + 2
        assert result["sparse_gradients"] == [False, [0.5, 0.5, 0.0, 1.0, 0.0]]
        assert "rank 0: DistributedDataParallel" in result["different_models"]
        assert "rank 1: DistributedDataParallel" in result["different_models"]
        assert result["uneven_buffers"] == [12.0]
        replays, texts = result["uneven_compiled"]
        assert replays > 0
        assert len(texts) == 2
        assert all("cannot train in Join" in text for text in texts)
        for name in ("uneven_batches", "uneven_accumulation", "starts_alike"):
            assert result[name][0] == results[0][name][0]
    assert results[1]["buffers_follow_the_first_rank"] == pytest.approx(0.2)


def test_ranks_agree_whether_to_replay() -> None:
    names = [
        "another_size_on_one_rank",
        "eval_on_one_rank",
        "functional_in_a_compiled_function",
        "checked_replays",
        "predictions",
        "timelines",
        "eager_on_one_rank",
    ]
    results = run_ranks(PROGRAMS, 2, names)
    assert results[0]["checked_replays"] == results[1]["checked_replays"]
    one, two, many = zip(*[iter(results[0]["predictions"])] * 3, strict=True)
    assert one == (0.0, 0.0, 1.0)
    # One bucket: two ranks exchange once, 64 ranks six times, of a millisecond each.
    assert two[0] == pytest.approx(1e-3, rel=0.1)
    assert many[0] == pytest.approx(6e-3, rel=0.1)
    assert 0 < many[2] < two[2] < 1
    for result in results:
        assert result["eager_on_one_rank"] == [33.0, 44.0] * 6
        threaded, waiting = result["timelines"]
        assert threaded[0] == 2
        assert waiting == [2, False, 0.0]
    counts = [result["another_size_on_one_rank"] for result in results]
    assert counts[0] == counts[1]
    assert counts[0][0] >= 17
    assert results[0]["eval_on_one_rank"] >= 1
    for result in results:
        worst, replays = result["functional_in_a_compiled_function"]
        assert worst < 1e-12
        assert replays >= 2
