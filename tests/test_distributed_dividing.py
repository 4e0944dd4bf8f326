"""Divided models equal those of one process, and collectives do what they say, in 2 and 4 ranks."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from ranks import needs_mpi, run_ranks
from thinning import some

import tapegrad as tg
from tapegrad import nn
from tapegrad.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState
from tapegrad.distributed.pipelining import PipelineStage, Schedule1F1B
from tapegrad.distributed.tensor.parallel import ColumnParallelLinear, ParallelTransformerBlock
from tapegrad.parallel.pipeline import _merged

SIZES = some((2, 4), 1 / 2, of="dividing in ranks")
DIVIDED = (
    *("tensor_parallel", "tensor_parallel_compiled", "two_dimensions", "cross_entropy_options"),
    *("sequence_parallel", "sequence_parallel_compiled", "ring_second_order", "half_precision"),
    "bad_data",
)
STAGES = (
    *("pipeline", "pipeline_compiled", "pipeline_several", "large_messages"),
    *("compiled_steps_are_replayed", "batch_norm", "batch_norm_compiled", "batch_norm_uneven"),
    *("hooks", "power_sgd_is_exact_at_full_rank", "power_sgd_is_not_replayed"),
)
GRADIENTS = (
    *("gradients_of_reductions", "gradients_of_moves", "gradients_of_messages"),
    *("gradients_of_pairs", "gradients_in_groups", "gradients_of_functions_in_place"),
    "extremes_share_ties",
)
FUNCTIONS = (
    *("reductions", "moves", "exchanges", "messages", "objects", "ranks_and_groups"),
    "leaves_and_aliases",
)


@pytest.fixture(scope="module", params=SIZES, ids=lambda n: f"{n} ranks")
def models(request: Any) -> list[dict[str, Any]]:
    """What the programs of models return in each rank."""
    return run_ranks("distributed/dividing.py", request.param, DIVIDED)


@pytest.fixture(scope="module", params=SIZES, ids=lambda n: f"{n} ranks")
def stages(request: Any) -> list[dict[str, Any]]:
    return run_ranks("distributed/dividing_stages.py", request.param, STAGES)


@pytest.fixture(scope="module", params=SIZES, ids=lambda n: f"{n} ranks")
def gradients(request: Any) -> list[dict[str, Any]]:
    return run_ranks("distributed/collective_gradients.py", request.param, GRADIENTS)


@pytest.fixture(scope="module", params=SIZES, ids=lambda n: f"{n} ranks")
def functions(request: Any) -> list[dict[str, Any]]:
    return run_ranks("distributed/collective_functions.py", request.param, FUNCTIONS)


def close(found: list[float], expected: list[float]) -> None:
    """Losses of 20 steps, which are not all the same, within a millionth."""
    assert len(found) == len(expected) == 20
    assert len(set(expected)) > 10
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@needs_mpi
@pytest.mark.parametrize("how", ["tensor_parallel", "tensor_parallel_compiled"])
def test_tensor_parallel(models: list[dict[str, Any]], how: str) -> None:
    for found in models:
        close(found[how]["divided"], found[how]["expected"])
        close(found[how]["converted"], found[how]["expected"])
        assert found[how]["weight"] < 1e-12, "each rank trains its piece of the whole weight"
        assert found[how]["rows"] == [16 // len(models), 12 // len(models)]


@needs_mpi
@pytest.mark.parametrize("compiled", ["False", "True"])
def test_tensor_and_data_parallel(models: list[dict[str, Any]], compiled: str) -> None:
    for found in models:
        both = found["two_dimensions"][compiled]
        close(both["divided"], both["expected"])


@needs_mpi
def test_half_precision(models: list[dict[str, Any]]) -> None:
    assert all(found["half_precision"] < 0.05 for found in models)


@needs_mpi
def test_cross_entropy_of_divided_logits(models: list[dict[str, Any]]) -> None:
    assert all(found["cross_entropy_options"] < 1e-12 for found in models)


@needs_mpi
@pytest.mark.parametrize("how", ["sequence_parallel", "sequence_parallel_compiled"])
@pytest.mark.parametrize("kind", ["ring", "all_to_all"])
@pytest.mark.parametrize("causal", [False, True])
def test_sequence_parallel(models: list[dict[str, Any]], how: str, kind: str, causal: bool) -> None:
    for found in models:
        close(found[how][f"{kind} {causal}"], found[how][f"expected {causal}"])


@needs_mpi
def test_ring_attention_has_second_derivatives(models: list[dict[str, Any]]) -> None:
    assert all(found["ring_second_order"] < 1e-10 for found in models)


@needs_mpi
@pytest.mark.parametrize(
    ("how", "count"),
    [*(("pipeline", n) for n in (1, 4, 8)), *(("pipeline_compiled", n) for n in (1, 8))],
)
@pytest.mark.parametrize("kind", ["Schedule1F1B", "ScheduleGPipe"])
def test_pipeline(stages: list[dict[str, Any]], how: str, kind: str, count: int) -> None:
    last = stages[-1][how]  # the rank that has the losses
    close(last[f"{kind} {count}"], last["expected"])
    assert last[f"eval {kind} {count}"] < 1e-9


@needs_mpi
def test_pipeline_of_several_tensors(stages: list[dict[str, Any]]) -> None:
    assert all(found["pipeline_several"] < 1e-9 for found in stages)


@needs_mpi
def test_compiled_pipelines(stages: list[dict[str, Any]]) -> None:
    for found in stages:
        assert found["large_messages"] < 1e-4
        assert found["compiled_steps_are_replayed"] >= 6, "most calls replay the whole step"


@needs_mpi
@pytest.mark.parametrize("how", ["batch_norm", "batch_norm_compiled"])
def test_sync_batch_norm(stages: list[dict[str, Any]], how: str) -> None:
    for found in stages:
        close(found[how]["divided"], found[how]["expected"])
        assert max(found[how]["state"]) < 1e-8


@needs_mpi
def test_sync_batch_norm_of_uneven_batches(stages: list[dict[str, Any]]) -> None:
    assert all(found["batch_norm_uneven"] < 1e-8 for found in stages)


@needs_mpi
def test_communication_hooks(stages: list[dict[str, Any]]) -> None:
    for found in stages:
        hooks = found["hooks"]
        start, plain = hooks["plain"]
        assert plain < 0.3 * start
        assert hooks["allreduce"][1] == pytest.approx(plain, rel=1e-5)
        for name, tolerance in (("fp16", 1e-3), ("bf16", 1e-2), ("wrapped", 1e-3)):
            assert hooks[name][1] == pytest.approx(plain, rel=tolerance)
        assert hooks["power"][1] < 0.3 * start
        spreads = [value for name, value in hooks.items() if name.endswith("spread")]
        assert max(spreads) < 1e-6, "all ranks have the same parameters"
        ratio, before, after = hooks["stats"]
        assert before / after == ratio > 3
        exact = found["power_sgd_is_exact_at_full_rank"]
        assert exact["error"] < 1e-12 < 1e-4 < exact["own error"]
        assert exact["left out"] < 1e-12
        assert "powerSGD_hook decides in each step" in found["power_sgd_is_not_replayed"]


@needs_mpi
def test_bad_data(models: list[dict[str, Any]]) -> None:
    expected = ["IndexError"] * 3 + ["ValueError"] * 2 + ["TypeError", "ValueError"]
    assert all(found["bad_data"] == expected for found in models)


@needs_mpi
@pytest.mark.parametrize("name", GRADIENTS[:-1])
def test_gradients_of_collectives(gradients: list[dict[str, Any]], name: str) -> None:
    for found in gradients:
        numbers = {k: v for k, v in found[name].items() if k != "refused"}
        assert numbers
        assert {k: v for k, v in numbers.items() if v > 1e-6} == {}


@needs_mpi
def test_ties_share_gradients(gradients: list[dict[str, Any]]) -> None:
    size = len(gradients)
    for rank, found in enumerate(gradients):
        largest = float(size) if rank == size - 1 else 0.0
        assert found["extremes_share_ties"] == [1.0, largest]


@needs_mpi
def test_messages_have_first_derivatives_only(gradients: list[dict[str, Any]]) -> None:
    for found in gradients[::2]:  # those that send
        assert "use permute_ranks" in found["gradients_of_messages"]["refused"]


@needs_mpi
@pytest.mark.parametrize("name", ["reductions", "moves", "exchanges", "messages"])
def test_functions(functions: list[dict[str, Any]], name: str) -> None:
    assert max(found[name]["count"] for found in functions) > 100
    assert [found[name]["wrong"] for found in functions] == [[]] * len(functions)


@needs_mpi
def test_objects_ranks_and_mistakes(functions: list[dict[str, Any]]) -> None:
    size = len(functions)
    part = list(range(1, size)) if size > 2 else [0, 1]
    raised = ["ValueError", *["TypeError"] * 3, *["ValueError"] * 5, "RuntimeError"]
    for rank, found in enumerate(functions):
        assert found["objects"] is True
        assert found["leaves_and_aliases"] == {"leaf": True, "view": True}
        assert found["ranks_and_groups"]["raised"] == raised
        within = part.index(rank) if rank in part else -1
        members = len(part) if rank in part else -1
        facts = [rank, size, within, members, "mpi", True]
        facts += [part, within, part] if rank in part else []
        assert found["ranks_and_groups"]["facts"] == facts


@needs_mpi
def test_messages_are_compared_in_any_form() -> None:
    """With checks on, `isend` goes with `recv` and `send` with `irecv`, as without them."""
    names = ["messages", "moves"]
    file = "distributed/collective_functions.py"
    for found in run_ranks(file, 2, names, TAPEGRAD_DEBUG="collectives"):
        assert found["messages"]["wrong"] == found["moves"]["wrong"] == []


def test_alone() -> None:
    """Without a job, divided layers are whole ones."""
    tg.manual_seed(1)
    layer = ColumnParallelLinear(3, 4)
    tg.manual_seed(1)
    whole = nn.Linear(3, 4)
    x = tg.randn(2, 3)
    assert tg.equal(layer(x), whole(x))
    block = ParallelTransformerBlock(8, 2, 16)
    assert block(tg.randn(2, 3, 8)).shape == (2, 3, 8)
    norm, plain = nn.SyncBatchNorm(3), nn.BatchNorm1d(3)
    x = tg.randn(5, 3, 2)
    assert tg.equal(norm(x), plain(x))
    assert tg.equal(norm.running_var, plain.running_var)
    with pytest.raises(ValueError, match="batch, channels"):
        norm(tg.randn(5))


def test_pipeline_of_one_stage() -> None:
    tg.manual_seed(2)
    model, x = nn.Linear(3, 2), tg.randn(8, 3)
    losses: list[Any] = []
    schedule = Schedule1F1B(PipelineStage(model, 0, 1), 4, nn.functional.mse_loss)
    out = schedule.step(x, target=tg.zeros(8, 2), losses=losses)
    found = model.weight.grad.clone()
    model.zero_grad()
    expected = nn.functional.mse_loss(model(x), tg.zeros(8, 2))
    expected.backward()
    assert tg.allclose(out, model(x))
    assert tg.allclose(found, model.weight.grad)
    assert tg.allclose(sum(losses) / 4, expected)
    with pytest.raises(ValueError, match="equal microbatches"):
        schedule.step(tg.randn(7, 3), target=tg.zeros(7, 2))
    with pytest.raises(ValueError, match="member 1"):
        PipelineStage(model, 1, 2)


def test_power_sgd_settings() -> None:
    with pytest.raises(ValueError, match="greater than 1"):
        PowerSGDState(start_powerSGD_iter=1)
    with pytest.raises(ValueError, match="at least 1"):
        PowerSGDState(matrix_approximation_rank=0)
    state = PowerSGDState(start_powerSGD_iter=5)
    state.iter = 3
    made = PowerSGDState.__new__(PowerSGDState)
    made.__setstate__(state.__getstate__())
    assert made.iter == 3
    assert made.process_group is None


class Scores(NamedTuple):
    logits: Any
    losses: Any


def test_results_of_microbatches_are_joined() -> None:
    parts = [Scores(tg.full((2, 3), float(i)), [tg.tensor(float(i))]) for i in range(2)]
    joined = _merged(parts)
    assert type(joined) is Scores
    assert joined.logits[:, 0].tolist() == [0.0, 0.0, 1.0, 1.0]
    assert [[x.item() for x in losses] for losses in joined.losses] == [[0.0, 1.0]]


@pytest.mark.parametrize("x", [tg.zeros((1,) * 9), tg.zeros(1, dtype=tg.uint16)])
def test_stages_say_which_tensors_they_exchange(x: tg.Tensor) -> None:
    stage = PipelineStage(nn.Identity(), 0, 1)
    with pytest.raises(ValueError, match=r"stages exchange tensors of up to 8 dimensions .* got"):
        stage._send_shapes([x])
