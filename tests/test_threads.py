"""Threads: modes and tapes belong to one, gradients of shared leaves add up."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import textwrap
import threading
import warnings

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.core.primitive import OPAQUE, PRIMITIVES, define
from tapegrad.nn import functional as F
from tapegrad.replay.use import compiled


def in_threads(count, work):
    errors, results = [], [None] * count
    barrier = threading.Barrier(count)

    def run(i):
        try:
            barrier.wait()
            results[i] = work(i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]
    return results


def test_eight_threads_record_and_differentiate():
    def work(i):
        rng = np.random.default_rng(i)
        for _ in range(30):
            a = rng.standard_normal((4, 4))
            x = tg.tensor(a, requires_grad=True)
            y = ((x @ x).tanh() * x).sum()
            y.backward()
            t = np.tanh(a @ a)
            d = (1 - t**2) * a
            np.testing.assert_allclose(x.grad.numpy(), t + d @ a.T + a.T @ d, rtol=1e-10)
            with tg.Tape() as tape:
                z = (x * 2).sum()
            assert len(tape) == 2
            assert tape.backward(z)[x].tolist() == np.full((4, 4), 2.0).tolist()
        return True

    assert all(in_threads(8, work))


def test_no_grad_does_not_leak():
    entered, done = threading.Event(), threading.Event()

    def quiet():
        with tg.no_grad():
            entered.set()
            done.wait(5)

    t = threading.Thread(target=quiet)
    t.start()
    entered.wait(5)
    x = tg.ones(1, requires_grad=True)
    try:
        assert tg.is_grad_enabled()
        assert (x * 2).requires_grad
    finally:
        done.set()
        t.join()


def test_a_tape_records_only_its_thread():
    with tg.Tape() as tape:
        in_threads(4, lambda i: (tg.ones(3) * i).sum())
        tg.ones(3) * 2
    assert len(tape) == 1


def test_shared_leaf_accumulates_every_gradient():
    x = tg.zeros(100, requires_grad=True)

    def work(i):
        for _ in range(50):
            (x * float(i + 1)).sum().backward()

    in_threads(8, work)
    assert x.grad.tolist() == [50.0 * 36] * 100


def test_numbers_are_unique_across_threads():
    ids = in_threads(8, lambda i: [tg.zeros(1).id for _ in range(500)])
    flat = [n for part in ids for n in part]
    assert len(set(flat)) == len(flat)
    assert all(part == sorted(part) for part in ids)


def test_warnings_are_off_in_every_thread():
    import warnings

    def work(i):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return (tg.ones(2) / tg.zeros(2)).tolist()

    # catch_warnings is not thread-safe, so one thread at a time
    for _ in range(3):
        assert in_threads(1, work) == [[float("inf")] * 2]


def _last_written(x, places, values):
    """x[places] = values, one after another."""
    out = x.copy()
    for place, value in zip(places, values, strict=True):
        out[place] = value
    return out


@pytest.mark.parametrize("threads", [2, 3, 4])
def test_of_equal_indices_the_last_one_counts(threads):
    rng = np.random.default_rng(threads)
    x = rng.standard_normal((200, 300)).astype(np.float32)
    rows = rng.integers(-200, 200, 900)
    values = rng.standard_normal((900, 300)).astype(np.float32)
    line, many = x.reshape(-1), rng.integers(0, 50, 90_000)
    numbers = rng.standard_normal(90_000).astype(np.float32)
    down = rng.integers(0, 200, (500, 300))
    across = rng.integers(0, 300, (200, 900)).astype(np.int64)
    columns = np.arange(300)
    expected = [
        _last_written(x, rows, values),
        _last_written(line, many, numbers),
        _last_written(x, [(row, columns) for row in down], values[:500]),
        _last_written(x.T, [(place, np.arange(200)) for place in across.T], values[:, :200]).T,
    ]

    def put(x, rows, values, line, many, numbers, down, across):
        first, second = x.clone(), line.clone()
        first[rows] = values
        second[many] = numbers
        third = x.scatter(0, down, values[:500])
        return first, second, third, x.scatter(1, across, values[:, :200].T)

    given = [tg.tensor(a) for a in (x, rows, values, line, many, numbers, down, across)]
    compiled = tg.compile(put)
    before = tg.get_num_threads()
    tg.set_num_threads(threads)
    try:
        for _ in range(20):
            for function in (put, compiled):
                for got, wanted in zip(function(*given), expected, strict=True):
                    np.testing.assert_array_equal(got.numpy(), wanted)
    finally:
        tg.set_num_threads(before)


@pytest.mark.parametrize("threads", [2, 3, 4])
def test_sums_at_equal_indices_repeat_bit_for_bit(threads):
    rng = np.random.default_rng(threads)
    x = tg.tensor(rng.standard_normal((200, 64)).astype(np.float32), requires_grad=True)
    rows = tg.tensor(rng.integers(0, 20, 900))
    values = tg.tensor(rng.standard_normal((900, 64)).astype(np.float32))
    down = tg.tensor(rng.integers(0, 200, (900, 64)))

    def summed(x, rows, values, down):
        lost = (F.embedding(rows, x) * values).sum()
        return (
            x.index_add(0, rows, values),
            x.scatter_add(0, down, values),
            x.scatter_reduce(0, down, values, "mean"),
            x.scatter_reduce(0, down, values, "amax"),
            x.index_put((rows,), values, accumulate=True),
            tg.autograd.grad(lost, x)[0],
        )

    def counted():
        return (tg.bincount(rows, values[:, 0].contiguous()),)

    compiled = tg.compile(summed)
    before = tg.get_num_threads()
    tg.set_num_threads(threads)
    try:
        for function in (summed, compiled):
            first = [
                t.detach().numpy().copy() for t in (*function(x, rows, values, down), *counted())
            ]
            for _ in range(20):
                now = (*function(x, rows, values, down), *counted())
                for a, b in zip(first, now, strict=True):
                    np.testing.assert_array_equal(a, b.detach().numpy())
    finally:
        tg.set_num_threads(before)


# -- the threads of native programs --------------------------------------------------------------

ROOT = pathlib.Path(__file__).parent.parent
forking = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
timed = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs setitimer")


def output_of(*command: str) -> str:
    """What another Python prints; it must end well, within a minute, and say nothing else."""
    done = subprocess.run(
        [sys.executable, *command],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=60,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def output_of_code(code: str) -> str:
    return output_of("-c", PREAMBLE + textwrap.dedent(code))


PREAMBLE = """
import gc, os, sys, threading, time, warnings
import numpy as np
import tapegrad as tg
tg.set_num_threads(2)
x = tg.ones(300, 1000)
f = tg.compile(lambda x: (x * 2 + 1).sum(0))
"""


@timed
def test_interrupts_at_any_moment():
    assert "50 interrupts" in output_of("tests/soak_signals.py", "50")


def test_an_exception_at_any_instruction_of_a_run():
    """An exception between any two bytecodes of what starts programs leaves the pool in order."""
    found = output_of_code("""
        from tapegrad.replay.cpu import executable, pool
        files = {pool.__file__, executable.__file__}
        class Interrupt(Exception):
            pass
        def interrupted(work, at):
            left = at
            def trace(frame, event, argument):
                nonlocal left
                if frame.f_code.co_filename not in files:
                    return None
                frame.f_trace_opcodes = True
                if event in ("line", "opcode"):  # of 3.12, not all opcodes come
                    left -= 1
                    if left < 0:
                        raise Interrupt
                return trace
            sys.settrace(trace)
            try:
                work()
            except Interrupt:
                return True
            finally:
                sys.settrace(None)
            return False
        import faulthandler
        faulthandler.dump_traceback_later(40, exit=True)
        counts = []
        for work in (lambda: f(x), lambda: x.softmax(1)):
            for _ in range(4):
                expected = work().numpy()
            for pause in (0, 0.004):
                at = 0
                while True:
                    time.sleep(pause)
                    if not interrupted(work, at):
                        break
                    result = []
                    beside = threading.Thread(target=lambda: result.append(work().numpy()))
                    beside.start()
                    beside.join()
                    assert np.array_equal(result[0], expected)
                    assert np.array_equal(work().numpy(), expected)
                    at += 1
                counts.append(at)
        print(min(counts) > 5)
    """)
    assert found == "True\n"


def test_an_exception_at_any_line_of_binding_a_recording():
    """A recording that was interrupted while it became a program is made into one again."""
    found = output_of_code("""
        from tapegrad.replay.use import replay
        class Interrupt(Exception):
            pass
        def interrupted(work, at):
            left = at
            def trace(frame, event, argument):
                nonlocal left
                if frame.f_code.co_filename != replay.__file__:
                    return None
                if event == "line":
                    left -= 1
                    if left < 0:
                        raise Interrupt
                return trace
            sys.settrace(trace)
            try:
                work()
            except Interrupt:
                return True
            finally:
                sys.settrace(None)
            return False
        small = tg.ones(4)
        captured = tg.ones(4)
        counts = []
        for moves in (False, True):
            at = 0
            while True:
                captured.data = tg.ones(4)
                g = tg.compile(lambda x: x * 2 + captured)
                for _ in range(4 if moves else 2):
                    g(small)
                if moves:
                    captured.data = tg.full((4,), 5.0)
                if not interrupted(lambda: g(small), at):
                    break
                other = [tg.full((4,), 7.0) for _ in range(50)]
                assert g(small).tolist() == [7.0 if moves else 3.0] * 4, (at, g(small))
                at += 1
            counts.append(at)
        print(min(counts) > 5)
    """)
    assert found == "True\n"


def test_an_exception_while_a_recording_begins_or_ends():
    """Modes, tapes, the profiler and the views of arguments are as they were before the call."""
    found = output_of_code("""
        from tapegrad.core import tape
        from tapegrad.replay.trace import log
        from tapegrad.replay.guards import observe
        from tapegrad.replay.trace import roots
        from tapegrad.replay.use import leaf_tracker
        from tapegrad.core.modes import STATE
        files = {m.__file__ for m in (tape, log, observe, roots, leaf_tracker)}
        class Interrupt(Exception):
            pass
        names = {"__enter__", "__exit__", "start_recording", "stop_recording", "stop",
                 "restore_views", "restore", "take_off"}
        def interrupted(work, at):
            left = at
            def trace(frame, event, argument):
                nonlocal left
                if frame.f_code.co_name not in names or frame.f_code.co_filename not in files:
                    return None
                if event in ("line", "return"):
                    left -= 1
                    if left == -1:
                        raise Interrupt
                return trace
            sys.settrace(trace)
            try:
                work()
            except Interrupt:
                return True
            finally:
                sys.settrace(None)
            return False
        def profiler(frame, event, argument):
            pass
        leaf = tg.ones(200_000).requires_grad_()
        def step():
            leaf.grad = tg.ones(200_000)
            tg.optim.SGD([leaf], lr=0.1).step()
        base = tg.ones(4, 4)
        view = base[1]
        def state():
            return STATE.mode, STATE.tapes, sys.getprofile(), view._view, gc.get_threshold()
        counts = []
        for before in (None, profiler):
            sys.setprofile(before)
            wanted = state()
            for options in ({}, {"keep_grads": False}, {"check": True}, {"backend": "eager"}):
                at = 0
                while True:
                    g = tg.compile(lambda x: x * 2 + 1, **options, **(
                        {"keep_grads": False} if "backend" in options else {}))
                    if "check" in options:
                        for _ in range(3):
                            g(view)
                    done = interrupted(lambda: g(view), at)
                    assert state() == wanted, (options, at)
                    assert g(view).tolist() == [3.0] * 4
                    if not done:
                        break
                    at += 1
                counts.append(at)
            at = 0
            while interrupted(step, at):
                assert state() == wanted, at
                at += 1
            counts.append(at)
        print(min(counts) > 4, counts)
    """)
    assert found.startswith("True"), found


@timed
def test_a_call_that_waits_for_a_thread_which_makes_the_same_call(monkeypatch):
    monkeypatch.setattr(compiled, "SECONDS", 0.2)
    nested = [False]

    @tg.compile
    def f(x):
        if nested[0]:
            nested[0] = False
            thread = threading.Thread(target=lambda: found.append(f(x)))
            thread.start()
            thread.join()
        return x * 2

    found = []
    nested[0] = True
    with pytest.warns(UserWarning, match="another thread has been recording"):
        assert f(tg.ones(2)).tolist() == [2.0, 2.0]
    assert found[0].tolist() == [2.0, 2.0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a function that knows of threads is not replayed
        for _ in range(4):
            assert f(tg.ones(2) * 3).tolist() == [6.0, 6.0]


def test_an_interrupted_compilation_leaves_llvm_to_others():
    """It goes on without its caller; what an interrupt left of llvmlite's lock is freed."""
    found = output_of_code("""
        import signal
        from llvmlite.binding import ffi
        from tapegrad.replay.cpu import jit
        text = "define i64 @NAME() {{ ret i64 {} }}"
        optimised = jit._optimised
        def slowly(text):
            time.sleep(0.3)
            return optimised(text)
        class Interrupt(Exception):
            pass
        def interrupt(number, frame):
            raise Interrupt
        os.environ["TAPEGRAD_CACHE"] = "0"
        jit._optimised = slowly
        signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        began = time.monotonic()
        try:
            jit.functions([text.format(1)])
        except Interrupt:
            print(time.monotonic() - began < 0.25)
        ffi.lib._lock._lock.acquire()
        for number in (1, 2):
            jit.functions([text.format(number)])
        beside = threading.Thread(target=jit.functions, args=([text.format(3)],), daemon=True)
        beside.start()
        beside.join(20)
        print(beside.is_alive())
    """)
    assert found == "True\nFalse\n"


@forking
@timed
def test_a_handler_forks_while_its_thread_waits_for_a_compilation():
    """The child has no thread that compiles, and does it itself."""
    found = output_of_code("""
        import ctypes, faulthandler, signal
        from tapegrad.replay.cpu import jit
        warnings.simplefilter("ignore")
        faulthandler.dump_traceback_later(40, exit=True)
        os.environ["TAPEGRAD_CACHE"] = "0"
        object_of = jit._object_of
        def slowly(text):
            time.sleep(0.2)
            return object_of(text)
        jit._object_of = slowly
        children = []
        signal.signal(signal.SIGALRM, lambda number, frame: children.append(os.fork()))
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        texts = [f"define i64 @NAME() {{ ret i64 {i} }}" for i in range(12)]
        made = jit.functions(texts).values()
        called = [ctypes.CFUNCTYPE(ctypes.c_int64)(f.address)() for f in made]
        if children == [0]:
            os._exit(0 if called == list(range(12)) else 1)
        print(called == list(range(12)), os.waitpid(children[0], 0)[1])
    """)
    assert found == "True 0\n"


@forking
def test_forks_while_every_thread_is_busy():
    assert "10 forks" in output_of("tests/soak_forks.py", "10")


@forking
def test_locks_are_free_in_a_child_unless_its_own_thread_holds_them():
    found = output_of_code("""
        from tapegrad.core import locks
        warnings.simplefilter("ignore")
        theirs, mine = locks.new(), locks.new()
        taken, done = threading.Event(), threading.Event()
        def hold():
            with theirs:
                taken.set()
                done.wait()
        thread = threading.Thread(target=hold)
        thread.start()
        taken.wait()
        with mine:
            child = os.fork()
            if child == 0:
                ok = theirs.acquire(timeout=5)
        if child == 0:
            beside = []
            thread = threading.Thread(target=lambda: beside.append(mine.acquire(timeout=5)))
            thread.start()
            thread.join()
            os._exit(0 if ok and beside == [True] else 1)
        print(os.waitpid(child, 0)[1])
        done.set()
        thread.join()
    """)
    assert found == "0\n"


@forking
def test_every_lock_of_the_package_is_free_in_a_child():
    """Locks are made in one place."""
    sources = ROOT.joinpath("tapegrad").rglob("*.py")
    making = [
        path.name
        for path in sources
        if re.search(r"threading\.(RLock|Lock|Condition|Semaphore)\(", path.read_text())
    ]
    assert making == ["locks.py"]


@forking
def test_a_fork_inside_of_a_callback():
    """The child goes on where its parent was, without the workers that the parent has."""
    found = output_of_code("""
        from tapegrad.core.primitive import OPAQUE, define
        warnings.simplefilter("ignore")
        children = []
        def kernel(x):
            if children is not None:
                children.append(os.fork())
            return np.exp(x)
        forked = define("forked_exp", kernel, kind=OPAQUE)
        g = tg.compile(lambda x: (forked(x * 2) + 1).sum(0))
        expected = np.full(1000, 300 * (np.exp(np.float32(2)) + 1), np.float32)
        parent = os.getpid()
        for _ in range(4):
            assert np.allclose(g(x).numpy(), expected)
            if os.getpid() != parent:
                os._exit(0)
        assert len(children) >= 4
        print([os.waitpid(child, 0)[1] for child in children if child] == [0] * len(children))
    """)
    assert found == "True\n"


def test_a_failing_program_leaves_the_others_alone():
    """What one call finds wrong is not what another call of the same program reports."""
    table = tg.arange(1000.0).reshape(100, 10)
    take = tg.compile(lambda i: (table[i] * 2).sum(1))
    good, bad = tg.arange(100).repeat(300), tg.full((30000,), 100)
    for _ in range(3):
        expected = take(good).numpy()

    def work(number):
        for _ in range(50):
            if number % 2:
                with pytest.raises(IndexError):
                    take(bad)
                with pytest.raises(IndexError):
                    table[bad]
            else:
                np.testing.assert_array_equal(take(good).numpy(), expected)
                np.testing.assert_array_equal(
                    table[good][:, 0].numpy(), table.numpy()[good.numpy()][:, 0]
                )
        return True

    assert all(in_threads(4, work))


def test_native_code_says_which_check_has_failed():
    """The answer of a run holds the number of a failure, of up to 33 bits, and its place."""
    table = tg.arange(3.0)
    f = tg.compile(lambda p, i: F.binary_cross_entropy(p, p * 0 + table[i] / 2))
    p, i = tg.full((3,), 0.5), tg.tensor([0, 1, 2])
    for _ in range(3):
        f(p, i)
    executable = f.replays[0].executable
    given = {"argument0": p.numpy(), "argument1": i.numpy()}
    for wrong, error, message in (
        ({"argument0": np.full(3, 1.5, np.float32)}, RuntimeError, "between 0 and 1"),
        ({"argument1": np.array([0, 1, 3])}, IndexError, "an index is out of range"),
    ):
        arrays = [(given | wrong)[x.name] for x in f.replays[0].program.inputs if x.name in given]
        with pytest.raises(error, match=message):
            executable.run((*arrays, np.empty((), np.float32)))


def test_a_callback_that_raises_and_one_that_calls_its_own_function():
    def kernel(x):
        if np.isnan(x[0]):
            raise ArithmeticError("asked for")
        return np.exp(x) if abs(x[0]) < 4 else g(tg.tensor(x / 4)).numpy()

    strange = define("strange_exp", kernel, kind=OPAQUE)
    try:
        g = tg.compile(lambda x: strange(x * 2) + x)
        x = tg.linspace(-1, 1, 300_000)
        a = x.numpy()
        for _ in range(4):
            np.testing.assert_allclose(g(x).numpy(), np.exp(a * 2) + a, rtol=1e-5)
        for _ in range(3):
            with pytest.raises(ArithmeticError, match="asked for"):
                g(x * np.nan)
        # Of 8 times as much, the callback gives the function 4 times as much, and so on.
        np.testing.assert_allclose(g(x * 8).numpy(), np.exp(a * 2) + a * 15, rtol=1e-5, atol=1e-5)
        assert g.replays[0].count > 5

        def work(number):
            for _ in range(10):
                np.testing.assert_allclose(g(x).numpy(), np.exp(a * 2) + a, rtol=1e-5)
            return True

        assert all(in_threads(4, work))
    finally:
        del PRIMITIVES["strange_exp"]


def test_the_number_of_threads_changes_while_others_compute():
    before = tg.get_num_threads()
    x = tg.linspace(-1, 1, 400_000).reshape(400, 1000)
    f = tg.compile(lambda x: (x * 2 + 1).tanh() * x)
    expected = f(x).numpy()

    def work(number):
        for i in range(60):
            if number == 0:
                tg.set_num_threads(1 + i % 4)
            np.testing.assert_allclose(f(x).numpy(), expected, rtol=1e-6, atol=1e-6)
            np.testing.assert_allclose((x * 3).numpy(), x.numpy() * 3)
        return True

    try:
        assert all(in_threads(4, work))
    finally:
        tg.set_num_threads(before)


@pytest.mark.parametrize(
    "last",
    [
        "pass",
        "threading.Thread(target=forever, daemon=True).start()\ntime.sleep(0.05)",
        "atexit.register(lambda: (f(x), x.softmax(1)))",
        "class Late:\n    def __del__(self, f=f, x=x): f(x)\nsys.late = Late()",
        "time.sleep(0.01)",
    ],
)
def test_the_process_ends_while_workers_wait_or_work(last):
    found = output_of_code(f"""
import atexit
def forever():
    while True:
        f(x)
        x.softmax(1)
for _ in range(4):
    f(x)
print("done", flush=True)
{last}
""")
    assert found == "done\n"


def test_a_system_that_gives_no_threads():
    found = output_of_code("""
        import _thread
        def refuse(*arguments):
            raise RuntimeError("can't start new thread")
        _thread.start_new_thread = refuse
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            for _ in range(4):
                result = f(x)
            (x * 2 + 1).softmax(1)
        print(result[0].item(), [str(w.message) for w in seen])
    """)
    assert "900.0" in found
    assert found.count("native programs run on one thread") == 1


@pytest.mark.parametrize(
    "missing",
    [
        "raise TypeError('a name is needed')",
        "raise OSError('no such file')",
        "return types.SimpleNamespace()",
        "return types.SimpleNamespace(**{n: None for n in driver_names if n != 'sched_yield'})",
    ],
)
def test_a_system_without_posix_threads(missing):
    """Windows has no loader without a name, and other names of what threads need."""
    found = output_of(
        "-c",
        textwrap.dedent("""
        import ctypes, types, warnings
        loaded = ctypes.CDLL
        driver_names = ["sched_yield", "sched_getcpu", "madvise", "pthread_mutex_init"]
        def load(name, *arguments, **options):
            if name is None:
                MISSING
            return loaded(name, *arguments, **options)
        ctypes.CDLL = load
        import numpy as np
        import tapegrad as tg
        import tapegrad.optim
        x = tg.linspace(0, 1, 300_000).reshape(300, 1000)
        f = tg.compile(lambda x: (x * 2 + 1).exp())
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            for _ in range(4):
                result = f(x).numpy()
            total = x.softmax(1).sum().item()
            tg.set_num_threads(2)
            x.softmax(0), f(x)
        print(np.allclose(result, np.exp(x.numpy() * 2 + 1)), abs(total - 300) < 1e-2)
        print([str(w.message) for w in seen])
        """).replace("MISSING", missing),
    )
    assert found.startswith("True True\n")
    assert found.count("native programs run on one thread") == 1


# -- scratch memory ------------------------------------------------------------------------------


def test_programs_share_scratch_memory():
    found = output_of_code("""
        from tapegrad.replay.cpu import tuning
        from tapegrad.replay.use import eager
        from tapegrad.replay.cpu import pool
        sizes = range(100, 1200, 50)
        for n in sizes:
            part = tg.ones(n, 1000).requires_grad_()
            tg.nn.functional.gelu(part.softmax(1)).sum().backward()
            tg.compile(lambda x: x.softmax(1).softmax(0).sum(1))(part.detach())
        large = pool.pool.scratch
        small = tg.compile(lambda x: x * 2)
        print(0 < large < 4 * 4 * 1000 * max(sizes))
        for _ in range(2 * tuning.RUNS_BEFORE_SHRINKING_SCRATCH):
            small(x[0])
        print(pool.pool.scratch < large / 2)
        part = tg.ones(1100, 1000)
        print(np.allclose(part.softmax(1).numpy(), 1 / 1000))
    """)
    assert found == "True\nTrue\nTrue\n"


def test_a_program_that_needs_more_memory_than_there_is():
    from tapegrad.replay.cpu import driver_layout, pool

    x = tg.ones(300, 1000)
    expected = (x.softmax(1) * 2).numpy()
    descriptor = np.zeros(driver_layout.DESCRIPTOR_WORDS, np.int64)
    descriptor[driver_layout.SCRATCH] = 1 << 60
    with pytest.raises(MemoryError, match="not enough memory"):
        pool.pool.run(descriptor.ctypes.data, 1, 0)
    np.testing.assert_array_equal((x.softmax(1) * 2).numpy(), expected)


def test_the_environment_says_how_many_threads() -> None:
    code = "import tapegrad; print(tapegrad.get_num_threads())"
    for given, expected in (("3", "3"), ("2,1", "2")):
        env = {**os.environ, "OMP_NUM_THREADS": given}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
        assert done.stdout.strip() == expected, done.stderr


def test_a_caller_in_the_parent_of_a_fork_is_not_waited_for() -> None:
    """Its number may be that of a thread that lives here."""
    f = tg.compile(lambda x: x * 2)
    done = threading.Event()
    other = threading.Thread(target=done.wait)
    other.start()
    f._caller, f._process = other.ident, -1
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # which a call that waits in vain gives
            for _ in range(4):
                assert f(tg.ones(3)).tolist() == [2.0] * 3
    finally:
        done.set()
        other.join()
