"""Distributions: values, gradients, divergences and errors compared with PyTorch's."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import tapegrad as tg
from tapegrad import distributions as ours

theirs = torch.distributions

_PD = [[2.0, 0.3, -0.1], [0.3, 1.5, 0.2], [-0.1, 0.2, 1.1]]
_TRIL = [[1.2, 0.0, 0.0], [0.4, 0.9, 0.0], [-0.3, 0.2, 1.4]]
_PROBS = [[0.1, 0.2, 0.7], [0.25, 0.5, 0.25]]

#: class, parameters (floats and lists become float64 tensors with gradients; others stay)
CASES: list[tuple[str, dict[str, Any]]] = [
    ("Bernoulli", {"probs": [0.7, 0.2, 0.4]}),
    ("Bernoulli", {"logits": [[-1.0, 2.0]]}),
    ("Beta", {"concentration1": [0.5, 2.0, 7.0], "concentration0": [0.7, 1.0, 3.0]}),
    ("Binomial", {"total_count": 5, "probs": [0.3, 0.9]}),
    ("Binomial", {"total_count": 4, "logits": [0.3, -0.9]}),
    ("Categorical", {"probs": _PROBS}),
    ("Categorical", {"logits": [0.3, -1.0, 2.0, 0.0]}),
    ("Cauchy", {"loc": [0.0, 1.0], "scale": [1.0, 0.25]}),
    ("Chi2", {"df": [1.0, 3.5]}),
    ("ContinuousBernoulli", {"probs": [0.7, 0.2, 0.5, 0.4995]}),
    ("ContinuousBernoulli", {"logits": [1.7, -0.2, 0.0]}),
    ("Dirichlet", {"concentration": [[0.5, 1.5, 3.0], [2.0, 2.0, 9.0]]}),
    ("Dirichlet", {"concentration": [0.5, 0.4, 0.3]}),
    ("Exponential", {"rate": [0.5, 3.0]}),
    ("FisherSnedecor", {"df1": [1.0, 3.0, 8.0], "df2": [1.5, 3.0, 9.0]}),
    ("Gamma", {"concentration": [0.5, 2.0], "rate": [1.5, 0.3]}),
    ("GeneralizedPareto", {"loc": [0.0, 1.0, 0.5], "scale": [1.0, 2.0, 0.5],
                           "concentration": [0.0, 0.3, -0.4]}),
    ("Geometric", {"probs": [0.2, 0.7]}),
    ("Geometric", {"logits": [0.2, -0.7]}),
    ("Gumbel", {"loc": [0.0, 2.0], "scale": [1.0, 0.5]}),
    ("HalfCauchy", {"scale": [1.0, 0.5]}),
    ("HalfNormal", {"scale": [1.0, 0.5]}),
    ("InverseGamma", {"concentration": [0.5, 1.5, 4.0], "rate": [1.5, 0.3, 2.0]}),
    ("Kumaraswamy", {"concentration1": [0.5, 2.0], "concentration0": [0.7, 3.0]}),
    ("LKJCholesky", {"dim": 3, "concentration": [0.5, 2.0]}),
    ("Laplace", {"loc": [0.0, 2.0], "scale": [1.0, 0.5]}),
    ("LogNormal", {"loc": [0.0, 2.0], "scale": [1.0, 0.5]}),
    ("LogisticNormal", {"loc": [[0.0, 2.0]], "scale": [[1.0, 0.5]]}),
    ("LowRankMultivariateNormal", {"loc": [[0.5, -1.0, 2.0]], "cov_factor": [[1.0], [0.2], [-0.4]],
                                   "cov_diag": [1.0, 0.5, 2.0]}),
    ("Multinomial", {"total_count": 4, "probs": _PROBS}),
    ("Multinomial", {"total_count": 3, "logits": [0.3, -1.0, 2.0]}),
    ("MultivariateNormal", {"loc": [[0.5, -1.0, 2.0], [0.0, 0.0, 1.0]], "covariance_matrix": _PD}),
    ("MultivariateNormal", {"loc": [0.5, -1.0, 2.0], "precision_matrix": _PD}),
    ("MultivariateNormal", {"loc": [0.5, -1.0, 2.0], "scale_tril": [_TRIL, _TRIL]}),
    ("NegativeBinomial", {"total_count": [3.0, 0.7], "probs": [0.3, 0.9]}),
    ("NegativeBinomial", {"total_count": 4, "logits": [0.3, -0.9]}),
    ("Normal", {"loc": [0.0, 2.0], "scale": [1.0, 0.5]}),
    ("Normal", {"loc": 0.5, "scale": 2.0}),
    ("OneHotCategorical", {"probs": _PROBS}),
    ("OneHotCategoricalStraightThrough", {"logits": [0.3, -1.0, 2.0]}),
    ("Pareto", {"scale": [1.0, 0.5, 2.0], "alpha": [0.5, 1.5, 4.0]}),
    ("Poisson", {"rate": [0.3, 4.0]}),
    ("RelaxedBernoulli", {"temperature": 0.5, "probs": [0.2, 0.7]}),
    ("RelaxedOneHotCategorical", {"temperature": 0.7, "probs": _PROBS}),
    ("RelaxedOneHotCategorical", {"temperature": 0.7, "logits": [0.3, -1.0, 2.0]}),
    ("StudentT", {"df": [0.5, 1.5, 5.0], "loc": [0.0, 1.0, 2.0], "scale": [1.0, 0.5, 2.0]}),
    ("Uniform", {"low": [0.0, -1.0], "high": [1.0, 3.0]}),
    ("VonMises", {"loc": [0.0, 1.0], "concentration": [0.5, 8.0]}),
    ("Weibull", {"scale": [1.0, 0.5], "concentration": [0.7, 3.0]}),
    ("Wishart", {"df": [4.0, 5.5], "covariance_matrix": _PD}),
    ("Wishart", {"df": 4.0, "scale_tril": _TRIL}),
    ("Wishart", {"df": 4.0, "precision_matrix": _PD}),
]  # fmt: skip
IDS = [f"{name}-{'-'.join(p)}-{i}" for i, (name, p) in enumerate(CASES)]

#: PyTorch computes its Bessel functions by polynomials with errors of 1e-7
LOOSE = {"VonMises": 1e-6}


@pytest.fixture(autouse=True)
def _double() -> Iterator[None]:
    """PyTorch's GeneralizedPareto compares with a number of the default dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def made(library: Any, name: str, given: dict[str, Any]) -> tuple[Any, list[Any]]:
    """A distribution of a library, and its parameters."""
    leaves = []
    arguments = {}
    for key, value in given.items():
        if isinstance(value, (list, float)):
            leaf = library.tensor(value, dtype=library.float64, requires_grad=True)
            arguments[key] = leaf
            leaves.append(leaf)
        else:
            arguments[key] = value
    return getattr(library.distributions, name)(**arguments), leaves


def array(x: Any) -> Any:
    return x.detach().numpy()


def check(a: Any, b: Any, what: str, tolerance: float = 1e-9) -> None:
    assert tuple(a.shape) == tuple(b.shape), what
    assert str(a.dtype).rpartition(".")[2] == str(b.dtype).rpartition(".")[2], what
    np.testing.assert_allclose(array(a), array(b), tolerance, tolerance, err_msg=what)


def gradients(library: Any, result: Any, leaves: list[Any]) -> list[Any]:
    if not result.requires_grad:
        return [None for _ in leaves]
    weights = np.linspace(0.5, 1.5, max(1, math.prod(result.shape))).reshape(tuple(result.shape))
    total = (result * library.tensor(weights, dtype=result.dtype)).sum()
    return list(library.autograd.grad(total, leaves, allow_unused=True, retain_graph=True))


def compare(name: str, what: str, pair: list[Any], leaves: list[list[Any]]) -> None:
    """Results and their gradients are equal."""
    tolerance = LOOSE.get(name, 1e-9)
    check(pair[0], pair[1], what, tolerance)
    if not np.isfinite(array(pair[1])).all():
        return
    found = gradients(tg, pair[0], leaves[0])
    try:
        expected = gradients(torch, pair[1], leaves[1])
    except NotImplementedError:  # PyTorch cannot: tests/test_distributions.py checks by differences
        return
    for i, (g, h) in enumerate(zip(found, expected, strict=True)):
        if h is None or not h.isfinite().all():
            continue
        got = np.zeros(tuple(h.shape)) if g is None else array(g)
        tolerance = max(LOOSE.get(name, 0.0) * 100, 1e-8)
        np.testing.assert_allclose(got, array(h), tolerance, tolerance, err_msg=f"{what} {i}")


def values_of(d: Any) -> Any:
    """Samples of PyTorch's distribution as an array."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return d.sample((3,)).detach().numpy()


@pytest.mark.parametrize(("name", "given"), CASES, ids=IDS)
def test_values_and_gradients(name: str, given: dict[str, Any]) -> None:
    (a, own), (b, other) = made(tg, name, given), made(torch, name, given)
    leaves = [own, other]
    assert tuple(a.batch_shape) == tuple(b.batch_shape)
    assert tuple(a.event_shape) == tuple(b.event_shape)
    if name != "VonMises":
        assert a.has_rsample == b.has_rsample
    assert a.has_enumerate_support == b.has_enumerate_support
    assert a.support.event_dim == b.support.event_dim
    assert a.support.is_discrete == b.support.is_discrete
    assert repr(a).replace("Size(", "torch.Size(") == repr(b)
    for what in ("mean", "variance", "stddev", "mode"):
        try:
            expected = getattr(b, what)
        except NotImplementedError:
            with pytest.raises(NotImplementedError):
                getattr(a, what)
        else:
            compare(name, what, [getattr(a, what), expected], leaves)
    try:
        expected = b.entropy()
    except NotImplementedError:
        with pytest.raises(NotImplementedError):
            a.entropy()
    else:
        compare(name, "entropy", [a.entropy(), expected], leaves)
    values = values_of(b)
    wanted = values.dtype.kind == "f"
    x, y = tg.tensor(values, requires_grad=wanted), torch.tensor(values, requires_grad=wanted)
    also = [[*own, x], [*other, y]] if wanted else leaves
    compare(name, "log_prob", [a.log_prob(x), b.log_prob(y)], also)
    for what in ("cdf", "icdf"):
        points = values
        if what == "icdf":
            shape = (3, *a.batch_shape)
            points = np.linspace(0.05, 0.95, math.prod(shape)).reshape(shape)
        x, y = tg.tensor(points), torch.tensor(points)
        try:
            expected = getattr(b, what)(y)
        except NotImplementedError:
            with pytest.raises(NotImplementedError):
                getattr(a, what)(x)
        else:
            compare(name, what, [getattr(a, what)(x), expected], leaves)
    if b.has_enumerate_support:
        for expand in (True, False):
            check(a.enumerate_support(expand), b.enumerate_support(expand), "enumerate_support")


@pytest.mark.parametrize(("name", "given"), CASES, ids=IDS)
def test_expand_and_independent(name: str, given: dict[str, Any]) -> None:
    a, b = made(tg, name, given)[0], made(torch, name, given)[0]
    shape = (2, 3, *b.batch_shape)
    wide, expected = a.expand(shape), b.expand(shape)
    assert type(wide) is type(a)
    assert tuple(wide.batch_shape) == shape
    values = values_of(expected)
    tolerance = LOOSE.get(name, 1e-9)
    found = wide.log_prob(tg.tensor(values))
    check(found, expected.log_prob(torch.tensor(values)), "expand", tolerance)
    assert tuple(wide.sample((4,)).shape) == (4, *shape, *b.event_shape)
    joint, other = ours.Independent(wide, 2), theirs.Independent(expected, 2)
    assert tuple(joint.event_shape) == tuple(other.event_shape)
    found = joint.log_prob(tg.tensor(values))
    check(found, other.log_prob(torch.tensor(values)), "Independent", tolerance)


# -- divergences -----------------------------------------------------------------------------------

PAIRS = sorted(
    (p.__name__, q.__name__)
    for p, q in theirs.kl._KL_REGISTRY
    if "Independent" not in (p.__name__, q.__name__)
    and not {"TransformedDistribution", "ExponentialFamily"} & {p.__name__, q.__name__}
)


def cases_of(name: str) -> list[dict[str, Any]]:
    return [given for label, given in CASES if label == name]


def cut(given: dict[str, Any]) -> dict[str, Any]:
    """Parameters of numbers: two of each, so that those of all classes broadcast."""
    matrices = {"cov_factor", "covariance_matrix", "precision_matrix", "scale_tril", "logits"}
    if matrices & given.keys() or ("concentration" in given and len(given) == 1):
        return given
    return {k: v[:2] if isinstance(v, list) else v for k, v in given.items()}


def widened(given: dict[str, Any]) -> dict[str, Any]:
    """Other parameters of the same kind."""
    out = {}
    for key, value in given.items():
        if not isinstance(value, list) or key in ("covariance_matrix", "precision_matrix"):
            out[key] = value
        elif key in ("low", "high"):
            out[key] = [v * 0.5 + 0.25 for v in value]
        else:
            out[key] = np.array(value).tolist()[::-1] if key != "scale_tril" else value
    return out


@pytest.mark.parametrize(("p", "q"), PAIRS, ids=["-".join(pair) for pair in PAIRS])
def test_divergences(p: str, q: str) -> None:
    assert any((a.__name__, b.__name__) == (p, q) for a, b in ours.kl._KL_REGISTRY)
    compared = 0
    for one, two in itertools.product(map(cut, cases_of(p)), map(cut, cases_of(q))):
        for given in (two, widened(two)):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    b, other = made(torch, p, one)
                    d, more = made(torch, q, given)
                    expected = theirs.kl_divergence(b, d)
            except (RuntimeError, NotImplementedError, ValueError, IndexError):
                continue
            a, own = made(tg, p, one)
            c, also = made(tg, q, given)
            found = ours.kl_divergence(a, c)
            compare(p, f"{one} {given}", [found, expected], [[*own, *also], [*other, *more]])
            compared += 1
    assert compared


def test_all_registered_pairs_are_there() -> None:
    found = {(a.__name__, b.__name__) for a, b in ours.kl._KL_REGISTRY}
    assert found >= {(a.__name__, b.__name__) for a, b in theirs.kl._KL_REGISTRY}


def test_names() -> None:
    missing = set(theirs.__all__) - set(ours.__all__)
    assert missing == set()
    for module in ("constraints", "transforms", "kl", "utils", "constraint_registry"):
        expected = getattr(theirs, module).__all__ if module != "utils" else ["broadcast_all"]
        assert [n for n in expected if not hasattr(getattr(ours, module), n)] == []
