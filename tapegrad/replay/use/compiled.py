"""`compile`: a function that is recorded in its first calls and replayed natively afterwards.

Comes in: a function. Goes out: a `Compiled`. A call is looked up by the signature of its arguments
(`trace/signature.py`). A signature has variants: a recording that two calls agreed on, and the
world in which it was made (`guards/world.py`). A variant is replayed while its world holds. Every
other call runs eagerly and is recorded; then it is undone, and the recording is replayed
(`undo.py`). Called by users and by `nn/module.py`.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
import types
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, overload

from ...core import amounts, casting, dtypes, locks, source
from ...core.modes import AUTOCAST, GRAD, INFERENCE, LISTENING, STATE, left_as_found
from ...core.switches import switches
from ..cpu.collector import gc_paused
from ..guards.kinds import Unguardable
from ..guards.observe import Observer
from ..guards.world import World
from ..trace.effects import Effects, effects_of
from ..trace.log import CaptureError
from ..trace.recording import Recording
from ..trace.results import NotRepeatable
from ..trace.signature import Arguments, likeness, shown, unlike
from .agreement import Agreement, Choice
from .check import Check
from .leaf_tracker import LeafTracker
from .replay import DataError, Replay
from .signatures import Signatures
from .snapshot import Snapshot
from .targets import BACKENDS, DEFAULT, Budgeted, target_for, target_names, target_of, unfit
from .undo import UndoableCapture
from .variant import Signature, Variant

if TYPE_CHECKING:
    from typing import Concatenate, Protocol, TypedDict, Unpack

    from typing_extensions import ParamSpec, TypeVar

    from ...nn.module import Module
    from ..ir.target import Target
    from .scale import Scaling

    P = ParamSpec("P", default=...)  # `Compiled` without more is any compiled function
    R = TypeVar("R", default=Any)
    Q = ParamSpec("Q")
    T = TypeVar("T")
    Owner = TypeVar("Owner")
    AModule = TypeVar("AModule", bound=Module)

    class CompileOptions(TypedDict, total=False):
        """The keywords of `compile`."""

        fullgraph: bool
        dynamic: bool | None
        backend: str
        mode: str | None
        options: dict[str, Any] | None
        disable: bool
        keep_grads: bool
        check: bool | int
        max_signatures: int
        memory: int | str | None

    class Decorator(Protocol):
        """What `compile` is when it is given keywords alone."""

        @overload
        def __call__(self, model: AModule, /) -> AModule: ...  # type: ignore[overload-overlap]
        @overload
        def __call__(self, model: Callable[Q, T], /) -> Compiled[Q, T]: ...
else:
    from typing import ParamSpec, TypeVar

    P = ParamSpec("P")
    R = TypeVar("R")


#: recordings of one signature in a row without a replay, after which calls run eagerly
PATIENCE = 16
#: recordings that disagree in the same world, after which calls run eagerly
TOLERANCE = 4


#: seconds that a call waits for one in another thread before it runs eagerly
SECONDS = 10.0
OCCUPIED = (
    f"another thread has been recording it for {SECONDS:.0f} s, and may be waiting for this one"
)

MODES = (None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


@dataclass(frozen=True, slots=True)
class Options:
    """The user's options of `compile`."""

    max_signatures: int = 32
    keep_grads: bool = True
    check: int = 0  # every check-th replay is compared with an eager run; 0 for none
    fullgraph: bool = False
    backend: str = "inductor"
    memory: int | None = None  # bytes that the values of a run may take


class Compiled(Generic[P, R]):
    """A compiled function; made by `tapegrad.compile`."""

    def __init__(self, function: Callable[P, R], options: Options | None = None) -> None:
        functools.update_wrapper(self, function, updated=())
        self.function = function
        self.name: str = getattr(function, "__qualname__", type(function).__qualname__)
        self.options = options or Options()
        self._signatures = Signatures(self.options.max_signatures)
        #: the signature used last, if its arguments can be compared quickly
        self._latest: Signature | None = None
        self._agreement = Agreement(self.name)
        self._lock = locks.new()
        #: the thread that runs the function and holds the lock
        self._caller: int | None = None
        self._process = os.getpid()
        self._warned: set[str] = set()
        self.why_eager: str | None = None
        if os.environ.get("TAPEGRAD_COMPILE", "1") == "0":
            self.why_eager = "TAPEGRAD_COMPILE=0"
        backend = self.options.backend
        name = BACKENDS.get(backend, backend)
        if name is None:
            self.why_eager = self.why_eager or f"backend={backend!r}"
        target: Target = DEFAULT if name is None else target_of(name)
        if self.options.memory is not None:
            target = Budgeted(target, self.options.memory)
        self._target = target
        self._off = self.why_eager is not None

    #: the attributes that replays of other functions compare
    _walked = ("function",)

    @overload
    def __get__(self, instance: None, owner: Any = None) -> Compiled[P, R]: ...
    @overload
    def __get__(
        self: Compiled[Concatenate[Owner, Q], R], instance: Owner, owner: Any = None
    ) -> Compiled[Q, R]: ...
    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __reduce__(self) -> Any:
        """Copies and pickles are compiled anew; a function of a module is found by its name."""
        module = sys.modules.get(getattr(self.function, "__module__", ""))
        if getattr(module, self.name, None) is self:
            return self.name
        return Compiled, (self.function, self.options)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        # Under a tape, a capture or a check, the operations themselves must run.
        if self._off or STATE.mode & ~(GRAD | INFERENCE | AUTOCAST):
            return self._plainly(args, kwargs)  # type: ignore[no-any-return]
        caller = self._caller
        if caller is not None and caller != threading.get_ident() and not self._returns():
            return self._plainly(args, kwargs)  # type: ignore[no-any-return]
        with self._lock:
            return self._run(args, kwargs)  # type: ignore[no-any-return]

    def _returns(self) -> bool:
        """Wait until the function returns in another thread; False after `SECONDS`."""
        if self._process != os.getpid():
            return True  # that thread stayed in the parent of the fork; its id may be reused here
        end = time.monotonic() + SECONDS
        while self._caller in sys._current_frames():
            if time.monotonic() > end:
                self._warn(OCCUPIED)
                return False
            time.sleep(0.001)
        return True

    def _freely(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.function(*args, **kwargs)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the function, and note this thread, because calls in other threads wait for it."""
        if self._process != os.getpid():  # the thread that called stayed in the parent of the fork
            self._process, self._caller = os.getpid(), None
        before, self._caller = self._caller, threading.get_ident()
        try:
            return self.function(*args, **kwargs)
        finally:
            self._caller = before

    def _plainly(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the function itself, without recording or replay."""
        call = self._call if self._lock._is_owned() else self._freely
        if self.options.keep_grads:
            return call(args, kwargs)
        with left_as_found(), LeafTracker() as tracker:
            result = call(args, kwargs)
        tracker.drop_grads()
        return result

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        signature = self._latest
        if signature is not None and not kwargs and signature.is_like(args):
            call = Arguments.of_tensors(args, signature.key)
        else:
            call = Arguments(self._modes(), args, kwargs)
            signature = self._signatures.find(call.key)
            self._latest = None
        if signature is None:
            obstacle = call.obstacle()
            if obstacle is not None:
                return self._eagerly(obstacle, args, kwargs)
            # With `fullgraph`, calls are replayed however often programs must be rebuilt.
            if self._signatures.is_thrashing(call.key) and not self.options.fullgraph:
                communicates = self._signatures.communicated(call.key)
                return self._eagerly(self._signatures.why_eager, args, kwargs, communicates)
            signature = Signature(call.key, shown(args, kwargs))
            self._signatures.add(signature)
        if signature.eager is not None:
            return self._eagerly(signature.eager, args, kwargs, signature.communicates)
        for variant in signature.variants:
            tensors = variant.fits(call)
            if tensors is not None:
                return self._use(signature, variant, call, tensors, args, kwargs)
        why = "it is new"
        for variant in signature.variants:
            difference = variant.difference(call)
            if difference is None:
                tensors = variant.fits(call)
                if tensors is not None:
                    return self._use(signature, variant, call, tensors, args, kwargs)
                difference = variant.refusal(call)
            why = difference
        return self._record(signature, why, call, args, kwargs)

    @staticmethod
    def _modes() -> tuple[Any, ...]:
        """The settings, besides arguments, that change what operations do."""
        return STATE.mode, dtypes.get_default_dtype(), casting.key(), switches.values

    def _use(
        self,
        signature: Signature,
        variant: Variant,
        call: Arguments,
        tensors: list[Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Replay a variant that fits, or run eagerly if the variant has no replay."""
        replay = variant.replay
        if replay is None:
            return self._eagerly(str(variant.eager), args, kwargs, signature.communicates)
        choice = self._agreement.decide(replay)
        if choice is Choice.EAGER:
            return self._plainly(args, kwargs)
        if choice is Choice.RECORD:
            result = self._record(signature, "another rank records this call", call, args, kwargs)
            signature.strikes = 0
            return result
        if signature.variants[0] is not variant:
            signature.variants.remove(variant)
            signature.variants.insert(0, variant)
        if replay.executable is None:
            missing = replay.target.missing()
            if missing is not None:
                self._off = True
                return self._eagerly(missing, args, kwargs)
            replay.build()
        signature.strikes = 0
        if self._latest is not signature:
            if signature.is_like is unlike:
                signature.is_like = likeness(args, kwargs)
            self._latest = signature
        check = self.options.check
        # All ranks check the same calls: an eager run has collectives too.
        count = self._agreement.replayed if replay.groups else replay.count
        if check and count % check == check - 1:
            returned, values = self._checked(replay, variant, call, tensors, args, kwargs)
        else:
            try:
                returned, values = replay.run(tensors, call)
            except DataError as refused:
                # Nothing was changed yet: the eager call raises the error with its own message.
                result = self._plainly(args, kwargs)
                if refused.raised is not None:
                    raise refused.raised from None  # a signal handler raised it, not the data
                return result
        variant.effects.do(values, call.containers)
        return returned

    def _eagerly(
        self,
        reason: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        communicates: bool = False,
    ) -> Any:
        self._warn(reason)
        with self._agreement.eager_call(communicates):
            return self._plainly(args, kwargs)

    def _warn(self, reason: str) -> None:
        code = source.code_of(self.function)
        if ".py:" not in reason and code is not None:
            reason = f"{reason} (the function is at {code.co_filename}:{code.co_firstlineno})"
        self.why_eager = reason
        if self.options.fullgraph:
            raise CaptureError(f"compiled function {self.name} cannot be replayed: {reason}")
        if reason not in self._warned:
            self._warned.add(reason)
            warnings.warn(
                f"compiled function {self.name} runs eagerly: {reason}",
                stacklevel=source.stacklevel(),
            )

    def _checked(
        self,
        replay: Replay,
        variant: Variant,
        call: Arguments,
        tensors: list[Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Run eagerly, restore, replay, and compare."""
        check = Check(replay, tensors, call)
        world = variant.look(call)
        copies = [copied(c) for c in call.containers]
        try:
            with left_as_found(), check.witness:
                returned = self._call(args, kwargs)
                if not self.options.keep_grads:
                    check.witness.drop_grads()
                effects = effects_of(world, call.containers, copies)
                check.saw((returned, effects.values), call.known(world))
        except BaseException:
            check.witness.restore_views()
            raise
        result = check.run()
        effects.undo(call.containers)
        return result

    # -- recording ---------------------------------------------------------------------------

    def _record(
        self,
        signature: Signature,
        why: str,
        call: Arguments,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Run eagerly and record; then undo the call and replay it, if that is possible."""
        refusal: str | None = None
        world: World | None = None
        try:
            world = signature.look(call, self._roots(signature))
        except Unguardable as error:
            refusal = str(error)
        if world is not None:
            if signature.latest is not None:
                why = signature.latest.difference(world) or why
            signature.latest = world
        if signature.disagreements >= TOLERANCE:
            signature.eager = (
                f"it did something else in each of {TOLERANCE} recordings, although nothing had "
                f"changed that is compared: {signature.difference}"
            )
        elif signature.strikes >= PATIENCE:
            signature.eager = f"{why}; what changes in every call should be a tensor"
        if signature.eager is not None:
            return self._eagerly(signature.eager, args, kwargs, signature.communicates)
        signature.reasons.append(why)
        signature.strikes += 1
        tensors = call.tensors + signature.moving(world)
        copies = [copied(c) for c in call.containers]
        effects = Effects()
        modes = self._modes()
        observer = Observer()
        capture = UndoableCapture(tensors, self.options.fullgraph, signature.sharing)
        capture.layers, capture.observer = observer.layers, observer
        self._agreement.begin()
        capture.on_collective = self._agreement.before_collective
        recording: Recording | None = None
        try:
            with left_as_found(LISTENING), gc_paused(), capture:
                with observer:
                    result = self._call(args, kwargs)
                    if not self.options.keep_grads:
                        capture.drop_grads()
                try:
                    if world is not None:
                        effects = effects_of(world, call.containers, copies)
                        world.hold()
                    capture.around = observer
                    capture.traces_user_rules = world is not None
                    recording = capture.finish((result, effects.values), call.known(world))
                except NotRepeatable as error:
                    refusal = str(error)
        except BaseException:
            observer.stop()
            capture.restore_views()
            signature.strikes -= 1
            signature.latest = None
            raise
        signature.recordings += 1
        signature.communicates |= bool(capture.groups)
        is_common = self._agreement.end(capture.groups, self.replays)
        if recording is not None and recording.derivative is not None and world is not None:
            refusal = refusal or _late_effects(world, call, copies, effects)
        if self._modes() != modes:
            refusal = "it leaves another gradient mode, default dtype, autocast or switch behind"
        covered = signature.cover(observer.scope)
        obstacle = None
        if recording is not None:
            device = recording.program.device
            obstacle = recording.obstacle or unfit(target_for(self._target, device), device)
        refusal = obstacle or observer.refusal or refusal
        learned = capture.sharing is not None and signature.learn_sharing(capture.sharing)
        # A refusal in the first call alone does not count: it may print a message just once.
        is_lasting = signature.recordings > 1 or obstacle is not None
        if refusal is not None and not learned and is_lasting:
            self._refuse(signature, refusal, call)
        usable = refusal is None and not learned and not capture.is_one_off
        usable = usable and (world is not None or not capture.runs_user_rules)
        hooked = capture.hooked()
        witness = object()
        undo = capture.undo()
        del capture  # it refers to every tensor, and `undo` counts who else does
        replay: Replay | None = None
        if usable:
            assert recording is not None
            signature.hooked = hooked
            known = world if covered else None
            replay = self._compare(signature, recording, tensors, known, effects)
        if replay is not None and is_common:
            self._agreement.confirm(replay)
        after: Snapshot | None = None
        if replay is not None and replay.target.missing() is None:
            after = undo.back(replay, tensors, result, witness)
        # Either all ranks replay what they have recorded, collectives included, or none does.
        if is_common and not self._agreement.all_can_replay(after is not None):
            if after is not None:
                after.restore()
            return result
        if replay is None or after is None:
            return result
        return undo.forth(replay, tensors, call)

    def _roots(self, signature: Signature) -> list[tuple[str, Any]]:
        """The roots of the walk through the world of a recording."""
        return [("", self.function), *signature.hooked]

    def _refuse(self, signature: Signature, refusal: str, call: Arguments) -> None:
        """Note that calls in this world can only run eagerly."""
        try:
            world = signature.look(call, self._roots(signature))
        except Unguardable:
            world = None
        if world is None:
            signature.eager = refusal
        else:
            signature.keep(Variant(world, None, refusal))
        self._warn(refusal)

    def _compare(
        self,
        signature: Signature,
        recording: Recording,
        tensors: list[Any],
        world: World | None,
        effects: Effects,
    ) -> Replay | None:
        """Confirm a recording by an earlier one that agrees; returns the replay to run."""
        if recording.once:
            signature.difference = "it made or replaced tensors of an optimizer's state"
            return None
        for replay in signature.replays:
            if replay.recording.difference(recording) is None:
                replay.confirm(recording)
                signature.enter(world, replay, effects, recording.pattern, tensors)
                return replay
        target = target_for(self._target, recording.program.device)
        replay = Replay(recording, self.name, target)
        if world is not None:
            world.settle_for(recording)
        earlier = signature.compare(world, replay)
        if earlier is not None:
            replay.take(earlier)
            signature.enter(world, replay, effects, recording.pattern, tensors)
        return replay

    # -- reports -----------------------------------------------------------------------------

    @property
    def replays(self) -> list[Replay]:
        """The confirmed recordings of all signatures."""
        return [r for s in self._signatures for r in s.replays]

    def __repr__(self) -> str:
        from .explain import brief

        return f"<compiled function {brief(self)}>"

    def explain(
        self, programs: bool = False, code: str | None = None, *, full: bool = False
    ) -> str:
        """What calls did, why they were recorded, and which kernels are slowest, in a few lines.

        Kernels are timed now, on copies. `full` lists all kernels, the memory and the compile time
        instead. `programs` adds the recorded programs, one operation per line; `code="llvm"` or
        `code="assembly"` adds the text of each kernel before or after LLVM has compiled it.
        """
        from .explain import explain, summary

        with self._lock:
            if full or programs or code is not None:
                return explain(self, programs, code)
            return summary(self)

    def scale(
        self,
        ranks: Sequence[int] = (8, 64, 1024),
        latency: float = 5e-6,
        bandwidth: float = 10e9,
        overlap: bool = True,
    ) -> Scaling:
        """Predict how long a call takes on other numbers of processes, from its replayed program.

        `latency` is in seconds, `bandwidth` in bytes per second, both of one message. Kernels are
        timed now, on made-up data; each process does the work of this one. With `overlap=False`, as
        where all cores compute, no collective runs beside the kernels. Returns a prediction for
        each number of processes, which together print as a table.
        """
        from .scale import scale

        with self._lock:
            used = max(self.replays, key=lambda replay: replay.count, default=None)
            if used is None or used.executable is None:
                raise RuntimeError("scale() needs a function that was replayed; call it first")
            return scale(used, ranks, latency, bandwidth, overlap)


@overload
def compile(  # type: ignore[overload-overlap]  # modules can be called too
    model: AModule,
    **options: Unpack[CompileOptions],
) -> AModule: ...
@overload
def compile(
    model: Callable[Q, T],
    **options: Unpack[CompileOptions],
) -> Compiled[Q, T]: ...
@overload
def compile(
    model: None = None,
    **options: Unpack[CompileOptions],
) -> Decorator: ...
def compile(
    model: Callable[..., Any] | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str = "inductor",
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
    keep_grads: bool = True,
    check: bool | int = False,
    max_signatures: int = 32,
    memory: int | str | None = None,
) -> Any:
    """Record a function's tensor operations and run them as one native program from then on.

    Works on whole training steps: tensors from outside (parameters, buffers, optimizer state) are
    read and changed in their own memory. The first two calls with new shapes also run eagerly, and
    are recorded. `explain()` tells what calls did, and why. Programs for `max_signatures` kinds of
    arguments are kept; past that, the least recently used ones are dropped. A module is returned
    as a module of the same class that shares everything with it.

    With `keep_grads=False` every `.grad` that the function touches is None afterwards, so gradients
    need no memory of their own. With `memory="2GB"` (or a number of bytes) a replay takes at most
    so much for its values, besides inputs, results and the residuals of a backward pass outside: it
    recomputes some values, those that cost the least, and `explain()` says how much work that is.
    If that is not enough, a warning says what is needed.

    With `check=True` every replay is compared with an eager run, with `check=100` every hundredth.
    Calls that cannot be replayed run eagerly, with a warning; `fullgraph=True` makes that an error.
    `disable=True` returns the function as it is, `backend="eager"` never compiles, and
    `backend="numpy"` replays with NumPy, one operation at a time, as a reference for native code.
    The other keywords are PyTorch's: they are checked and change nothing, since there is one
    compiler, which records whole functions, and each shape by itself.

    >>> import tapegrad
    >>> @tapegrad.compile
    ... def f(x):
    ...     return (x * 2 + 1).sum()
    >>> [f(tapegrad.ones(3) * i).item() for i in range(4)]
    [3.0, 9.0, 15.0, 21.0]
    """
    backends = (*BACKENDS, *target_names())
    if backend not in backends:
        raise ValueError(f"backend must be one of {', '.join(backends)}, got {backend!r}")
    if mode not in MODES:
        raise ValueError(f"mode must be one of {', '.join(map(str, MODES))}, got {mode!r}")
    if options is not None and not isinstance(options, dict):
        raise TypeError(f"options must be a dict or None, got {type(options).__name__}")
    if max_signatures < 1:
        raise ValueError(f"max_signatures must be at least 1, got {max_signatures}")
    if not isinstance(check, int) or check < 0:
        raise ValueError(f"check must be True, False or a number of calls, got {check!r}")
    budget = None if memory is None else amounts.parsed(memory, "memory")
    chosen = Options(max_signatures, keep_grads, int(check), fullgraph, backend, budget)

    def compiled(function: Callable[..., Any]) -> Any:
        if not callable(function):
            raise TypeError(f"compile needs a function, got {type(function).__name__}")
        if disable:
            return function
        if hasattr(function, "_compiled_copy"):
            return function._compiled_copy(chosen)  # a module
        return Compiled(function, chosen)

    return compiled if model is None else compiled(model)


def copied(container: Any) -> Any:
    """A copy of a container among the arguments, to find what a call changes in it."""
    return dict(container) if isinstance(container, dict) else list(container)


def _late_effects(world: World, call: Arguments, copies: list[Any], effects: Effects) -> str | None:
    """Why a backward pass outside the call cannot be replayed: it has effects of its own."""
    try:
        late = effects_of(world, call.containers, copies)
    except NotRepeatable as error:
        return str(error)
    known = {effect.path for effect in effects.effects}
    new = [effect.path for effect in late.effects if effect.path not in known]
    if new:
        late.undo(call.containers, besides=known)
    return f"its backward pass changes {new[0]}" if new else None
