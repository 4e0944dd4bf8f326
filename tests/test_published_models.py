"""Published model code runs unchanged but for its imports: trained, compiled, saved, evaluated."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from published import CASES, NOISY, batches, load
from replaying import close, replayed

import tapegrad as tg


def named(case: Any) -> str:
    return "-".join([case[0], *map(str, case[1].values())])


def ready(name: str) -> Any:
    return load(name, "tapegrad")


@pytest.mark.parametrize("case", CASES, ids=named)
def test_training_lowers_the_loss(case: Any) -> None:
    name, options = case
    module = ready(name)
    tg.manual_seed(1)
    trainer = module.Trainer(**options)
    (batch,) = batches(module, tg, 1)
    losses = [float(trainer.step(*batch)) for _ in range(12)]
    assert np.isfinite(losses).all()
    assert np.mean(losses[-3:]) < np.mean(losses[:3])


@pytest.mark.parametrize("case", CASES + NOISY, ids=named)
def test_compiled_training_equals_eager(case: Any) -> None:
    name, options = case
    module = ready(name)
    trainers = []
    for _ in range(2):
        tg.manual_seed(2)
        trainers.append(module.Trainer(**options))
    eager, other = trainers
    compiled = tg.compile(other.step)
    given = batches(module, tg, 5)
    losses = []
    # One after the other: modules that eager code makes in between would ask for a new recording.
    for step in (eager.step, compiled):
        for i, batch in enumerate(given):
            tg.manual_seed(100 + i)
            losses.append(step(*batch))
    for expected, got in zip(losses[:5], losses[5:], strict=True):
        close(got, expected, 2e-4)
    assert replayed(compiled) >= 2, compiled.explain()
    for (key, a), b in zip(
        eager.model.state_dict().items(), other.model.state_dict().values(), strict=True
    ):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=2e-3, atol=5e-4, err_msg=key)


@pytest.mark.parametrize("case", CASES, ids=named)
def test_state_copies_and_evaluation(case: Any) -> None:
    name, options = case
    module = ready(name)
    tg.manual_seed(3)
    trainer, other = module.Trainer(**options), module.Trainer(**options)
    batch, _ = batches(module, tg, 2)
    trainer.step(*batch)
    state = {k: v.clone() for k, v in trainer.model.state_dict().items()}
    assert str(other.model.load_state_dict(state)) == "<All keys matched successfully>"
    trainer.model.eval()
    other.model.eval()
    with tg.no_grad():
        expected = trainer.evaluate(*batch)
        assert not expected.requires_grad
        close(other.evaluate(*batch), expected)
        close(copy.deepcopy(trainer).evaluate(*batch), expected)
        compiled = tg.compile(trainer.evaluate)
        for _ in range(3):
            close(compiled(*batch), expected, 1e-4)


def test_generation() -> None:
    module = ready("gpt")
    tg.manual_seed(0)
    model = module.Trainer().model.eval()
    start = tg.zeros(2, 1, dtype=tg.long)
    tokens = model.generate(start, 20, temperature=0.8, top_k=5)
    assert tokens.shape == (2, 21)
    assert tokens.dtype is tg.int64
    assert int(tokens.max()) < 31
    greedy = model.generate(start, 3, top_k=1)
    assert tg.equal(greedy, model.generate(start, 3, top_k=1))
    count = model.get_num_params(False)
    model.crop_block_size(8)
    assert model.get_num_params(False) == count - 8 * 16
    assert model.generate(start, 10).shape == (2, 11)


def test_weights_are_tied() -> None:
    for name in ("gpt", "word_lm"):
        model = ready(name).Trainer().model
        if name == "gpt":
            first, second = model.transformer.wte.weight, model.lm_head.weight
        else:
            first, second = model.encoder.weight, model.decoder.weight
        assert first is second
        clone = copy.deepcopy(model)
        assert len(list(clone.parameters())) == len(list(model.parameters()))


def test_sampling_of_diffusion() -> None:
    model = ready("ddpm").Trainer().model
    tg.manual_seed(0)
    image = model.sample((2, 1, 8, 8), 5)
    assert image.shape == (2, 1, 8, 8)
    assert float(image.min()) >= 0
    assert float(image.max()) <= 1
