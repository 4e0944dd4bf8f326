"""DataLoader with worker processes: order, errors, crashes, shared memory, nothing left behind."""

import concurrent.futures
import contextlib
import gc
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    TensorDataset,
    default_collate,
    get_worker_info,
)

HAS_PROC = os.path.isdir("/proc/self/fd")


class Rows(Dataset):
    """Sample i is 1000 times the number i, and i."""

    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return np.full(1000, index, np.float32), index


class Calling(Rows):
    """Calls a function with every index."""

    def __init__(self, size, function):
        super().__init__(size)
        self.function = function

    def __getitem__(self, index):
        return self.function(index)


class Stream(IterableDataset):
    """Worker w of n gives the numbers from w in steps of n."""

    def __init__(self, size):
        self.size = size

    def __iter__(self):
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        return (n + random.random() for n in range(first, self.size, step))


class Strange(Exception):
    def __init__(self, a, b):
        super().__init__(a, b)


def numbers(batches):
    return [n for _, y in batches for n in y.tolist()]


def state_of_process():
    """Child processes, open files, mapped shared memory."""
    gc.collect()
    children = {child.pid for child in multiprocessing.active_children()}
    if not HAS_PROC:
        return children, 0, 0
    return children, len(os.listdir("/proc/self/fd")), mapped_blocks()


def mapped_blocks():
    with open("/proc/self/maps") as maps:
        return sum("/memfd:" in line or "/dev/shm/" in line for line in maps)


@pytest.fixture
def leaves_nothing():
    before = state_of_process()
    yield
    assert state_of_process() == before


pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs Unix sockets")
forked = pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="needs fork"
)


def wait_for(path):
    while not path.exists():
        time.sleep(0.01)


def last_first(folder):
    """Sample 0 waits for sample 3, which the other one of two workers makes."""

    def sample(index):
        if index == 0:
            wait_for(folder / "made")
        if index == 3:
            (folder / "made").touch()
        return np.zeros(1), index

    return sample


# -- order and content ---------------------------------------------------------------------------


@forked
@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("options", [{}, {"persistent_workers": True}, {"prefetch_factor": 1}])
@pytest.mark.usefixtures("leaves_nothing")
def test_workers_give_the_same_batches(workers, options):
    def epochs(**options):
        tg.manual_seed(1)
        loader = DataLoader(Rows(23), 4, shuffle=True, **options)
        return [[(x.tolist(), y.tolist()) for x, y in loader] for _ in range(2)]

    context = {"multiprocessing_context": "fork", "num_workers": workers, **options}
    assert epochs(**context) == epochs()


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_start_methods(method):
    # The server of `forkserver` and a tracker of resources stay: they are Python's.
    loader = DataLoader(Rows(10), 3, num_workers=2, multiprocessing_context=method)
    assert numbers(loader) == list(range(10))
    assert not multiprocessing.active_children()


@pytest.mark.usefixtures("leaves_nothing")
def test_without_batches_and_of_a_tensor_dataset():
    assert [y for _, y in DataLoader(Rows(5), batch_size=None, num_workers=2)] == list(range(5))
    x = tg.arange(30_000.0).reshape(30, 1000)
    for shuffle in (False, True):
        loader = DataLoader(TensorDataset(x, tg.arange(30)), 8, shuffle, num_workers=2)
        seen = set()
        for rows, y in loader:
            assert rows.tolist() == x[y].tolist()
            seen |= set(y.tolist())
        assert seen == set(range(30))


@pytest.mark.usefixtures("leaves_nothing")
def test_batches_of_all_kinds():
    def collate(samples):
        big = np.arange(5000.0).reshape(50, 100)
        return {
            "turned": big.T,
            "gaps": big[::2, ::3],
            "permuted": tg.tensor(big).reshape(5, 10, 100).permute(2, 0, 1),
            "bfloat16": tg.ones(5000, dtype=tg.bfloat16),
            "objects": np.array([None, "a"], object),
            "text": "x" * 300_000,
            "nested": [(big[:1], {"deep": big})],
            "empty": np.zeros((0, 3)),
            "leaf": tg.ones(3000, requires_grad=True),
        }

    (found,) = DataLoader(Rows(2), 2, num_workers=1, collate_fn=collate)
    expected = collate(None)
    for name in ("turned", "gaps", "empty"):
        np.testing.assert_array_equal(found[name], expected[name])
    assert found["permuted"].tolist() == expected["permuted"].tolist()
    assert found["bfloat16"].dtype is tg.bfloat16
    assert found["bfloat16"].tolist() == [1.0] * 5000
    assert found["objects"].tolist() == [None, "a"]
    assert found["text"] == expected["text"]
    assert found["nested"][0][1]["deep"].tolist() == expected["turned"].T.tolist()
    assert found["leaf"].requires_grad


@pytest.mark.usefixtures("leaves_nothing")
def test_large_requests_beside_large_replies_do_not_lock():
    text = "x" * 1_000_000
    order = [list(range(100_000))] * 6
    loader = DataLoader(
        Calling(100_000, lambda i: i),
        batch_sampler=order,
        num_workers=2,
        collate_fn=lambda samples: (text, len(samples)),
        timeout=60,
    )
    assert list(loader) == [(text, 100_000)] * 6


@pytest.mark.usefixtures("leaves_nothing")
def test_first_come_first_served(tmp_path):
    loader = DataLoader(Calling(12, last_first(tmp_path)), 1, num_workers=2, in_order=False)
    found = numbers(loader)
    assert sorted(found) == list(range(12))
    assert found[0] != 0


# -- random numbers ------------------------------------------------------------------------------


def draw(index):
    return index, random.random(), np.random.rand(), tg.rand(1).item()


def drawn(size=12, epochs=1, seed=0, **options):
    tg.manual_seed(seed)
    options = {"num_workers": 2, **options}
    loader = DataLoader(Calling(size, draw), 2, collate_fn=list, **options)
    return [[list(map(tuple, batch)) for batch in loader] for _ in range(epochs)]


def seed_as_pytorch_advises(worker):
    seed = tg.initial_seed() % 2**32
    assert get_worker_info().seed == tg.initial_seed()
    np.random.seed(seed)
    random.seed(seed)


def seed_all_alike(worker):
    random.seed(5)
    np.random.seed(5)
    tg.manual_seed(5)


@pytest.mark.usefixtures("leaves_nothing")
def test_what_workers_draw_follows_the_seed_and_nothing_else():
    first = drawn(epochs=2)
    assert first == drawn(epochs=2)
    assert first == drawn(epochs=2, num_workers=3)
    assert first == drawn(epochs=2, persistent_workers=True)
    assert first != drawn(epochs=2, seed=1)
    values = [v for epoch in first for batch in epoch for sample in batch for v in sample[1:]]
    assert len(set(values)) == len(values)


@pytest.mark.usefixtures("leaves_nothing")
def test_seeds_of_worker_init_fn_count():
    advised = drawn(epochs=2, worker_init_fn=seed_as_pytorch_advises)
    assert advised == drawn(epochs=2, worker_init_fn=seed_as_pytorch_advises)
    assert advised != drawn(epochs=2)
    alike = drawn(worker_init_fn=seed_all_alike)
    assert alike == drawn(worker_init_fn=seed_all_alike)
    assert alike != drawn()
    values = [v for batch in alike[0] for sample in batch for v in sample[1:]]
    assert len(set(values)) == len(values)


def test_the_main_process_keeps_its_random_state():
    random.seed(1)
    np.random.seed(1)
    before = random.getstate(), np.random.get_state()[1].tolist()
    drawn()
    assert before == (random.getstate(), np.random.get_state()[1].tolist())


@pytest.mark.usefixtures("leaves_nothing")
def test_worker_info():
    def info(index):
        found = get_worker_info()
        return found.id, found.num_workers, found.seed, len(found.dataset)

    found = list(DataLoader(Calling(4, info), batch_size=None, num_workers=2))
    first = found[0][2]
    assert [tuple(f) for f in found] == [(i % 2, 2, first + i % 2, 4) for i in range(4)]


# -- streams -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("leaves_nothing")
def test_streams_are_read_in_parts():
    class Uneven(IterableDataset):
        def __iter__(self):
            info = get_worker_info()
            return iter(range(info.id * 100, info.id * 100 + (7, 2, 0)[info.id]))

    loader = DataLoader(Uneven(), 2, num_workers=3, persistent_workers=True)
    for _ in range(2):
        found = [batch.tolist() for batch in loader]
        assert found == [[0, 1], [100, 101], [2, 3], [4, 5], [6]]
    loader = DataLoader(Uneven(), 2, num_workers=3, drop_last=True)
    assert [batch.tolist() for batch in loader] == [[0, 1], [100, 101], [2, 3], [4, 5]]


# -- resuming ------------------------------------------------------------------------------------


def resumable():
    fork = {"num_workers": 2}
    return {
        "shuffled": lambda **o: DataLoader(
            Calling(13, draw), 2, True, collate_fn=list, **{**fork, **o}
        ),
        "persistent": lambda **o: DataLoader(
            Calling(13, draw),
            2,
            True,
            collate_fn=list,
            persistent_workers=True,
            worker_init_fn=seed_as_pytorch_advises,
            generator=tg.Generator().manual_seed(2),
            **{**fork, **o},
        ),
        "stream": lambda **o: DataLoader(Stream(13), 2, **{**fork, **o}),
    }


@pytest.mark.sweep(keep=1 / 2)
@pytest.mark.parametrize("name", resumable())
@pytest.mark.parametrize("had", [0, 1, 4, 7])
@pytest.mark.usefixtures("leaves_nothing")
def test_resuming_with_workers(name, had):
    make = resumable()[name]

    def train(loader):
        for batch in loader:
            values = [tuple(sample) for sample in batch] if name != "stream" else batch.tolist()
            yield values, tg.rand(1).item()

    tg.manual_seed(7)
    loader = make()
    list(train(loader))
    states = [(loader.state_dict(), tg.get_rng_state())]
    whole = []
    for values in train(loader):
        whole.append(values)
        states.append((loader.state_dict(), tg.get_rng_state()))
    whole.append(list(train(loader)))

    tg.manual_seed(99)
    state, numbers = states[had]
    loader = make()
    loader.load_state_dict(json.loads(json.dumps(state)))
    tg.set_rng_state(numbers)
    rest = list(train(loader))
    rest.append(list(train(loader)))
    assert rest == whole[had:]


@pytest.mark.usefixtures("leaves_nothing")
def test_resuming_with_another_number_of_workers():
    make = resumable()["shuffled"]
    tg.manual_seed(3)
    loader = make()
    iterator = iter(loader)
    for _ in range(3):
        next(iterator)
    state = loader.state_dict()
    expected = list(iterator)
    for workers in (1, 3):
        loader = make(num_workers=workers)
        loader.load_state_dict(state)
        assert list(loader) == expected
    stream = resumable()["stream"]()
    next(iter(stream))
    with pytest.raises(ValueError, match="2 workers read cannot be resumed with 3"):
        resumable()["stream"](num_workers=3).load_state_dict(stream.state_dict())


@pytest.mark.usefixtures("leaves_nothing")
def test_resuming_out_of_order_gives_every_batch_once(tmp_path):
    def make():
        return DataLoader(Calling(12, last_first(tmp_path)), 1, num_workers=2, in_order=False)

    loader = make()
    iterator = iter(loader)
    had = numbers(next(iterator) for _ in range(3))
    other = make()
    other.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    assert sorted(had + numbers(other)) == list(range(12))
    del iterator
    with pytest.raises(RuntimeError, match="in_order"):
        DataLoader(Stream(3), in_order=False).state_dict()


# -- errors --------------------------------------------------------------------------------------


def fail(index):
    if index == 2:
        raise ValueError("bad luck")
    if index == 3:
        raise KeyError("missing")
    if index == 4:
        raise Strange(1, 2)
    if index == 5:
        raise StopIteration
    if index == 6:
        return lambda: "cannot be pickled"
    return np.zeros(1), index


@pytest.mark.usefixtures("leaves_nothing")
def test_errors_come_with_the_traceback_of_the_worker():
    loader = DataLoader(Calling(8, fail), None, num_workers=2, collate_fn=lambda x: x)
    iterator = iter(loader)
    found = [next(iterator)[1], next(iterator)[1]]
    with pytest.raises(ValueError, match=r"(?s)worker process 0.*in fail.*bad luck"):
        next(iterator)
    with pytest.raises(KeyError) as caught:
        next(iterator)
    assert "\n" in str(caught.value)
    with pytest.raises(RuntimeError, match=r"(?s)Caught Strange.*\(1, 2\)"):
        next(iterator)
    with pytest.raises(RuntimeError, match="Caught StopIteration in DataLoader worker process 1"):
        next(iterator)
    with pytest.raises(Exception, match=r"(?s)process 0.*lambda"):
        next(iterator)
    found.append(next(iterator)[1])
    assert found == [0, 1, 7]
    with pytest.raises(StopIteration):
        next(iterator)
    del caught, iterator


@pytest.mark.usefixtures("leaves_nothing")
def test_errors_of_worker_init_fn():
    def init(worker):
        raise OSError("no such disk")

    with pytest.raises(OSError, match="no such disk"):
        next(iter(DataLoader(Rows(3), num_workers=2, worker_init_fn=init)))


@pytest.mark.parametrize(
    ("end", "text"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "is killed by signal: SIGKILL"),
        (lambda: os.kill(os.getpid(), signal.SIGTERM), "is killed by signal: SIGTERM"),
        (lambda: os._exit(3), "exited unexpectedly with exit code 3"),
        (lambda: sys.exit(0), "exited unexpectedly with exit code 0"),
    ],
)
@pytest.mark.usefixtures("leaves_nothing")
def test_a_worker_that_dies_is_named(end, text, tmp_path):
    def die(index):
        if index == 5:
            (tmp_path / "pid").write_text(str(os.getpid()))
            end()
        return np.zeros(1), index

    start = time.monotonic()
    with pytest.raises(RuntimeError, match=text) as caught:
        numbers(DataLoader(Calling(40, die), 2, num_workers=2))
    assert f"(pid {(tmp_path / 'pid').read_text()}), number 0 of 2" in str(caught.value)
    assert time.monotonic() - start < 10
    del caught


@pytest.mark.usefixtures("leaves_nothing")
def test_a_persistent_worker_that_was_killed_is_noticed_and_replaced():
    loader = DataLoader(Rows(8), 2, num_workers=2, persistent_workers=True)
    assert numbers(loader) == list(range(8))
    first, _ = sorted(multiprocessing.active_children(), key=lambda p: p.name)
    os.kill(first.pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match=rf"\(pid {first.pid}\)"):
        numbers(loader)
    assert numbers(loader) == list(range(8))


@pytest.mark.usefixtures("leaves_nothing")
def test_timeout(tmp_path):
    def sample(index):
        if index == 1:
            wait_for(tmp_path / "go")
        return np.zeros(1), index

    def patient(iterator):
        while True:
            with contextlib.suppress(RuntimeError):
                return numbers([next(iterator)])

    iterator = iter(DataLoader(Calling(3, sample), num_workers=1, timeout=0.3))
    assert patient(iterator) == [0]
    with pytest.raises(RuntimeError, match=r"timed out after 0\.3 seconds"):
        next(iterator)
    (tmp_path / "go").touch()
    assert patient(iterator) == [1]
    assert patient(iterator) == [2]
    del iterator


def test_what_cannot_be_sent_to_a_worker_is_an_error_here():
    with pytest.raises(Exception, match="pickle"):
        iter(DataLoader(Calling(3, lambda i: i), num_workers=2, multiprocessing_context="spawn"))
    assert not multiprocessing.active_children()


# -- nothing is left behind ----------------------------------------------------------------------


@pytest.mark.usefixtures("leaves_nothing")
@pytest.mark.parametrize("persistent", [False, True])
def test_leaving_in_the_middle(persistent):
    loader = DataLoader(Rows(100), 4, num_workers=2, persistent_workers=persistent)
    for _ in range(2):
        for x, _ in loader:
            assert x.shape == (4, 1000)
            break
        assert bool(multiprocessing.active_children()) == persistent
    with pytest.raises(ZeroDivisionError):
        _ = [1 / 0 for _ in loader]
    iterator = iter(loader)
    next(iterator)
    del iterator
    if persistent:
        assert numbers(loader) == list(range(100))  # nothing of the abandoned epochs comes


@pytest.mark.usefixtures("leaves_nothing")
def test_two_iterators_at_once():
    loader = DataLoader(Rows(6), 2, num_workers=1)
    assert [(a.tolist(), b.tolist()) for (_, a), (_, b) in zip(loader, loader, strict=True)] == [
        ([i, i + 1], [i, i + 1]) for i in (0, 2, 4)
    ]


@pytest.mark.usefixtures("leaves_nothing")
def test_a_worker_that_does_not_stop_is_ended(monkeypatch):
    monkeypatch.setattr("tapegrad.data.crew.GRACE", 0.3)
    monkeypatch.setattr("tapegrad.data.worker.GRACE", 1000)

    def hang(index):
        if index > 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(100)
        return np.zeros(1), index

    start = time.monotonic()
    for _ in DataLoader(Calling(6, hang), num_workers=2):
        break
    assert time.monotonic() - start < 20


SCRIPT = """
    import os, signal, sys, time
    import multiprocessing
    import tapegrad.data.worker as worker
    from tapegrad.data import DataLoader, Dataset

    worker.GRACE = 0.3

    class Data(Dataset):
        def __len__(self):
            return 8
        def __getitem__(self, index):
            if index == 7:
                time.sleep(1000)
            return index

    first = iter(DataLoader([1, 2, 3, 4], num_workers=1))
    second = iter(DataLoader(Data(), num_workers=4))
    next(first), next(second)
    print(*(child.pid for child in multiprocessing.active_children()), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def is_running(pid):
    """Whether a process runs; one that waits for its parent to notice its end does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@forked
@pytest.mark.skipif(not HAS_PROC, reason="looks at /proc")
def test_workers_leave_when_the_consumer_is_killed():
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT)], capture_output=True, text=True, timeout=60
    )
    pids = [int(word) for word in ended.stdout.split()]
    assert len(pids) == 5, ended.stderr
    deadline = time.monotonic() + 20
    while any(map(is_running, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [pid for pid in pids if is_running(pid)]


@pytest.mark.usefixtures("leaves_nothing")
def test_an_iterator_that_lives_until_the_end_of_the_program():
    script = """
        from tapegrad.data import DataLoader
        iterator = iter(DataLoader(range(100), num_workers=2))
        print(next(iterator).tolist())
    """
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-X", "dev", "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "[0]\n", "")


# -- shared memory -------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="counts mapped blocks by their name")
@pytest.mark.usefixtures("leaves_nothing")
def test_blocks_are_used_again_and_never_while_somebody_looks():
    loader = DataLoader(Rows(400), 4, num_workers=2, prefetch_factor=2)
    most, kept, views = 0, [], []
    for i, (x, y) in enumerate(loader):
        most = max(most, mapped_blocks())
        if i in (3, 10, 50):
            kept.append((x, y))
            views.append((x[1:3, 5].numpy(), y[1:3].tolist()))
    assert 0 < most <= 2 * 3 + 2 * 3
    del x, y
    for x, y in kept:
        assert x.tolist() == [[n] * 1000 for n in y.tolist()]
    del x, y, kept[:]
    for view, y in views:
        assert view.tolist() == y


@pytest.mark.usefixtures("leaves_nothing")
def test_all_batches_can_be_kept():
    batches = list(DataLoader(Rows(300), 2, num_workers=2))
    for x, y in batches:
        assert x.tolist() == [[n] * 1000 for n in y.tolist()]
        x.zero_()  # somebody's own memory: nobody else sees it
    if hasattr(os, "memfd_create"):
        assert mapped_blocks() <= 50
    assert numbers(batches) == list(range(300))


@pytest.mark.usefixtures("leaves_nothing")
def test_batches_may_grow_and_shrink():
    def sized(index):
        return np.full((1 + index * 7919 % 5000,), index, np.float64)

    loader = DataLoader(Calling(60, sized), 1, num_workers=2)
    for index, x in enumerate(loader):
        assert x.shape == (1, 1 + index * 7919 % 5000)
        assert (x == index).all().item()


@pytest.mark.usefixtures("leaves_nothing")
def test_what_a_worker_keeps_is_not_overwritten():
    kept = []

    def collate(samples):
        batch = default_collate(samples)
        kept.append(batch)
        return [batch, kept[len(kept) // 2]]

    for new, old in DataLoader(Rows(100), 2, num_workers=2, collate_fn=collate):
        for x, y in (new, old):
            assert x[:, 7].tolist() == y.tolist()


# -- beside threads ------------------------------------------------------------------------------


@pytest.mark.usefixtures("leaves_nothing")
def test_workers_and_this_process_run_native_code():
    """A fork beside the threads of native code; the worker has its own, one of them."""
    a = tg.arange(90_000.0).reshape(300, 300) / 90_000
    step = tg.compile(lambda x: (x @ x).tanh().sum())
    expected = step(a).item()

    def compute(index):
        assert tg.get_num_threads() == 1
        return (a @ a).tanh().sum().item(), step(a).item()

    for eager, replayed in DataLoader(Calling(4, compute), None, num_workers=2):
        assert abs(eager - expected) < 1e-3 * abs(expected)
        assert abs(replayed - expected) < 1e-3 * abs(expected)
        assert abs(step(a).item() - expected) < 1e-3 * abs(expected)


@pytest.mark.usefixtures("leaves_nothing")
def test_workers_do_not_inherit_modes():
    def modes(index):
        x = tg.ones(2, requires_grad=True) * index
        return tg.is_grad_enabled(), x.requires_grad

    with tg.no_grad(), tg.Tape() as tape:
        found = list(DataLoader(Calling(2, modes), None, num_workers=1, collate_fn=tuple))
    assert found == [(True, True)] * 2
    assert len(tape) == 0


@pytest.mark.usefixtures("leaves_nothing")
def test_loaders_in_several_threads():
    with concurrent.futures.ThreadPoolExecutor(3) as threads:
        loaders = [DataLoader(Rows(30), 4, num_workers=1) for _ in range(6)]
        assert list(threads.map(numbers, loaders)) == [list(range(30))] * 6


@forked
@pytest.mark.usefixtures("leaves_nothing")
def test_a_fork_of_the_consumer_leaves_its_workers_alone():
    loader = DataLoader(Rows(40), 2, num_workers=2)
    iterator = iter(loader)
    found = numbers([next(iterator)])

    def forget():
        nonlocal iterator
        sys.unraisablehook = lambda error: os._exit(1)  # where errors while forgetting go
        with pytest.raises(RuntimeError, match="forked from"):
            list(iterator)
        iterator = None

    child = multiprocessing.get_context("fork").Process(target=forget)
    child.start()
    child.join()
    assert child.exitcode == 0
    child.close()
    assert found + numbers(iterator) == list(range(40))
    del iterator
