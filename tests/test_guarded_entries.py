"""Comparing dictionaries natively: it never accepts what the written tests refuse."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tapegrad as tg
from tapegrad.replay.cpu.entries import find_walk
from tapegrad.replay.guards import conjunction
from tapegrad.replay.guards.conjunction import Conjunction
from tapegrad.replay.guards.entries import ANYTHING, table_of

walk = find_walk()
pytestmark = pytest.mark.skipif(walk is None, reason="there is no native code")


class Odd(dict):  # type: ignore[type-arg]
    """A dictionary with an order of its own."""

    def __iter__(self) -> Any:
        return iter(sorted(self.keys(), key=str))


KINDS = [dict, OrderedDict, Odd, lambda x: defaultdict(list, x)]
VALUES = [1, 1.0, True, "a", None, 0.0, -0.0, (), 257, "long enough not to be interned twice"]


def accepted(found: dict[Any, Any], values: Any = ANYTHING) -> Any:
    entries = [(k, v if values is ANYTHING else values.get(k, ANYTHING)) for k, v in found.items()]
    rows = [(found, entries)]
    table = table_of(rows)

    def ask() -> bool:
        assert walk is not None
        return bool(walk(table.ctypes.data)) and rows is not None

    return ask


def test_the_walk_sees_each_change() -> None:
    kept = object()
    changes: list[Any] = [
        lambda d: d.update(a=2),
        lambda d: d.update(a=True),
        lambda d: d.update(c=None),
        lambda d: d.pop("b"),
        lambda d: d.update(a=d.pop("a")),  # the order
        lambda d: d.clear(),
        lambda d: (d.pop("b"), d.update(x=kept)),
    ]
    for change in changes:
        found = {"a": 1, "b": kept}
        same = accepted(found)
        assert same()
        change(found)
        assert not same()
    empty: dict[Any, Any] = {}
    same = accepted(empty)
    assert same()
    empty["a"] = 1
    assert not same()
    del empty["a"]
    assert same()


def test_values_that_nobody_compares_may_change() -> None:
    found = {"a": 1, "b": 2}
    same = accepted(found, {"b": 2})
    found["a"] = 5
    assert same()
    found["b"] = 5
    assert not same()


@given(data=st.data())
def test_native_and_written_tests_agree(data: Any) -> None:
    """The function with the native walk says what the one without it says, whatever happens."""
    draw = data.draw
    names = st.sampled_from(["a", "b", "c", "d", 1, 2, (3,)])
    made = [
        draw(st.sampled_from(KINDS))(draw(st.dictionaries(names, st.sampled_from(VALUES))))
        for _ in range(draw(st.integers(1, 4)))
    ]
    tests = Conjunction()
    for owner in made:
        for key in list(owner):
            if draw(st.booleans()):
                tests.add_entry(owner, key, dict.get(owner, key))
        if draw(st.booleans()):
            tests.add_names(owner, list(owner))
        if draw(st.booleans()):
            tests.add_size(owner, len(owner))
    before = conjunction.MIN_TESTS_FOR_NATIVE_WALK
    conjunction.MIN_TESTS_FOR_NATIVE_WALK = 0
    try:
        native = tests.function(find_walk=find_walk)
    finally:
        conjunction.MIN_TESTS_FOR_NATIVE_WALK = before
    written = tests.function()

    def answer(test: Any) -> bool:
        try:
            return bool(test())
        except KeyError:
            return False

    assert answer(native) is answer(written) is True
    for _ in range(draw(st.integers(1, 4))):
        owner = draw(st.sampled_from(made))
        change = draw(st.sampled_from(["set", "drop", "move", "same"]))
        key = draw(names)
        if change == "set":
            owner[key] = draw(st.sampled_from(VALUES))
        elif change == "drop":
            dict.pop(owner, key, None) if type(owner) is not OrderedDict else owner.pop(key, None)
        elif change == "move" and isinstance(owner, OrderedDict) and key in owner:
            owner.move_to_end(key)
        elif key in owner:
            owner[key] = dict.get(owner, key)
        assert answer(native) is answer(written)


def test_a_test_that_fails_at_first_may_hold_later() -> None:
    owners = [{"a": object(), "b": None} for _ in range(20)]
    tests = Conjunction()
    for owner in owners:
        for key, value in owner.items():
            tests.add_entry(owner, key, value)
    value = owners[3].pop("a")
    test = tests.function(find_walk=find_walk)
    with pytest.raises(KeyError):
        test()
    owners[3]["a"] = value
    assert test()


def test_replays_of_many_modules_see_each_attribute() -> None:
    model = tg.nn.Sequential(*[tg.nn.LayerNorm(4) for _ in range(12)])

    @tg.compile
    def f(x: Any) -> Any:
        return model(x)

    def replay_agrees() -> bool:
        # Each layer's output has a size near 1; a replay rounds another way than eager does.
        return tg.allclose(f(x), model(x), atol=1e-5)

    x = tg.randn(3, 4)
    for _ in range(4):
        assert replay_agrees()
    count = sum(s.recordings for s in f._signatures)
    f(x)
    assert sum(s.recordings for s in f._signatures) == count
    for layer in model:
        layer.eps = 10.0
        assert replay_agrees()
    model[5].weight = tg.nn.Parameter(tg.full((4,), 3.0))
    assert replay_agrees()
    model[7].forward = lambda y: y * 0  # type: ignore[method-assign]
    assert replay_agrees()
    del model[7].forward
    assert replay_agrees()
