"""Mixed precision: autocast, where it applies and where its state goes, and GradScaler."""

import copy
import pickle
import threading
from contextlib import nullcontext

import numpy as np
import pytest

import tapegrad as tg
import tapegrad.nn.functional as F
from tapegrad import nn
from tapegrad.core import casting
from tapegrad.ops import TABLE

LOWER = [tg.bfloat16, tg.float16]
each_lower = pytest.mark.parametrize("lower", LOWER, ids=[d.name for d in LOWER])


def matrix(*shape, grad=True):
    return tg.randn(*shape, requires_grad=grad)


@pytest.fixture(autouse=True)
def seeded():
    tg.manual_seed(0)
    yield
    assert tg.autocast_increment_nesting() == 1
    assert tg.autocast_decrement_nesting() == 0
    assert not casting.settings().enabled


# -- what autocast does ------------------------------------------------------------------------


@each_lower
def test_products_run_in_the_lower_dtype_and_gradients_come_back(lower):
    w, x = matrix(4, 3), matrix(2, 4, grad=False)
    with tg.autocast("cpu", lower):
        y = x @ w
        loss = F.mse_loss(y, tg.zeros(2, 3))
    assert (y.dtype, loss.dtype) == (lower, tg.float32)
    loss.backward()
    assert w.grad.dtype is tg.float32
    exact = w.detach().requires_grad_()
    F.mse_loss(x @ exact, tg.zeros(2, 3)).backward()
    assert w.grad.allclose(exact.grad, rtol=0.05, atol=0.02)
    assert not w.grad.equal(exact.grad)


def test_doubles_and_integers_are_left_alone():
    with tg.autocast("cpu"):
        assert (matrix(2, 2).double() @ matrix(2, 2).double()).dtype is tg.float64
        assert (tg.arange(4).reshape(2, 2) @ tg.arange(4).reshape(2, 2)).dtype is tg.int64


def test_every_policy_is_known():
    for name, op in TABLE.items():
        choices = op.autocast.values() if isinstance(op.autocast, dict) else [op.autocast]
        for choice in choices:
            known = ("lower", "full", "widest", "keep", "refuse", None)
            assert callable(choice) or choice in known, name


def test_off_inside_and_on_inside_again():
    x = matrix(2, 2)
    with tg.autocast("cpu"):
        with tg.autocast("cpu", enabled=False):
            assert (x @ x).dtype is tg.float32
            with tg.autocast("cpu", tg.float16):
                assert (x @ x).dtype is tg.float16
            assert (x @ x).dtype is tg.float32
        assert (x @ x).dtype is tg.bfloat16
    assert (x @ x).dtype is tg.float32


def test_state_is_restored_after_an_error():
    with pytest.raises(RuntimeError), tg.autocast("cpu"):
        matrix(2, 3) @ matrix(2, 3)
    assert not tg.is_autocast_enabled("cpu")
    assert (matrix(2, 2) @ matrix(2, 2)).dtype is tg.float32
    with tg.autocast("cpu"):
        with pytest.raises(RuntimeError):
            matrix(2, 3) @ matrix(2, 3)
        assert (matrix(2, 2) @ matrix(2, 2)).dtype is tg.bfloat16


def test_as_a_decorator_of_functions_and_generators():
    @tg.autocast("cpu", tg.float16)
    def product(x):
        return x @ x

    @tg.autocast("cpu")
    def products(x):
        yield x @ x
        yield x @ x

    x = matrix(2, 2)
    assert product(x).dtype is tg.float16
    for y in products(x):
        assert y.dtype is tg.bfloat16
        assert (x @ x).dtype is tg.float32


def test_a_decorated_function_in_several_threads():
    inside, leave = threading.Barrier(2), threading.Barrier(2)
    seen = []

    @tg.autocast("cpu")
    def work(last):
        inside.wait()
        if last:
            leave.wait()
        seen.append((matrix(2, 2) @ matrix(2, 2)).dtype)

    def run(last):
        work(last)
        if not last:
            leave.wait()
        seen.append((matrix(2, 2) @ matrix(2, 2)).dtype)

    threads = [threading.Thread(target=run, args=(last,)) for last in (False, True)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(map(str, seen)) == sorted(map(str, [tg.bfloat16, tg.float32] * 2))


def test_other_threads_do_not_see_it():
    seen = []
    with tg.autocast("cpu"):
        thread = threading.Thread(target=lambda: seen.append((matrix(2, 2) @ matrix(2, 2)).dtype))
        thread.start()
        thread.join()
    assert seen == [tg.float32]


def test_the_switch_of_the_process():
    x = matrix(2, 2)
    try:
        tg.enable_autocast = False
        with tg.autocast():
            assert (x @ x).dtype is tg.float32
        tg.enable_autocast = True
        with tg.autocast():
            assert (x @ x).dtype is tg.bfloat16
    finally:
        tg.enable_autocast = True


def test_functions_of_the_state():
    assert not tg.is_autocast_enabled()
    assert not tg.is_autocast_enabled("cpu")
    assert tg.get_autocast_dtype("cpu") is tg.bfloat16
    assert tg.get_autocast_gpu_dtype() is tg.float16
    tg.set_autocast_enabled("cpu", True)
    tg.set_autocast_dtype("cpu", tg.float16)
    try:
        assert tg.is_autocast_cpu_enabled()
        assert (matrix(2, 2) @ matrix(2, 2)).dtype is tg.float16
        with tg.autocast("cpu"):
            assert tg.get_autocast_cpu_dtype() is tg.float16
    finally:
        tg.set_autocast_cpu_enabled(False)
        tg.set_autocast_cpu_dtype(tg.bfloat16)
    assert tg.is_autocast_cache_enabled()
    with tg.autocast("cpu", cache_enabled=False):
        assert not tg.is_autocast_cache_enabled()
    assert tg.is_autocast_cache_enabled()
    assert tg.amp.is_autocast_available("cpu")
    assert not tg.amp.is_autocast_available("abacus")


def test_bad_arguments():
    with pytest.raises(ValueError, match="device type"):
        tg.autocast(3)
    with pytest.raises(RuntimeError, match="abacus"):
        tg.autocast("abacus")
    with pytest.warns(UserWarning, match="float32"):
        context = tg.autocast("cpu", tg.float32)
    with context:
        assert (matrix(2, 2) @ matrix(2, 2)).dtype is tg.float32
    if not tg.cuda.is_available():
        with pytest.warns(UserWarning, match="no GPU"):
            tg.autocast("cuda")


def test_older_names():
    from tapegrad.cpu.amp import autocast
    from tapegrad.cuda.amp import GradScaler

    with pytest.warns(FutureWarning, match=r"amp\.autocast"):
        context = autocast()
    with context:
        assert (matrix(2, 2) @ matrix(2, 2)).dtype is tg.bfloat16
    with pytest.warns(FutureWarning):
        scaler = GradScaler(enabled=False)
    assert not scaler.is_enabled()


# -- devices: the policies of the GPU, on arrays that pretend to lie there -----------------------


def test_policies_of_the_gpu(monkeypatch):
    monkeypatch.setattr(casting, "_device", lambda x: "cuda")
    casting.use(casting.Settings(enabled=("cuda",)))
    try:
        x = matrix(3, 3)
        h = x @ x
        assert h.dtype is tg.float16
        for full in (h.softmax(-1), h.sum(), h.cumsum(0), F.layer_norm(h, (3,)), h.norm()):
            assert full.dtype is tg.float32
        for full in (h.exp(), h.abs().log(), h**2, 2**h, tg.rsqrt(h.abs()), h.pow(2)):
            assert full.dtype is tg.float32
        for kept in (h + h, h.sin(), h.relu(), h.sum(dtype=tg.float16)):
            assert kept.dtype is tg.float16
        assert tg.atan2(h, x).dtype is tg.float32
        assert tg.addcmul(h, x, h).dtype is tg.float32
        with pytest.raises(RuntimeError, match="binary_cross_entropy_with_logits"):
            F.binary_cross_entropy(h.sigmoid(), h.sigmoid())
    finally:
        casting.use(None)


# -- casts of parameters -----------------------------------------------------------------------


def test_a_parameter_is_cast_once():
    w = matrix(3, 3)
    x = matrix(2, 3, grad=False)
    with tg.autocast("cpu"):
        first, second = F.linear(x, w), F.linear(x, w)
        assert first.grad_fn.next_functions[1][0] is second.grad_fn.next_functions[1][0]
        with tg.autocast("cpu", cache_enabled=False):
            third = F.linear(x, w)
        assert third.grad_fn.next_functions[1][0] is not first.grad_fn.next_functions[1][0]
    with tg.autocast("cpu"):
        fourth = F.linear(x, w)
    assert fourth.grad_fn.next_functions[1][0] is not first.grad_fn.next_functions[1][0]


def test_a_parameter_that_changed_is_cast_again():
    w = matrix(3, 3)
    x = matrix(2, 3, grad=False)
    with tg.autocast("cpu"):
        before = F.linear(x, w)
        with tg.no_grad():
            w *= 2
        after = F.linear(x, w)
    assert after.equal(before * 2)


def test_a_cast_without_gradient_does_not_hide_the_gradient():
    w, x = matrix(3, 3), matrix(2, 3, grad=False)
    with tg.autocast("cpu"):
        with tg.no_grad():
            F.linear(x, w)
        F.linear(x, w).float().sum().backward()
    assert w.grad is not None
    assert w.grad.abs().sum() > 0


def test_two_backward_passes_share_a_cast():
    w, x = matrix(3, 3), matrix(2, 3, grad=False)
    with tg.autocast("cpu"):
        first, second = F.linear(x, w).sum(), F.linear(x, w).sum()
        first.backward()
        once = w.grad.clone()
        second.backward()
        F.linear(x, w).sum().backward()
    assert w.grad.allclose(once * 3)


# -- with the rest of the library --------------------------------------------------------------


def model():
    tg.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3))


def batch():
    tg.manual_seed(2)
    return tg.randn(5, 6), tg.tensor([0, 1, 2, 1, 0])


def gradients(net):
    return [p.grad.clone() for p in net.parameters()]


def autocast_gradients(lower=tg.bfloat16, call=lambda net, x: net(x)):
    net, (x, y) = model(), batch()
    with tg.autocast("cpu", lower):
        loss = F.cross_entropy(call(net, x), y)
    loss.backward()
    return loss, gradients(net)


@each_lower
def test_checkpoint_runs_again_with_the_same_autocast(lower):
    loss, expected = autocast_gradients(lower)
    again, got = autocast_gradients(lower, lambda net, x: tg.checkpoint(net, x))
    assert again.equal(loss)
    for a, b in zip(got, expected, strict=True):
        assert a.equal(b)


def test_checkpoint_outside_runs_again_without_autocast():
    net, (x, y) = model(), batch()
    loss = F.cross_entropy(tg.checkpoint(net, x), y)
    with tg.autocast("cpu"):
        loss.backward()
    got = gradients(net)
    net.zero_grad()
    F.cross_entropy(net(x), y).backward()
    for a, b in zip(got, gradients(net), strict=True):
        assert a.equal(b)


def test_backward_inside_and_outside_of_autocast_agree():
    _, expected = autocast_gradients()
    net, (x, y) = model(), batch()
    with tg.autocast("cpu"):
        F.cross_entropy(net(x), y).backward()
    for a, b in zip(gradients(net), expected, strict=True):
        assert a.equal(b)


def test_second_derivatives_are_not_autocast():
    x = matrix(3, 3)
    loss = (x @ x).pow(2).sum()
    with tg.autocast("cpu"):
        (g,) = tg.autograd.grad(loss, x, create_graph=True)
    (g2,) = tg.autograd.grad((x @ x).pow(2).sum(), x)
    assert g.dtype is tg.float32
    assert g.allclose(g2)
    with tg.autocast("cpu"):
        loss = (x @ x).float().pow(2).sum()
        (g,) = tg.autograd.grad(loss, x, create_graph=True)
        g.sum().backward()
    assert x.grad.dtype is tg.float32


def test_function_transforms():
    w, x = matrix(3, 3, grad=False), matrix(2, 3, grad=False)

    def f(w):
        with tg.autocast("cpu"):
            return (x @ w).float().pow(2).sum()

    gradient = tg.func.grad(f)(w)
    assert gradient.dtype is tg.float32
    assert gradient.allclose(2 * x.T @ (x @ w), rtol=0.05, atol=0.1)
    _, tangent = tg.func.jvp(f, (w,), (tg.ones(3, 3),))
    assert tangent.allclose(gradient.sum(), rtol=0.05)
    assert tg.func.hessian(f)(w).shape == (3, 3, 3, 3)


SEEN = []


class Scaled(tg.autograd.Function):
    @staticmethod
    @tg.amp.custom_fwd(device_type="cpu")
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    @tg.amp.custom_bwd(device_type="cpu")
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        SEEN.append(tg.is_autocast_enabled("cpu"))
        return g @ w.T, x.T @ g


def test_custom_functions_see_the_autocast_of_forward():
    x, w = matrix(2, 3), matrix(3, 4)
    SEEN.clear()
    with tg.autocast("cpu"):
        y = Scaled.apply(x, w)
    assert y.dtype is tg.bfloat16
    y.float().sum().backward()
    with tg.autocast("cpu", enabled=False):
        y = Scaled.apply(x, w)
    with tg.autocast("cpu"):
        y.sum().backward()
    assert SEEN == [True, False]
    assert x.grad.dtype is tg.float32


def test_custom_functions_without_the_decorator_see_that_of_backward():
    seen = []

    class Plain(tg.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            seen.append((g @ g).dtype)
            return g * 2

    x = matrix(2, 2)
    Plain.apply(x).sum().backward()
    loss = Plain.apply(x).sum()
    with tg.autocast("cpu"):
        loss.backward()
    assert seen == [tg.float32, tg.bfloat16]


def test_custom_fwd_with_cast_inputs():
    class Full(tg.autograd.Function):
        @staticmethod
        @tg.amp.custom_fwd(device_type="cpu", cast_inputs=tg.float32)
        def forward(ctx, x):
            assert not tg.is_autocast_enabled("cpu")
            return x @ x

        @staticmethod
        @tg.amp.custom_bwd(device_type="cpu")
        def backward(ctx, g):
            return g

    x = matrix(2, 2).bfloat16()
    with tg.autocast("cpu"):
        assert Full.apply(x).dtype is tg.float32


# -- compiled ----------------------------------------------------------------------------------


@each_lower
@pytest.mark.parametrize("around", [False, True], ids=["inside", "around"])
def test_compiled_steps(lower, around):
    def trained(compiled):
        net, (x, y) = model(), batch()
        optimizer = tg.optim.AdamW(net.parameters(), lr=0.01)

        def step(x, y):
            optimizer.zero_grad()
            with nullcontext() if around else tg.autocast("cpu", lower):
                loss = F.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            return loss

        run = tg.compile(step) if compiled else step
        losses = []
        for _ in range(6):
            with tg.autocast("cpu", lower) if around else nullcontext():
                losses.append(run(x, y).item())
        if compiled:
            assert run.replays
        return losses, [p.detach() for p in net.parameters()]

    expected, weights = trained(False)
    losses, got = trained(True)
    np.testing.assert_allclose(losses, expected, rtol=2e-2)
    for a, b in zip(got, weights, strict=True):
        assert a.dtype is tg.float32
        assert a.allclose(b, rtol=0.05, atol=0.02)


def test_the_state_is_part_of_the_signature():
    @tg.compile
    def f(x):
        return x @ x

    x = matrix(3, 3, grad=False)
    for _ in range(4):
        assert f(x).dtype is tg.float32
        with tg.autocast("cpu"):
            assert f(x).dtype is tg.bfloat16
        with tg.autocast("cpu", tg.float16):
            assert f(x).dtype is tg.float16
        with tg.autocast("cpu"), tg.autocast("cpu", enabled=False):
            assert f(x).dtype is tg.float32

    @tg.compile
    def g(x):
        with tg.autocast("cpu"):
            return x @ x

    try:
        for _ in range(3):
            assert g(x).dtype is tg.bfloat16
        tg.enable_autocast = False
        for _ in range(3):
            assert g(x).dtype is tg.float32
    finally:
        tg.enable_autocast = True


def test_kept_casts_do_not_get_into_programs():
    w, x = matrix(3, 3), matrix(2, 3, grad=False)
    run = tg.compile(lambda x: F.linear(x, w))
    for _ in range(5):
        with tg.autocast("cpu"):
            eager = F.linear(x, w)
            assert run(x).equal(eager)
            with tg.no_grad():
                w *= 0.5
            assert run(x).equal(eager * 0.5)


def test_backward_of_a_compiled_function():
    net, (x, y) = model(), batch()
    run = tg.compile(net)
    for _ in range(4):
        net.zero_grad()
        with tg.autocast("cpu"):
            loss = F.cross_entropy(run(x), y)
        loss.backward()
    _, expected = autocast_gradients()
    for a, b in zip(gradients(net), expected, strict=True):
        assert a.dtype is tg.float32
        assert a.allclose(b, rtol=0.1, atol=0.01)


# -- GradScaler --------------------------------------------------------------------------------


def parameters(*values):
    return [tg.tensor([v, v], requires_grad=True) for v in values]


def scaled_step(scaler, optimizer, loss):
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()


def test_scaling_changes_no_step():
    (a,), (b,) = parameters(1.0), parameters(1.0)
    scaler = tg.amp.GradScaler("cpu", init_scale=1024.0)
    for w, step in ((a, lambda o, loss: scaled_step(scaler, o, loss)), (b, None)):
        optimizer = tg.optim.Adam([w], lr=0.1)
        for _ in range(3):
            loss = (w * w).sum()
            if step is None:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            else:
                step(optimizer, loss)
    assert a.equal(b)


@pytest.mark.parametrize("bad", [float("inf"), float("-inf"), float("nan")])
def test_infinite_gradients_skip_the_step(bad):
    (w,) = parameters(1.0)
    optimizer = tg.optim.Adam([w], lr=0.1)
    scaler = tg.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    scaled_step(scaler, optimizer, (w * bad).sum())
    assert w.tolist() == [1.0, 1.0]
    assert not optimizer.state
    assert scaler.get_scale() == 4.0
    for expected in (4.0, 8.0, 8.0, 16.0):
        scaled_step(scaler, optimizer, (w * w).sum())
        assert scaler.get_scale() == expected


def test_the_scale_never_becomes_infinite():
    (w,) = parameters(1.0)
    optimizer = tg.optim.SGD([w], lr=1e-9)
    scaler = tg.amp.GradScaler("cpu", init_scale=2.0**127, growth_interval=1)
    scaled_step(scaler, optimizer, (w * 1e-6).sum())
    assert scaler.get_scale() == 2.0**127


def test_clipping_between_unscaling_and_the_step():
    (w,) = parameters(1.0)
    optimizer = tg.optim.SGD([w], lr=1.0)
    scaler = tg.amp.GradScaler("cpu", init_scale=512.0)
    scaler.scale((w * 30).sum()).backward()
    scaler.unscale_(optimizer)
    assert w.grad.tolist() == [30.0, 30.0]
    nn.utils.clip_grad_norm_([w], 2.0**0.5)
    scaler.step(optimizer)
    assert w.allclose(tg.zeros(2), atol=1e-5)


def test_several_optimizers_one_of_which_is_skipped():
    a, b = parameters(1.0, 1.0)
    first, second = tg.optim.SGD([a], lr=0.5), tg.optim.SGD([b], lr=0.5)
    scaler = tg.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale([(a * 1.0).sum() + (b * float("inf")).sum()])[0].backward()
    scaler.step(first)
    scaler.step(second)
    scaler.update()
    assert a.tolist() == [0.5, 0.5]
    assert b.tolist() == [1.0, 1.0]
    assert scaler.get_scale() == 2.0


def test_the_order_of_calls_is_checked():
    (w,) = parameters(1.0)
    optimizer = tg.optim.SGD([w], lr=0.5)
    scaler = tg.amp.GradScaler("cpu")
    with pytest.raises(AssertionError, match="no gradients that were checked"):
        scaler.update()
    with pytest.raises(AssertionError, match="no gradients to check"):
        scaler.step(optimizer)
    scaler = tg.amp.GradScaler("cpu")
    scaler.scale(w.sum()).backward()
    scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match="once in each iteration"):
        scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match="closure"):
        scaler.step(optimizer, closure=lambda: w.sum())
    with pytest.raises(RuntimeError, match="closure"):
        scaler.step(optimizer, lambda: w.sum())
    scaler.step(optimizer)
    with pytest.raises(RuntimeError, match="called twice"):
        scaler.step(optimizer)
    with pytest.raises(RuntimeError, match=r"before step"):
        scaler.unscale_(optimizer)
    with pytest.raises(AssertionError, match="between iterations"):
        pickle.dumps(scaler)
    scaler.update()
    assert pickle.loads(pickle.dumps(scaler)).state_dict() == scaler.state_dict()
    assert copy.deepcopy(scaler).get_scale() == scaler.get_scale()


def test_gradients_in_float16_are_refused():
    w = tg.ones(2, dtype=tg.float16, requires_grad=True)
    scaler = tg.amp.GradScaler("cpu", init_scale=2.0)
    scaler.scale(w.sum()).backward()
    with pytest.raises(ValueError, match="FP16"):
        scaler.unscale_(tg.optim.SGD([w], lr=0.1))
    assert w.grad.tolist() == [2.0, 2.0]


def test_saving_loading_and_setting():
    scaler = tg.amp.GradScaler("cpu", init_scale=8.0, growth_factor=3.0)
    scaler.set_backoff_factor(0.25)
    scaler.set_growth_interval(7)
    scaler.update(32.0)
    state = scaler.state_dict()
    assert state == {
        "scale": 32.0,
        "growth_factor": 3.0,
        "backoff_factor": 0.25,
        "growth_interval": 7,
        "_growth_tracker": 0,
    }
    other = tg.amp.GradScaler("cpu")
    other.load_state_dict(state)
    assert other.state_dict() == state
    other.update(tg.tensor([4.0]))
    assert other.get_scale() == 4.0
    assert (other.get_growth_factor(), other.get_backoff_factor()) == (3.0, 0.25)
    with pytest.raises(RuntimeError, match="empty"):
        other.load_state_dict({})
    with pytest.raises(ValueError, match="tensors"):
        other.scale(3)
    with pytest.raises(AssertionError, match="growth_factor"):
        tg.amp.GradScaler("cpu", growth_factor=1.0)
    with pytest.raises(AssertionError, match="backoff_factor"):
        tg.amp.GradScaler("cpu", backoff_factor=1.0)


def test_switched_off_it_passes_everything_through():
    (w,) = parameters(1.0)
    optimizer = tg.optim.SGD([w], lr=0.5)
    scaler = tg.amp.GradScaler("cpu", enabled=False)
    loss = w.sum()
    assert scaler.scale(loss) is loss
    loss.backward()
    scaler.unscale_(optimizer)
    assert scaler.step(optimizer, lambda: tg.tensor(3.0)).item() == 3.0
    scaler.update()
    assert (scaler.get_scale(), scaler.state_dict()) == (1.0, {})


OPTIMIZERS = {
    "sgd": lambda ps: tg.optim.SGD(ps, lr=0.1),
    "momentum": lambda ps: tg.optim.SGD(ps, lr=0.1, momentum=0.9),
    "adamw": lambda ps: tg.optim.AdamW(ps, lr=0.1),
    "rmsprop": lambda ps: tg.optim.RMSprop(ps, lr=0.01, momentum=0.5),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("first", [0, 3], ids=["finite first", "infinite first"])
def test_a_compiled_step_with_a_scaler(name, first):
    """Skipped steps, a growing scale and options that change, without Python in between."""
    factors = [1.0, 1.0, float("inf"), 1.0, 1.0, 1.0, float("nan"), 1.0, 1.0, 1.0]
    factors = [float("inf")] * first + factors

    def trained(compiled):
        (w,) = parameters(1.0)
        optimizer = OPTIMIZERS[name]([w])
        scaler = tg.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2)

        def step(factor):
            optimizer.zero_grad()
            loss = (w * w).sum() * factor
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_([w], 1.0)
            scaler.step(optimizer)
            scaler.update()
            return loss

        run = tg.compile(step) if compiled else step
        scales = []
        for i, factor in enumerate(factors):
            if i == len(factors) - 2:
                scaler.set_growth_factor(8.0)
            run(tg.tensor(factor))
            scales.append(scaler.get_scale())
        if compiled:
            assert sum(r.count for r in run.replays) >= 4
        states = {k: v.tolist() for k, v in optimizer.state[w].items() if v is not None}
        return scales, w.tolist(), states

    expected, got = trained(False), trained(True)
    assert got[0] == expected[0]
    np.testing.assert_allclose(got[1], expected[1], rtol=1e-5)
    assert got[2].keys() == expected[2].keys()
    for key in got[2]:
        np.testing.assert_allclose(got[2][key], expected[2][key], rtol=1e-5)


@pytest.mark.parametrize("part", ["unscale_", "clip and step", "step"])
def test_a_compiled_function_with_a_part_of_the_scaling_runs_eagerly(part):
    """In a replay the scaler would not notice: gradients would be divided twice, or never."""
    (w,) = parameters(1.0)
    optimizer = tg.optim.SGD([w], lr=0.1)
    scaler = tg.amp.GradScaler("cpu", init_scale=64.0)

    def backward():
        optimizer.zero_grad()
        scaler.scale((w * w).sum()).backward()

    def compiled():
        if part != "clip and step":
            backward()
        if part == "unscale_":
            scaler.unscale_(optimizer)
        else:
            if part == "clip and step":
                nn.utils.clip_grad_norm_([w], 100.0)
            scaler.step(optimizer)
        if part == "clip and step":
            scaler.update()

    run = tg.compile(compiled)
    for i in range(5):
        if part == "clip and step":
            backward()
            scaler.unscale_(optimizer)
        expected = w.detach() * 0.8
        with pytest.warns(UserWarning, match="GradScaler") if i == 0 else nullcontext():
            run()
        if part == "unscale_":
            scaler.step(optimizer)
        if part != "clip and step":
            scaler.update()
        assert w.allclose(expected)
