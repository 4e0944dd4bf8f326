"""pyro: densities, traces, inference by gradients and by enumeration; sampling runs."""

import pyro
import pyro.distributions as dist
import torch
from common import data, finish, record
from pyro import poutine
from pyro.infer import MCMC, NUTS, SVI, Predictive, Trace_ELBO, TraceEnum_ELBO, config_enumerate
from pyro.infer.autoguide import AutoDelta, AutoNormal
from pyro.infer.autoguide.initialization import init_to_value
from pyro.optim import Adam, ClippedAdam
from torch.distributions import constraints

torch.set_default_dtype(torch.float64)
pyro.enable_validation(True)

# densities of pyro's own distributions
x = data(4, 3).abs() + 0.1
for name, d, value in (
    ("delta", dist.Delta(x), x),
    ("zip", dist.ZeroInflatedPoisson(torch.tensor(2.0), gate=torch.tensor(0.3)), x.round()),
    ("beta_binomial", dist.BetaBinomial(x, x + 1, 10), x.round()),
    ("gamma_poisson", dist.GammaPoisson(x, x + 1), x.round()),
    ("dirichlet_multinomial", dist.DirichletMultinomial(x, 6), torch.full((4, 3), 2.0)),
    ("logistic", dist.Logistic(x, x), x * 2),
    ("asymmetric", dist.AsymmetricLaplace(x, x, x + 1), x * 2),
    ("von_mises", dist.VonMises(x, x), x * 2),
    ("inverse_gamma", dist.InverseGamma(x, x), x),
    ("stable", dist.SoftLaplace(x, x), x),
    ("truncated", dist.TruncatedPolyaGamma(x), x),
    ("masked", dist.Normal(x, 1.0).mask(x > 0.5), x),
    ("to_event", dist.Normal(x, 1.0).to_event(1), x),
    ("mvt", dist.MultivariateStudentT(5.0, x, torch.eye(3)), x),
    ("omt", dist.OMTMultivariateNormal(x[0], torch.eye(3)), x),
    ("lkj", dist.LKJ(3, 1.5), torch.eye(3)),
):
    record(f"log_prob.{name}", d.log_prob(value))

hmm = dist.DiscreteHMM(
    data(3).log_softmax(-1),
    data(3, 3, seed=1).log_softmax(-1),
    dist.Normal(data(3, seed=2), 1.0),
    duration=6,
)
record("hmm", hmm.log_prob(data(6, seed=3)))
gaussian = dist.GaussianHMM(
    dist.MultivariateNormal(torch.zeros(2), torch.eye(2)),
    0.9 * torch.eye(2),
    dist.MultivariateNormal(torch.zeros(2), 0.1 * torch.eye(2)),
    torch.eye(2),
    dist.MultivariateNormal(torch.zeros(2), 0.2 * torch.eye(2)),
    duration=5,
)
record("gaussian_hmm", gaussian.log_prob(data(5, 2, seed=4)))

# a regression: densities of a trace, the mode, and posterior predictions
features, target = data(20, 3, seed=5), data(20, seed=6)


def regression(x, y=None):
    weight = pyro.sample("weight", dist.Normal(torch.zeros(3), 1.0).to_event(1))
    scale = pyro.sample("scale", dist.LogNormal(0.0, 0.5))
    with pyro.plate("data", x.shape[0]):
        return pyro.sample("y", dist.Normal(x @ weight, scale), obs=y)


given = {"weight": data(3, seed=7), "scale": torch.tensor(0.7)}
trace = poutine.trace(poutine.condition(regression, data=given)).get_trace(features, target)
record("trace", trace.log_prob_sum())
pyro.clear_param_store()
guide = AutoDelta(regression, init_loc_fn=init_to_value(values=given))
svi = SVI(regression, guide, ClippedAdam({"lr": 0.05, "lrd": 0.99}), Trace_ELBO())
record("map.losses", [svi.step(features, target) for _ in range(30)])
record("map.weight", guide.median()["weight"])

# enumeration of discrete variables
points = data(12, seed=8)


@config_enumerate
def mixture(data):
    weights = pyro.param("weights", torch.tensor([0.4, 0.6]), constraint=constraints.simplex)
    locs = pyro.param("locs", torch.tensor([-1.0, 1.5]))
    with pyro.plate("points", len(data)):
        which = pyro.sample("which", dist.Categorical(weights))
        pyro.sample("obs", dist.Normal(locs[which], 1.0), obs=data)


pyro.clear_param_store()
elbo = TraceEnum_ELBO(max_plate_nesting=1)
svi = SVI(mixture, lambda data: None, Adam({"lr": 0.02}), elbo)
record("enum.losses", [svi.step(points) for _ in range(20)])
record("enum.params", [pyro.param("weights"), pyro.param("locs")])
record("enum.marginals", elbo.compute_marginals(mixture, lambda data: None, points)["which"].logits)

# what draws random numbers runs, and comes near the truth
pyro.clear_param_store()
pyro.set_rng_seed(0)
guide = AutoNormal(regression)
svi = SVI(regression, guide, Adam({"lr": 0.05}), Trace_ELBO(num_particles=4))
losses = [svi.step(features, target) for _ in range(150)]
record("variational.improves", sum(losses[-20:]) < sum(losses[:20]))
predictive = Predictive(regression, guide=guide, num_samples=50)
record("predictive.shape", list(predictive(features)["y"].shape))
mcmc = MCMC(NUTS(regression), num_samples=60, warmup_steps=40, disable_progbar=True)
mcmc.run(features, target)
exact = torch.linalg.lstsq(features, target[:, None]).solution[:, 0]
record("nuts.near", ((mcmc.get_samples()["weight"].mean(0) - exact).abs() < 0.4).all())
finish()
