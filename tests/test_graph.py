"""Nodes of the graph, hooks on them, edges, saved tensors, inference mode, checkpoint's options."""

from __future__ import annotations

from typing import Any

import pytest

import tapegrad as tg
from tapegrad.autograd import graph

checkpoint = tg.utils.checkpoint.checkpoint


def leaf(*values: float) -> Any:
    return tg.tensor(values, requires_grad=True)


# -- hooks on nodes ----------------------------------------------------------------------------


def test_hooks_before_and_after_a_node() -> None:
    x = leaf(1.0, 2.0)
    y = x * 2
    seen: list[Any] = []

    def after(grad_inputs: Any, grad_outputs: Any) -> Any:
        seen.append((grad_inputs[0].tolist(), grad_outputs[0].tolist()))
        return tuple(None if g is None else g + 1 for g in grad_inputs)

    y.grad_fn.register_prehook(lambda gs: tuple(g * 3 for g in gs))
    y.grad_fn.register_prehook(lambda gs: None)
    handle = y.grad_fn.register_hook(after)
    y.register_hook(lambda g: g * 10)
    y.sum().backward(retain_graph=True)
    assert seen == [([60.0, 60.0], [30.0, 30.0])]
    assert x.grad.tolist() == [61, 61]
    handle.remove()
    x.grad = None
    y.sum().backward()
    assert x.grad.tolist() == [60, 60]


def test_hooks_of_a_node_with_a_broadcast_input() -> None:
    x, y = leaf(1.0), tg.ones(3, requires_grad=True)
    z = x * y
    shapes: list[Any] = []
    z.grad_fn.register_hook(lambda inputs, _: shapes.append([tuple(g.shape) for g in inputs]))
    z.sum().backward()
    assert shapes == [[(1,), (3,)]]
    assert x.grad.tolist() == [3]


def test_hooks_of_a_large_node() -> None:
    x = tg.ones(100_000, requires_grad=True)
    y = (x * 2).exp()
    y.grad_fn.register_hook(lambda inputs, _: (inputs[0] * 0,))
    (y + 1).sum().backward()
    assert not x.grad.any()


def test_a_hook_that_returns_too_few() -> None:
    y = leaf(1.0) * leaf(2.0)
    y.grad_fn.register_hook(lambda inputs, _: (inputs[0],))
    with pytest.raises(RuntimeError, match="as many values"):
        y.backward()


def test_grad_runs_hooks_of_tensors_but_not_of_the_node_it_ends_at() -> None:
    x = leaf(1.0)
    y = x * 2
    log: list[str] = []
    y.grad_fn.register_prehook(lambda gs: log.append("node"))
    y.register_hook(lambda g: log.append("tensor"))
    tg.autograd.grad((y * 3).sum(), y)
    assert log == ["tensor"]


def test_the_node_of_a_leaf() -> None:
    x = leaf(1.0)
    y = x.clone()
    node = y.grad_fn.next_functions[0][0]
    assert node is x.sin().grad_fn.next_functions[0][0]
    assert node.variable is x
    log: list[Any] = []
    node.register_prehook(lambda gs: (gs[0] * 5,))
    node.register_hook(lambda inputs, gs: log.append((inputs, gs[0].tolist(), x.grad.tolist())))
    x.register_hook(lambda g: g + 1)
    y.backward()
    assert x.grad.tolist() == [10]
    assert log == [((), [10.0], [10.0])]


def test_a_node_can_be_called() -> None:
    x = leaf(3.0)
    y = x * x
    first, second = y.grad_fn(tg.ones(1))
    assert first.tolist() == second.tolist() == [3]
    with pytest.raises(TypeError, match="expected 1"):
        y.grad_fn()
    with pytest.raises(TypeError, match="Tensor"):
        y.grad_fn("a")


def test_metadata_belongs_to_one_node() -> None:
    y = leaf(1.0).exp()
    y.grad_fn.metadata["a"] = 1
    assert y.grad_fn.metadata == {"a": 1}
    assert leaf(1.0).exp().grad_fn.metadata == {}


# -- saved tensors -----------------------------------------------------------------------------


def test_nodes_show_what_they_saved() -> None:
    x = leaf(1.0, 2.0)
    y = x * x
    assert y.grad_fn._saved_self is x
    assert y.grad_fn._saved_other is x
    z = y.exp()
    assert z.grad_fn._saved_result.tolist() == z.tolist()
    assert z.grad_fn._saved_result.grad_fn is z.grad_fn
    assert x.unsqueeze(0).sum(dim=1).grad_fn._saved_keepdim is False
    z.sum().backward()
    with pytest.raises(RuntimeError, match="are gone"):
        _ = z.grad_fn._saved_result
    with pytest.raises(AttributeError):
        _ = z.grad_fn._saved_nothing


def test_hooks_on_one_saved_tensor() -> None:
    x = leaf(3.0)
    y = x * x
    y.grad_fn._raw_saved_self.register_hooks(lambda t: t * 2, lambda t: t)
    assert y.grad_fn._saved_self.tolist() == [6]
    y.backward()
    assert x.grad.tolist() == [9]
    y = x.exp()

    def spoil(t: Any) -> Any:
        return t.detach().add_(1)

    with pytest.raises(RuntimeError, match="changed the tensor"):
        y.grad_fn._raw_saved_result.register_hooks(spoil, lambda t: t)
    with pytest.raises(RuntimeError, match="made by operations"):
        tg.autograd.SavedTensor()


def test_a_context_shows_its_attributes_on_the_node() -> None:
    class Twice(tg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.note = "here"
            ctx.save_for_backward(x)
            return x * 2, 7, x * 3

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            assert grads[1] is None
            return 2 * grads[0] + 3 * grads[2]

    x = leaf(1.0)
    y, seven, z = Twice.apply(x)
    assert seven == 7
    assert y.grad_fn.note == "here"
    assert y.grad_fn.saved_tensors[0] is x
    (y + z).backward()
    assert x.grad.tolist() == [5]


def test_saved_tensors_may_be_changed() -> None:
    x = leaf(1.0, 2.0)
    with graph.allow_mutation_on_saved_tensors() as kept:
        y = x.clone()
        part = y[:1]
        z = (y**2).sum()
        part.mul_(10)
        y.sin_()
        z.backward()
        with pytest.raises(RuntimeError, match="nested"), graph.allow_mutation_on_saved_tensors():
            pass
        w = (y**2).sum()
    assert x.grad.tolist() == [2, 4]
    assert not list(kept.cloned.items())
    with pytest.raises(AssertionError, match="must run there"):
        w.backward()


def test_saved_hooks_may_be_forbidden_and_saving_on_the_cpu_works() -> None:
    with (
        graph.disable_saved_tensors_hooks("not now"),
        pytest.raises(RuntimeError, match="not now"),
        graph.saved_tensors_hooks(lambda t: t, lambda t: t),
    ):
        pass
    x = leaf(2.0)
    with graph.save_on_cpu():
        y = x**3
    y.backward()
    assert x.grad.tolist() == [12]


def test_increment_version() -> None:
    x = leaf(2.0)
    y = x * 1
    z = y * y
    graph.increment_version(y)
    assert y._version == 1
    with pytest.raises(RuntimeError, match="changed in place"):
        z.backward()


# -- edges and several tensors -----------------------------------------------------------------


def test_gradients_at_edges() -> None:
    x = leaf(1.0).clone()
    edge = graph.get_gradient_edge(x)
    x *= 2
    old, new = tg.autograd.grad(x.sum(), (edge, x))
    assert (old.item(), new.item()) == (2, 1)
    start = leaf(3.0)
    (g,) = tg.autograd.grad((start * 2).sum(), graph.get_gradient_edge(start))
    assert g.item() == 2
    y, other = start * 2, leaf(1.0).clone()
    edges = [graph.GradientEdge(t.grad_fn, t.output_nr) for t in (y, other)]
    tg.autograd.backward((y * 3).sum(), inputs=edges)
    with pytest.raises(RuntimeError, match="GradientEdge"):
        tg.autograd.grad((y * 3).sum(), edges, materialize_grads=True)
    with pytest.raises(RuntimeError, match="require"):
        graph.get_gradient_edge(tg.ones(1))


def test_hooks_on_several_tensors() -> None:
    a, b, c = leaf(1.0), leaf(2.0), leaf(3.0)
    seen: list[Any] = []

    def note(gradients: Any) -> None:
        seen.append([None if g is None else g.item() for g in gradients])

    handle = graph.register_multi_grad_hook((a, b, c), note)
    out = a * b
    out.backward(retain_graph=True)
    out.backward(inputs=[b], retain_graph=True)
    assert seen == [[2, 1, None], [None, 1, None]]
    handle.remove()
    out.backward(retain_graph=True)
    assert len(seen) == 2
    first: list[float] = []
    graph.register_multi_grad_hook((a, b), lambda g: first.append(g.item()), mode="any")
    out.backward()
    assert len(first) == 1
    with pytest.raises(ValueError, match="mode"):
        graph.register_multi_grad_hook((a,), note, mode="some")


def test_materialized_gradients_can_be_differentiated() -> None:
    x = leaf(0.5)
    y = x * leaf(1.0)
    first = tg.autograd.grad(y, x, create_graph=True)
    second = tg.autograd.grad(first, x, create_graph=True, materialize_grads=True)
    third = tg.autograd.grad(second, x, materialize_grads=True)
    assert second[0].item() == third[0].item() == 0
    with pytest.raises(ValueError, match="allow_unused"):
        tg.autograd.grad(y, x, allow_unused=False, materialize_grads=True)


def test_a_callback_at_the_end_of_backward() -> None:
    x = leaf(1.0)
    log: list[Any] = []

    def hook(g: Any) -> None:
        tg.autograd.Variable._execution_engine.queue_callback(lambda: log.append(x.grad.item()))

    y = x * 2
    y.register_hook(hook)
    y.backward()
    assert log == [2]


# -- inference mode ----------------------------------------------------------------------------


def test_tensors_of_inference_mode() -> None:
    normal = tg.ones(2)
    with tg.inference_mode():
        made, computed, drawn, view = tg.ones(2), normal * 2, tg.rand(2), normal[:1]
        made.add_(1)
        normal.add_(1)
    assert made.is_inference()
    assert computed.is_inference()
    assert tg.is_inference(drawn)
    assert not normal.is_inference()
    assert not view.is_inference()
    assert made[:1].is_inference()
    assert not (made * 2).is_inference()
    assert not made.clone().is_inference()
    with pytest.raises(RuntimeError, match="made inside of inference_mode"):
        made.add_(1)
    with pytest.raises(RuntimeError, match="made inside of inference_mode"):
        made[:1].add_(1)
    with pytest.raises(RuntimeError, match="made inside of inference_mode"):
        made.requires_grad_()
    with pytest.raises(RuntimeError, match="no version"):
        _ = made._version
    assert (made * leaf(1.0)).requires_grad


# -- Function ----------------------------------------------------------------------------------


def test_details_of_functions() -> None:
    class Same(tg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:  # type: ignore[override]
            return g

    with pytest.raises(RuntimeError, match="static methods"):
        Same()(leaf(1.0))
    assert Same.generate_vmap_rule is False

    class Other(Same):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            out = x * 2
            ctx.mark_dirty(out)
            return out

    with pytest.warns(UserWarning, match="mark_dirty"):
        assert Other.apply(leaf(1.0)).tolist() == [2]


# -- checkpoint --------------------------------------------------------------------------------


def test_options_of_checkpoint() -> None:
    x = leaf(1.0)
    calls: list[int] = []

    def function(x: Any) -> Any:
        y = x.sin().exp()
        calls.append(len(calls))
        return y

    checkpoint(function, x, use_reentrant=False, debug=True).backward()
    assert calls == [0]  # all that backward needs was there before the second note
    checkpoint(function, x, use_reentrant=False, early_stop=False).backward()
    assert calls == [0, 1, 2]
    with tg.utils.checkpoint.set_checkpoint_early_stop(False):
        checkpoint(function, x, use_reentrant=False).backward()
    assert len(calls) == 5
    checkpoint(function, x).backward()  # either value of use_reentrant means the same: no warning
    assert len(calls) == 6


def test_contexts_of_checkpoint() -> None:
    log: list[str] = []

    class Noted:
        def __init__(self, name: str) -> None:
            self.name = name

        def __enter__(self) -> None:
            log.append(self.name)

        def __exit__(self, *exc: object) -> None:
            pass

    x = leaf(1.0)
    out = checkpoint(
        lambda x: x.sin().exp(),
        x,
        use_reentrant=False,
        context_fn=lambda: (Noted("first"), Noted("again")),
    )
    assert log == ["first"]
    out.backward()
    assert log == ["first", "again"]


def test_numpy_of_a_tensor_that_requires_gradients() -> None:
    x = leaf(1.0)
    with pytest.raises(RuntimeError, match="detach"):
        x.numpy()
    with tg.no_grad():
        assert x.numpy().tolist() == [1]
    x.grad = tg.ones(1)
    del x.grad
    assert x.grad is None
