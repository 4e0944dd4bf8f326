"""Signatures of calls: the short test of arguments never says yes to what has another key."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.core.modes import STATE
from tapegrad.replay.trace.signature import Arguments, likeness, unlike
from tapegrad.replay.use.compiled import Compiled

BUFFER = np.arange(24.0, dtype=np.float32)
OWNED = tg.arange(24.0).reshape(2, 12).clone()


class Named(tg.Tensor):
    """A tensor of another class."""


def read_only() -> Any:
    array = np.ones((2, 3), np.float32)
    array.flags.writeable = False
    return tg.from_numpy(array)


def hooked() -> Any:
    x = tg.ones(2, 3, requires_grad=True)
    x.register_hook(lambda g: g)
    return x


#: one of each kind of argument that has, or may have, a signature of its own
KINDS = {
    "plain": lambda: tg.ones(2, 3),
    "another": lambda: tg.zeros(2, 3),
    "other shape": lambda: tg.ones(3, 2),
    "double": lambda: tg.ones(2, 3, dtype=tg.float64),
    "integers": lambda: tg.ones(2, 3, dtype=tg.int32),
    "transposed": lambda: tg.ones(3, 2).t(),
    "copy of columns": lambda: tg.from_numpy(np.asfortranarray(np.ones((2, 3), np.float32))),
    "leaf": lambda: tg.ones(2, 3, requires_grad=True),
    "inner": lambda: tg.ones(2, 3, requires_grad=True) * 1,
    "of numpy": lambda: tg.from_numpy(np.ones((2, 3), np.float32)),
    "of a part of numpy": lambda: tg.from_numpy(BUFFER[:6].reshape(2, 3)),
    "of the next part of numpy": lambda: tg.from_numpy(BUFFER[6:12].reshape(2, 3)),
    "of an overlapping part": lambda: tg.from_numpy(BUFFER[3:9].reshape(2, 3)),
    "columns": lambda: OWNED[:, :3],
    "next columns": lambda: OWNED[:, 3:6],
    "read-only": read_only,
    "expanded": lambda: tg.ones(1, 3).expand(2, 3),
    "named": lambda: Named(tg.ones(2, 3)),
    "parameter": lambda: tg.nn.Parameter(tg.ones(2, 3)),
    "hooked": hooked,
    "a float": lambda: 1.0,
    "a list": lambda: [tg.ones(2, 3)],
    "None": lambda: None,
}


def key_of(args: tuple[Any, ...]) -> Any:
    return Arguments(Compiled._modes(), args, {}).key


def calls() -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = [()]
    kinds = {name: make() for name, make in KINDS.items()}
    found += [(x,) for x in kinds.values()]
    firsts = ("plain", "leaf", "of numpy", "columns", "of a part of numpy")
    found += [(kinds[a], b) for a in firsts for b in kinds.values()]
    found += [(kinds["plain"],) * n for n in (2, 3)]
    found += [tuple(tg.ones(2) for _ in range(n)) for n in (3, 4, 5)]
    return found


def test_arguments_that_are_accepted_have_the_same_key() -> None:
    made = calls()
    tests = [likeness(args, {}) for args in made]
    keys = [key_of(args) for args in made]
    accepted = 0
    for (test, key), (args, other) in itertools.product(
        zip(tests, keys, strict=True), zip(made, keys, strict=True)
    ):
        if test(args):
            assert key == other, args
            accepted += key is not other
    assert accepted > 50  # others than those that a test was made of


def test_short_tests_exist_for_a_few_tensors_with_memory_of_their_own() -> None:
    x, y = tg.ones(2, 3), tg.ones(4, requires_grad=True)
    borrowed = tg.from_numpy(np.ones(5, np.float32))
    for args in ((x,), (x, y), (x, y, borrowed)):
        assert likeness(args, {})(args)
        assert likeness(args, {"scale": 2.0}) is unlike
    for args in ((), (x, x), (x, x.t()), (x, 1.0), (hooked(),), tuple([tg.ones(1)] * 9)):
        assert likeness(args, {}) is unlike


@pytest.mark.parametrize("mode", ["no_grad", "inference", "autocast", "default", "switch"])
def test_modes_are_compared(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = tg.ones(2, 3)
    test = likeness((x,), {})
    assert test((x,))
    if mode == "default":
        before = tg.get_default_dtype()
        tg.set_default_dtype(tg.float64)
        try:
            assert not test((x,))
        finally:
            tg.set_default_dtype(before)
    elif mode == "switch":
        with monkeypatch.context() as patched:
            patched.setattr(tg, "enable_autocast", False)
            assert not test((x,))
    else:
        contexts = {
            "no_grad": tg.no_grad,
            "inference": tg.inference_mode,
            "autocast": lambda: tg.autocast("cpu", dtype=tg.bfloat16),
        }
        with contexts[mode]():
            assert not test((x,))
            if STATE.autocast is not None:
                assert likeness((x,), {}) is unlike
    assert test((x,))


def test_programs_from_before_autocast_are_found_after_it() -> None:
    @tg.compile
    def f(x: Any) -> Any:
        return x * 2

    x = tg.ones(3)
    for _ in range(3):
        f(x)
    with tg.autocast("cpu", dtype=tg.bfloat16):
        pass
    f(x)
    assert len(f._signatures) == 1


def test_alternating_signatures_find_their_programs() -> None:
    @tg.compile
    def f(x: Any, y: Any) -> Any:
        x.mul_(2)
        return x + y

    kinds = [
        lambda: (tg.ones(3), tg.ones(3)),
        lambda: (tg.ones(4), tg.ones(1)),
        lambda: (x := tg.ones(3), x),
        lambda: (x := tg.ones(4), x[1:2]),
        lambda: (tg.ones(3), tg.ones(3, requires_grad=True)),
    ]
    for _ in range(4):
        for make in kinds:
            args, same = make(), make()
            assert tg.equal(f(*args), f.function(*same))
            assert tg.equal(args[0], same[0])
    for make in kinds:
        for _ in range(3):
            assert tg.equal(f(*make()), f.function(*make()))
