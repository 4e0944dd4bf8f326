"""Explicit tapes: they record everything, print, count and differentiate."""

import numpy as np
import pytest

import tapegrad as tg


def test_gradients_of_everything_recorded():
    x, w = tg.randn(10, 5), tg.randn(5, 3)
    tape = tg.Tape()
    with tape:
        y = x @ w
        loss = y.sum()
    grads = tape.backward(loss)
    np.testing.assert_allclose(grads.get(x).numpy(), np.ones((10, 3)) @ w.numpy().T, 1e-5, 1e-5)
    np.testing.assert_allclose(grads.get(w).numpy(), x.numpy().T @ np.ones((10, 3)), 1e-5, 1e-5)
    assert grads[y].tolist() == np.ones((10, 3)).tolist()
    assert grads[loss].item() == 1
    assert x.grad is None, ".grad is filled only for leaves that require it"
    assert not loss.requires_grad


def test_start_and_stop():
    tape = tg.Tape()
    tape.start_recording()
    x = tg.ones(2)
    y = x * 3
    tape.stop_recording()
    _ = y * 5
    assert [e.primitive.name for e in tape] == ["mul"]
    assert tape.backward(y, tg.ones(2)).get(x).tolist() == [3, 3]


def test_backward_without_a_loss_takes_the_last_result():
    tape = tg.GradientTape()
    tape.enable()
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    (x * x).sum()
    tape.backward()
    tape.disable()
    assert x.grad.tolist() == [2, 4]
    with pytest.raises(RuntimeError, match="empty"):
        tg.Tape().backward()


def test_retain_graph_and_clearing():
    x = tg.tensor([1.0, 2.0])
    with tg.Tape() as tape:
        a = (x * x).sum()
        b = (x * 3).sum()
    first = tape.backward(a, retain_graph=True)
    second = tape.backward(b)
    assert first[x].tolist() == [2, 4]
    assert second[x].tolist() == [3, 3]
    assert len(tape) == 0


def test_reentering_a_tape():
    tape = tg.Tape()
    x = tg.tensor([2.0])
    for k in range(3):
        with tape:
            loss = (x * float(k)).sum()
        assert tape.backward(loss)[x].item() == k


def test_nested_tapes_both_record():
    x = tg.tensor([2.0])
    with tg.Tape() as outer:
        y = x * 3
        with tg.Tape() as inner:
            z = y * y
    assert len(outer) == 2
    assert len(inner) == 1
    assert inner.backward(z, retain_graph=True)[y].item() == 12
    assert outer.backward(z)[x].item() == 36


def test_detach_and_no_grad_cut():
    x = tg.tensor([2.0])
    with tg.Tape() as tape:
        y = x * 3
        with tg.no_grad():
            q = y * 2
        loss = (y.detach() * x + q).sum()
    assert len(tape) == 6
    grads = tape.backward(loss)
    assert grads[x].item() == 6
    assert y not in grads


def test_it_is_a_sequence_that_prints():
    x = tg.ones(2, 3)
    with tg.Tape() as tape:
        _ = (x.exp() + 1).sum(0)
    assert len(tape) == 3
    assert [e.primitive.name for e in tape[1:]] == ["add", "sum"]
    assert tape[0].primitive.name == "exp"
    text = str(tape)
    assert "exp(" in text
    assert "float32[2, 3]" in text
    assert "test_tape.py:" in text
    tape.clear()
    assert len(tape) == 0


def test_memory_stats_count_saved_bytes():
    x = tg.ones(100)
    with tg.Tape() as tape:
        y = x.exp()
        _ = y + 1
    stats = tape.memory_stats()
    assert stats.entries == 2
    assert stats.saved_bytes == 400
    assert stats.by_primitive == {"exp": 400}
    assert "exp" in str(stats)


def test_in_place_under_a_tape():
    x = tg.tensor([1.0, 2.0, 3.0])
    w = tg.tensor([2.0, 2.0])
    with tg.Tape() as tape:
        y = x * 1
        y[1:] = w * 5
        y.mul_(3)
        loss = y.sum()
    grads = tape.backward(loss)
    assert grads[x].tolist() == [3, 0, 0]
    assert grads[w].tolist() == [15, 15]
    assert grads[y].tolist() == [1, 1, 1]


def test_in_place_on_an_outside_tensor_under_a_tape():
    x = tg.tensor([1.0, 2.0])
    with tg.Tape() as tape:
        y = x * 2
        x.mul_(3)
        loss = (y + x).sum()
    grads = tape.backward(loss)
    assert grads[y].tolist() == [1, 1]
    assert grads[x].tolist() == [1, 1]


def test_a_failing_operation_leaves_the_tape_as_it_was():
    with tg.Tape() as tape:
        x = tg.ones(3)
        y = x * 2
        with pytest.raises(RuntimeError):
            _ = y + tg.ones(4)
        with pytest.raises(IndexError):
            y.sum(dim=5)
    assert [e.primitive.name for e in tape] == ["mul"]
    assert tg.is_grad_enabled()


def test_gradient_of_chosen_sources():
    x, y = tg.tensor(2.0), tg.tensor(3.0)
    with tg.Tape(persistent=True) as tape:
        z = x * y
    assert tape.gradient(z, x).item() == 3
    gx, gy = tape.gradient(z, [x, y])
    assert (gx.item(), gy.item()) == (3, 2)


def test_composites_are_one_entry():
    x = tg.randn(2, 3)
    with tg.Tape() as tape:
        x.mean(1)
        x.logsumexp(1)
    assert [e.primitive.name for e in tape] == ["mean", "logsumexp"]


def test_create_graph_on_a_tape():
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    with tg.Tape() as tape:
        y = (x**3).sum()
    g = tape.backward(y, create_graph=True)[x]
    (h,) = tg.autograd.grad(g.sum(), x)
    assert h.tolist() == [6, 12]


@pytest.mark.parametrize("genuine", [False, True])
def test_only_changes_through_data_are_excused(genuine):
    p = tg.ones(3, requires_grad=True)
    with tg.Tape():
        y = (p * p).sum()
        p.data.mul_(2)
        if genuine:
            with tg.no_grad():
                p.add_(1)
            p.data.mul_(2)
            with pytest.raises(RuntimeError, match="changed in place"):
                y.backward()
        else:
            y.backward()
            assert p.grad.tolist() == [4, 4, 4]
