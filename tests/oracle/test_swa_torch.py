"""Averages of weights beside PyTorch's: averaged models, SWALR, statistics of normalisation."""

import numpy as np
import pytest
import torch

import tapegrad as tg

pytestmark = pytest.mark.oracle


def models(lib):
    """The same small model in either library."""
    net = lib.nn.Sequential(
        lib.nn.Linear(3, 4), lib.nn.BatchNorm1d(4), lib.nn.ReLU(), lib.nn.Linear(4, 2)
    )
    rng = np.random.default_rng(0)
    with lib.no_grad():
        for p in net.parameters():
            p.copy_(lib.tensor(rng.standard_normal(tuple(p.shape)), dtype=lib.float32))
    return net


def batches(lib, count=5):
    rng = np.random.default_rng(1)
    return [lib.tensor(rng.standard_normal((6, 3)), dtype=lib.float32) for _ in range(count)]


def same(ours, theirs):
    ours, theirs = ours.state_dict(), theirs.state_dict()
    assert list(ours) == list(theirs)
    for key, value in theirs.items():
        np.testing.assert_allclose(
            ours[key].numpy(), value.numpy(), rtol=1e-5, atol=1e-6, err_msg=key
        )
        assert str(ours[key].dtype).split(".")[1] == str(value.dtype).split(".")[1]


def power_mean(lib):
    def update(averaged, current, count):
        for mean, new in zip(averaged, current, strict=True):
            mean.copy_((mean * 3 + new) / 4 + count * 0)

    return update


KINDS = {
    "mean": lambda utils, lib: {},
    "mean with buffers": lambda utils, lib: {"use_buffers": True},
    "ema": lambda utils, lib: {"avg_fn": utils.get_ema_avg_fn(0.9)},
    "ema of lists": lambda utils, lib: {"multi_avg_fn": utils.get_ema_multi_avg_fn(0.7)},
    "ema of lists with buffers": lambda utils, lib: {
        "multi_avg_fn": utils.get_ema_multi_avg_fn(0.7),
        "use_buffers": True,
    },
    "swa": lambda utils, lib: {"avg_fn": utils.get_swa_avg_fn()},
    "swa of lists": lambda utils, lib: {"multi_avg_fn": utils.get_swa_multi_avg_fn()},
    "own": lambda utils, lib: {
        "avg_fn": lambda averaged, current, count: averaged + (current - averaged) / (count + 3)
    },
    "own of lists": lambda utils, lib: {"multi_avg_fn": power_mean(lib)},
}


@pytest.mark.parametrize("kind", KINDS)
def test_averages_over_a_training(kind):
    found = []
    for lib in (tg, torch):
        utils = lib.optim.swa_utils
        net = models(lib)
        optimizer = lib.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        averaged = utils.AveragedModel(net, **KINDS[kind](utils, lib))
        outputs = []
        for x in batches(lib):
            optimizer.zero_grad()
            (net(x) ** 2).mean().backward()
            optimizer.step()
            averaged.update_parameters(net)
            averaged.eval()
            outputs.append(averaged(x).detach().numpy())
        found.append((averaged, outputs))
    (ours, mine), (theirs, others) = found
    np.testing.assert_allclose(mine, others, rtol=1e-4, atol=1e-5)
    same(ours, theirs)


def test_statistics_are_computed_anew():
    found = []
    for lib in (tg, torch):
        net = models(lib).eval()
        net[1].momentum = 0.3
        data = [(x, x * 2) for x in batches(lib)]
        lib.optim.swa_utils.update_bn(data, net)
        assert not net.training
        assert net[1].momentum == 0.3
        found.append(net)
    same(*found)


@pytest.mark.parametrize("strategy", ["cos", "linear"])
@pytest.mark.parametrize("epochs", [0, 1, 7])
@pytest.mark.parametrize("rate", [0.05, [0.05, 0.3]])
def test_swalr(strategy, epochs, rate):
    found = []
    for lib in (tg, torch):
        given = [lib.zeros(1, requires_grad=True) for _ in range(2)]
        optimizer = lib.optim.SGD([{"params": given[:1]}, {"params": given[1:], "lr": 1.0}], lr=0.2)
        decay = lib.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        for _ in range(3):
            optimizer.step()
            decay.step()
        scheduler = lib.optim.swa_utils.SWALR(optimizer, rate, epochs, strategy)
        rows = [scheduler.get_last_lr()]
        for i in range(12):
            if i == 5:
                saved, scheduler = (
                    scheduler.state_dict(),
                    lib.optim.swa_utils.SWALR(optimizer, rate, epochs, strategy),
                )
                scheduler.load_state_dict(saved)
            optimizer.step()
            scheduler.step()
            rows.append(scheduler.get_last_lr())
        found.append((rows, set(saved)))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-9)
    assert found[0][1] == found[1][1]


def test_errors_have_the_same_type():
    for lib in (tg, torch):
        utils = lib.optim.swa_utils
        net = models(lib)
        average, several = utils.get_ema_avg_fn(), utils.get_ema_multi_avg_fn()
        with pytest.raises(AssertionError):
            utils.AveragedModel(net, avg_fn=average, multi_avg_fn=several)
        with pytest.raises(ValueError, match="decay"):
            utils.get_ema_avg_fn(1.5)
        with pytest.raises(ValueError, match="decay"):
            utils.get_ema_multi_avg_fn(-0.1)
        optimizer = lib.optim.SGD(net.parameters(), lr=0.1)
        with pytest.raises(ValueError, match="anneal_strategy"):
            utils.SWALR(optimizer, 0.1, anneal_strategy="tan")
        with pytest.raises(ValueError, match="anneal_epochs"):
            utils.SWALR(optimizer, 0.1, anneal_epochs=-1)
        with pytest.raises(ValueError, match="swa_lr"):
            utils.SWALR(optimizer, [0.1, 0.2])
