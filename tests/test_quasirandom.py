"""Sobol sequences: evenly spread points, the same again after a reset."""

from __future__ import annotations

import pytest

import tapegrad as tg
from tapegrad.quasirandom import SobolEngine


def test_points() -> None:
    engine = SobolEngine(3)
    first = engine.draw(4)
    assert first.dtype is tg.float32
    assert first.tolist() == [[0, 0, 0], [0.5, 0.5, 0.5], [0.75, 0.25, 0.25], [0.25, 0.75, 0.75]]
    more = engine.draw(5, dtype=tg.float64)
    assert more.dtype is tg.float64
    engine.reset()
    assert tg.equal(engine.draw(9)[4:].double(), more)
    engine.reset().fast_forward(4)
    assert tg.equal(engine.draw(5).double(), more)
    assert engine.num_generated == 9
    out = tg.empty(0)
    assert SobolEngine(3).draw(4, out=out) is out
    assert tg.equal(out, first)


def test_scrambled_points_depend_on_the_seed() -> None:
    one, same, other = (SobolEngine(2, scramble=True, seed=s).draw(64) for s in (1, 1, 2))
    assert tg.equal(one, same)
    assert not tg.equal(one, other)
    assert ((one.mean(0) - 0.5).abs() < 0.02).all()
    tg.manual_seed(0)
    drawn = SobolEngine(2, scramble=True).draw(4)
    tg.manual_seed(0)
    assert tg.equal(SobolEngine(2, scramble=True).draw(4), drawn)
    assert not tg.equal(SobolEngine(2, scramble=True).draw(4), drawn)


def test_errors() -> None:
    with pytest.raises(ValueError, match="between 1 and"):
        SobolEngine(0)
    engine = SobolEngine(2)
    engine.draw(3)
    with pytest.raises(ValueError, match="power of 2"):
        engine.draw_base2(2)
    assert SobolEngine(2).draw_base2(3).shape == (8, 2)
    assert repr(SobolEngine(2, True, 3)) == "SobolEngine(dimension=2, scramble=True, seed=3)"
