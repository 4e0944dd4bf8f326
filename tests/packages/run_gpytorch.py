"""gpytorch: kernels, exact and variational Gaussian processes, their training and predictions."""

import gpytorch
import torch
from common import data, finish, record

torch.set_default_dtype(torch.float64)
x, y = data(25, 2), data(25, seed=1)
test = data(7, 2, seed=2)
kernels = gpytorch.kernels
for name, kernel in (
    ("rbf", kernels.RBFKernel(ard_num_dims=2)),
    ("matern", kernels.MaternKernel(nu=1.5)),
    ("matern_half", kernels.MaternKernel(nu=0.5)),
    ("periodic", kernels.PeriodicKernel()),
    ("linear", kernels.LinearKernel()),
    ("polynomial", kernels.PolynomialKernel(power=2)),
    ("rq", kernels.RQKernel()),
    ("cosine", kernels.CosineKernel()),
    ("sum", kernels.ScaleKernel(kernels.RBFKernel()) + kernels.LinearKernel()),
    ("product", kernels.RBFKernel(active_dims=(0,)) * kernels.MaternKernel(active_dims=(1,))),
    ("additive", kernels.AdditiveKernel(kernels.RBFKernel(), kernels.MaternKernel())),
    ("spectral", kernels.PiecewisePolynomialKernel(q=2)),
):
    kernel = kernel.double()
    for parameter in kernel.parameters():
        parameter.data.fill_(0.3)
    record(f"kernel.{name}", kernel(x, test).to_dense())
    record(f"kernel.{name}.diagonal", kernel(x, diag=True))


class Exact(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood)
        self.mean = gpytorch.means.ConstantMean()
        self.covariance = kernels.ScaleKernel(kernels.RBFKernel(ard_num_dims=2))

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.covariance(x))


likelihood = gpytorch.likelihoods.GaussianLikelihood(
    noise_prior=gpytorch.priors.GammaPrior(1.1, 0.5)
)
model = Exact(x, y, likelihood)
model.train()
likelihood.train()
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
likely = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
losses = []
for _ in range(20):
    optimizer.zero_grad()
    loss = -likely(model(x), y)
    loss.backward()
    losses.append(loss.item())
    optimizer.step()
record("exact.losses", losses)
record("exact.state", dict(sorted(model.state_dict().items())))
model.eval()
likelihood.eval()
prediction = likelihood(model(test))
record("exact.mean", prediction.mean)
record("exact.variance", prediction.variance)
record("exact.covariance", prediction.covariance_matrix)
record("exact.region", list(prediction.confidence_region()))
record("exact.log_prob", prediction.log_prob(data(7, seed=3)))
record("exact.samples", list(prediction.rsample(torch.Size([3])).shape))
with gpytorch.settings.fast_pred_var():
    record("exact.fast", model(test).variance)


class Approximate(gpytorch.models.ApproximateGP):
    def __init__(self, inducing):
        count = inducing.shape[0]
        distribution = gpytorch.variational.CholeskyVariationalDistribution(count)
        strategy = gpytorch.variational.VariationalStrategy(
            self, inducing, distribution, learn_inducing_locations=True
        )
        super().__init__(strategy)
        self.mean = gpytorch.means.ZeroMean()
        self.covariance = kernels.ScaleKernel(kernels.MaternKernel(nu=2.5))

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.covariance(x))


approximate = Approximate(x[:6].clone())
approximate.variational_strategy.variational_params_initialized.fill_(1)
noise = gpytorch.likelihoods.GaussianLikelihood()
elbo = gpytorch.mlls.VariationalELBO(noise, approximate, num_data=25)
optimizer = torch.optim.Adam([*approximate.parameters(), *noise.parameters()], lr=0.05)
losses = []
for _ in range(15):
    optimizer.zero_grad()
    loss = -elbo(approximate(x), y)
    loss.backward()
    losses.append(loss.item())
    optimizer.step()
record("variational.losses", losses)
approximate.eval()
record("variational.mean", approximate(test).mean)
record("variational.variance", approximate(test).variance)


class MultiTask(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood)
        self.mean = gpytorch.means.MultitaskMean(gpytorch.means.ConstantMean(), num_tasks=2)
        self.covariance = kernels.MultitaskKernel(kernels.RBFKernel(), num_tasks=2, rank=1)
        self.covariance.task_covar_module.covar_factor.data.fill_(0.4)
        self.covariance.task_covar_module.raw_var.data.fill_(0.2)

    def forward(self, x):
        mean, covariance = self.mean(x), self.covariance(x)
        return gpytorch.distributions.MultitaskMultivariateNormal(mean, covariance)


tasks = gpytorch.likelihoods.MultitaskGaussianLikelihood(num_tasks=2)
multi = MultiTask(x, data(25, 2, seed=4), tasks)
likely = gpytorch.mlls.ExactMarginalLogLikelihood(tasks, multi)
loss = -likely(multi(x), data(25, 2, seed=4))
loss.backward()
record("multitask.loss", loss)
record("multitask.grads", {n: p.grad for n, p in multi.named_parameters() if p.grad is not None})
multi.eval()
tasks.eval()
record("multitask.mean", tasks(multi(test)).mean)
finish()
