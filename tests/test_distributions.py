"""Distributions: sample statistics, gradients of samples, compiled steps, errors."""

from __future__ import annotations

import copy
import math
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from replaying import replayed
from scipy import stats

import tapegrad as tg
from tapegrad import distributions as D
from tapegrad.distributions import constraints, transforms
from tapegrad.ops.draws import quantiles
from tapegrad.testing import gradcheck, gradgradcheck


def double(*values: Any, grad: bool = False) -> Any:
    return tg.tensor(list(values), dtype=tg.float64, requires_grad=grad)


# -- draws -----------------------------------------------------------------------------------------

#: a distribution of one number, and SciPy's of the same
DRAWS: dict[str, tuple[Callable[[], Any], Any]] = {
    "Beta": (lambda: D.Beta(0.7, 2.0), stats.beta(0.7, 2.0)),
    "Cauchy": (lambda: D.Cauchy(1.0, 2.0), stats.cauchy(1.0, 2.0)),
    "Chi2": (lambda: D.Chi2(tg.tensor(3.0)), stats.chi2(3.0)),
    "Exponential": (lambda: D.Exponential(2.0), stats.expon(scale=0.5)),
    "FisherSnedecor": (lambda: D.FisherSnedecor(3.0, 8.0), stats.f(3.0, 8.0)),
    "Gamma": (lambda: D.Gamma(2.5, 3.0), stats.gamma(2.5, scale=1 / 3)),
    "Gamma of little": (lambda: D.Gamma(0.05, 1.0), stats.gamma(0.05)),
    "Gamma of much": (lambda: D.Gamma(5000.0, 1.0), stats.gamma(5000.0)),
    "GeneralizedPareto": (lambda: D.GeneralizedPareto(0.0, 1.0, 0.3), stats.genpareto(0.3)),
    "Gumbel": (lambda: D.Gumbel(1.0, 2.0), stats.gumbel_r(1.0, 2.0)),
    "HalfCauchy": (lambda: D.HalfCauchy(2.0), stats.halfcauchy(scale=2.0)),
    "HalfNormal": (lambda: D.HalfNormal(2.0), stats.halfnorm(scale=2.0)),
    "InverseGamma": (lambda: D.InverseGamma(3.0, 2.0), stats.invgamma(3.0, scale=2.0)),
    "Laplace": (lambda: D.Laplace(1.0, 2.0), stats.laplace(1.0, 2.0)),
    "LogNormal": (lambda: D.LogNormal(0.5, 0.7), stats.lognorm(0.7, scale=math.exp(0.5))),
    "Normal": (lambda: D.Normal(1.0, 2.0), stats.norm(1.0, 2.0)),
    "Pareto": (lambda: D.Pareto(1.0, 3.0), stats.pareto(3.0)),
    "StudentT": (lambda: D.StudentT(4.0, 1.0, 2.0), stats.t(4.0, 1.0, 2.0)),
    "VonMises": (lambda: D.VonMises(0.0, 0.7), stats.vonmises(0.7)),
    "VonMises of much": (lambda: D.VonMises(0.0, 90.0), stats.vonmises(90.0)),
    "VonMises of little": (lambda: D.VonMises(0.0, 1e-4), stats.vonmises(1e-4)),
    "Uniform": (lambda: D.Uniform(-1.0, 3.0), stats.uniform(-1.0, 4.0)),
    "Weibull": (lambda: D.Weibull(2.0, 1.5), stats.weibull_min(1.5, scale=2.0)),
}

COUNTS: dict[str, tuple[Callable[[], Any], Any]] = {
    "Bernoulli": (lambda: D.Bernoulli(0.3), stats.bernoulli(0.3)),
    "Binomial": (lambda: D.Binomial(12, tg.tensor(0.3)), stats.binom(12, 0.3)),
    "Binomial of many": (lambda: D.Binomial(3000, tg.tensor(0.01)), stats.binom(3000, 0.01)),
    "Categorical": (
        lambda: D.Categorical(tg.tensor([0.2, 0.5, 0.3])),
        stats.rv_discrete(values=([0, 1, 2], [0.2, 0.5, 0.3])),
    ),
    "Geometric": (lambda: D.Geometric(0.3), stats.geom(0.3, -1)),
    "NegativeBinomial": (
        lambda: D.NegativeBinomial(tg.tensor(5.0), tg.tensor(0.4)),
        stats.nbinom(5, 0.6),
    ),
    "Poisson": (lambda: D.Poisson(tg.tensor(3.7)), stats.poisson(3.7)),
    "Poisson of many": (lambda: D.Poisson(tg.tensor(80.0)), stats.poisson(80.0)),
}


@pytest.mark.parametrize("name", DRAWS)
def test_samples_follow_the_distribution(name: str) -> None:
    make, expected = DRAWS[name]
    tg.manual_seed(7)
    drawn = make().sample((20000,))
    assert not drawn.requires_grad
    # float32 may be 0 where the true value is smaller than its least number
    values = drawn.double().numpy()
    if name == "Gamma of little":
        values = np.maximum(values, 1e-30)
        assert abs((values <= 1e-30).mean() - expected.cdf(1e-30)) < 0.01
        values = values[values > 1e-30]
        low = expected.cdf(1e-30)
        assert stats.kstest(values, lambda x: (expected.cdf(x) - low) / (1 - low)).pvalue > 1e-3
        return
    assert stats.kstest(values, expected.cdf).pvalue > 1e-3


@pytest.mark.parametrize("name", COUNTS)
def test_counts_follow_the_distribution(name: str) -> None:
    make, expected = COUNTS[name]
    tg.manual_seed(11)
    values = make().sample((40000,)).double().numpy()
    found, times = np.unique(values, return_counts=True)
    chances = expected.pmf(found)
    wide = chances * values.size >= 10
    assert (chances > 0).all()
    distance = ((times - chances * values.size) ** 2 / (chances * values.size))[wide].sum()
    assert stats.chi2(wide.sum()).sf(distance) > 1e-3


def test_vectors_follow_the_distribution() -> None:
    tg.manual_seed(3)
    concentration = double(0.01, 0.5, 3.0)
    drawn = D.Dirichlet(concentration).sample((40000,))
    np.testing.assert_allclose(drawn.sum(-1).numpy(), 1.0, rtol=1e-12)
    d = D.Dirichlet(concentration)
    np.testing.assert_allclose(drawn.mean(0).numpy(), d.mean.numpy(), atol=0.01)
    np.testing.assert_allclose(drawn.var(0).numpy(), d.variance.numpy(), atol=0.01)
    for i, a in enumerate(concentration.tolist()):
        marginal = stats.beta(a, 3.51 - a)
        at = marginal.ppf([0.5, 0.9]) if a > 0.1 else np.array([1e-3])
        share = (drawn[:, i].numpy()[:, None] <= at).mean(0)
        np.testing.assert_allclose(share, marginal.cdf(at), atol=0.01)
    counts = D.Multinomial(10, double(0.2, 0.3, 0.5)).sample((20000,))
    assert (counts.sum(-1) == 10).all()
    np.testing.assert_allclose(counts.mean(0).numpy(), [2.0, 3.0, 5.0], atol=0.05)
    covariance = [[2.0, 0.3, -0.1], [0.3, 1.5, 0.2], [-0.1, 0.2, 1.1]]
    for d in (
        D.MultivariateNormal(tg.ones(3), tg.tensor(covariance)),
        D.MultivariateNormal(tg.ones(3), precision_matrix=tg.tensor(covariance).inverse()),
        D.LowRankMultivariateNormal(tg.ones(3), tg.tensor(covariance)[:, :2], tg.ones(3)),
    ):
        drawn = d.sample((40000,))
        np.testing.assert_allclose(drawn.mean(0).numpy(), 1.0, atol=0.05)
        np.testing.assert_allclose(drawn.T.cov().numpy(), d.covariance_matrix.numpy(), atol=0.1)
    w = D.Wishart(tg.tensor(5.0), tg.tensor(covariance))
    drawn = w.sample((20000,))
    np.testing.assert_allclose(drawn.mean(0).numpy(), w.mean.numpy(), atol=0.2)
    np.testing.assert_allclose(drawn.var(0).numpy(), w.variance.numpy(), rtol=0.06)
    factors = D.LKJCholesky(3, 1.0).sample((20000,))
    matrices = factors @ factors.mT
    np.testing.assert_allclose(matrices.mean(0).numpy(), np.eye(3), atol=0.02)
    # one correlation of 3 x 3 matrices is uniform after scaling: Beta(3/2, 3/2) on (-1, 1)
    pair = (matrices[:, 0, 1].double().numpy() + 1) / 2
    assert stats.kstest(pair, stats.beta(1.5, 1.5).cdf).pvalue > 1e-3


def test_mixture_draws() -> None:
    tg.manual_seed(5)
    mixture = D.MixtureSameFamily(
        D.Categorical(tg.tensor([0.25, 0.75])),
        D.Independent(D.Normal(tg.tensor([[0.0, 10.0], [100.0, 110.0]]), 1.0), 1),
    )
    drawn = mixture.sample((4000,))
    assert drawn.shape == (4000, 2)
    second = drawn[:, 0] > 50
    assert abs(second.double().mean().item() - 0.75) < 0.03
    np.testing.assert_allclose(drawn[second].mean(0).numpy(), [100.0, 110.0], atol=0.1)
    np.testing.assert_allclose(drawn.mean(0).numpy(), mixture.mean.numpy(), atol=2.0)


# -- gradients of samples --------------------------------------------------------------------------

REPARAMETERIZED: dict[str, Callable[..., Any]] = {
    "Beta": D.Beta,
    "Cauchy": D.Cauchy,
    "FisherSnedecor": D.FisherSnedecor,
    "Gamma": D.Gamma,
    "Gumbel": D.Gumbel,
    "InverseGamma": D.InverseGamma,
    "Kumaraswamy": D.Kumaraswamy,
    "Laplace": D.Laplace,
    "LogNormal": D.LogNormal,
    "Normal": D.Normal,
    "Pareto": D.Pareto,
    "StudentT": lambda a, b: D.StudentT(a, b, b),
    "Uniform": lambda a, b: D.Uniform(a, a + b),
    "VonMises": lambda a, b: D.VonMises(b / 10, a),
    "Weibull": D.Weibull,
    "ContinuousBernoulli": lambda a, b: D.ContinuousBernoulli(a / 10),
    "RelaxedBernoulli": lambda a, b: D.RelaxedBernoulli(b, a / 10),
}


# a beta sample is drawn as two parts: see test_beta_gradients
@pytest.mark.parametrize("name", [name for name in REPARAMETERIZED if name != "Beta"])
def test_gradients_of_samples(name: str) -> None:
    """A sample is a smooth function of the parameters, for the same random numbers."""

    def drawn(a: Any, b: Any) -> Any:
        tg.manual_seed(1)
        return REPARAMETERIZED[name](a, b).rsample((3,))

    arguments = double(0.7, 2.0, 4.5, grad=True), double(1.3, 0.8, 5.0, grad=True)
    assert gradcheck(drawn, arguments)
    assert gradgradcheck(drawn, arguments)


def test_beta_gradients() -> None:
    """Those of the quantile function at the probability of the sample."""
    a, b = double(0.3, 1.0, 2.0, 40.0, grad=True), double(1.5, 1.0, 0.4, 25.0, grad=True)
    tg.manual_seed(2)
    x = D.Beta(a, b).rsample((50,))
    by_a, by_b = tg.autograd.grad(x.sum(), [a, b])
    values, p, q = x.detach().numpy(), a.detach().numpy(), b.detach().numpy()
    u = stats.beta.cdf(values, p, q)
    h = 1e-6
    expected = (stats.beta.ppf(u, p * (1 + h), q) - stats.beta.ppf(u, p * (1 - h), q)) / (2 * h * p)
    np.testing.assert_allclose(by_a.numpy(), expected.sum(0), rtol=1e-4)
    expected = (stats.beta.ppf(u, p, q * (1 + h)) - stats.beta.ppf(u, p, q * (1 - h))) / (2 * h * q)
    np.testing.assert_allclose(by_b.numpy(), expected.sum(0), rtol=1e-4)


def test_gradients_of_gamma_samples_in_wide_ranges() -> None:
    """Relative errors against differences of quantiles, from tiny to large concentrations."""
    from scipy import special

    rng = np.random.default_rng(0)
    a = np.exp(rng.uniform(np.log(1e-2), np.log(1e5), 500))
    u = rng.uniform(1e-3, 1 - 1e-3, 500)
    x = special.gammaincinv(a, u)
    h = 1e-5
    expected = (special.gammaincinv(a * (1 + h), u) - special.gammaincinv(a * (1 - h), u)) / (
        2 * h * a
    )
    found = tg._standard_gamma_grad(tg.tensor(a), tg.tensor(x)).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    x, b = rng.uniform(0.01, 0.99, 500), np.exp(rng.uniform(np.log(0.1), np.log(100), 500))
    a = np.clip(a, 0.1, 100)
    u = special.betainc(a, b, x)
    ok = (u > 1e-6) & (u < 1 - 1e-6)
    a, b, x, u = a[ok], b[ok], x[ok], u[ok]
    expected = special.betaincinv(a * (1 + h), b, u) - special.betaincinv(a * (1 - h), b, u)
    expected = expected / (2 * h * a) / (1 - x)
    found = tg._dirichlet_grad(tg.tensor(x), tg.tensor(a), tg.tensor(a + b)).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_orders_of_derivative() -> None:
    from tapegrad.ops.draws.angles import angle_moment_, log_bessel_
    from tapegrad.ops.draws.moments import beta_moment_, gamma_cdf_, gamma_moment_

    a, x = double(0.3, 1.0, 2.5, 40.0, grad=True), double(0.2, 1.2, 2.0, 45.0, grad=True)
    for function in (tg._standard_gamma_grad, gamma_cdf_, lambda a, x: gamma_moment_(a, x, n=1)):
        assert gradcheck(function, (a, x))
        assert gradgradcheck(function, (a, x))
    a, t = double(0.3, 1.0, 2.5, 4.0, grad=True), double(1.3, 1.7, 3.5, 9.0, grad=True)
    x = double(0.2, 0.12, 0.9, 0.45, grad=True)
    assert gradcheck(tg._dirichlet_grad, (x, a, t))
    assert gradgradcheck(tg._dirichlet_grad, (x, a, t))
    k, angle = double(0.3, 4.0, 60.0, grad=True), double(1.2, -0.7, 0.2, grad=True)
    assert gradgradcheck(lambda k, x: angle_moment_(k, x, n=1), (k, angle))
    assert gradgradcheck(lambda k: log_bessel_(k, order=1), (k,))
    assert gradgradcheck(lambda a, b, x: beta_moment_(a, b, x, n=1, m=2), (a, t, x))


def test_dirichlet_gradients_keep_the_sum() -> None:
    concentration = tg.tensor([[0.4, 2.0, 7.0]], requires_grad=True)
    tg.manual_seed(0)
    drawn = D.Dirichlet(concentration).rsample((6,))
    (zero,) = tg.autograd.grad(drawn.sum(), concentration, create_graph=True)
    np.testing.assert_allclose(zero.detach().numpy(), 0.0, atol=1e-5)
    (g,) = tg.autograd.grad((drawn**2).sum(), concentration, create_graph=True)
    assert g.abs().sum() > 0
    assert tg.autograd.grad(g.sum(), concentration)[0].isfinite().all()


# -- compiled --------------------------------------------------------------------------------------

COMPILED: dict[str, Callable[[Any, Any], Any]] = {
    **REPARAMETERIZED,
    "Bernoulli": lambda p, q: D.Bernoulli(logits=p),
    "Binomial": lambda p, q: D.Binomial(5, logits=p),
    "Categorical": lambda p, q: D.Categorical(logits=p),
    "Chi2": lambda p, q: D.Chi2(p),
    "Dirichlet": lambda p, q: D.Dirichlet(p),
    "Exponential": lambda p, q: D.Exponential(p),
    "GeneralizedPareto": lambda p, q: D.GeneralizedPareto(p, q, tg.tensor(0.2)),
    "Geometric": lambda p, q: D.Geometric(logits=p),
    "HalfCauchy": lambda p, q: D.HalfCauchy(p),
    "HalfNormal": lambda p, q: D.HalfNormal(p),
    "Independent": lambda p, q: D.Independent(D.Normal(p, q), 1),
    "LKJCholesky": lambda p, q: D.LKJCholesky(3, p),
    "LogisticNormal": D.LogisticNormal,
    "MixtureSameFamily": lambda p, q: D.MixtureSameFamily(D.Categorical(logits=p), D.Normal(p, q)),
    "Multinomial": lambda p, q: D.Multinomial(5, logits=p),
    "NegativeBinomial": lambda p, q: D.NegativeBinomial(p, logits=-q),
    "OneHotCategoricalStraightThrough": (lambda p, q: D.OneHotCategoricalStraightThrough(logits=p)),
    "LowRankMultivariateNormal": lambda p, q: D.LowRankMultivariateNormal(p, p[:, None], q),
    "MultivariateNormal": lambda p, q: D.MultivariateNormal(p, tg.diag(q) + 0.1),
    "MultivariateNormal of precision": lambda p, q: D.MultivariateNormal(
        p, precision_matrix=tg.diag(q)
    ),
    "Poisson": lambda p, q: D.Poisson(p),
    "Wishart": lambda p, q: D.Wishart(p + 3, scale_tril=tg.diag(q)),
    "RelaxedOneHotCategorical": lambda p, q: D.RelaxedOneHotCategorical(q[0], logits=p),
    "TransformedDistribution": lambda p, q: D.TransformedDistribution(
        D.Normal(p, q), [transforms.TanhTransform(), transforms.AffineTransform(q, 2.0)]
    ),
}


def step_of(make: Callable[[Any, Any], Any]) -> Callable[..., list[Any]]:
    """Drawing, scoring, and the gradients of both."""

    def step(p: Any, q: Any) -> list[Any]:
        p, q = p.detach().requires_grad_(), q.detach().requires_grad_()
        d = make(p, q)
        x = d.rsample((4,)) if d.has_rsample else d.sample((4,))
        loss = d.log_prob(x.detach()).sum()
        if d.has_rsample:
            loss = loss + (x * x).sum()
        gradients = tg.autograd.grad(loss, [p, q], allow_unused=True)
        return [x.detach(), loss.detach(), *(g for g in gradients if g is not None)]

    return step


@pytest.mark.parametrize("name", COMPILED)
def test_compiled_steps_draw_what_eager_ones_do(name: str) -> None:
    step = step_of(COMPILED[name])
    fast = tg.compile(step, fullgraph=True)
    p, q = tg.tensor([0.5, 2.0, 3.0]), tg.tensor([1.0, 0.7, 4.0])
    tg.manual_seed(1)
    expected = [step(p, q) for _ in range(5)]
    tg.manual_seed(1)
    found = [fast(p, q) for _ in range(5)]
    assert replayed(fast) == 3
    for a, b in zip(expected, found, strict=True):
        for x, y in zip(a, b, strict=True):
            assert x.dtype == y.dtype
            np.testing.assert_allclose(y.numpy(), x.numpy(), rtol=2e-4, atol=2e-5)
    assert not tg.equal(found[3][0], found[4][0])


def test_compiled_steps_check_arguments() -> None:
    fast = tg.compile(lambda p, q, x: D.Gamma(p, q).log_prob(x))
    one = tg.ones(3)
    for _ in range(4):
        fast(one, one, one)
    assert replayed(fast) == 2
    for bad, what in (
        ((-one, one, one), "parameter concentration .*GreaterThan"),
        ((one, one * math.nan, one), "parameter rate"),
        ((one, one, -one), "outside of the support of Gamma"),
    ):
        with pytest.raises(ValueError, match=what):
            fast(*bad)
    assert fast(one, one, one).tolist() == [-1.0, -1.0, -1.0]


def test_compiled_training_of_a_variational_model() -> None:
    """Parameters after 20 steps are those of eager training, and reach the posterior."""

    def train(compiled: bool) -> Any:
        tg.manual_seed(0)
        data = D.Poisson(tg.full((50,), 4.0)).sample()
        raw = tg.zeros(2, requires_grad=True)
        optimizer = tg.optim.Adam([raw], lr=0.1)

        def step() -> Any:
            optimizer.zero_grad()
            q = D.Gamma(*raw.exp().unbind())
            rate = q.rsample((8,))
            likelihood = D.Poisson(rate.unsqueeze(-1)).log_prob(data).sum(-1).mean()
            loss = D.kl_divergence(q, D.Gamma(1.0, 1.0)) - likelihood
            loss.backward()
            optimizer.step()
            return loss

        run = tg.compile(step) if compiled else step
        for _ in range(20):
            run()
        return raw.detach()

    np.testing.assert_allclose(train(True).numpy(), train(False).numpy(), rtol=2e-3, atol=2e-3)


# -- arguments -------------------------------------------------------------------------------------


def test_errors() -> None:
    with pytest.raises(ValueError, match=r"parameter scale \(Tensor of shape \(2,\)\)"):
        D.Normal(tg.zeros(2), tg.tensor([1.0, -1.0]))
    with pytest.raises(ValueError, match="outside of the support"):
        D.Exponential(1.0).log_prob(tg.tensor(-1.0))
    with pytest.raises(ValueError, match="takes a Tensor, got float"):
        D.Normal(0.0, 1.0).log_prob(1.0)
    with pytest.raises(ValueError, match="does not broadcast"):
        D.Normal(tg.zeros(3), 1.0).log_prob(tg.zeros(2))
    with pytest.raises(ValueError, match="event_shape"):
        D.Dirichlet(tg.ones(3)).log_prob(tg.ones(2) / 2)
    with pytest.raises(ValueError, match="not both"):
        D.Bernoulli(probs=0.5, logits=0.0)
    with pytest.raises(ValueError, match="not both"):
        D.Categorical()
    with pytest.raises(ValueError, match="expected numbers"):
        D.Normal([0.0], 1.0)
    with pytest.raises(ValueError, match="only 0 batch dimensions"):
        D.Independent(D.Normal(0.0, 1.0), 1)
    with pytest.raises(NotImplementedError, match="no formula for the KL"):
        D.kl_divergence(D.Normal(0.0, 1.0), D.StudentT(1.0))
    with pytest.raises(NotImplementedError):
        D.Poisson(tg.tensor(1.0)).rsample()
    D.Normal(tg.zeros(1), -tg.ones(1), validate_args=False).log_prob(tg.full((1,), math.nan))


def test_validation_can_be_switched_off() -> None:
    D.Distribution.set_default_validate_args(False)
    try:
        assert D.Normal(0.0, -1.0).log_prob(tg.tensor(0.0)).isnan()
    finally:
        D.Distribution.set_default_validate_args(True)
    with pytest.raises(ValueError, match="scale"):
        D.Normal(0.0, -1.0)


def test_subclasses() -> None:
    class Shifted(D.Normal):
        def __init__(self, loc: Any) -> None:
            super().__init__(loc, 1.0)

    class Same(D.Normal):
        pass

    assert type(Same(0.0, 1.0).expand((3,))) is Same
    with pytest.raises(NotImplementedError, match="expand"):
        Shifted(tg.zeros(1)).expand((3,))

    class Silent(D.Distribution):
        pass

    with pytest.warns(UserWarning, match="arg_constraints"):
        Silent()
    d = Silent(validate_args=False)
    d._validate_args = True
    with pytest.warns(UserWarning, match="has no support"):
        d._validate_sample(tg.tensor(0.0))

    @D.register_kl(Same, Same)
    def divergence(p: Any, q: Any) -> Any:
        return 42

    assert D.kl_divergence(Same(0.0, 1.0), Same(0.0, 1.0)) == 42
    assert D.kl_divergence(Same(0.0, 1.0), D.Normal(0.0, 1.0)).item() == 0.0


def test_ambiguous_divergences_warn() -> None:
    class Left(D.Normal):
        pass

    class Right(D.Normal):
        pass

    D.register_kl(Left, D.Normal)(lambda p, q: 1)
    D.register_kl(D.Normal, Right)(lambda p, q: 2)
    with pytest.warns(RuntimeWarning, match=r"Please register_kl\(Left, Right\)"):
        assert D.kl_divergence(Left(0.0, 1.0), Right(0.0, 1.0)) == 1


def test_copies() -> None:
    d = D.Gamma(tg.tensor([1.0, 2.0]), 3.0)
    for other in (copy.deepcopy(d), pickle.loads(pickle.dumps(d))):
        assert repr(other) == repr(d)
        assert tg.equal(other.mean, d.mean)
    t = transforms.AffineTransform(1.0, 2.0, cache_size=1)
    assert pickle.loads(pickle.dumps(t)) == t
    assert t.inv.inv is t


# -- transforms ------------------------------------------------------------------------------------

TRANSFORMS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "affine": (transforms.AffineTransform(1.0, -2.0), (3,)),
    "affine by tensors": (transforms.AffineTransform(tg.zeros(3), double(1.0, 2.0, -0.5)), (2, 3)),
    "composed": (
        transforms.ComposeTransform([transforms.ExpTransform(), transforms.PowerTransform(0.5)]),
        (3,),
    ),
    "exp": (transforms.ExpTransform(), (2, 3)),
    "inverse": (transforms.ExpTransform().inv.inv, (3,)),
    "sigmoid": (transforms.SigmoidTransform(), (3,)),
    "softplus": (transforms.SoftplusTransform(), (3,)),
    "tanh": (transforms.TanhTransform(), (3,)),
    "stick": (transforms.StickBreakingTransform(), (2, 3)),
    "corr": (transforms.CorrCholeskyTransform(), (2, 3)),
    "reshape": (transforms.ReshapeTransform((2, 3), (6,)), (4, 2, 3)),
    "cdf": (transforms.CumulativeDistributionTransform(D.Normal(0.0, 1.0)), (3,)),
    "independent": (transforms.IndependentTransform(transforms.ExpTransform(), 1), (2, 3)),
    "cat": (
        transforms.CatTransform(
            [transforms.ExpTransform(), transforms.AffineTransform(1.0, 2.0)], 0, [2, 1]
        ),
        (3,),
    ),
    "stack": (
        transforms.StackTransform([transforms.ExpTransform(), transforms.SigmoidTransform()], 1),
        (3, 2),
    ),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name: str) -> None:
    t, shape = TRANSFORMS[name]
    x = tg.tensor(np.random.default_rng(0).normal(size=shape) * 0.5, requires_grad=True)
    y = t(x)
    assert t.codomain.check(y).all()
    assert tuple(y.shape) == tuple(t.forward_shape(x.shape))
    assert tuple(x.shape) == tuple(t.inverse_shape(y.shape))
    np.testing.assert_allclose(t.inv(y).detach().numpy(), x.detach().numpy(), atol=1e-9)
    found = t.log_abs_det_jacobian(x, y)
    batch = x.shape[: x.dim() - t.domain.event_dim]
    assert tuple(found.shape) == tuple(batch)
    rows = x.detach().reshape(max(1, math.prod(batch)), -1)
    shapes = x.shape[x.dim() - t.domain.event_dim :]
    if t.domain.event_dim == 0:
        (slope,) = tg.autograd.grad(y.sum(), x)
        np.testing.assert_allclose(found.detach().numpy(), slope.abs().log().numpy(), atol=1e-9)
        return
    for row, one in zip(rows, found.detach().flatten(), strict=True):
        jacobian = tg.autograd.functional.jacobian(lambda v: t(v.reshape(shapes)), row)
        jacobian = jacobian.reshape(-1, row.numel()).numpy()
        if name == "stick":
            jacobian = jacobian[:-1]
        if name == "corr":
            jacobian = jacobian[[3, 6, 7]]
        np.testing.assert_allclose(one.item(), np.linalg.slogdet(jacobian)[1], atol=1e-9)


@pytest.mark.parametrize(
    "constraint",
    [
        constraints.real,
        constraints.real_vector,
        constraints.positive,
        constraints.nonnegative,
        constraints.greater_than(2.0),
        constraints.greater_than_eq(double(1.0, 2.0, 3.0)),
        constraints.less_than(-1.0),
        constraints.unit_interval,
        constraints.interval(-3.0, 5.0),
        constraints.half_open_interval(-3.0, 5.0),
        constraints.simplex,
        constraints.corr_cholesky,
        constraints.cat([constraints.positive, constraints.real], -1, [1, 2]),
        constraints.stack([constraints.positive, constraints.real, constraints.unit_interval], -1),
    ],
    ids=repr,
)
def test_registries(constraint: Any) -> None:
    x = tg.tensor(np.random.default_rng(1).normal(size=(4, 3)))
    for registry in (D.biject_to, D.transform_to):
        t = registry(constraint)
        y = t(x)
        assert constraint.check(y).all()
    assert D.biject_to(constraint).bijective
    np.testing.assert_allclose(D.biject_to(constraint).inv(D.biject_to(constraint)(x)), x, 1e-6)
    with pytest.raises(NotImplementedError, match="Cannot transform"):
        D.biject_to(constraints.boolean)


def test_constraints() -> None:
    check = {
        constraints.boolean: ([0.0, 1.0, 2.0], [True, True, False]),
        constraints.nonnegative_integer: ([0.0, -1.0, 0.5, 3.0], [True, False, False, True]),
        constraints.positive_integer: ([0.0, 1.0], [False, True]),
        constraints.integer_interval(1, 3): ([0, 1, 3, 4], [False, True, True, False]),
        constraints.real: ([0.0, math.nan, math.inf], [True, False, True]),
        constraints.half_open_interval(0, 1): ([0.0, 1.0, 0.5], [True, False, True]),
        constraints.one_hot: ([[1, 0, 0], [1, 1, 0], [2, -1, 0]], [True, False, False]),
        constraints.simplex: ([[0.5, 0.5], [0.6, 0.6], [1.5, -0.5]], [True, False, False]),
        constraints.multinomial(3): ([[1, 2], [3, 1], [-1, 2]], [True, False, False]),
        constraints.lower_triangular: (
            [[[1.0, 0.0], [1.0, -1.0]], [[1.0, 1.0], [0.0, 1.0]]],
            [True, False],
        ),
        constraints.lower_cholesky: (
            [[[1.0, 0.0], [1.0, 2.0]], [[1.0, 0.0], [1.0, -2.0]]],
            [True, False],
        ),
        constraints.square: ([[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]], [False]),
        constraints.symmetric: (
            [[[1.0, 2.0], [2.0, 0.0]], [[1.0, 2.0], [3.0, 0.0]]],
            [True, False],
        ),
    }
    for constraint, (values, expected) in check.items():
        assert constraint.check(tg.tensor(values)).tolist() == expected, constraint
    assert repr(constraints.interval(0, 1)) == "Interval(lower_bound=0, upper_bound=1)"
    assert repr(constraints.real_vector) == "IndependentConstraint(Real(), 1)"
    assert constraints.is_dependent(D.Uniform.support)
    assert not constraints.is_dependent(D.Uniform(0.0, 1.0).support)


def test_caches() -> None:
    t = transforms.TanhTransform(cache_size=1)
    x = tg.tensor([30.0])
    y = t(x)
    assert t.inv(y) is x  # tanh(30) is 1 by rounding
    assert transforms.TanhTransform().inv(y).isinf()
    composed = transforms.ComposeTransform([transforms.TanhTransform()]).with_cache()
    assert composed.inv(composed(x)) is x
    with pytest.raises(ValueError, match="cache_size"):
        transforms.ExpTransform(cache_size=2)


def test_draws_of_the_main_namespace() -> None:
    tg.manual_seed(0)
    rates = tg.full((2, 3), 4.0)
    drawn = tg.poisson(rates)
    assert drawn.dtype is tg.float32
    assert drawn.shape == (2, 3)
    assert (drawn == drawn.floor()).all()
    generator = tg.Generator().manual_seed(3)
    again = tg.Generator().manual_seed(3)
    assert tg.equal(tg.poisson(rates, generator), tg.poisson(rates, again))
    with pytest.raises(RuntimeError, match="rates"):
        tg.poisson(-rates)
    count, chance = tg.tensor([0.0, 5.0, 7.0]), tg.tensor([0.5, 1.0, 0.0])
    assert tg.binomial(count, chance).tolist() == [0.0, 5.0, 0.0]
    with pytest.raises(RuntimeError, match="probabilities"):
        tg.binomial(count, chance + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tg._standard_gamma(tg.tensor([1e-6])).item() > 0


@pytest.mark.parametrize("u", [0.0, 1 - 2.0**-53])
def test_extreme_uniform_numbers_give_finite_samples(u: float) -> None:
    uniform = tg.tensor([u], dtype=tg.float64)
    four = tg.tensor([4.0], dtype=tg.float64)
    samples = [
        quantiles.poisson_quantile_(four, uniform),
        quantiles.gamma_quantile_(four, uniform),
        quantiles.binomial_quantile_(four, four / 8, uniform),
    ]
    assert all(x.isfinite().all() for x in samples), samples
    assert (samples[0] > 20) == (u > 0.5)
