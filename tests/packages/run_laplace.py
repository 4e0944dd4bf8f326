"""laplace-torch: posteriors of five structures, predictions, marginal likelihoods."""

import torch
from common import data, finish, prepared, record
from laplace import Laplace
from laplace.curvature import BackPackEF, BackPackGGN, CurvlinopsEF, CurvlinopsGGN
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_default_dtype(torch.float64)
x, classes, values = data(12, 3), data(12, high=3), data(12, 2)


def net(outputs):
    return prepared(nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, outputs))).eval()


for likelihood, outputs, target in (("classification", 3, classes), ("regression", 2, values)):
    loader = DataLoader(TensorDataset(x, target), batch_size=5)
    for structure in ("full", "kron", "diag"):
        for subset in ("all", "last_layer"):
            for backend in (CurvlinopsGGN, CurvlinopsEF, BackPackGGN, BackPackEF):
                if structure == "kron" and backend is BackPackEF:
                    continue
                name = f"{likelihood}.{structure}.{subset}.{backend.__name__}"
                la = Laplace(
                    net(outputs),
                    likelihood,
                    subset_of_weights=subset,
                    hessian_structure=structure,
                    prior_precision=0.7,
                    backend=backend,
                )
                la.fit(loader)
                record(f"{name}.evidence", la.log_marginal_likelihood())
                result = la(data(4, 3, seed=5), link_approx="probit")
                record(f"{name}.prediction", result)
                if backend is CurvlinopsGGN:
                    la.optimize_prior_precision(method="marglik", n_steps=5, lr=0.1)
                    record(f"{name}.precision", la.prior_precision)
finish()
