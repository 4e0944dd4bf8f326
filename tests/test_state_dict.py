"""State dictionaries beyond names and shapes: hooks, overrides, extra state, versions, copies."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from typing import Any

import numpy as np
import pytest
from replaying import close

import tapegrad as tg
from tapegrad import Tensor, nn


class Counter(nn.Module):
    """A layer with state that is no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(tg.ones(2))
        self.count = 3

    def get_extra_state(self) -> Any:
        return {"count": self.count}

    def set_extra_state(self, state: Any) -> None:
        self.count = state["count"]


def test_extra_state() -> None:
    first, second = nn.Sequential(Counter()), nn.Sequential(Counter())
    first[0].count = 8
    state = first.state_dict()
    assert list(state) == ["0.weight", "0._extra_state"]
    second.load_state_dict(state)
    assert second[0].count == 8
    second[0].count = 1
    bad = {**state, "0.weight": tg.ones(5)}
    with pytest.raises(RuntimeError, match="size mismatch"):
        second.load_state_dict(bad)
    assert second[0].count == 1
    del state["0._extra_state"]
    with pytest.raises(RuntimeError, match=r"missing keys: '0._extra_state'"):
        second.load_state_dict(state)
    with pytest.raises(RuntimeError, match="unexpected keys: '_extra_state'"):
        nn.Linear(2, 2).load_state_dict({**nn.Linear(2, 2).state_dict(), "_extra_state": 1})


class Sized(nn.Module):
    """A module whose extra state says which layers it has."""

    def __init__(self, *sizes: int) -> None:
        super().__init__()
        self.notes: list[str] = []
        self.build(sizes)

    def build(self, sizes: Any) -> None:
        self.sizes = tuple(sizes)
        self.layers = nn.ModuleList(nn.Linear(2, size) for size in sizes)

    def get_extra_state(self) -> Any:
        return self.sizes

    def set_extra_state(self, state: Any) -> None:
        self.notes.append("set")
        self.build(state)


def test_extra_state_may_make_the_children_that_are_loaded_next() -> None:
    first, second = Sized(3, 4), Sized(5)
    second.load_state_dict(first.state_dict())
    assert [tuple(layer.weight.shape) for layer in second.layers] == [(3, 2), (4, 2)]
    close(second.layers[1].weight, first.layers[1].weight)
    layers, state = second.layers, {**Sized(6).state_dict(), "layers.0.bias": tg.ones(1)}
    with pytest.raises(RuntimeError, match="nothing was changed:\n  size mismatch"):
        second.load_state_dict(state)
    assert second.layers is layers
    assert (second.sizes, second.notes) == ((3, 4), ["set"])
    close(second.layers[1].weight, first.layers[1].weight)


# -- hooks -------------------------------------------------------------------------------------


def test_hooks_of_saving() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    seen: list[Any] = []
    pre = net[0].register_state_dict_pre_hook(lambda m, prefix, keep: seen.append((prefix, keep)))

    def rename(module: Any, state: Any, prefix: str, metadata: Any) -> None:
        assert metadata["version"] == 1
        state[f"{prefix}w"] = state.pop(f"{prefix}weight")

    post = net[1].register_state_dict_post_hook(rename)
    assert list(net.state_dict()) == ["0.weight", "0.bias", "1.bias", "1.w"]
    assert seen == [("0.", False)]
    pre.remove()
    post.remove()
    assert list(net.state_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert len(seen) == 1
    net._register_state_dict_hook(lambda m, state, prefix, metadata: {"all": state})
    assert list(net.state_dict()) == ["all"]
    net.register_state_dict_post_hook(lambda *given: {})
    with pytest.raises(RuntimeError, match="returns None"):
        net.state_dict()


def test_hooks_of_loading() -> None:
    net = nn.Sequential(nn.Linear(2, 2))

    def rename(state: Any, prefix: str, *rest: Any) -> None:
        if f"{prefix}w" in state:
            state[f"{prefix}weight"] = state.pop(f"{prefix}w")

    handle = net[0]._register_load_state_dict_pre_hook(rename)
    given = {"0.w": tg.zeros(2, 2), "0.bias": tg.ones(2)}
    net.load_state_dict(given)
    assert list(given) == ["0.w", "0.bias"]
    assert not net[0].weight.any()
    handle.remove()
    with pytest.raises(RuntimeError, match=r"unexpected keys: '0.w'\n  missing keys: '0.weight'"):
        net.load_state_dict(given)
    seen = []
    net[0].register_load_state_dict_pre_hook(lambda m, *rest: seen.append(m))
    net.load_state_dict(net.state_dict())
    assert seen == [net[0]]


def test_a_hook_after_loading_sees_the_values_and_may_excuse_keys() -> None:
    net = nn.Linear(2, 1)
    seen: list[Any] = []

    def excuse(module: Any, keys: Any) -> None:
        seen.append(module.weight.tolist())
        keys.missing_keys.clear()

    net.register_load_state_dict_post_hook(excuse)
    found = net.load_state_dict({"weight": tg.tensor([[5.0, 6.0]])})
    assert seen == [[[5.0, 6.0]]]
    assert found.missing_keys == []
    before = net.bias.tolist()
    with pytest.raises(RuntimeError, match="size mismatch"):
        net.load_state_dict({"weight": tg.zeros(1, 2), "bias": tg.ones(3)})
    assert net.weight.tolist() == [[5.0, 6.0]]  # taken back
    assert net.bias.tolist() == before


class Older(nn.Module):
    """A layer that reads a former name of its weight and doubles what it read."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(tg.ones(2))

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        if f"{prefix}w" in state_dict:
            state_dict[f"{prefix}weight"] = state_dict.pop(f"{prefix}w")
        super()._load_from_state_dict(state_dict, prefix, *rest)
        with tg.no_grad():
            self.weight.mul_(2)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[f"{prefix}note"] = 1


def test_overrides() -> None:
    net = nn.Sequential(Older(), nn.Linear(1, 1))
    assert list(net.state_dict()) == ["0.weight", "0.note", "1.weight", "1.bias"]
    state = {"0.w": tg.tensor([3.0, 4.0]), "1.weight": tg.ones(1, 1), "1.bias": tg.zeros(1)}
    net.load_state_dict(state)
    assert net[0].weight.tolist() == [6.0, 8.0]
    with pytest.raises(RuntimeError, match=r"missing keys: '1.bias'"):
        net.load_state_dict({k: v + 1 for k, v in state.items() if k != "1.bias"})
    assert net[0].weight.tolist() == [6.0, 8.0]
    assert net[1].weight.item() == 1.0


def test_versions() -> None:
    state = nn.Sequential(nn.BatchNorm1d(2)).state_dict()
    assert state._metadata == {"": {"version": 1}, "0": {"version": 2}}
    assert state.copy()._metadata == state._metadata
    net = nn.Sequential(nn.BatchNorm1d(2))
    net[0].num_batches_tracked += 7
    plain = {k: v for k, v in state.items() if "tracked" not in k}
    net.load_state_dict(plain)  # saved before there was a number of batches
    assert net[0].num_batches_tracked.item() == 7
    del state["0.num_batches_tracked"]
    with pytest.raises(RuntimeError, match=r"missing keys: '0.num_batches_tracked'"):
        net.load_state_dict(state)


# -- the rest of Module ------------------------------------------------------------------------


def test_older_order_of_arguments() -> None:
    target: dict[str, Tensor] = {}
    assert nn.Linear(1, 1).state_dict(target, "a.", True) is target
    assert list(target) == ["a.weight", "a.bias"]
    assert isinstance(target["a.weight"], nn.Parameter)


def test_buffers_as_attributes() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kept = nn.Buffer(tg.ones(2))
            self.hidden = nn.Buffer(tg.ones(3), persistent=False)

    net = Net()
    assert [name for name, _ in net.named_buffers()] == ["kept", "hidden"]
    assert list(net.state_dict()) == ["kept"]
    assert net._non_persistent_buffers_set == {"hidden"}
    assert not list(net.parameters())


def test_submodules_by_name() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU()))
    net.set_submodule("1.0", nn.Tanh())
    assert repr(net.get_submodule("1.0")) == "Tanh()"
    net.set_submodule("1.new", nn.ReLU())
    assert len(net[1]) == 2
    with pytest.raises(AttributeError, match="no module 'other'"):
        net.set_submodule("1.other", nn.ReLU(), strict=True)
    with pytest.raises(AttributeError, match="is not a Module"):
        net.set_submodule("0.weight", nn.ReLU())
    with pytest.raises(ValueError, match="must not be empty"):
        net.set_submodule("", nn.ReLU())
    with pytest.raises(ValueError, match="expected a Module"):
        net.set_submodule("0", 3)  # type: ignore[arg-type]


def test_modules_with_repetitions() -> None:
    inner = nn.ReLU()
    net = nn.Sequential(inner, inner)
    assert len(list(net.modules())) == 2
    assert len(list(net.modules(remove_duplicate=False))) == 3


def test_unset_values() -> None:
    net = nn.Linear(3, 2).double()
    weight = net.weight
    assert net.to_empty(device="cpu") is net
    assert net.weight is weight
    assert weight.dtype is tg.float64
    assert weight.shape == (2, 3)


def _add_one(net: Any) -> None:
    with tg.no_grad():
        net.weight += 1


@pytest.mark.filterwarnings("ignore:.*fork.*")
def test_shared_memory() -> None:
    net = nn.Linear(2, 2)
    before = net.weight.detach().clone()
    assert net.share_memory() is net
    close(net.weight, before)
    worker = multiprocessing.get_context("fork").Process(target=_add_one, args=(net,))
    worker.start()
    worker.join()
    assert worker.exitcode == 0
    close(net.weight, before + 1)


def test_pickles_of_modules_without_newer_attributes() -> None:
    net = nn.Linear(2, 2)
    state = dict(net.__dict__)
    for name in [name for name in state if "state_dict" in name]:
        del state[name]
    older = nn.Linear.__new__(nn.Linear)
    older.__setstate__(state)
    assert list(older.state_dict()) == ["weight", "bias"]
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        np.testing.assert_array_equal(other.weight.detach().numpy(), net.weight.detach().numpy())


def test_older_backward_hooks() -> None:
    net, seen = nn.Linear(2, 1), []
    handle = net.register_backward_hook(lambda module, before, after: seen.append(after))
    net(tg.ones(3, 2)).sum().backward()
    assert len(seen) == 1
    handle.remove()
