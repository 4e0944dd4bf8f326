"""Spellings that PyTorch code uses: constructors, keywords, shapes, printing, derivatives."""

import numpy as np
import pytest

import tapegrad as torch
from tapegrad.autograd import functional
from tapegrad.core.switches import switches


def test_the_constructor():
    assert torch.Tensor([1, 2]).dtype is torch.float32
    assert torch.Tensor(np.array([1, 2])).dtype is torch.float32
    assert torch.Tensor(3).shape == (3,)
    assert torch.Tensor(2, 3).shape == (2, 3)
    assert torch.Tensor().shape == (0,)
    made = torch.Tensor([1, 2], "cpu", torch.float64, True)
    assert made.dtype is torch.float64
    assert made.requires_grad
    assert torch.nn.Parameter(torch.Tensor(4, 2)).requires_grad
    with pytest.raises(TypeError, match="at most 3"):
        torch.Tensor([1.0], "cpu", torch.float32, False, 7)


def test_sizes():
    shape = torch.zeros(2, 3, 4).shape
    assert shape[1:].numel() == 12
    assert (shape[:1] + torch.Size([5])).numel() == 10
    x = torch.zeros(2, 3)
    assert x.size() == (2, 3)
    assert x.size(0) == 2
    assert x.size(-1) == 3
    assert x.numel() == x.nelement() == 6


def test_keywords():
    x = torch.ones(2, 3)
    assert torch.exp(input=x).shape == (2, 3)
    assert torch.rand(size=(2, 2)).shape == (2, 2)
    assert torch.randint(10, size=(4,)).max() < 10
    assert torch.randint(high=3, size=(4,)).max() < 3
    assert torch.randint(2, 5, (4,)).min() >= 2
    assert torch.device(type="cpu") == torch.device("cpu")
    with pytest.raises(TypeError, match="size"):
        torch.randint(3)


def test_formatting():
    loss = torch.tensor(2.5, requires_grad=True)
    assert f"{loss}" == "2.5"
    assert f"{loss:.3f}" == "2.500"
    assert f"{torch.ones(2)}" == "tensor([1., 1.])"


@pytest.mark.filterwarnings("ignore:a mask of uint8")
def test_masks():
    x = torch.arange(3)
    assert x[torch.tensor([0, 1, 1], dtype=torch.uint8)].tolist() == [1, 2]
    assert x[torch.tensor(True)].shape == (1, 3)
    assert x[x.sum() > 100].shape == (0, 3)
    x[x.sum() > 100] = 0
    assert x.tolist() == [0, 1, 2]


def test_arrays_beside_tensors():
    x = torch.ones(2, 2)
    assert (x @ np.ones((2, 1), np.float32)).tolist() == [[2], [2]]
    assert (np.ones((1, 2), np.float32) @ x).tolist() == [[2, 2]]
    linear = torch.nn.Linear(2, 1)
    for call in (
        lambda: linear(np.ones((1, 2))),
        lambda: torch.nn.functional.cross_entropy(x, np.array([0, 1])),
        lambda: torch.allclose(x, np.ones((2, 2))),
        lambda: torch.cat([x, np.ones((2, 2))]),
    ):
        with pytest.raises(TypeError, match=r"expected a Tensor, got ndarray"):
            call()


def test_expanded_memory_is_not_written():
    with pytest.raises(RuntimeError, match="clone"):
        torch.ones(2, 1).expand(2, 3).add_(1)


def test_only_inputs():
    x = torch.ones(2, requires_grad=True)
    (g,) = torch.autograd.grad((x * 2).sum(), x, only_inputs=True)
    assert g.tolist() == [2, 2]


def test_anomaly_leaves_metrics_alone():
    with torch.autograd.detect_anomaly():
        assert torch.zeros(0).mean().isnan()


def test_derivatives_at_a_point():
    x = torch.tensor([1.0, 2.0], dtype=torch.float64)
    assert functional.jacobian(lambda v: v**2, x).tolist() == [[2, 0], [0, 4]]
    rows = functional.jacobian(lambda a, b: a * b, (x, x))
    assert [r.tolist() for r in rows] == [[[1, 0], [0, 2]]] * 2
    pairs = functional.jacobian(lambda a, b: (a * b, a.sum()), (x, x))
    assert pairs[1][0].tolist() == [1, 1]
    assert pairs[1][1].tolist() == [0, 0]
    assert functional.hessian(lambda v: (v**3).sum(), x).tolist() == [[6, 0], [0, 12]]
    ((aa, ab), _) = functional.hessian(lambda a, b: (a * a * b).sum(), (x, x))
    assert aa.tolist() == [[2, 0], [0, 4]]
    assert ab.tolist() == [[2, 0], [0, 4]]
    assert functional.vjp(lambda v: v**2, x, x)[1].tolist() == [2, 8]
    assert functional.jvp(lambda v: v**2, x, x)[1].tolist() == [2, 8]
    assert functional.hvp(lambda v: (v**3).sum(), x, x)[1].tolist() == [6, 24]


def test_headers_of_scripts():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    first = torch.rand(2, device=device).tolist()
    torch.cuda.manual_seed_all(0)
    torch.cuda.empty_cache()
    assert torch.rand(2, device=device).tolist() == first
    assert torch.full((1,), -torch.inf).item() == -np.inf
    assert torch.tensor(torch.nan).isnan()
    assert torch.sin(torch.tensor(torch.pi / 2)).item() == 1
    assert torch.ones(2)[:, torch.newaxis].shape == (2, 1)


def test_constructors_of_one_dtype():
    assert torch.FloatTensor([1, 2]).dtype is torch.float32
    assert torch.LongTensor([[1, 2]]).tolist() == [[1, 2]]
    assert torch.LongTensor([[1, 2]]).dtype is torch.int64
    assert torch.ByteTensor([1]).dtype is torch.uint8
    assert torch.DoubleTensor(2, 3).shape == (2, 3)
    assert torch.BoolTensor([True, False]).dtype is torch.bool
    assert torch.FloatTensor().shape == (0,)
    assert torch.FloatTensor(np.array([1.5])).tolist() == [1.5]
    assert isinstance(torch.zeros(2), torch.FloatTensor)
    assert not isinstance(torch.zeros(2), torch.LongTensor)
    assert not isinstance(1.0, torch.FloatTensor)
    with pytest.raises(TypeError, match=r"expected tapegrad\.float32"):
        torch.FloatTensor(torch.zeros(2, dtype=torch.int64))
    with pytest.raises(TypeError, match="data, or sizes"):
        torch.FloatTensor([1], [2])


def test_switches_of_backends_by_their_import_lines():
    import tapegrad.backends.cudnn as cudnn
    from tapegrad.backends import mps

    assert cudnn is torch.backends.cudnn
    before = cudnn.enabled, cudnn.benchmark
    with cudnn.flags(enabled=False, benchmark=True):
        assert (cudnn.enabled, cudnn.benchmark) == (False, True)
    assert (cudnn.enabled, cudnn.benchmark) == before
    assert cudnn.version() is None
    assert not cudnn.is_available()
    assert not mps.is_built()


def test_switches_of_backends(monkeypatch):
    for name in ("precision", "deterministic"):
        monkeypatch.setattr(switches, name, getattr(switches, name))  # what it is afterwards too
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.deterministic = True
    torch.backends.cuda.matmul.allow_tf32 = True
    assert torch.backends.cudnn.benchmark
    assert not torch.backends.mps.is_available()
    assert torch.backends.cuda.is_built() == torch.cuda.is_available()
    torch.set_float32_matmul_precision("high")
    assert torch.get_float32_matmul_precision() == "high"
    with pytest.raises(RuntimeError, match="highest"):
        torch.set_float32_matmul_precision("low")
    torch.use_deterministic_algorithms(True)
    assert torch.are_deterministic_algorithms_enabled()
    x = torch.ones(1, 2, 3, 3).to(memory_format=torch.channels_last)
    assert x.contiguous(memory_format=torch.contiguous_format).is_contiguous()
    assert torch.nn.Conv2d(2, 2, 1).to(memory_format=torch.channels_last)(x).shape == (1, 2, 3, 3)
    assert x.is_cpu
    assert x.get_device() == -1
    assert not x.is_complex()


def test_named_results():
    x = torch.tensor([[3.0, 1.0, 2.0]])
    assert x.max(1).values.tolist() == [3]
    assert x.sort(1).indices.tolist() == [[1, 2, 0]]
    values, indices = x.topk(2)
    assert values.tolist() == [[3, 2]]
    assert indices.tolist() == [[0, 2]]


def test_results_of_permuted_tensors_can_be_viewed():
    x = torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1)
    index = torch.tensor([1, 0])
    made = {
        "cat": torch.cat([torch.zeros(1, 2, 3), x]),
        "stack": torch.stack([x, x], 1),
        "sum": x.sum(1),
        "mean": x.mean(-1, keepdim=True),
        "prod": x.prod(1),
        "amax": x.amax(1),
        "min": x.min(1).values,
        "var": x.var(-1),
        "softmax": x.softmax(-1),
        "log_softmax": x.log_softmax(0),
        "layer_norm": torch.nn.functional.layer_norm(x, (3,)),
        "batch_norm": torch.nn.functional.batch_norm(x, None, None, training=True),
        "index": x[:, index],
        "index_select": x.index_select(1, index),
        "roll": x.roll(1, 0),
        "tril": x.tril(),
        "masked_fill": x.masked_fill(x > 3, 0.0),
        "repeat_interleave": x.repeat_interleave(2, 1),
    }
    for name, result in made.items():
        assert result.is_contiguous(), name
        assert result.view(-1).tolist() == result.flatten().tolist()


def test_the_method_split_has_a_name_of_its_own():
    x = torch.arange(6).reshape(2, 3)
    assert [p.tolist() for p in x.split(split_size=[1, 2], dim=1)] == [[[0], [3]], [[1, 2], [4, 5]]]
    assert len(torch.split(x, split_size_or_sections=1)) == 2


def test_runs_of_equal_elements():
    x = torch.tensor([2, 2, 0, 0, 0, 2])
    values, runs, counts = torch.unique_consecutive(x, return_inverse=True, return_counts=True)
    assert values.tolist() == [2, 0, 2]
    assert runs.tolist() == [0, 0, 1, 1, 1, 2]
    assert counts.tolist() == [2, 3, 1]
    assert x[:0].unique_consecutive().tolist() == []


def test_renorm():
    w = torch.tensor([[3.0, 4.0], [0.3, 0.4]])
    w.renorm_(2, 0, 1.0)
    np.testing.assert_allclose(w.numpy(), [[0.6, 0.8], [0.3, 0.4]], rtol=1e-6)
    with pytest.raises(RuntimeError, match="2 dimensions"):
        torch.ones(3).renorm(2, 0, 1.0)
    with pytest.raises(RuntimeError, match="maxnorm"):
        w.renorm(2, 0, -1.0)
