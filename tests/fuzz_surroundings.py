"""The surroundings of random programs: changing Python state, arguments that are views, callers.

The `Surroundings` of a program of `fuzz_programs.py` define for every call the memory layout of its
arguments, the changes of state since the last call, the grad mode, and what the caller does with
the results. All of it is text or plain data, drawn from the seed of the program, so that a failing
program can be reduced part by part.
"""

from __future__ import annotations

import copy
import random
import re
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tapegrad as tg
from tapegrad.core.tensor import Tensor

CALLS = 9
#: which of two states, A or B, each call finds
PATTERNS = ("AAAAAAAAA", "AAAABBBBA", "ABABABABA", "AAAABAAAB", "AAABBBABA", "ABBBBBBBB")

#: blocks of state that a program may use, in order: the name that a block binds, and its text
BLOCKS: dict[str, str] = {
    "Config": """
class Config:
    def __init__(self, **entries): self.__dict__.update(entries)""",
    "rate": "rate = 1.5",
    "mode": "mode = 'a'",
    "config": "config = Config(rate=0.5, bound=2, flag=True, inner=Config(scale=0.8))",
    "table": "table = {'scale': 0.6, 'on': True, 'n': 1, 'weights': [0.5, 0.2]}",
    "items": "items = [0.5, 1.5, 0.25]",
    "counter": "counter = Config(n=0)",
    "store": "store = Config(last=None, h=tg.zeros(()), pair=None)",
    "memory": "memory = {}",
    "history": "history = []",
    "tracked": "tracked = set()",
    "numbers": "numbers = np.array([0.5, 2.0], np.float32)",
    "recent": "recent = collections.deque(maxlen=2)",
    "Kind": """
class Kind:
    factor = 0.5
    @property
    def double(self): return self.factor * 2""",
    "kind": "kind = Kind()",
    "settings": """
@dataclasses.dataclass
class Settings:
    gain: float = 0.5
    steps: tuple = (1, 2)
    weight: object = None
settings = Settings()""",
    "optimizer": "optimizer = tg.optim.SGD([p0, p1], lr=0.05, momentum=0.5)",
    "adam": "adam = tg.optim.Adam([p0, p1], lr=0.05)",
    "hooked": "hooked = p0.register_hook(lambda g: g * rate)",
    "remember": """
def remember(x, seen=[]):
    seen.append(1)
    return x * (1 + len(seen) % 2)""",
    "safe": """
def safe(x):
    try: return x * table['maybe']
    except KeyError: return x * 0.5""",
    "cached": """
@functools.lru_cache
def cached(n): return tg.full((), 0.25 * n)""",
    "tally": """
def make_tally():
    n = 0
    def tally(x):
        nonlocal n
        n += 1
        return x * 0.5
    return tally
tally = make_tally()""",
    "frozen": """
@contextlib.contextmanager
def frozen(p):
    before = p.requires_grad
    p.requires_grad_(False)
    try: yield
    finally: p.requires_grad_(before)
def detour(x):
    with frozen(p1): return x * p1.mean()""",
    "scaled": "def scaled(x): return x * config.rate",
    "deep": "def deep(x): return scaled(x) + table['scale']",
    "loop": """
def loop(x):
    for i in range(config.bound):
        x = (x * 0.7 + i).tanh()
    return x""",
    "branch": """
def branch(x):
    if mode == 'a': return x.tanh()
    elif mode == 'b': return x.sin()
    return x""",
    "closed": """
def make(k):
    def closed(x): return x * k
    def set_closed(value):
        nonlocal k
        k = value
    return closed, set_closed
closed, set_closed = make(0.5)""",
    "counted": """
def counted(x):
    counter.n += 1
    return x * 0.5""",
    "Cell": """
class Cell(nn.Module):
    def __init__(self, inner=None):
        super().__init__()
        self.scale, self.calls, self.inner = 0.7, 0, inner
        self.w = nn.Parameter(tg.tensor(0.9))
        self.register_buffer('seen', tg.zeros(()))
    def forward(self, x):
        if self.training:
            self.calls += 1
            self.seen.add_(x.detach().mean() * 0.1)
        y = x * self.w * self.scale
        return y if self.inner is None else self.inner(y)""",
    "cell": "cell = Cell(Cell())",
    "b_view": "b_view = b0[:1]",
    "b_turned": "b_turned = b0.transpose(0, -1)",
    "b_detached": "b_detached = b0.detach()",
    "p_detached": "p_detached = p0.detach()",
    "p_row": "p_row = p0.data[0]",
    "inside": """
@compile
def inside(x): return x * config.rate + p0.mean()""",
    "inside_state": """
@compile
def inside_state(x):
    b0.mul_(0.9)
    counter.n += 1
    return x * b0.mean()""",
    "inside_cell": "inside_cell = compile(cell)",
    "second": """
@compile
def second(x):
    y = (x * p0.mean() + b0.mean()).tanh() * config.rate
    b0.mul_(0.95)
    y.sum().backward()
    return y.detach()""",
    "second_cell": """
@compile
def second_cell(x):
    loss = (cell(x) * p1.mean()).square().mean()
    loss.backward()
    with tg.no_grad():
        p1.sub_(0.1 * p1.grad)
    store.last = loss.detach()
    return loss""",
}
#: other names that blocks bind, with the names of the blocks
BINDS = {"set_closed": "closed", "detour": "frozen", "Settings": "settings"}
FUNCTIONS = {
    *("Config", "scaled", "deep", "loop", "branch", "closed", "counted", "Cell"),
    *("Kind", "remember", "safe", "cached", "tally", "frozen", "optimizer", "adam", "hooked"),
    *("inside", "inside_state", "inside_cell", "second", "second_cell"),
}

READS = """
{0} * rate | {0} * config.rate | {0} * config.inner.scale | {0} + table['scale'] | {0} * items[1]
{0} * sum(items) | scaled({0}) | deep({0}) | closed({0}) | cell({0}) | loop({0}) | branch({0})
{0} if config.flag else -{0} | {0}.tanh() if table['on'] else {0} * 0.5
{0} * getattr(config, 'rate')
{0} * (1 + 0.1 * len(history)) | [{0} * w for w in items][-1] | {0} * (1 + counter.n % 2)
{0} * table.get('extra', 0.5) | {0} * (config.extra if hasattr(config, 'extra') else 1.5)
sum(({0} * w for w in table['weights']), {0}) | F.dropout({0}, 0.3, config.flag)
{0} * float(numbers[0]) | {0} * tg.from_numpy(numbers).mean() | {0} * tg.tensor(items).mean()
counted({0}) | inside({0}) | inside_state({0}) | inside_cell({0}) | {0} + b_view.mean()
{0} * b_turned.sum() | {0} + b_detached.amax() | {0} + p_detached.mean() | {0} * p_row.mean()
{0} + store.h | {0} * memory.get('h', 0.5) | {0} + sum(history[-2:], 0.0) * 0.1
{0} * (2.0 if 'a' in tracked else 0.5) | {0} * len(memory) | {0} * {{'a': 0.5, 'b': 2.0}}[mode]
{0} * next(iter(items)) | {0} * max(table['weights']) | {0} * dict(table)['scale']
{0} if store.last is None else {0} + store.last.mean() * 0.1 | {0} * vars(config)['rate']
{0} if isinstance(store.pair, tuple) else {0} * 0.5 | {0} * (len(items) / 4)
{0} * min(items[0], rate) | {0} * kind.factor | {0} * kind.double | {0} * Kind.factor
{0} * settings.gain | {0} * sum(settings.steps) | {0} + (0.5 if hooked is None else 0.25)
{0} + (settings.weight if settings.weight is not None else 0.5) | remember({0}) | safe({0})
{0} * cached(2) | {0} * cached(config.bound) | tally({0}) | detour({0}) | {0} + sum(recent, 0.0)
{0} * sorted(table['weights'])[0] | {0} * {{**table}}['scale']
{0} * (rate if mode in ('a',) else 0.1)
"""
EFFECTS = """
counter.n += 1 | table['n'] += 1 | store.last = {0}.detach() | store.last = {0}
memory['y'] = {0}.detach() | history.append({0}.detach().mean()) | history.append(config.rate)
store.seen = mode | memory['h'] = tg.tanh(memory.get('h', 0.0) + {0}.detach().mean())
store.h = (store.h * 0.5 + {0}.detach().mean()).detach() | store.h = store.h * 0.5 + {0}.mean()
store.pair = ({0}.detach(), mode) | memory.setdefault('first', {0}.detach())
memory.pop('y', None) | tracked.add(mode) | memory['v'] = {0}.detach()[:1] | store.b = b0
b_view.add_(0.1) | b_turned.mul_(0.9) | b_detached.add_({0}.detach().mean() * 0.1)
recent.append({0}.detach().mean()) | settings.weight = {0}.detach().mean()
kind.last = {0}.detach()
optimizer.step() | adam.step() | optimizer.zero_grad() | optimizer.zero_grad(set_to_none=False)
p_detached.mul_(0.99) | p_row.add_(0.01) | store.x = x0 | memory['x'] = x1[:1]
store.g = p0.grad | memory['g'] = p1.grad | store.b = b0[:1] | p0.grad = None
store.parts = [{0}.detach(), {{'m': {0}.detach().mean()}}] | b0 = b0 * 0.9
"""
#: effects that make a new world in every call, or cannot be repeated
UNSTEADY_EFFECTS = """
store.pair = ({0}.detach(), counter.n) | history[-1:] = [{0}.detach().amax()] | items.reverse()
rate = 0.5 + rate * 0.5 | config.flag = not config.flag | items[0] = items[0] * 0.5
memory[mode] = len(memory) | numbers[0] = numbers[0] * 0.5 | config.inner.scale *= 0.9
del items[1:2] | counter.n = 0 if counter.n > 3 else counter.n + 1
"""
BAD = """
{0}[j0] | {0}.index_select(0, j0) | F.embedding(j0, {0})
{0}.take_along_dim(j0[:1].reshape(*[1] * {0}.ndim), 0)
F.nll_loss({0}.reshape(1, -1), j0[:1]) | F.cross_entropy({0}.reshape(1, -1), j0[:1])
{0}.index_add(0, j0, {0}[:1].expand(2, *{0}.shape[1:]))
tg.zeros(2).scatter(0, j0, 1.0) * {0}.mean()
{0}.gather(0, j0[:1].reshape(*[1] * {0}.ndim)) | (7 // (j0 - 3)).float() * {0}.mean()
"""
OF_ARRAY = """
{0} + tg.from_numpy(a0).mean() | {0} * tg.tensor(a0).mean() | {0} * float(a0.sum() * 0 + 0.5)
{0} * a0.shape[0] | {0} + tg.as_tensor(a0)[0]
"""
OF_NUMBER = """
{0} * n0 | {0} + n0 / 2 | {0} if n0 > 1 else {0} * 0.5
{0}.unsqueeze(0).expand(int(n0), *{0}.shape)
{0} ** n0 if n0 == 2 else {0} | {0}[:int(n0)]
"""

#: statements for states A and B; they are used if the program reads the names in them
CHANGES: tuple[tuple[str, str], ...] = (
    ("rate = 1.5", "rate = 0.75"),
    ("rate = 1", "rate = 1.0"),
    ("mode = 'a'", "mode = 'b'"),
    ("config.rate = 0.5", "config.rate = 2.0"),
    ("config.rate = 0.5", "config.rate = tg.tensor(2.0)"),
    ("config.rate = 0.0", "config.rate = -0.0"),
    ("config.bound = 2", "config.bound = 3"),
    ("config.flag = True", "config.flag = False"),
    ("config.inner.scale = 0.8", "config.inner.scale = 0.3"),
    ("config.inner = Config(scale=0.8)", "config.inner = Config(scale=0.2)"),
    ("config.__dict__.pop('extra', None)", "config.extra = 0.3"),
    ("config = Config(**vars(config))", "config = Config(**vars(config) | {'rate': 1.7})"),
    ("table['scale'] = 0.6", "table['scale'] = 1.1"),
    ("table['on'] = True", "table['on'] = False"),
    ("table.pop('extra', None)", "table['extra'] = 1.3"),
    ("table['weights'] = [0.5, 0.2]", "table['weights'].append(0.7)"),
    ("table = dict(table)", "table = table | {'scale': 0.2}"),
    ("items[:] = [0.5, 1.5, 0.25]", "items[:] = [2.5, 0.1]"),
    ("items.append(0.5)", "items.pop()"),
    ("set_closed(0.5)", "set_closed(1.25)"),
    ("closed, set_closed = make(0.5)", "closed, set_closed = make(1.1)"),
    ("cell.train()", "cell.eval()"),
    ("cell.scale = 0.7", "cell.scale = 0.2"),
    ("cell.inner.scale = 0.7", "cell.inner.scale = 0.3"),
    ("cell.inner = Cell()", "cell.inner = None"),
    ("cell.w.requires_grad_(True)", "cell.w.requires_grad_(False)"),
    ("cell.w = nn.Parameter(tg.tensor(0.9))", "cell.w = nn.Parameter(tg.tensor(0.4))"),
    ("cell.seen = tg.zeros(())", "cell.seen.add_(1.0)"),
    ("cell.zero_grad()", "cell.double()"),
    ("scaled = lambda x: x * 0.5", "scaled = lambda x: x * config.rate"),
    ("numbers[0] = 0.5", "numbers[0] = 2.5"),
    ("numbers = np.array([0.5, 2.0], np.float32)", "numbers = np.array([1.5, 2.0])"),
    ("counter.n = 0", "counter.n = 5"),
    ("store.h = tg.zeros(())", "store.h = tg.ones(())"),
    ("store.last = None", "store.last = tg.ones(2)"),
    ("memory.clear()", "memory['h'] = tg.tensor(0.25)"),
    ("history.clear()", "history.append(0.5)"),
    ("tracked.clear()", "tracked.add('a')"),
    ("b0.add_(0.5)", "b0.mul_(0.5)"),
    ("b0 = b0.clone()", "b0 = b0.clone() * 0.5"),
    ("p0.data.mul_(0.9)", "p0.data = p0.data * 0.9"),
    ("p0.requires_grad_(True)", "p0.requires_grad_(False)"),
    ("p0.grad = None", "p0.grad = tg.ones_like(p0)"),
    ("p1.grad = None", "pass"),
    ("kind.factor = 0.5", "kind.factor = 1.5"),
    ("Kind.factor = 0.5", "Kind.factor = 0.75"),
    ("kind.__dict__.pop('factor', None)", "kind.factor = 0.2"),
    ("settings.gain = 0.5", "settings.gain = 0.9"),
    ("settings.steps = (1, 2)", "settings.steps = (1, 2, 1)"),
    ("settings = Settings()", "settings = dataclasses.replace(settings, gain=1.3)"),
    ("settings.weight = None", "settings.weight = tg.tensor(0.3)"),
    ("optimizer.param_groups[0]['lr'] = 0.05", "optimizer.param_groups[0]['lr'] = 0.01"),
    ("optimizer.param_groups[0]['momentum'] = 0.5", "optimizer.param_groups[0]['momentum'] = 0"),
    ("adam.param_groups[0]['lr'] = 0.05", "adam.param_groups[0]['lr'] = tg.tensor(0.01)"),
    ("adam.load_state_dict(adam.state_dict())", "adam.param_groups[0]['betas'] = (0.8, 0.9)"),
    ("optimizer.load_state_dict(optimizer.state_dict())", "optimizer.state.clear()"),
    ("hooked.remove()", "hooked = p0.register_hook(lambda g: g * 0.5)"),
    ("table.pop('maybe', None)", "table['maybe'] = 0.8"),
    ("recent.clear()", "recent.append(0.5)"),
    ("tally = make_tally()", "tally = make_tally()"),
    ("b_view = b0[:1]", "b_view = b0[-1:].clone()"),
)

#: origins of an argument that does not depend on other arguments or captured tensors
ALONE = (
    *("turned", "with gaps", "backwards", "inside", "rows", "one row", "detached rows"),
    *("transposed", "expanded", "leaf", "rows of a leaf", "of a graph", "kept"),
    *("read-only", "bytes", "tagged", "file", "fed back"),
)
#: origins of an argument made from an earlier argument or a captured tensor of its shape
SHARED = {
    "same": "other",
    "all of it": "other[:]",
    "detached": "other.detach()",
    "first row": "other.detach()[:1].expand(other.shape)",
    "reversed": "tg.from_numpy(other.detach().numpy()[::-1])",
    "copy": "other.detach().clone()",
}
#: what a caller does with the results
CALLERS = ("once", "twice", "late", "grad", "gradients", "never")


class Tagged(np.ndarray):
    """A subclass of ndarray."""


@dataclass
class Surroundings:
    """The surroundings of the calls of a program."""

    #: for each argument: a pattern and two origins
    origins: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    #: the numbers of calls, with statements to run before them
    changes: list[tuple[int, str]] = field(default_factory=list)
    bad: tuple[int, ...] = ()
    without_grad: tuple[int, ...] = ()
    caller: str = "once"
    writes: bool = False  # whether the caller writes into results
    second: str = ""  # another compiled function, called before some calls
    second_calls: tuple[int, ...] = ()
    extra: tuple[str, ...] = ()  # arguments beyond those of all programs
    number: str = "AAAAAAAAA"
    batch: str = ""  # how the arguments are passed: one by one, or in a list, dict or record

    def shorter(self) -> Iterator[Surroundings]:
        """Simpler surroundings, each with one part removed."""
        for i in reversed(range(len(self.changes))):
            yield self._with(changes=self.changes[:i] + self.changes[i + 1 :])
        for name in self.origins:
            yield self._with(origins={k: v for k, v in self.origins.items() if k != name})
            pattern, first, second = self.origins[name]
            if len(set(pattern)) > 1:
                for only in (first, second):
                    yield self._with(origins=self.origins | {name: ("A" * CALLS, only, only)})
        for name in self.extra:
            yield self._with(extra=tuple(e for e in self.extra if e != name))
        for calls in ("bad", "without_grad", "second_calls"):
            found = getattr(self, calls)
            for call in found:
                yield self._with(**{calls: tuple(c for c in found if c != call)})
        if self.caller not in ("once", "never"):
            yield self._with(caller="once")
        if self.caller != "never":
            yield self._with(caller="never")
        if self.writes:
            yield self._with(writes=False)
        if len(set(self.number)) > 1:
            yield self._with(number="A" * CALLS)
        if self.batch:
            yield self._with(batch="")

    def _with(self, **changed: Any) -> Surroundings:
        made = copy.copy(self)
        vars(made).update(changed)
        return made

    def __str__(self) -> str:
        shown = [f"# before call {call}: {statement}" for call, statement in self.changes]
        shown += [f"# {name}: {origin}" for name, origin in self.origins.items()]
        facts = ("bad", "without_grad", "caller", "writes", "second", "second_calls")
        facts += ("number", "batch")
        shown.append(f"# {', '.join(f'{f}={getattr(self, f)!r}' for f in facts)}")
        return "\n".join(shown)


def prelude(text: str) -> str:
    """The blocks that a text needs, directly or through other blocks."""
    needed: set[str] = set()
    words = set(re.findall(r"\w+", text))
    words |= {BINDS[w] for w in words if w in BINDS}
    for name in reversed(BLOCKS):
        if name in words:
            needed.add(name)
            words |= set(re.findall(r"\w+", BLOCKS[name]))
    return "\n".join(BLOCKS[name].strip() for name in BLOCKS if name in needed)


def bound(text: str) -> list[str]:
    """The names of the state that a text uses."""
    made = prelude(text)
    return [n for n in BLOCKS if n not in FUNCTIONS and re.search(rf"^{n} = ", made, re.MULTILINE)]


def calls_of(pattern: str) -> tuple[int, ...]:
    """The calls that find state B."""
    return tuple(i for i, letter in enumerate(pattern) if letter == "B")


def draw_changes(rng: random.Random, text: str) -> list[tuple[int, str]]:
    """Statements before calls that change what a text reads."""
    text += prelude(text)
    words = set(re.findall(r"\w+", text))
    fitting = [
        pair for pair in CHANGES if set(re.findall(r"^\w+|(?<=, )\w+(?= =)", pair[1])) & words
    ]
    # Attributes and items that the text does not name would change nothing.
    fitting = [
        pair
        for pair in fitting
        if all(w in text for w in re.findall(r"[.'](\w+)\b(?:'\])? = ", pair[1]))
    ]
    if not fitting:
        return []
    drawn = []
    for first, second in rng.sample(fitting, min(len(fitting), rng.choice((0, 1, 1, 2, 3)))):
        pattern = rng.choice(PATTERNS[1:])
        before = "A"
        for call, letter in enumerate(pattern):
            if letter != before or rng.random() < 0.03:
                drawn.append((call, second if letter == "B" else first))
            before = letter
    return sorted(drawn, key=lambda change: change[0])


class Origins:
    """Makes the arguments of one run, and keeps their bases."""

    def __init__(self, surroundings: Surroundings) -> None:
        self.surroundings = surroundings
        self.bases: dict[str, Any] = {}  # tensors from which arguments are made, by name
        self.results: list[Tensor] = []
        self._files = ExitStack()

    def give(self, name: str, values: Any, call: int, captured: dict[str, Tensor]) -> Any:
        """A tensor of the given values, or of those in the memory that the argument shares."""
        pattern, first, second = self.surroundings.origins.get(name, ("A" * CALLS, "", ""))
        origin = first if pattern[call] == "A" else second
        if not origin:
            return tg.from_numpy(values)
        form, _, other = origin.rpartition(" of ")
        if other in captured:
            made = captured[other]
            if tuple(made.shape) == values.shape:
                return eval(SHARED[form], {"other": made, "tg": tg})
            return tg.from_numpy(values)
        return getattr(self, "_" + origin.replace(" ", "_").replace("-", "_"))(name, values, call)

    def _base(self, name: str, values: Any, **options: Any) -> Any:
        """A tensor with space for several arguments, the same one in all calls."""
        if name not in self.bases:
            repeated = np.concatenate([values * 0.9**i for i in range(4)])
            self.bases[name] = tg.tensor(repeated, **options)
        return self.bases[name]

    def _rows(self, name: str, values: Any, call: int) -> Any:
        start = call * 2 % (3 * len(values) + 1)
        return self._base(f"{name} rows", values)[start : start + len(values)]

    def _one_row(self, name: str, values: Any, call: int) -> Any:
        return self._base(f"{name} rows", values)[1 : 1 + len(values)]

    def _detached_rows(self, name: str, values: Any, call: int) -> Any:
        return self._base(f"{name} leaf", values, requires_grad=True).detach()[-len(values) :]

    def _rows_of_a_leaf(self, name: str, values: Any, call: int) -> Any:
        start = call % 2
        base = self._base(f"{name} leaf", values, requires_grad=True)
        return base[start : start + len(values)]

    def _of_a_graph(self, name: str, values: Any, call: int) -> Any:
        base = self._base(f"{name} leaf", values, requires_grad=True)
        return (base * 0.5)[: len(values)] + 0.1

    def _leaf(self, name: str, values: Any, call: int) -> Any:
        made = self.bases[f"{name} of call {call}"] = tg.tensor(values, requires_grad=True)
        return made

    def _kept(self, name: str, values: Any, call: int) -> Any:
        """The same tensor in every call."""
        return self.bases.setdefault(f"{name} kept", tg.from_numpy(values))

    def _transposed(self, name: str, values: Any, call: int) -> Any:
        made = tg.tensor(np.ascontiguousarray(values.T))
        return made.permute(*reversed(range(made.ndim)))

    def _expanded(self, name: str, values: Any, call: int) -> Any:
        return tg.tensor(values[:1].copy()).expand(values.shape)

    def _read_only(self, name: str, values: Any, call: int) -> Any:
        values.flags.writeable = False
        return tg.from_numpy(values)

    def _bytes(self, name: str, values: Any, call: int) -> Any:
        return tg.from_numpy(np.frombuffer(values.tobytes(), np.float32).reshape(values.shape))

    def _tagged(self, name: str, values: Any, call: int) -> Any:
        return tg.from_numpy(values.view(Tagged))

    def _file(self, name: str, values: Any, call: int) -> Any:
        folder = self._files.enter_context(tempfile.TemporaryDirectory())
        array = np.memmap(f"{folder}/values", np.float32, "w+", shape=values.shape)
        array[...] = values
        return tg.from_numpy(array)

    def _fed_back(self, name: str, values: Any, call: int) -> Any:
        """A result of the last call.

        It is detached if a backward pass has freed its history (of the whole call, if that was
        compiled), and if some calls run without gradients: after they change it in place, PyTorch
        refuses to use a view of it.
        """
        spent = self.surroundings.caller in ("once", "grad", "gradients")
        for result in self.results:
            if tuple(result.shape) == values.shape and result.dtype == tg.float32:
                return result.detach() if spent or self.surroundings.without_grad else result
        return tg.from_numpy(values)

    def close(self) -> None:
        self._files.close()

    # The layouts that programs without surroundings have too.

    def _turned(self, name: str, values: Any, call: int) -> Any:
        return tg.from_numpy(np.asfortranarray(values))

    def _with_gaps(self, name: str, values: Any, call: int) -> Any:
        space = np.zeros([2 * n for n in values.shape], values.dtype)
        space[tuple(slice(0, 2 * n, 2) for n in values.shape)] = values
        return tg.from_numpy(space[tuple(slice(0, 2 * n, 2) for n in values.shape)])

    def _backwards(self, name: str, values: Any, call: int) -> Any:
        return tg.from_numpy(values[::-1].copy()[::-1])

    def _inside(self, name: str, values: Any, call: int) -> Any:
        wide = values if values.ndim == 1 else np.repeat(values, 2, axis=-1)
        base = self._base(f"{name} inside", wide)
        rows = base[1 : 1 + len(values)]
        return rows if rows.ndim == 1 else rows[..., 1 : 1 + values.shape[-1]]
