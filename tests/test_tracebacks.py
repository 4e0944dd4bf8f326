"""What an uncaught exception prints: the user's frames; all frames where the library failed."""

import os
import re
import signal
import subprocess
import sys
import textwrap

import pytest

import tapegrad as tg
from tapegrad.core.source import LIBRARY
from tapegrad.core.tracebacks import shortened

HINT = "inside tapegrad not shown; to see all, set TAPEGRAD_TRACEBACK=full)"


def functions(text):
    """The names of the functions in a printed traceback, outermost first."""
    return re.findall(r'^ *\|? *File ".*", line \d+, in (.+)$', text, re.MULTILINE)


@pytest.fixture
def printed(tmp_path):
    def run(script, code=1, options=(), **environment):
        path = tmp_path / "script.py"
        path.write_text(textwrap.dedent(script))
        ended = subprocess.run(
            [sys.executable, *options, path],
            capture_output=True,
            text=True,
            env={**os.environ, "TAPEGRAD_TRACEBACK": "", **environment},
        )
        assert ended.returncode == code, ended.stderr
        return ended.stderr

    return run


WRONG_SHAPE = """
    import tapegrad as tg

    def step(x):
        return x @ tg.ones(3)

    step(tg.ones(2))
"""


def test_wrong_shape(printed):
    text = printed(WRONG_SHAPE)
    assert functions(text) == ["<module>", "step"]
    assert "return x @ tg.ones(3)" in text
    *_, message, hint = text.splitlines()
    assert message.startswith("RuntimeError: matmul: shapes (2,) and (3,) do not fit")
    assert re.fullmatch(r"\(\d+ frames " + re.escape(HINT), hint)
    assert text.count("TAPEGRAD_TRACEBACK") == 1


@pytest.mark.parametrize(("setting", "is_short"), [("short", True), ("full", False)])
def test_setting(printed, setting, is_short):
    text = printed(WRONG_SHAPE, TAPEGRAD_TRACEBACK=setting)
    assert (LIBRARY not in text) == is_short == (HINT in text)


def test_unknown_setting_is_a_warning_at_the_import(printed):
    text = printed(WRONG_SHAPE, TAPEGRAD_TRACEBACK="long")
    assert "TAPEGRAD_TRACEBACK is 'short' (the default) or 'full', got 'long'" in text
    assert text.splitlines()[1].strip() == "import tapegrad as tg"
    assert functions(text) == ["<module>", "step"]


def test_full_leaves_the_hooks_alone(printed):
    script = """
        import sys, threading
        import tapegrad
        assert sys.excepthook is sys.__excepthook__
        assert threading.excepthook is threading.__excepthook__
    """
    assert printed(script, code=0, TAPEGRAD_TRACEBACK="full") == ""


def test_module(printed):
    text = printed("""
        import tapegrad as tg

        class Net(tg.nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = tg.nn.Sequential(tg.nn.Linear(4, 8), tg.nn.Linear(4, 2))

            def forward(self, x):
                return self.layers(x)

        Net()(tg.ones(3, 4))
    """)
    assert functions(text) == ["<module>", "forward"]
    assert "RuntimeError: linear: shapes (3, 8) and (2, 4) do not fit" in text


@pytest.mark.parametrize("calls", [0, 3])
def test_compiled_function(printed, calls):
    text = printed(f"""
        import tapegrad as tg

        @tg.compile
        def step(x):
            return (x * 2) @ tg.ones(4)

        for _ in range({calls}):
            step(tg.ones(4))
        step(tg.ones(5))
    """)
    assert functions(text) == ["<module>", "step"]
    assert "matmul: shapes (5,) and (4,) do not fit" in text


def test_exception_in_a_hook(printed):
    text = printed("""
        import tapegrad as tg

        def spoil(g):
            assert {}["missing"]

        y = tg.ones(3, requires_grad=True) * 2
        y.register_hook(spoil)
        y.sum().backward()
    """)
    assert functions(text) == ["<module>", "spoil"]
    assert "KeyError: 'missing'" in text
    assert HINT in text


def test_exception_in_backward_of_a_function(printed):
    text = printed("""
        import tapegrad as tg

        class Double(tg.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, g):
                return g * ctx.missing

        Double.apply(tg.ones(3, requires_grad=True)).sum().backward()
    """)
    assert functions(text) == ["<module>", "backward"]
    assert "AttributeError" in text


def test_causes_and_contexts(printed):
    text = printed("""
        import tapegrad as tg

        def load():
            try:
                tg.load("/no/such/file")
            except OSError as error:
                raise ValueError("no weights") from error

        try:
            load()
        except ValueError:
            tg.ones(2) @ tg.ones(3)
    """)
    assert functions(text) == ["load", "<module>", "load", "<module>"]
    assert "direct cause" in text
    assert "During handling" in text
    assert text.count(HINT) == 1


def test_group(printed):
    text = printed("""
        import tapegrad as tg

        errors = [KeyError("never raised")]
        for n in (3, 4):
            try:
                tg.ones(2) @ tg.ones(n)
            except RuntimeError as error:
                errors.append(error)
        raise ExceptionGroup("three", errors)
    """)
    assert functions(text) == ["<module>"] * 3
    assert text.count("do not fit") == 2


FAULT = """
    import tapegrad as tg
    from tapegrad.core.primitive import PRIMITIVES
    from tapegrad.core.source import LIBRARY

    scope = {}
    text = "def broken(*inputs, **params):\\n    return None.shape"
    exec(compile(text, LIBRARY + "ops/broken.py", "exec"), scope)
    PRIMITIVES["cumsum"].kernel = scope["broken"]
    tg.ones(2).cumsum(0)
"""


def test_fault_of_the_library_is_whole(printed):
    text = printed(FAULT)
    assert functions(text)[0] == "<module>"
    assert functions(text)[-1] == "broken"
    assert len(functions(text)) > 2
    assert HINT not in text


def test_thread(printed):
    text = printed(
        """
        import sys, threading
        import tapegrad as tg

        def work():
            tg.ones(2) @ tg.ones(3)

        def leave():
            tg.compile(sys.exit)()

        for target in (work, leave):
            thread = threading.Thread(target=target)
            thread.start()
            thread.join()
        """,
        code=0,
    )
    assert functions(text)[-1] == "work"
    assert LIBRARY not in text
    assert text.startswith("Exception in thread")
    assert text.count(HINT) == 1


def test_thread_without_a_frame_of_the_user_is_whole(printed):
    text = printed(
        """
        import threading
        import tapegrad as tg

        threading.Thread(target=tg.matmul, args=(tg.ones(2), tg.ones(3))).start()
        """,
        code=0,
    )
    assert functions(text)[-2:] == ["matmul", "_product"]
    assert HINT not in text


def test_earlier_hook_is_called(printed):
    text = printed("""
        import sys, traceback

        def hook(kind, error, tb):
            frames = [f.name for f in traceback.extract_tb(tb)]
            same = frames == [f.name for f in traceback.extract_tb(error.__traceback__)]
            print("mine", kind.__name__, frames, same, file=sys.stderr)

        sys.excepthook = hook
        import tapegrad as tg
        tg.ones(2) @ tg.ones(3)
    """)
    assert text.splitlines()[0] == "mine RuntimeError ['<module>'] True"
    assert len(text.splitlines()) == 2


def test_interrupt(printed):
    text = printed(
        """
        import os, signal
        import tapegrad as tg

        def interrupt(g):
            os.kill(os.getpid(), signal.SIGINT)

        y = tg.ones(3, requires_grad=True) * 2
        y.register_hook(interrupt)
        y.sum().backward()
        """,
        code=-signal.SIGINT,
    )
    assert functions(text) == ["<module>", "interrupt"]
    assert "\nKeyboardInterrupt\n" in text


def test_the_exception_stays_as_it_was(printed):
    """A debugger that comes afterwards sees all frames, also of an exception that is frozen."""
    text = printed(
        """
        import sys
        from dataclasses import dataclass
        import tapegrad as tg

        @dataclass(frozen=True)
        class Frozen(Exception):
            number: int

        def fail(g):
            raise Frozen(1)

        y = tg.ones(3, requires_grad=True) * 2
        y.register_hook(fail)
        try:
            y.sum().backward()
        except Frozen as error:
            caught, before = error, error.__traceback__
        sys.excepthook(Frozen, caught, before)
        assert caught.__traceback__ is before
        assert not hasattr(caught, "__notes__")
        """,
        code=0,
    )
    assert functions(text) == ["<module>", "fail"]


# -- which frames --------------------------------------------------------------------------------


def caught(function, *args):
    try:
        function(*args)
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def names(error):
    """The functions of the shortened traceback of an exception, from the one that was called."""
    entry, hidden = shortened(error, error.__traceback__)
    found = []
    while entry is not None:
        found.append(entry.tb_frame.f_code.co_name)
        entry = entry.tb_next
    assert found[0] == "caught"
    return found[1:], hidden


def library(text, **scope):
    """A function `inner` of the given text, as if it were in a file of the library."""
    exec(compile(textwrap.dedent(text), LIBRARY + "ops/made.py", "exec"), scope)
    return scope["inner"]


@pytest.mark.parametrize(
    "statement",
    [
        "raise RuntimeError",
        "raise NotImplementedError",
        "raise ValueError",
        "raise TypeError",
        "raise IndexError",
        "raise FileNotFoundError",
        "raise KeyboardInterrupt",
        "raise KeyError('no such module')",
        "raise ImportError('install this first')",
        "int('x')",
        "len(1)",
        "[][0]",
        "open('/no/such/file')",
        "(1 << 100).to_bytes(1, 'big')",
    ],
)
def test_errors_of_the_user_are_short(statement):
    assert names(caught(library(f"def inner():\n    {statement}"))) == ([], 1)


@pytest.mark.parametrize(
    "statement",
    [
        "assert False",
        "raise AssertionError('never')",
        "None.shape",
        "undefined",
        "{}['key']",
        "import tapegrad.no_such_module",
        "1 / 0",
        "import json; json.JSONDecoder().missing",
        "import fractions; fractions.Fraction(1, 0)",
    ],
)
def test_faults_are_whole(statement):
    found, hidden = names(caught(library(f"def inner():\n    {statement}")))
    assert found[0] == "inner"
    assert hidden == 0


def test_missing_attribute():
    """A fault if the library asked for it."""
    module = tg.nn.Linear(2, 2)
    assert names(caught(lambda: module.missing)) == (["<lambda>"], 1)
    found, hidden = names(caught(library("def inner(module):\n    module.missing"), module))
    assert found == ["inner", "__getattr__"]
    assert hidden == 0
    assert names(caught(lambda: tg.missing)) == (["<lambda>"], 1)


def test_errors_of_the_librarys_own_kinds_are_short():
    from tapegrad.replay.use.check import CheckError

    inner = library("def inner():\n    raise CheckError('differs')", CheckError=CheckError)
    assert names(caught(inner)) == ([], 1)


def test_frames_that_lead_into_the_library_go_with_it():
    inner = library("""
        import contextlib

        @contextlib.contextmanager
        def opened():
            raise ValueError
            yield

        def inner():
            with opened():
                pass
    """)
    assert names(caught(inner)) == ([], 3)


def test_frames_of_other_packages_stay():
    """Also those that the library called: they say what was wrong."""
    inner = library("def inner():\n    import json\n    json.loads('{')")
    assert names(caught(inner)) == (["loads", "decode", "raw_decode"], 1)

    def user():
        import json

        json.loads("{")

    error = caught(user)
    assert shortened(error, error.__traceback__) == (error.__traceback__, 0)


def test_no_traceback():
    assert shortened(ValueError(), None) == (None, 0)


def test_a_cycle_of_contexts_ends(capsys):
    from tapegrad.core.tracebacks import _with_short_tracebacks

    one, other = caught(tg.ones(2).reshape, 3), ValueError()
    one.__context__, other.__context__ = other, one
    _with_short_tracebacks(one, one.__traceback__, lambda short: None)
    assert HINT in capsys.readouterr().err
