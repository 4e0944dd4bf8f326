"""Datasets, samplers, collating, and the DataLoader in the main process."""

import json
import random
from collections import OrderedDict, namedtuple

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.data import (
    BatchSampler,
    ChainDataset,
    ConcatDataset,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    StackDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
    default_convert,
    get_worker_info,
    random_split,
)

Point = namedtuple("Point", "x y")


class Numbers(Dataset):
    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return index


class Stream(IterableDataset):
    def __init__(self, size, length=None):
        self.size, self.length = size, length

    def __iter__(self):
        return iter(range(self.size))

    def __len__(self):
        if self.length is None:
            raise TypeError("no length")
        return self.length


class GlobalShuffle(Sampler):
    """A sampler of a user's, with Python's and NumPy's global generators."""

    def __init__(self, size):
        self.size = size

    def __iter__(self):
        order = list(range(self.size))
        random.shuffle(order)
        return iter(np.random.permutation(order).tolist())

    def __len__(self):
        return self.size


def rows(size=10):
    return TensorDataset(tg.arange(size * 2.0).reshape(size, 2), tg.arange(size))


def flat(batches):
    return [n for batch in batches for n in batch.tolist()]


# -- places --------------------------------------------------------------------------------------


def test_the_same_names_stand_where_pytorch_has_them():
    import tapegrad.utils.data as utils_data
    from tapegrad.utils.data import DataLoader as loader
    from tapegrad.utils.data.dataset import Dataset as dataset
    from tapegrad.utils.data.sampler import Sampler as sampler

    assert loader is DataLoader
    assert dataset is Dataset
    assert sampler is Sampler
    assert utils_data is tg.utils.data
    assert set(tg.data.__all__) <= set(dir(utils_data))


# -- datasets ------------------------------------------------------------------------------------


def test_tensor_dataset():
    data = rows()
    assert len(data) == 10
    x, y = data[3]
    assert x.tolist() == [6.0, 7.0]
    assert y.item() == 3
    assert data[2:4][1].tolist() == [2, 3]
    with pytest.raises(AssertionError, match=r"\[2, 3\]"):
        TensorDataset(tg.ones(2), tg.ones(3))


@pytest.mark.parametrize("indices", [[0, 1, 2], [4, 0, -1], [9], [3, 3]])
def test_tensor_dataset_gives_whole_batches_as_it_gives_samples(indices):
    data = rows()
    data.tensors[0]._array[...] += 0.5
    expected = default_collate([data[i] for i in indices])
    for found in (default_collate(data.__getitems__(indices)), data.collated(indices)):
        assert [x.tolist() for x in found] == [x.tolist() for x in expected]
        assert [x.dtype for x in found] == [x.dtype for x in expected]


def test_batches_of_a_tensor_dataset_are_copies():
    data = rows()
    for x, _ in DataLoader(data, batch_size=4):
        x.zero_()
    assert data.tensors[0].sum().item() == 190


def test_tensor_dataset_refuses_what_is_out_of_range():
    with pytest.raises(IndexError, match="index 10 of a dataset of 10"):
        rows().collated([1, 10])
    with pytest.raises(IndexError, match="index -11"):
        rows().__getitems__([-11, 1])


def test_gradients_go_through_batches():
    x = tg.arange(4.0, requires_grad=True)
    for (batch,) in DataLoader(TensorDataset(x), batch_size=2):
        (batch * batch).sum().backward()
    assert x.grad.tolist() == [0.0, 2.0, 4.0, 6.0]


def test_overridden_getitem_is_not_bypassed():
    class Doubled(TensorDataset):
        def __getitem__(self, index):
            return tuple(t * 2 for t in super().__getitem__(index))

    class Negative(Subset):
        def __getitem__(self, index):
            return tuple(-t for t in super().__getitem__(index))

    assert flat(y for _, y in DataLoader(Doubled(*rows().tensors), 4)) == list(range(0, 20, 2))
    assert flat(y for _, y in DataLoader(Negative(rows(), [1, 2]), 2)) == [-1, -2]


def test_other_datasets():
    a, b = Numbers(3), Numbers(2)
    joined = a + b
    assert isinstance(joined, ConcatDataset)
    assert joined.cumulative_sizes == [3, 5]
    assert [joined[i] for i in range(-5, 5)] == [0, 1, 2, 0, 1] * 2
    with pytest.raises(ValueError, match="index -6"):
        joined[-6]
    with pytest.raises(IndexError):
        joined[5]
    with pytest.raises(AssertionError):
        ConcatDataset([])
    with pytest.raises(AssertionError, match="IterableDataset"):
        ConcatDataset([Stream(2)])

    chained = Stream(2, 2) + Stream(3, 3)
    assert isinstance(chained, ChainDataset)
    assert list(chained) == [0, 1, 0, 1, 2]
    assert len(chained) == 5
    with pytest.raises(AssertionError, match="Numbers"):
        list(ChainDataset([a]))

    assert StackDataset(a, Numbers(3))[1] == (1, 1)
    named = StackDataset(n=a, t=TensorDataset(tg.arange(3)))
    second, first = named.__getitems__([2, 0])
    assert (second["n"], second["t"][0].item()) == (2, 2)
    assert (first["n"], first["t"][0].item()) == (0, 0)
    assert len(named) == 3
    for arguments in ((), (a, b)):
        with pytest.raises(ValueError, match="StackDataset"):
            StackDataset(*arguments)
    with pytest.raises(ValueError, match="not both"):
        StackDataset(a, n=a)

    part = Subset(rows(), [5, 1])
    assert len(part) == 2
    assert part[0][1].item() == 5
    assert [y.item() for _, y in part.__getitems__([1, 0])] == [1, 5]
    with pytest.raises(NotImplementedError):
        Dataset()[0]


def test_getitems_is_asked_for_whole_batches():
    class AtOnce(Numbers):
        def __getitems__(self, indices):
            return [i * 10 for i in indices][: self.size - 1]

    assert flat(DataLoader(AtOnce(4), 2)) == [0, 10, 20, 30]
    with pytest.raises(ValueError, match="gave 3 samples for 4 indices"):
        next(iter(DataLoader(AtOnce(4), 4)))


def test_random_split():
    generator = tg.Generator().manual_seed(1)
    parts = random_split(rows(), [7, 3], generator=generator)
    again = random_split(rows(), [7, 3], generator=tg.Generator().manual_seed(1))
    assert [p.indices for p in parts] == [p.indices for p in again]
    assert sorted(parts[0].indices + parts[1].indices) == list(range(10))
    assert [len(p) for p in random_split(range(11), [0.5, 0.3, 0.2])] == [6, 3, 2]
    with pytest.raises(ValueError, match="add up to 6"):
        random_split(range(10), [3, 3])
    with pytest.raises(ValueError, match="fraction 1"):
        random_split(range(10), [0.5, -0.3, 0.8])
    with pytest.warns(UserWarning, match="part 1 of the split is empty"):
        random_split(range(1), [0.5, 0.5])


# -- samplers ------------------------------------------------------------------------------------


def test_samplers_give_what_they_promise():
    tg.manual_seed(0)
    assert list(SequentialSampler("abc")) == [0, 1, 2]
    assert sorted(RandomSampler(range(20))) == list(range(20))
    assert list(RandomSampler(range(20))) != list(RandomSampler(range(20)))
    several = list(RandomSampler(range(4), num_samples=10))
    assert sorted(several[:4]) == sorted(several[4:8]) == [0, 1, 2, 3]
    assert len(several) == len(RandomSampler(range(4), num_samples=10)) == 10
    drawn = list(RandomSampler(range(10), replacement=True, num_samples=9000))
    assert len(drawn) == 9000
    counts = np.bincount(drawn, minlength=10)
    assert counts.min() > 750
    assert counts.max() < 1050
    assert sorted(SubsetRandomSampler([5, 7, 9])) == [5, 7, 9]
    weighted = WeightedRandomSampler([0.0, 3.0, 1.0], 4000)
    counts = np.bincount(list(weighted), minlength=3)
    assert counts[0] == 0
    assert abs(counts[1] - 3000) < 150
    assert sorted(WeightedRandomSampler([1.0, 2.0, 3.0], 3, replacement=False)) == [0, 1, 2]
    assert list(BatchSampler(range(5), 2, False)) == [[0, 1], [2, 3], [4]]
    assert list(BatchSampler(range(5), 2, True)) == [[0, 1], [2, 3]]
    assert len(BatchSampler(range(5), 2, False)) == 3
    assert len(BatchSampler(range(5), 2, True)) == 2


@pytest.mark.parametrize(
    "make",
    [
        lambda g: RandomSampler(range(50), generator=g),
        lambda g: RandomSampler(range(50), replacement=True, generator=g),
        lambda g: SubsetRandomSampler(range(50), generator=g),
        lambda g: WeightedRandomSampler([1.0] * 50, 50, generator=g),
    ],
)
def test_samplers_follow_their_generator(make):
    def twice(seed):
        sampler = make(tg.Generator().manual_seed(seed))
        return list(sampler), list(sampler)

    first, second = twice(0)
    assert (first, second) == twice(0)
    assert first != second
    assert first != twice(1)[0]
    tg.manual_seed(0)
    default = list(make(None))
    tg.manual_seed(0)
    assert default == list(make(None))


def test_distributed_sampler_covers_the_data():
    def parts(**options):
        return [list(DistributedSampler(range(10), 3, r, **options)) for r in range(3)]

    assert parts(shuffle=False) == [[0, 3, 6, 9], [1, 4, 7, 0], [2, 5, 8, 1]]
    assert parts(shuffle=False, drop_last=True) == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]
    assert {i for part in parts() for i in part} == set(range(10))
    sampler = DistributedSampler(range(10), 1, 0)
    before = list(sampler)
    sampler.set_epoch(1)
    assert list(sampler) != before
    with pytest.raises(ValueError, match="rank"):
        DistributedSampler(range(10), 3, 3)


@pytest.mark.parametrize(
    ("error", "make"),
    [
        (TypeError, lambda: RandomSampler(range(3), replacement=1)),
        (ValueError, lambda: RandomSampler(range(3), num_samples=0)),
        (ValueError, lambda: RandomSampler([])),
        (ValueError, lambda: WeightedRandomSampler([1.0], 0)),
        (ValueError, lambda: WeightedRandomSampler([[1.0]], 1)),
        (ValueError, lambda: WeightedRandomSampler([1.0], 1, replacement=1)),
        (ValueError, lambda: BatchSampler(range(3), 0, False)),
        (ValueError, lambda: BatchSampler(range(3), True, False)),
        (ValueError, lambda: BatchSampler(range(3), 2, 1)),
        (ValueError, lambda: DataLoader(range(3), num_workers=-1)),
        (ValueError, lambda: DataLoader(range(3), timeout=-1)),
        (ValueError, lambda: DataLoader(range(3), timeout=1)),
        (ValueError, lambda: DataLoader(range(3), prefetch_factor=2)),
        (ValueError, lambda: DataLoader(range(3), num_workers=1, prefetch_factor=-1)),
        (ValueError, lambda: DataLoader(range(3), persistent_workers=True)),
        (ValueError, lambda: DataLoader(Stream(3), shuffle=True)),
        (ValueError, lambda: DataLoader(Stream(3), sampler=[1])),
        (ValueError, lambda: DataLoader(Stream(3), batch_sampler=[[1]])),
        (ValueError, lambda: DataLoader(range(3), sampler=[1], shuffle=True)),
        (ValueError, lambda: DataLoader(range(3), batch_sampler=[[1]], batch_size=2)),
        (ValueError, lambda: DataLoader(range(3), batch_sampler=[[1]], drop_last=True)),
        (ValueError, lambda: DataLoader(range(3), batch_size=None, drop_last=True)),
        (ValueError, lambda: DataLoader(range(3), batch_size=0)),
        (ValueError, lambda: DataLoader(range(3), shuffle="yes")),
        (ValueError, lambda: DataLoader(range(3), multiprocessing_context="fork")),
        (ValueError, lambda: DataLoader(range(3), num_workers=1, multiprocessing_context="x")),
        (TypeError, lambda: DataLoader(range(3), num_workers=1, multiprocessing_context=3)),
        (ValueError, lambda: setattr(DataLoader(range(3)), "batch_size", 3)),
        (ValueError, lambda: setattr(DataLoader(range(3)), "sampler", [1])),
        (TypeError, lambda: len(DataLoader(Stream(3)))),
        (TypeError, IterableDataset),
    ],
)
def test_wrong_options_are_refused(error, make):
    with pytest.raises(error):
        make()


# -- collate -------------------------------------------------------------------------------------


def test_collate_joins_numbers_arrays_and_tensors():
    for batch, dtype, values in [
        ([1, 2], tg.int64, [1, 2]),
        ([1.0, 2.0], tg.float64, [1.0, 2.0]),
        ([True, False], tg.bool, [True, False]),
        ([np.float32(1.5)] * 2, tg.float32, [1.5, 1.5]),
        ([np.array(2, np.int16)] * 2, tg.int16, [2, 2]),
        ([np.arange(2, dtype=np.uint8)] * 2, tg.uint8, [[0, 1], [0, 1]]),
        ([np.arange(2, dtype=">f4")] * 2, tg.float32, [[0.0, 1.0], [0.0, 1.0]]),
        ([np.ones(1, np.float32), np.ones(1)], tg.float64, [[1.0], [1.0]]),
        ([tg.tensor([1]), tg.tensor([1.5])], tg.float32, [[1.0], [1.5]]),
        ([tg.tensor(1.0, dtype=tg.bfloat16)] * 2, tg.bfloat16, [1.0, 1.0]),
        ([np.zeros((0, 2))] * 3, tg.float64, [[]] * 3),
    ]:
        found = default_collate(batch)
        assert found.dtype is dtype
        assert found.tolist() == values
        if dtype is not tg.bfloat16:
            assert found.numpy().dtype.isnative


def test_collate_keeps_the_structure():
    assert default_collate(["a", "b"]) == ["a", "b"]
    assert default_collate([b"a", b"b"]) == [b"a", b"b"]
    point = default_collate([Point(1, 2.0), Point(3, 4.0)])
    assert isinstance(point, Point)
    assert point.x.tolist() == [1, 3]
    pair = default_collate([(1, "a"), (2, "b")])
    assert isinstance(pair, list)
    assert pair[1] == ("a", "b")
    ordered = default_collate([OrderedDict(b=1, a=[1, 2]), OrderedDict(a=[3, 4], b=2)])
    assert isinstance(ordered, OrderedDict)
    assert list(ordered) == ["b", "a"]
    assert [x.tolist() for x in ordered["a"]] == [[1, 3], [2, 4]]
    assert [x.tolist() for x in default_collate([range(2)] * 2)] == [[0, 0], [1, 1]]
    assert default_collate([{}, {}]) == {}


@pytest.mark.parametrize(
    ("batch", "error", "text"),
    [
        ([None], TypeError, "found <class 'NoneType'>"),
        ([{1}], TypeError, "set"),
        ([np.array(["a"])], TypeError, "U1"),
        ([np.array([b"x"])], TypeError, "S1"),
        ([[1, 2], [1]], RuntimeError, "different lengths"),
        ([np.ones(2), np.ones(3)], RuntimeError, r"sample 0 has \[2\] and sample 1 has \[3\]"),
        ([tg.ones(2), tg.ones(3)], RuntimeError, "collate_fn that pads"),
        ([{"a": 1}, {"b": 1}], KeyError, "a"),
    ],
)
def test_collate_refuses(batch, error, text):
    with pytest.raises(error, match=text):
        default_collate(batch)


def test_convert():
    assert default_convert(1.5) == 1.5
    assert default_convert("a") == "a"
    assert default_convert(None) is None
    assert default_convert(np.float32(2)).dtype is tg.float32
    assert default_convert((1, np.ones(1)))[1].tolist() == [1.0]
    assert isinstance(default_convert((1, 2)), list)
    assert isinstance(default_convert(Point(1, np.ones(1))).y, tg.Tensor)
    assert default_convert({"a": np.ones(1)})["a"].dtype is tg.float64
    words = np.array(["a"])
    assert default_convert([words])[0] is words


# -- the loader in one process -------------------------------------------------------------------


def test_batches_and_lengths():
    assert flat(DataLoader(Numbers(5), 2)) == [0, 1, 2, 3, 4]
    for drop_last, batches in ((False, 3), (True, 2)):
        loader = DataLoader(Numbers(5), 2, drop_last=drop_last)
        assert len(loader) == len(list(loader)) == len(iter(loader)) == batches
    assert flat(DataLoader(Numbers(9), batch_sampler=[[1, 2], [8]])) == [1, 2, 8]
    assert flat(DataLoader(Numbers(9), 2, sampler=[5, 3, 1])) == [5, 3, 1]
    assert list(DataLoader(Numbers(3), batch_size=None)) == [0, 1, 2]
    assert list(DataLoader(Numbers(4), 2, collate_fn=sum)) == [1, 5]
    assert list(DataLoader([])) == []
    assert flat(DataLoader(Stream(5), 2)) == [0, 1, 2, 3, 4]
    assert flat(DataLoader(Stream(5), 2, drop_last=True)) == [0, 1, 2, 3]
    assert list(DataLoader(Stream(2), batch_size=None)) == [0, 1]
    assert len(DataLoader(Stream(5, 5), 2)) == 3
    assert get_worker_info() is None


def test_a_stream_longer_than_its_length_warns():
    with pytest.warns(UserWarning, match="promises 2 batches"):
        assert flat(DataLoader(Stream(5, 4), 2)) == [0, 1, 2, 3, 4]


def test_stopiteration_of_a_dataset_is_not_the_end():
    class Bad(Numbers):
        def __getitem__(self, index):
            raise StopIteration

    with pytest.raises(RuntimeError, match="StopIteration"):
        next(iter(DataLoader(Bad(3))))


def test_shuffling_follows_the_seed():
    def epochs(**options):
        loader = DataLoader(Numbers(20), 4, shuffle=True, **options)
        return [flat(loader) for _ in range(2)]

    tg.manual_seed(0)
    first = epochs()
    tg.manual_seed(0)
    assert epochs() == first
    assert first[0] != first[1]
    assert sorted(first[0]) == list(range(20))
    seeded = epochs(generator=tg.Generator().manual_seed(5))
    assert seeded == epochs(generator=tg.Generator().manual_seed(5))


def test_the_order_is_decided_when_iteration_begins():
    tg.manual_seed(0)
    expected = flat(DataLoader(Numbers(20), 4, shuffle=True))
    tg.manual_seed(0)
    iterator = iter(DataLoader(Numbers(20), 4, shuffle=True))
    tg.rand(3)
    assert flat(iterator) == expected


# -- resuming ------------------------------------------------------------------------------------


class Noisy(Numbers):
    """Samples with noise from the global generator of the main process."""

    def __getitem__(self, index):
        return index + tg.rand(1)


def loaders():
    """Ways to make the same loader again."""
    generator = tg.Generator
    return {
        "sequential": lambda: DataLoader(Noisy(11), 2),
        "shuffled": lambda: DataLoader(Noisy(11), 2, shuffle=True),
        "generator": lambda: DataLoader(
            Noisy(11), 2, shuffle=True, generator=generator().manual_seed(3)
        ),
        "sampler's generator": lambda: DataLoader(
            Noisy(11), 2, sampler=RandomSampler(range(11), True, 30, generator().manual_seed(4))
        ),
        "weighted": lambda: DataLoader(
            Noisy(11), 2, sampler=WeightedRandomSampler(range(1, 12), 21)
        ),
        "batch sampler": lambda: DataLoader(
            Noisy(11), batch_sampler=BatchSampler(SubsetRandomSampler(range(9)), 2, True)
        ),
        "foreign": lambda: DataLoader(Noisy(11), 2, sampler=GlobalShuffle(11)),
        "stream": lambda: DataLoader(Stream(11), 2),
    }


@pytest.mark.parametrize("name", loaders())
@pytest.mark.parametrize("had", [0, 1, 3, 6])
def test_a_resumed_loader_gives_the_same_batches(name, had):
    """Also after the rest of a program has drawn numbers, and for the epochs that follow."""
    make = loaders()[name]

    def train(loader, first=0):
        for step, batch in enumerate(loader, first):
            yield step, (batch + tg.rand(1)).tolist(), loader.state_dict()

    tg.manual_seed(7)
    random.seed(7)
    np.random.seed(7)
    loader = make()
    list(train(loader))
    states = [(loader.state_dict(), tg.get_rng_state(), random.getstate(), np.random.get_state())]
    whole = []
    for step, values, state in train(loader):
        whole.append((step, values))
        states.append((state, tg.get_rng_state(), random.getstate(), np.random.get_state()))
    whole.append([v for _, v, _ in train(loader)])
    had = min(had, len(states) - 1)

    tg.manual_seed(99)
    random.seed(99)
    state, tapegrad_state, python_state, numpy_state = states[had]
    loader = make()
    loader.load_state_dict(json.loads(json.dumps(state)))
    tg.set_rng_state(tapegrad_state)
    random.setstate(python_state)
    np.random.set_state(numpy_state)
    assert loader.state_dict() == state
    rest = [(step, values) for step, values, _ in train(loader, had)]
    rest.append([v for _, v, _ in train(loader)])
    assert rest == whole[had:]


def test_a_loader_that_was_left_can_be_resumed_where_it_was():
    loader = DataLoader(Numbers(10), 2, shuffle=True)
    iterator = iter(loader)
    had = [next(iterator), next(iterator)]
    state = loader.state_dict()
    del iterator
    assert loader.state_dict() == state
    other = DataLoader(Numbers(10), 2, shuffle=True)
    other.load_state_dict(state)
    rest = list(other)
    assert len(rest) == 3
    assert sorted(flat(had + rest)) == list(range(10))
    assert len(flat(other)) == 10  # and then a whole epoch


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda s: [], "keys"),
        (lambda s: {"epoch": None}, "keys"),
        (lambda s: {**s, "batches": 6}, "6 batches, this one has 5"),
        (lambda s: {**s, "generators": [[1, 2]]}, "1 generators"),
        (lambda s: {**s, "epoch": {**s["epoch"], "start": []}}, "another kind of sampler"),
        (lambda s: {**s, "epoch": {"position": 1}}, "other keys"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(change, text):
    loader = DataLoader(Numbers(10), 2, shuffle=True)
    next(iter(loader))
    before = loader.state_dict()
    with pytest.raises(ValueError, match=text):
        loader.load_state_dict(change(before))
    assert loader.state_dict() == before
