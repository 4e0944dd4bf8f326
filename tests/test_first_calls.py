"""First calls and changing sizes: what is compiled anew, which programs go, and that bits stay.

New batch sizes, lengths and image sizes find their kernels compiled, once every form that a size
can lead to was met. A size leads to another form if it is at most 3, if it is below 16 and the last
dimension of a loop, if it passes a limit from which on threads share a sum
(`replay/cpu/tuning.py`), or if it equals a width of the model. Convolutions of few channels also
have forms for the vectors and rows that are left over after their last tile.
"""

from __future__ import annotations

import gc
import itertools
import os
import pathlib
import subprocess
import sys
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from thinning import some

import tapegrad as tg
from tapegrad import nn
from tapegrad.core.tensor import Tensor
from tapegrad.replay.cpu import jit
from tapegrad.replay.use import signatures

pytest.importorskip("llvmlite")

functional = nn.functional
ROOT = pathlib.Path(__file__).parent.parent
CALLS = 3


def step_of(model: nn.Module, loss: Callable[..., Tensor]) -> Any:
    """A compiled training step."""
    optimizer = tg.optim.AdamW(model.parameters(), lr=1e-3)

    @tg.compile
    def step(*batch: Tensor) -> Tensor:
        optimizer.zero_grad()
        value = loss(*batch)
        value.backward()
        optimizer.step()
        return value

    return step


# -- new sizes -----------------------------------------------------------------------------------


def classified(model: nn.Module, shape: Callable[[int], Sequence[int]]) -> tuple[Any, Any]:
    step = step_of(model, lambda x, y: functional.cross_entropy(model(x), y))

    def batch(size: int) -> tuple[Tensor, Tensor]:
        x = tg.randn(*shape(size))
        return x, tg.randint(0, 10, (len(x),))

    return step, batch


def mlp() -> tuple[Any, Any]:
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 10))
    return classified(model, lambda size: (size, 20))


def cnn(shape: Callable[[int], Sequence[int]]) -> tuple[Any, Any]:
    model = nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1)),
        *(nn.Flatten(), nn.Dropout(0.2), nn.Linear(16, 10)),
    )
    return classified(model, shape)


def recurrent(kind: type[nn.Module], shape: Callable[[int], tuple[int, int]]) -> tuple[Any, Any]:
    model = nn.ModuleDict({"words": nn.Embedding(40, 24), "head": nn.Linear(32, 40)})
    model["body"] = kind(24, 32, 2, batch_first=True, dropout=0.1)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        logits = model["head"](model["body"](model["words"](x))[0])
        return functional.cross_entropy(logits.flatten(0, 1), y.flatten())

    def batch(size: int) -> tuple[Tensor, Tensor]:
        return tg.randint(0, 40, shape(size)), tg.randint(0, 40, shape(size))

    return step_of(model, loss), batch


class Gpt(nn.Module):
    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(40, width), nn.Embedding(512, width)
        self.heads, self.norm, self.dropout = heads, nn.LayerNorm(width), nn.Dropout(0.1)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.head = nn.Linear(width, 40)

    def forward(self, tokens: Tensor) -> Tensor:
        batch, length = tokens.shape
        x = self.dropout(self.words(tokens) + self.positions(tg.arange(length)))
        parts = self.qkv(self.norm(x)).chunk(3, -1)
        q, k, v = (p.reshape(batch, length, self.heads, -1).transpose(1, 2) for p in parts)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.out(y.transpose(1, 2).reshape(batch, length, -1)))
        logits: Tensor = self.head(x + self.down(functional.gelu(self.up(self.norm(x)))))
        return logits


def gpt(shape: Callable[[int], tuple[int, int]]) -> tuple[Any, Any]:
    model = Gpt()

    def loss(x: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(model(x).flatten(0, 1), y.flatten())

    def batch(size: int) -> tuple[Tensor, Tensor]:
        return tg.randint(0, 40, shape(size)), tg.randint(0, 40, shape(size))

    return step_of(model, loss), batch


MANY_BATCHES = (6, 9, 10, 11, 12, 13, 15, 16, 17, 21, 24, 29, 31, 33, 50, 63, 65, 100, 127, 128)
LENGTHS = (18, 19, 21, 23, 24, 31, 33, 34, 41, 50, 63, 65, 100, 127, 128, 129, 200, 255, 256, 300)
#: image sizes with which all forms are met, and others
IMAGES = (
    (36, 40, 44, 48, 52, 64, 68, 72, 96, 100, 104),
    (56, 60, 76, 80, 84, 88, 92, 108, 112, 116, 120, 124, 128),
)
#: a model, the sizes after which all forms were met, and sizes that then compile nothing
GROWING: dict[str, tuple[Callable[[], tuple[Any, Any]], Sequence[int], Sequence[int]]] = {
    "mlp": (mlp, (64, 32, 1, 2, 3), (4, 5, 7, 8, *MANY_BATCHES, 1000)),
    "cnn": (lambda: cnn(lambda n: (n, 3, 16, 16)), (8, 64, 1, 2, 3, 4, 5, 7), MANY_BATCHES),
    "cnn, images": (lambda: cnn(lambda n: (4, 3, n, n)), IMAGES[0], IMAGES[1]),
    "lstm": (lambda: recurrent(nn.LSTM, lambda n: (n, 5)), (8, 7, 1, 2, 3, 5, 64), MANY_BATCHES),
    **{
        f"{kind.__name__}, lengths": (
            lambda kind=kind: recurrent(kind, lambda n: (6, n)),
            (2, 3, 4, 5, 6, 8, 16, 17, 24, 40),
            (7, 9, 12, 18, 19, 21, 31, 33, 50),
        )
        for kind in (nn.LSTM, nn.GRU, nn.RNN)
    },
    "gpt, batches": (lambda: gpt(lambda n: (n, 20)), (8, 1, 2, 3, 4, 5, 7, 64), MANY_BATCHES),
    "gpt, lengths": (lambda: gpt(lambda n: (4, n)), (*range(2, 18), 32, 40, 64), LENGTHS),
}


@pytest.fixture
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPEGRAD_CACHE", "0")


@pytest.mark.sweep(keep=1 / 2, some="name")
@pytest.mark.parametrize("name", GROWING)
def test_new_sizes_cost_a_recording_and_no_kernel(name: str, no_cache: None) -> None:
    tg.manual_seed(0)
    make, first, later = GROWING[name]
    step, batch = make()
    for size in first:
        for _ in range(CALLS):
            step(*batch(size))
    compiled = {}
    tried = some(later)
    for size in tried:
        before = jit.counts.compiled
        for _ in range(CALLS):
            step(*batch(size))
        compiled[size] = jit.counts.compiled - before
    assert compiled == dict.fromkeys(tried, 0)
    assert step.replays[-1].count
    assert step.why_eager is None


def test_another_rate_of_dropout_compiles_nothing_new(no_cache: None) -> None:
    dropout = nn.Dropout(0.1)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), dropout, nn.Linear(64, 10))
    step, batch = classified(model, lambda size: (size, 20))[0], tg.randn(32, 20)
    labels = tg.randint(0, 10, (32,))
    compiled = []
    for dropout.p in (0.1, 0.5, 0.2, 0.3, 0.25, 0.9):
        before = jit.counts.compiled
        for _ in range(CALLS):
            step(batch, labels)
        compiled.append(jit.counts.compiled - before)
    assert compiled[2:] == [0] * 4


def test_the_last_batch_of_an_epoch_compiles_nothing_new(no_cache: None) -> None:
    step, batch = mlp()
    for size in (32, 32, 32, 20):
        step(*batch(size))
    before = jit.counts.compiled
    for size in (32, 32, 17, 32, 32, 9):
        step(*batch(size))
    assert jit.counts.compiled == before


def test_kernels_of_two_models_are_shared(no_cache: None) -> None:
    """Widths, batch sizes and numbers of samples are in tables, not in the text."""

    def trained(inside: int, width: int, size: int) -> int:
        model = nn.Sequential(
            nn.Linear(inside, width), nn.GELU(), nn.Dropout(0.1), nn.Linear(width, 24)
        )
        step = step_of(model, lambda x, y: functional.mse_loss(model(x), y))
        before = jit.counts.compiled
        for _ in range(CALLS):
            step(tg.randn(size, inside), tg.randn(size, 24))
        kept.append(step)
        return jit.counts.compiled - before

    kept: list[Any] = []
    trained(20, 64, 16)
    assert trained(36, 48, 24) == 0


# -- which programs go ---------------------------------------------------------------------------


def doubled(most: int) -> Any:
    return tg.compile(lambda x: x * 2 + 1, max_signatures=most)


def use(function: Any, size: int, times: int = CALLS) -> None:
    for _ in range(times):
        assert function(tg.ones(size)).tolist() == [3.0] * size


def recordings(function: Any) -> int:
    return sum(signature.recordings for signature in function._signatures)


def sizes_kept(function: Any) -> list[str]:
    return [signature.shown for signature in function._signatures]


def test_the_signature_used_longest_ago_goes() -> None:
    f = doubled(3)
    for size in (1, 2, 3):
        use(f, size)
    use(f, 1)  # the first to come is not the one used longest ago
    kept = {id(signature): signature for signature in f._signatures}
    use(f, 4)
    left = [s for s in f._signatures if id(s) in kept]
    assert len(f._signatures) == 3
    assert len(left) == 2
    before = {id(s): s.recordings for s in left}
    use(f, 1)
    use(f, 3)
    assert {id(s): s.recordings for s in left} == before
    assert f.why_eager is None


def test_a_replay_counts_as_a_use_after_another_signature_was_recorded() -> None:
    f = doubled(2)
    use(f, 1)
    use(f, 2, 1)  # recorded only
    use(f, 1, 1)  # the fast path of the latest replay
    use(f, 3)
    before = recordings(f)
    use(f, 1)
    assert recordings(f) == before


def test_what_goes_is_freed() -> None:
    f = doubled(2)
    use(f, 1)
    (replay,) = f.replays
    gone = [weakref.ref(replay), weakref.ref(replay.executable)]
    del replay
    use(f, 2)
    use(f, 3)
    gc.collect()
    assert [ref() for ref in gone] == [None, None]


def test_with_room_for_one() -> None:
    f = doubled(1)
    for size in (1, 2, 3, 1):
        use(f, size)
        assert len(f._signatures) == 1


def test_too_many_sizes_in_turn_come_to_rest() -> None:
    """One more size than there is room for: all but one are replayed in the end."""
    f = doubled(4)
    sizes = itertools.cycle(range(1, 6))

    def go_round(times: int) -> None:
        for _ in range(5 * times):
            use(f, next(sizes), 1)

    with pytest.warns(UserWarning, match="more than 4 signatures in turn"):
        go_round(8)
    before, replays = recordings(f), sum(r.count for r in f.replays)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it was said once
        go_round(4)
    assert recordings(f) == before
    assert sum(r.count for r in f.replays) == replays + 4 * 4
    for told in (f.explain(), f.explain(full=True)):
        assert "keeps the 4 signatures used last (max_signatures)" in told
    assert "some calls run eagerly, because it is called with more than 4" in f.explain()


def test_signatures_that_were_used_often_may_come_back() -> None:
    f = doubled(2)
    for size in (1, 2, 3) * 4:
        use(f, size, signatures.PAYING_REPLAYS + CALLS)
    assert f.why_eager is None
    assert all(replay.count >= signatures.PAYING_REPLAYS for replay in f.replays)
    assert "10 others went with their programs" in f.explain()


def test_who_insists_on_replays_gets_them() -> None:
    f = tg.compile(lambda x: x * 2 + 1, max_signatures=2, fullgraph=True)
    for size in (1, 2, 3) * 5:
        use(f, size, 1)
    assert f.why_eager is None


def test_the_history_of_what_went_is_short() -> None:
    f = doubled(2)
    for size in range(1, 60):
        use(f, size, 1)
    assert len(f._signatures._history) <= signatures.HISTORY * 2


def test_there_is_room_for_one_at_least() -> None:
    with pytest.raises(ValueError, match="max_signatures must be at least 1, got 0"):
        tg.compile(lambda x: x, max_signatures=0)


# -- bits ----------------------------------------------------------------------------------------

#: trains eagerly and compiled with changing sizes; prints a checksum of all parameters, and how
#: many kernels were compiled
TRAINING = """
import hashlib
import tapegrad as tg
from tapegrad import nn
from tapegrad.replay.cpu import jit

tg.set_num_threads(2)
tg.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
    nn.Dropout(0.2), nn.Linear(8 * 64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 10),
)
optimizer = tg.optim.Adam(model.parameters(), lr=1e-3)


def step(x, y):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss


compiled = tg.compile(step)
for size in (64, 64, 64, 7, 64, 7, 7, 65):
    for function in (step, compiled):
        function(tg.randn(size, 1, 16, 16), tg.randint(0, 10, (size,)))
digest = hashlib.sha256()
for value in model.state_dict().values():
    digest.update(value.numpy().tobytes())
print(digest.hexdigest(), jit.counts.compiled)
"""


def trained(cache: object, workers: int) -> tuple[str, int]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "TAPEGRAD_CACHE": str(cache),
        "OMP_NUM_THREADS": str(workers),  # how many threads compile, too
    }
    done = subprocess.run(
        [sys.executable, "-c", TRAINING], env=environment, text=True, capture_output=True
    )
    assert done.returncode == 0, done.stderr
    digest, compiled = done.stdout.split()
    return digest, int(compiled)


def test_bits_do_not_depend_on_the_cache_or_on_who_compiles(tmp_path: pathlib.Path) -> None:
    empty = trained(tmp_path / "cache", workers=2)
    full = trained(tmp_path / "cache", workers=2)
    off = trained(0, workers=2)
    alone = trained(tmp_path / "another", workers=1)
    assert {digest for digest, _ in (empty, full, off, alone)} == {empty[0]}
    assert empty[1] > 0
    assert full[1] == 0
    assert off[1] == alone[1] == empty[1]


def test_bits_do_not_depend_on_a_part_of_the_cache(tmp_path: pathlib.Path) -> None:
    whole = trained(tmp_path / "cache", workers=2)
    for file in sorted((tmp_path / "cache").iterdir())[::2]:
        file.unlink()
    part = trained(tmp_path / "cache", workers=2)
    assert part[0] == whole[0]
    assert 0 < part[1] < whole[1]
