"""Loggers in compiled functions: replayed while they write nothing, else as without compile."""

import logging

import pytest

import tapegrad as tg

log = logging.getLogger("tapegrad.tests.loggers")


class Collected(logging.Handler):
    """Keeps what is written."""

    def __init__(self):
        super().__init__()
        self.texts = []

    def emit(self, record):
        self.texts.append(record.getMessage())


@pytest.fixture(autouse=True)
def handler():
    stream = logging.StreamHandler()
    log.addHandler(stream)
    log.setLevel(logging.WARNING)
    log.propagate = False
    yield stream
    log.handlers.clear()
    log.setLevel(logging.NOTSET)
    log.propagate, log.disabled = True, False
    logging.disable(logging.NOTSET)


def reading():
    """A compiled function that logs below the level, and reads the level."""

    @tg.compile
    def double(x):
        log.debug("size %s", x.shape)
        return x * (2 if log.level == logging.WARNING else 3)

    return double


def test_a_logger_that_writes_nothing_is_replayed():
    double = reading()
    for _ in range(5):
        assert double(tg.ones(3)).tolist() == [2.0] * 3
    assert "eagerly" not in double.explain()
    assert "1 variant" in double.explain()


def test_levels_are_compared():
    double = reading()
    for _ in range(4):
        assert double(tg.ones(3)).tolist() == [2.0] * 3
    log.setLevel(logging.ERROR)
    for _ in range(4):
        assert double(tg.ones(3)).tolist() == [3.0] * 3
    log.setLevel(logging.WARNING)
    assert double(tg.ones(3)).tolist() == [2.0] * 3


@pytest.mark.parametrize("change", ["level", "parent", "disable"])
def test_what_would_be_written_is_written(change):
    found = Collected()
    log.addHandler(found)
    if change == "parent":
        log.setLevel(logging.NOTSET)
        log.parent.setLevel(logging.WARNING)
    if change == "disable":
        log.setLevel(logging.DEBUG)
        logging.disable(logging.CRITICAL)

    @tg.compile
    def double(x):
        log.debug("called")
        return x * 2

    try:
        for _ in range(4):
            double(tg.ones(3))
        assert found.texts == []
        {
            "level": lambda: log.setLevel(logging.DEBUG),
            "parent": lambda: log.parent.setLevel(logging.DEBUG),
            "disable": lambda: logging.disable(logging.NOTSET),
        }[change]()
        with pytest.warns(UserWarning, match="eagerly"):
            outs = [double(tg.ones(3)).tolist() for _ in range(4)]
        assert outs == [[2.0] * 3] * 4
        assert found.texts == ["called"] * 4
    finally:
        log.parent.setLevel(logging.NOTSET)


def test_questions_about_levels_are_answered_anew():
    @tg.compile
    def enabled(x):
        return x * (2 if log.isEnabledFor(logging.DEBUG) else 3)

    for _ in range(4):
        assert enabled(tg.ones(2)).tolist() == [3.0, 3.0]
    log.setLevel(logging.DEBUG)
    for _ in range(4):
        assert enabled(tg.ones(2)).tolist() == [2.0, 2.0]


def test_code_that_reads_handlers_is_walked_as_before():
    @tg.compile
    def count(x):
        return x * len(log.handlers)

    before = float(len(log.handlers))
    outs = [count(tg.ones(2)).tolist() for _ in range(4)]
    log.addHandler(logging.NullHandler())
    outs += [count(tg.ones(2)).tolist() for _ in range(4)]
    assert outs == [[before] * 2] * 4 + [[before + 1] * 2] * 4


@pytest.mark.filterwarnings("ignore:compiled function .* runs eagerly. it advances")
def test_a_level_that_the_function_sets_is_set_in_every_call():
    @tg.compile
    def louder(x):
        log.setLevel(logging.INFO)
        return x * 2

    levels = []
    for _ in range(5):
        log.setLevel(logging.WARNING)
        louder(tg.ones(2))
        levels.append(log.level)
    assert levels == [logging.INFO] * 5
