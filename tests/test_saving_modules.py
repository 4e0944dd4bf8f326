"""Whole modules in files: data and names of classes, no code, and nothing imported."""

import copy
import io
import json
import pickle
import subprocess
import sys

import pytest
from test_damaged_files import header_of, with_header

import tapegrad as tg
from tapegrad import nn
from tapegrad.nn.utils import prune
from tapegrad.optim.swa_utils import AveragedModel
from tapegrad.serialization import add_safe_globals, clear_safe_globals, safe_globals


def data_of(value):
    file = io.BytesIO()
    tg.save(value, file)
    return file.getvalue()


def again(value, **options):
    return tg.load(io.BytesIO(data_of(value)), **options)


def pruned():
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    prune.l1_unstructured(model[0], "weight", amount=0.5)
    return model


def chained():
    layer = pruned()
    prune.random_structured(layer[0], "weight", amount=1, dim=0)
    return layer


LAYERS = {
    "linear": (lambda: nn.Linear(4, 3), (2, 4)),
    "without bias": (lambda: nn.Linear(4, 3, bias=False), (2, 4)),
    "conv": (lambda: nn.Conv2d(2, 3, 3, padding="same", dtype=tg.float64), (1, 2, 5, 5)),
    "norm": (lambda: nn.BatchNorm1d(4), (3, 4)),
    "norm without statistics": (lambda: nn.BatchNorm1d(4, track_running_stats=False), (3, 4)),
    "tree": (
        lambda: nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.GELU(), nn.Dropout())),
        (2, 4),
    ),
    "attention": (lambda: nn.TransformerEncoderLayer(4, 2, 8, activation="gelu"), (3, 2, 4)),
    "recurrent": (lambda: nn.LSTM(4, 3, 2), (5, 2, 4)),
    "weight norm": (lambda: nn.utils.weight_norm(nn.Linear(4, 3)), (2, 4)),
    "spectral norm": (lambda: nn.utils.spectral_norm(nn.Linear(4, 3)), (2, 4)),
    "pruned": (pruned, (2, 4)),
    "pruned twice": (chained, (2, 4)),
    "lazy": (lambda: nn.LazyLinear(3), None),
    "lazy norm": (lambda: nn.LazyBatchNorm2d(), None),
    "embedding": (lambda: nn.EmbeddingBag(5, 3, mode="max"), None),
    "loss": (lambda: nn.CrossEntropyLoss(weight=tg.ones(3), label_smoothing=0.1), None),
    "average": (lambda: AveragedModel(nn.Linear(4, 3), use_buffers=True), (2, 4)),
}


def described(module):
    return [
        (name, type(child), child.training, repr(child)) for name, child in module.named_modules()
    ]


@pytest.mark.parametrize("case", LAYERS)
def test_layers_come_back_as_they_were(case):
    make, shape = LAYERS[case]
    tg.manual_seed(0)
    module = make().eval()
    for child in list(module.children())[:1]:
        child.train()
    loaded = again(module)
    assert described(loaded) == described(module)
    assert {k: type(v) for k, v in loaded._parameters.items()} == {
        k: type(v) for k, v in module._parameters.items()
    }
    if shape is None:
        return
    state, other = module.state_dict(), loaded.state_dict()
    assert list(state) == list(other)
    for name, value in state.items():
        assert value.dtype == other[name].dtype
        assert tg.equal(value, other[name])
    for p, q in zip(module.parameters(), loaded.parameters(), strict=True):
        assert p.requires_grad == q.requires_grad
        assert p is not q
    dtype = next(module.parameters()).dtype
    x = tg.randn(shape, dtype=dtype)
    for mode in (False, True):
        module.train(mode)
        loaded.train(mode)
        tg.manual_seed(1)
        expected = module(x)
        tg.manual_seed(1)
        result = loaded(x)
        if isinstance(expected, tuple):
            expected, result = expected[0], result[0]
        assert tg.equal(expected, result)
        expected.sum().backward()
        result.sum().backward()
    for p, q in zip(module.parameters(), loaded.parameters(), strict=True):
        assert tg.equal(p.grad, q.grad)


def test_tensors_have_the_names_of_the_state_dict():
    module = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.BatchNorm1d(2)))
    header, _ = header_of(data_of(module))
    assert set(header) - {"__metadata__"} == set(module.state_dict())


def test_one_layer_in_two_places_is_one_layer_again():
    layer = nn.Linear(2, 2)
    tied = nn.Linear(2, 2)
    tied.weight = layer.weight
    loaded = again({"model": nn.Sequential(layer, layer, tied), "layer": layer})
    model = loaded["model"]
    assert model[0] is model[1] is loaded["layer"]
    assert model[2].weight is model[0].weight
    assert model[2].bias is not model[0].bias


class Net(nn.Module):
    """A module of a program."""

    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.register_buffer("scale", tg.full((width,), 2.0))
        self.register_buffer("cache", tg.zeros(1), persistent=False)
        self.activation = tg.tanh
        self.sizes = {"width": width, "shape": (1, width)}
        self.itself = [self]

    def forward(self, x):
        return self.activation(self.layer(x)) * self.scale


class Config:
    """Plain attributes."""

    def __init__(self, depth):
        self.depth = depth


@pytest.fixture(autouse=True)
def _nothing_allowed():
    yield
    clear_safe_globals()


def test_classes_of_a_program_must_be_allowed():
    net = Net(3)
    data = data_of(net)
    with pytest.raises(tg.SavingError, match=r"test_saving_modules\.Net'.*add_safe_globals\(\[Net"):
        tg.load(io.BytesIO(data))
    with pytest.raises(tg.SavingError, match="add_safe_globals"):
        tg.load(io.BytesIO(data), weights_only=True)
    for loaded in (tg.load(io.BytesIO(data), weights_only=False), *_allowed(data)):
        assert type(loaded) is Net
        assert loaded.itself[0] is loaded
        assert loaded.activation is tg.tanh
        assert loaded.sizes == net.sizes
        assert list(loaded.state_dict()) == ["scale", "layer.weight", "layer.bias"]
        x = tg.randn(2, 3)
        assert tg.equal(loaded(x), net(x))
    with pytest.raises(tg.SavingError):
        tg.load(io.BytesIO(data))


def _allowed(data):
    with safe_globals([Net]):
        yield tg.load(io.BytesIO(data))
    add_safe_globals([Net])
    yield tg.load(io.BytesIO(data))
    clear_safe_globals()


def test_other_objects_are_saved_if_their_class_is_allowed():
    net = Net(2)
    net.config = Config(3)
    with pytest.raises(tg.SavingError, match=r"\['config'\]: Config .*add_safe_globals"):
        data_of(net)
    with safe_globals([Net, (Config, "settings")]):
        data = data_of({"net": net, "config": net.config})
        loaded = tg.load(io.BytesIO(data))
        assert type(loaded["config"]) is Config
        assert loaded["config"].depth == 3
        assert loaded["net"].config is loaded["config"]
    assert b"settings" in data
    with pytest.raises(tg.SavingError, match="settings"):
        tg.load(io.BytesIO(data), weights_only=False)


def test_code_is_not_saved_and_its_place_is_named(tmp_path):
    path = tmp_path / "old"
    tg.save(1, path)
    model = nn.Sequential(nn.Linear(1, 1))
    model[0].register_forward_hook(lambda *_: None)
    named = nn.Sequential(nn.Linear(1, 1))
    named[0].key = lambda x: x
    compiled = nn.Linear(1, 1)
    compiled.compile()
    parametrized = nn.Linear(2, 2)
    nn.utils.parametrizations.orthogonal(parametrized)
    for refused, message in (
        (model, r"\['0'\]\['_forward_hooks'\]\[\d+\]: function .*code is not saved"),
        (named, r"\['0'\]\['key'\]: function .*code is not saved"),
        (compiled, r"\['forward'\]"),
        (tg.compile(nn.Linear(1, 1)), "_orig_mod"),
    ):
        with pytest.raises(tg.SavingError, match=message):
            tg.save(refused, path)
    with pytest.raises(RuntimeError, match="state_dict"):
        tg.save(parametrized, path)
    assert tg.load(path) == 1


class Staged(nn.Module):
    """Chooses what is saved of it."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(tg.ones(2))
        self.open = io.BytesIO()

    def __getstate__(self):
        return {name: value for name, value in self.__dict__.items() if name != "open"}

    def __setstate__(self, state):
        super().__setstate__(state)
        self.open = "reopened"


def test_getstate_and_setstate_are_asked():
    loaded = again(Staged(), weights_only=False)
    assert loaded.open == "reopened"
    assert loaded.weight.tolist() == [1.0, 1.0]


def test_the_class_that_its_module_shows_now():
    names = {"__name__": "defined_again", "nn": nn}
    module = sys.modules["defined_again"] = type(sys)("defined_again")
    text = "class Model(nn.Module):\n    def forward(self): return {}\n"
    try:
        exec(text.format(1), vars(module) | names, vars(module))
        old = module.Model
        old.__module__ = "defined_again"
        exec(text.format(2), vars(module) | names, vars(module))
        module.Model.__module__ = "defined_again"
        assert again(old(), weights_only=False)() == 2
    finally:
        del sys.modules["defined_again"]


# -- hostile files -------------------------------------------------------------------------------


def changed(data, change):
    """The file with a structure that `change` has made of its own."""
    header, tail = header_of(data)
    metadata = header["__metadata__"]
    structure = json.loads(metadata["tapegrad.structure"])
    change(structure["object"])
    metadata["tapegrad.structure"] = json.dumps(structure)
    return with_header(header, tail)


@pytest.mark.parametrize(
    "name",
    [
        *("os.system", "subprocess.Popen", "builtins.eval", "this.Zen", "antigravity.Module", ""),
        *("tapegrad.saving.files.save", "tapegrad.nn.Linear2", "tapegrad.testing.Module"),
        *("torch.nn.modules.linear.Linear", "test_saving_modules.Config", ".", "a" * 10_000),
    ],
)
@pytest.mark.parametrize("weights_only", [None, True, False])
def test_names_in_a_file_are_not_imported(name, weights_only):
    def rename(content):
        content["class"] = name

    data = changed(data_of(nn.Linear(1, 1)), rename)
    before = {n for n in sys.modules if not n.startswith("tapegrad")}
    with pytest.raises(tg.SavingError, match=r"does not know|cannot be made"):
        tg.load(io.BytesIO(data), weights_only=weights_only)
    assert {n for n in sys.modules if not n.startswith("tapegrad")} == before
    assert "this" not in sys.modules
    assert "antigravity" not in sys.modules


def _damages():
    def at(key, value):
        def change(content):
            content[key] = value

        return change

    yield at("class", 3)
    yield at("class", None)
    yield at("other", {})
    yield at("attributes", [])
    yield at("parameters", {"weight": 3})
    yield at("parameters", [])
    yield at("buffers", {"b": "text"})
    yield at("modules", {"m": {"tensor": {"name": "weight"}}})
    yield at("attributes", {"_parameters": {"dict": {}}})
    yield at("attributes", {"x": {"again": 7}})
    yield at("attributes", {"x": {"again": -1}})
    yield at("attributes", {"x": {"again": "0"}})
    yield at("attributes", {"x": {"function": "os.system"}})
    yield at("attributes", {"x": {"function": "nn.functional.__getattr__"}})
    yield at("attributes", {"x": {"function": "__import__"}})
    yield at(
        "attributes", {"x": {"object": {"class": "tapegrad.nn.utils.prune.BasePruningMethod"}}}
    )
    yield at("attributes", {"x": {"object": []}})


@pytest.mark.parametrize("change", list(_damages()))
def test_objects_that_cannot_be(change):
    data = changed(data_of(nn.Linear(1, 1)), change)
    with pytest.raises(tg.SavingError, match="cannot be read"):
        tg.load(io.BytesIO(data))


def test_a_process_that_has_not_imported_the_class(tmp_path):
    path = tmp_path / "model"
    parts = nn.utils.spectral_norm(nn.Linear(3, 3)), nn.SyncBatchNorm(3)
    tg.save(nn.Sequential(pruned(), *parts), path)
    tg.save(Net(2), tmp_path / "net")
    code = f"""
import sys
import tapegrad as tg
model = tg.load({str(path)!r})
assert model(tg.ones(2, 4)).shape == (2, 3)
try:
    tg.load({str(tmp_path / "net")!r}, weights_only=False)
except tg.SavingError as error:
    assert "Net" in str(error)
else:
    raise AssertionError
assert "test_saving_modules" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


# -- copies and pickles --------------------------------------------------------------------------


def twice(self, args):
    """A hook that can be pickled."""
    return (args[0] * 2,)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
@pytest.mark.parametrize("case", LAYERS)
def test_copies_and_pickles(case, copied):
    if case == "pruned" or case == "pruned twice":
        pytest.skip("a pruned weight is a result of operations, which PyTorch does not copy either")
    module = LAYERS[case][0]()
    made = copied(module)
    assert described(made) == described(module)
    for name, value in module.state_dict().items():
        if not hasattr(value, "materialize"):
            assert tg.equal(value, made.state_dict()[name])


def test_hooks_of_a_loaded_module_have_numbers_of_their_own():
    module = nn.Identity()
    handle = module.register_forward_pre_hook(twice)
    # A pickle of another process may have the numbers that the next hooks here would get.
    taken = {"_forward_pre_hooks": {handle.id + i: twice for i in range(1, 5)}, "_hooked": True}
    made = nn.Identity.__new__(nn.Identity)
    made.__setstate__(taken)
    for copied in (made, copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        removed = [copied.register_forward_pre_hook(twice) for _ in range(3)]
        assert copied(tg.ones(1)).item() == 2**7
        for handle in removed:
            handle.remove()
        assert copied(tg.ones(1)).item() == 2**4


def test_of_two_classes_with_one_name_the_latest_is_loaded(tmp_path):
    text = "class Twice(nn.Module):\n    def forward(self, x):\n        return x\n"
    spaces = [{"nn": nn, "__name__": "defined_twice"} for _ in range(2)]
    for space in spaces:
        exec(text, space)
    tg.save(spaces[1]["Twice"](), tmp_path / "twice.safetensors")
    found = tg.load(tmp_path / "twice.safetensors", weights_only=False)
    assert type(found) is spaces[1]["Twice"]
