"""Models and optimizers that are divided among ranks, against one process; their checkpoints."""

import importlib.util
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from ranks import HERE, MISSING, launch, run_ranks
from thinning import some

pytestmark = pytest.mark.skipif(MISSING, reason="needs the mpi extra: pip install '.[mpi]'")

FILE, SAVING = "distributed/sharding.py", "distributed/sharded_files.py"


def loaded(file):
    """The programs of a file, to be called in this process."""
    spec = importlib.util.spec_from_file_location("programs", HERE / file)
    programs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(programs)
    return programs


@pytest.fixture(scope="module")
def reference():
    """Losses of one process, by model and optimizer."""
    programs = loaded(FILE)
    return {
        (kind, optimizer): programs.losses_of(kind, optimizer, "one", False)
        for kind in programs.MODELS
        for optimizer in programs.OPTIMIZERS
    }


@pytest.fixture(scope="module", params=some((2, 4), 1 / 2, of="sharding in ranks"))
def job(request):
    """What each rank of one job returns."""
    names = ["training", "memory", "zero_interface", "sharded_interface", "sharded_layers"]
    return request.param, run_ranks(FILE, request.param, names)


def test_losses_are_those_of_one_process(job, reference):
    size, ranks = job
    assert len(ranks) == size
    assert len(ranks[0]["training"]) == 24
    for found in ranks:
        for name, losses in found["training"].items():
            kind, optimizer, *_ = name.split(", ")
            expected = reference[kind, optimizer]
            assert len(losses) == 20
            assert losses[-1] < losses[0]
            np.testing.assert_allclose(losses, expected, rtol=1e-6, err_msg=f"{size}, {name}")


def test_memory_is_divided(job):
    size, ranks = job
    for found in ranks:
        zero, sharded = found["memory"]["zero"], found["memory"]["sharded"]
        # weights of 8 layers are dealt out whole, so they divide evenly; biases nearly
        assert zero["state"] == pytest.approx(zero["whole"] / size, rel=0.05)
        whole = sharded["whole"]
        assert sharded["parameters"] == pytest.approx(whole / size, rel=0.05)
        assert sharded["gradients"] == pytest.approx(whole / size, rel=0.05)
        assert sharded["state"] == pytest.approx(2 * whole / size, rel=0.05)


def test_whole_parameters_are_not_kept_for_backward(job):
    size, ranks = job
    for found in ranks:
        memory = found["memory"]
        whole = memory["sharded"]["whole"]
        layer = whole / 8
        assert memory["reshards False"]["held"] > 7 * layer
        assert memory["reshards True"]["held"] < layer
        # in backward: this rank's gradients, and of one layer parameters and gradients
        assert memory["reshards True"]["peak"] < whole / size + 5 * layer


def test_each_rank_has_a_part(job):
    size, ranks = job
    assert all(found["zero_interface"] == ranks[0]["zero_interface"] for found in ranks)
    held = [found["sharded_interface"] for found in ranks]
    assert sum(held) == 25
    assert max(held) == -(-25 // size)


def test_gradients_of_many_layers(job):
    _, ranks = job
    assert all(found["sharded_layers"] >= 60 for found in ranks)


# -- checkpoints ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("saving", "loading"), [(4, (2, 1)), (1, (1, 4))])
def test_a_job_of_another_size_goes_on(saving, loading, tmp_path):
    before = run_ranks(SAVING, saving, ["save_states"], FOLDER=str(tmp_path))
    saved = before[0]["save_states"]
    for way in ("zero", "sharded"):
        assert len(list((tmp_path / way).glob("*.part-*"))) == 2 * saving
        assert all(Path(found["save_states"][way]["path"]).exists() for found in before)
    programs = loaded(SAVING)
    for way in ("zero", "sharded"):
        losses = programs.plain_losses(str(tmp_path / way))
        np.testing.assert_allclose(losses, saved[way]["losses"], rtol=1e-9)
    for size in loading:
        for rank, found in enumerate(
            run_ranks(SAVING, size, ["load_states"], FOLDER=str(tmp_path))
        ):
            for way, result in found["load_states"].items():
                np.testing.assert_allclose(
                    result["losses"], saved[way]["losses"], rtol=1e-9, err_msg=f"{size}, {way}"
                )
                if rank < saving:  # each rank goes on with its own random numbers
                    assert result["draws"] == before[rank]["save_states"][way]["draws"]


def test_a_job_goes_on_with_what_one_process_has_saved(tmp_path):
    expected = loaded(SAVING).save_plain(str(tmp_path))
    for found in run_ranks(SAVING, 2, ["load_plain"], FOLDER=str(tmp_path)):
        for losses in found["load_plain"].values():
            np.testing.assert_allclose(losses, expected, rtol=1e-9)


def test_a_failed_save_changes_nothing(tmp_path):
    for found in run_ranks(SAVING, 2, ["failing_saves"], FOLDER=str(tmp_path)):
        assert found["failing_saves"] == {"step": 1}


@pytest.mark.parametrize("killed", ["1 part", "0 manifest"])
def test_a_kill_in_the_middle_leaves_the_state_before(killed, tmp_path):
    command = [sys.executable, str(HERE / "ranks.py"), str(HERE / SAVING), str(tmp_path), "killed"]
    done = launch(2, command, FOLDER=str(tmp_path), KILLED=killed)
    assert done.returncode != 0, "the job should have been killed"
    names = os.listdir(tmp_path / "killed")
    assert any("step-2" in name for name in names), names  # it was killed after a file was written
    for found in run_ranks(SAVING, 2, ["after_kill"], FOLDER=str(tmp_path)):
        assert found["after_kill"] == {"step": 1, "left": [], "now": [1, 3]}
