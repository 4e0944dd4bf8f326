"""Saving and loading: round trips, shared memory, what cannot be saved, devices, other programs."""

import collections
import io
import json
import os
import pathlib
import pickle
import resource
import stat
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors import safe_open
from safetensors.numpy import save_file

import tapegrad as tg
from tapegrad import nn, optim
from tapegrad.core.dtypes import ALL
from tapegrad.saving import container, files, memory, structure

FLAT = [
    *[None, True, False, 0, -1, 1 << 70, -(1 << 200), 1.5, -0.0, float("inf"), float("-inf")],
    *["", "text", "ü \ud800 \U0001f600", b"", b"bytes\x00\xff", bytearray(b"more"), 2 - 3j],
    *[tg.float32, tg.bfloat16, tg.bool, tg.device("cpu"), tg.device("cuda:1"), tg.Size([2, 3])],
    *[np.float32(1.5), np.int64(-3), np.bool_(True), np.str_("x"), np.complex128(1j)],
    *[np.dtype("float32"), np.dtype("<U3"), range(2, 9, 3)],
]


def saved(value):
    file = io.BytesIO()
    tg.save(value, file)
    return file.getvalue()


def again(value):
    return tg.load(io.BytesIO(saved(value)))


def same(a, b):
    """Equality to the last bit, with types."""
    if type(a) is not type(b):
        return False
    if isinstance(a, tg.Tensor):
        return (a.dtype, a.shape, a.requires_grad) == (
            b.dtype,
            b.shape,
            b.requires_grad,
        ) and a.detach()._array.tobytes() == b.detach()._array.tobytes()
    if isinstance(a, np.ndarray):
        return (a.dtype, a.shape) == (b.dtype, b.shape) and a.tobytes() == b.tobytes()
    if isinstance(a, (set, frozenset)):
        return sorted(map(repr, a)) == sorted(map(repr, b))
    if isinstance(a, dict):
        if [*map(repr, a)] != [*map(repr, b)]:
            return False
        return all(same(x, y) for x, y in zip(a.values(), b.values(), strict=True))
    if isinstance(a, (list, tuple, collections.deque)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return repr(a) == repr(b)


# -- round trips ---------------------------------------------------------------------------------


@pytest.mark.parametrize("value", FLAT, ids=lambda v: f"{type(v).__name__}-{v!r:.12}")
def test_plain_values(value):
    assert same(again(value), value)
    assert same(again([value]), [value])


arrays = hnp.arrays(
    hnp.boolean_dtypes() | hnp.integer_dtypes() | hnp.unsigned_integer_dtypes()
    | hnp.floating_dtypes(sizes=(16, 32, 64)) | hnp.complex_number_dtypes()
    | hnp.unicode_string_dtypes(max_len=4) | hnp.datetime64_dtypes(),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)  # fmt: skip


@st.composite
def tensors(draw):
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    dtype = draw(st.sampled_from(ALL))
    bits = draw(hnp.arrays(np.uint8, (int(np.prod(shape)) * dtype.itemsize,)))
    array = (bits & 1 if dtype is tg.bool else bits).view(dtype.numpy).reshape(shape)
    tensor = tg.from_numpy(array.copy())
    if dtype.is_floating_point and draw(st.booleans()):
        tensor.requires_grad_()
    return nn.Parameter(tensor) if tensor.requires_grad and draw(st.booleans()) else tensor


keys = st.text(max_size=5) | st.integers() | st.booleans() | st.none() | st.tuples(st.integers())
leaves = st.sampled_from(FLAT) | st.floats() | st.integers() | st.text() | arrays | tensors()
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=3).map(tuple)
        | st.lists(inner, max_size=3).map(collections.deque)
        | st.dictionaries(keys, inner, max_size=4)
        | st.dictionaries(keys, inner, max_size=4).map(collections.OrderedDict)
        | st.sets(keys, max_size=3)
    ),
    max_leaves=8,
)


@given(trees)
def test_round_trip(tree):
    assert same(again(tree), tree)


@given(trees)
def test_saving_changes_nothing_and_gives_the_same_bytes_again(tree):
    data = saved(tree)
    assert saved(tree) == data
    assert same(tg.load(io.BytesIO(data)), tree)


def test_containers_of_the_standard_library():
    value = [
        collections.Counter("abca"),
        collections.defaultdict(list, {1: [2]}),
        collections.defaultdict(None, {"a": 1}),
        collections.deque([1, 2], maxlen=5),
        {3, 1, 2},
        frozenset({"a"}),
        {(1, 2): "x", None: "y", 3.5: "z"},
    ]
    loaded = again(value)
    assert same(loaded, value)
    assert loaded[1].default_factory is list
    assert loaded[3].maxlen == 5


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_every_dtype_also_without_elements_and_without_dimensions(dtype):
    for shape in [(), (0,), (2, 0, 3), (1,), (2, 3)]:
        tensor = tg.ones(shape, dtype=dtype)
        assert same(again(tensor), tensor)


def test_large_numbers_of_names_and_odd_ones():
    value = {"a.b": tg.ones(1), "a": {"b": tg.zeros(1)}, "__metadata__": tg.ones(2), "": tg.ones(3)}
    value |= {"a.b~2": tg.ones(4), "\ud800": tg.ones(5), "ü": tg.ones(6)}
    assert same(again(value), value)


def test_models_and_optimizers():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    optimizer = tg.optim.AdamW(model.parameters())
    model(tg.randn(5, 3)).sum().backward()
    optimizer.step()
    value = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    loaded = again(value)
    assert same(loaded, value)
    assert loaded["model"]._metadata == value["model"]._metadata
    assert loaded["model"]._metadata["1"] == {"version": 2}
    model.load_state_dict(loaded["model"])
    optimizer.load_state_dict(loaded["optimizer"])


# -- memory ------------------------------------------------------------------------------------


def test_the_same_tensor_is_the_same_again():
    x = tg.randn(3)
    a, b = again([x, x])
    assert a is b


def test_tied_weights_are_stored_once_and_tied_again():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Embedding(50, 8)
            self.decoder = nn.Linear(8, 50, bias=False)
            self.decoder.weight = self.encoder.weight

    state = Tied().state_dict()
    assert len(saved(state)) < 50 * 8 * 4 + 2000
    loaded = again(state)
    loaded["encoder.weight"].fill_(7)
    assert (loaded["decoder.weight"] == 7).all()


def test_views_of_each_other_stay_views():
    x = tg.arange(12.0).reshape(3, 4)
    loaded = again({"x": x, "t": x.T, "row": x[1], "again": x.detach(), "array": x.numpy()})
    loaded["x"].zero_()
    assert all((v == 0).all() for v in loaded.values())
    assert loaded["t"].shape == (4, 3)
    loaded["row"].fill_(2)
    assert loaded["x"].sum() == 8


def test_parts_that_overlap_without_their_whole():
    x = tg.arange(1000.0)
    parts = [x[100:104], x[102:106], x[500:502]]
    assert len(saved(parts)) < 1500
    loaded = again(parts)
    assert same(loaded, parts)
    loaded[0].zero_()
    assert loaded[1].tolist() == [0, 0, 104, 105]


def test_a_view_alone_is_saved_without_its_base():
    x = tg.randn(1000, 1000)
    assert len(saved({"row": x[3], "part": x[4:, 2]})) < 10_000


def test_an_expanded_tensor_stays_small():
    x = tg.randn(3, 1).expand(3, 100_000)
    assert len(saved(x)) < 1000
    loaded = again(x)
    assert same(loaded, x)
    with pytest.raises(RuntimeError, match="share one place"):
        loaded.add_(1)
    assert not loaded.zero_().any()


def test_columns_of_a_matrix_do_not_count_as_shared():
    x = tg.arange(12.0).reshape(3, 4)
    loaded = again([x[:, 0], x[:, 1]])
    loaded[0].zero_()
    assert loaded[1].tolist() == [1, 5, 9]


def test_more_parts_than_are_compared():
    x = tg.arange(900.0).reshape(3, 300)
    parts = list(x.unbind(1))
    loaded = again(parts)
    assert all(same(a, b) for a, b in zip(loaded, parts, strict=True))


def test_views_of_other_types():
    bits = np.arange(24, dtype=np.uint8)
    parts = [bits[4:20].view(np.float32), bits[8:24].view(np.float64), bits[::-1]]
    loaded = again(parts)
    assert same(loaded, parts)
    assert all(a.flags.aligned for a in loaded)
    loaded[0][:] = 0
    assert same(loaded[2][4:20].tobytes(), bytes(16))
    assert loaded[1][0] == 0


@given(st.lists(st.tuples(*[st.integers(0, 6)] * 2, st.sampled_from([-2, -1, 1, 2])), max_size=5))
def test_any_slices_of_one_array(slices):
    whole = np.arange(7.0)
    parts = [whole[a:b:step] for a, b, step in slices]
    loaded = again(parts)
    assert same(loaded, parts)
    for i, a in enumerate(parts):
        for j, b in enumerate(parts):
            assert np.shares_memory(loaded[i], loaded[j]) == np.shares_memory(a, b)


def test_gradients_that_are_shared_until_written_are_not_tied():
    x = tg.ones(3, requires_grad=True)
    grads = (x * 2).sum().backward()
    loaded = again({"mapping": grads[x], "leaf": x.grad})
    loaded["leaf"].zero_()
    assert loaded["mapping"].tolist() == [2, 2, 2]


def test_loaded_tensors_are_written_and_differentiated_like_others(tmp_path):
    tg.save({"w": tg.ones(3, requires_grad=True)}, tmp_path / "x")
    for mmap in (False, True):
        w = tg.load(tmp_path / "x", mmap=mmap)["w"]
        (w * w).sum().backward()
        assert w.grad.tolist() == [2, 2, 2]
        with tg.no_grad():
            w += 1
    assert tg.load(tmp_path / "x")["w"].tolist() == [1, 1, 1]


# -- what cannot be saved ------------------------------------------------------------------------


class Point(collections.namedtuple("Point", "x y")):
    __slots__ = ()


def cyclic():
    items = [1]
    items.append({"a": items})
    return items


def nested(depth):
    value = 1
    for _ in range(depth):
        value = [value]
    return value


OPTIMIZER = optim.SGD([tg.ones(1)], 0.1)
REFUSED = {
    "function": ({"optimizer": {"fn": len}}, r"\['optimizer'\]\['fn'\]: builtin_function"),
    "lambda": ([0, (lambda: 0,)], r"\[1\]\[0\]: function"),
    "class": ({1: dict}, r"\[1\]: type"),
    "optimizer": ({"o": OPTIMIZER}, r"\['o'\]: SGD.*state_dict\(\)"),
    "object": (object(), "the object: object"),
    "namedtuple": ({"p": Point(1, 2)}, r"\['p'\]: Point.*tuple"),
    "set": ({"s": {len}}, r"\['s'\]\[0\]"),
    "key": ({len: 1}, "builtin_function"),
    "cycle": (cyclic(), r"\[1\]\['a'\]: it contains itself"),
    "depth": (nested(500), "more than 128 containers"),
    "objects": ({"a": np.array([None])}, r"\['a'\]: ndarray of NumPy type object"),
    "records": (np.zeros(2, [("a", "i4")]), "NumPy type"),
    "masked": (np.ma.array([1, 2], mask=[0, 1]), "MaskedArray"),
    "factory": ({"d": collections.defaultdict(lambda: 0)}, r"\['d'\]: defaultdict"),
    "subclass": (type("Mine", (dict,), {})(), "Mine"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_saved_is_named_and_nothing_is_written(case, tmp_path):
    value, message = REFUSED[case]
    tg.save(1, tmp_path / "old")
    with pytest.raises(tg.SavingError, match=message):
        tg.save(value, tmp_path / "old")
    assert os.listdir(tmp_path) == ["old"]
    assert tg.load(tmp_path / "old") == 1


def test_the_deepest_structure_that_is_saved_can_be_loaded():
    value = tg.ones(1)
    for i in range(structure.DEEPEST):
        value = {i: value}
    assert same(again(value), value)


def test_nothing_is_saved_inside_of_a_compiled_function(tmp_path):
    def f(x):
        tg.save(x * 2, tmp_path / "x")
        return x

    with pytest.raises(RuntimeError, match="saving inside a compiled function"):
        tg.compile(f, fullgraph=True)(tg.ones(2))
    with pytest.warns(UserWarning, match="saving inside a compiled function"):
        tg.compile(f)(tg.ones(2))
    assert tg.load(tmp_path / "x").tolist() == [2, 2]


def test_more_than_a_header_can_hold(monkeypatch):
    monkeypatch.setattr(container, "LARGEST_HEADER", 1000)
    with pytest.raises(tg.SavingError, match="put long lists of numbers into tensors"):
        saved(list(range(1000)))


# -- files -------------------------------------------------------------------------------------


def test_paths_and_open_files(tmp_path):
    x = tg.randn(4)
    for target in (str(tmp_path / "a"), tmp_path / "b", os.fsencode(tmp_path / "c")):
        tg.save(x, target)
        assert same(tg.load(target), x)
    with open(tmp_path / "d", "wb") as file:
        tg.save(x, file)
    with open(tmp_path / "d", "rb") as file:
        assert same(tg.load(file), x)
    assert len({(tmp_path / name).read_bytes() for name in "abcd"}) == 1
    with pytest.raises(TypeError, match="binary mode"):
        tg.load(io.StringIO("text"))
    with pytest.raises(TypeError, match="expected a path"):
        tg.save(x, 3)
    with pytest.raises(TypeError, match="expected a path"):
        tg.load(None)


def test_a_device_is_written_to_and_not_replaced():
    tg.save(tg.ones(3), os.devnull)
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
    with pytest.raises(tg.SavingError, match="not an ordinary file"):
        tg.load(os.devnull)


def test_a_link_and_the_permissions_of_a_file_stay(tmp_path):
    tg.save(1, tmp_path / "file")
    os.chmod(tmp_path / "file", 0o666)
    os.symlink("file", tmp_path / "link")
    tg.save(2, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert tg.load(tmp_path / "file") == 2
    assert stat.S_IMODE(os.stat(tmp_path / "file").st_mode) == 0o666


def test_errors_of_the_system_name_the_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        tg.load(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"could not be saved.*missing.file"):
        tg.save(1, tmp_path / "missing" / "file")
    with pytest.raises(IsADirectoryError, match="folder"):
        tg.load(tmp_path)
    with pytest.raises(IsADirectoryError):
        tg.save(1, tmp_path)
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission(tmp_path):
    os.chmod(tmp_path, 0o500)
    with pytest.raises(PermissionError, match=r"could not be saved.*file"):
        tg.save(1, tmp_path / "file")


def test_no_permission(tmp_path, monkeypatch):
    def refuse(*args):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(files.os, "lseek", refuse)
    with pytest.raises(PermissionError, match=r"Permission denied: could not be saved.*file"):
        tg.save(1, tmp_path / "file")
    assert os.listdir(tmp_path) == []


def test_a_full_disk_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    tg.save({"x": tg.ones(10)}, path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(OSError, match=r"could not be saved, and is as it was before.*file"):
            tg.save({"x": tg.ones(1_000_000)}, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert os.listdir(tmp_path) == ["file"]
    assert tg.load(path)["x"].shape == (10,)


@pytest.mark.parametrize("call", ["fsync", "replace", "write"])
def test_a_failure_at_any_point_leaves_the_old_file(tmp_path, monkeypatch, call):
    path = tmp_path / "file"
    tg.save(1, path)

    def fail(*args):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(f"tapegrad.saving.atomic.os.{call}", fail)
        with pytest.raises(OSError, match="Input/output error"):
            tg.save(tg.ones(3), path)
    assert os.listdir(tmp_path) == ["file"]
    assert tg.load(path) == 1


def test_savers_at_the_same_time(tmp_path):
    path = tmp_path / "file"
    values = [{"x": tg.full((20_000,), float(i)), "i": i} for i in range(4)]
    tg.save(values[0], path)
    failures = []
    done = threading.Event()

    def read():
        while not done.is_set():
            try:
                loaded = tg.load(path)
                assert (loaded["x"] == loaded["i"]).all()
            except BaseException as error:
                failures.append(error)
                return

    def write(value):
        for _ in range(15):
            tg.save(value, path)

    reader = threading.Thread(target=read)
    writers = [threading.Thread(target=write, args=(value,)) for value in values]
    for thread in (reader, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    reader.join()
    assert not failures
    assert os.listdir(tmp_path) == ["file"]


# -- where tensors go ----------------------------------------------------------------------------


def test_map_location():
    data = saved({"x": tg.ones(2)})

    def load(place):
        return tg.load(io.BytesIO(data), map_location=place)["x"]

    for place in ("cpu", tg.device("cpu"), {"cpu": "cpu"}, {"cuda:0": "cpu"}):
        assert load(place).device == tg.device("cpu")
    assert load(lambda tensor, place: tensor * 3 if place == "cpu" else None).tolist() == [3, 3]
    assert load(lambda tensor, place: None).tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="unknown device"):
        load("tpu")


def test_tensors_that_were_on_a_gpu(monkeypatch):
    monkeypatch.setattr(tg.Tensor, "device", tg.device("cuda:0"))
    data = saved({"x": tg.ones(2)})
    monkeypatch.undo()
    assert tg.load(io.BytesIO(data), map_location="cpu")["x"].tolist() == [1, 1]
    try:
        tg.ones(1, device="cuda")
    except RuntimeError:
        with pytest.raises(tg.SavingError, match=r"saved on 'cuda:0'.*map_location='cpu'"):
            tg.load(io.BytesIO(data))


def test_mmap(tmp_path):
    value = {
        "x": tg.arange(6.0),
        "b": tg.tensor([True, False]),
        "c": np.array([1 + 2j]),
        "e": tg.ones(0),
    }
    value["view"] = value["x"][1:3]
    tg.save(value, tmp_path / "x")
    loaded = tg.load(tmp_path / "x", mmap=True)
    assert same(loaded, value)
    loaded["x"].zero_()
    assert loaded["view"].tolist() == [0, 0]
    assert same(tg.load(tmp_path / "x"), value)
    with pytest.raises(ValueError, match="path of a file"):
        tg.load(io.BytesIO(saved(value)), mmap=True)


# -- other programs ------------------------------------------------------------------------------


def test_other_programs_read_our_tensors_by_name(tmp_path):
    model = nn.Linear(3, 2)
    tg.save({"model": model.state_dict(), "step": 3}, tmp_path / "x.safetensors")
    with safe_open(tmp_path / "x.safetensors", "numpy") as file:
        assert sorted(file.keys()) == ["model.bias", "model.weight"]
        weight = file.get_tensor("model.weight")
        assert json.loads(file.metadata()["tapegrad.structure"])["dict"]["step"] == 3
    np.testing.assert_array_equal(weight, model.weight.detach().numpy())


def test_we_read_files_of_other_programs(tmp_path):
    arrays = {
        "weight": np.arange(6, dtype=np.float32).reshape(2, 3),
        "count": np.array(3),
        "mask": np.array([True, False]),
        "empty": np.zeros((0, 2), np.float16),
    }
    save_file(arrays, tmp_path / "x.safetensors", metadata={"format": "np"})
    for mmap in (False, True):
        loaded = tg.load(tmp_path / "x.safetensors", mmap=mmap)
        assert set(loaded) == set(arrays)
        assert all(same(loaded[name].numpy(), array) for name, array in arrays.items())


def test_types_that_are_only_stored(tmp_path):
    save_file({"a": np.arange(2, dtype=np.uint16)}, tmp_path / "x")
    loaded = tg.load(tmp_path / "x")["a"]
    assert loaded.dtype is tg.uint16
    assert loaded.tolist() == [0, 1]


def test_formats_of_the_future_are_refused(monkeypatch):
    dumped = container._dumped
    monkeypatch.setattr(
        container,
        "_dumped",
        lambda v: dumped(v).replace('"tapegrad.format":"1"', '"tapegrad.format":"2"'),
    )
    data = saved(1)
    with pytest.raises(tg.SavingError, match="format '2' by another tapegrad"):
        tg.load(io.BytesIO(data))


def test_names_of_numpy_types():
    for text in ("O", "|O8", "V8", "f", "float128x", "<M8[", None, 3, "object", "<U0x"):
        with pytest.raises(tg.SavingError, match="no element type"):
            memory.dtype_named(text)


def test_pathlib_is_accepted_everywhere(tmp_path):
    path = pathlib.PurePath(tmp_path) / "x"
    tg.save([1], path)
    assert tg.load(path) == [1]


def test_arguments_of_pytorch_that_change_nothing(tmp_path):
    path = tmp_path / "file"
    tg.save(tg.ones(2), path, pickle, 4, _use_new_zipfile_serialization=False)
    assert tg.load(path, "cpu", pickle, weights_only=False).tolist() == [1.0, 1.0]
    with pytest.raises(TypeError, match="map_locaton"):
        tg.load(path, map_locaton="cpu")
