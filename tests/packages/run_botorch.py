"""botorch: models, fitting, acquisition functions, their optimization; quasi-Monte Carlo runs."""

import botorch
import torch
from botorch.acquisition import (
    ExpectedImprovement,
    LogExpectedImprovement,
    PosteriorMean,
    ProbabilityOfImprovement,
    UpperConfidenceBound,
    qExpectedImprovement,
    qUpperConfidenceBound,
)
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler
from botorch.utils.transforms import normalize, unnormalize
from common import data, finish, record
from gpytorch.mlls import ExactMarginalLogLikelihood

torch.set_default_dtype(torch.float64)
bounds = torch.tensor([[0.0, 0.0], [1.0, 2.0]])
x = unnormalize(torch.sigmoid(data(12, 2)), bounds)
y = (x[:, :1] * 3).sin() + (x[:, 1:] - 1) ** 2
record("normalized", normalize(x, bounds))
model = SingleTaskGP(
    x, y, input_transform=Normalize(d=2, bounds=bounds), outcome_transform=Standardize(m=1)
)
likely = ExactMarginalLogLikelihood(model.likelihood, model)
model.train()
record("loss", -likely(model(*model.train_inputs), model.train_targets))
fit_gpytorch_mll(likely)
model.eval()
record("state", {n: p.detach() for n, p in sorted(model.named_parameters())})
points = unnormalize(torch.sigmoid(data(5, 2, seed=1)), bounds).requires_grad_()
posterior = model.posterior(points)
record("posterior", [posterior.mean, posterior.variance])
for name, acquisition in (
    ("ei", ExpectedImprovement(model, best_f=y.max())),
    ("log_ei", LogExpectedImprovement(model, best_f=y.max())),
    ("pi", ProbabilityOfImprovement(model, best_f=y.max())),
    ("ucb", UpperConfidenceBound(model, beta=0.2)),
    ("mean", PosteriorMean(model)),
):
    value = acquisition(points.unsqueeze(-2))
    record(name, value)
    record(f"{name}.gradient", torch.autograd.grad(value.sum(), points)[0])
start = points.detach()[:3].unsqueeze(-2)
candidate, value = optimize_acqf(
    UpperConfidenceBound(model, beta=0.2),
    bounds=bounds,
    q=1,
    num_restarts=3,
    batch_initial_conditions=start,
    options={"maxiter": 50},
)
record("candidate", [candidate, value])
# what draws random numbers runs
sampler = SobolQMCNormalSampler(torch.Size([32]), seed=0)
for kind in (qExpectedImprovement, qUpperConfidenceBound):
    extra = {"best_f": y.max()} if kind is qExpectedImprovement else {"beta": 0.2}
    value = kind(model, sampler=sampler, **extra)(points.unsqueeze(0))
    record(f"{kind.__name__}.finite", value.isfinite().all())
record("version", botorch.__version__ is not None)
finish()
