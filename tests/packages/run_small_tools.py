"""torchquad, torchdyn, pytorch_wavelets, torchbnn, ptflops: parts of their READMEs."""

import torch
import torchbnn
from common import data, finish, prepared, record, record_step
from ptflops import get_model_complexity_info
from pytorch_wavelets import DTCWTForward, DTCWTInverse, DWTForward, DWTInverse
from torch import nn
from torchdyn.core import NeuralODE
from torchquad import Boole, GaussLegendre, Simpson, Trapezoid, set_log_level, set_up_backend

torch.set_default_dtype(torch.float64)
set_log_level("ERROR")
set_up_backend("torch", data_type="float64")
scale = torch.tensor(1.3, requires_grad=True)
for rule in (Trapezoid, Simpson, Boole, GaussLegendre):
    value = rule().integrate(
        lambda x: torch.sin(scale * x[:, 0]) + torch.exp(x[:, 1]),
        dim=2,
        N=25 * 25,
        integration_domain=[[0, 1], [-1, 1]],
        backend="torch",
    )
    record(f"quad.{rule.__name__}", [value, *torch.autograd.grad(value, scale)])

for solver in ("euler", "rk4", "dopri5", "tsit5"):
    for sensitivity in ("autograd", "adjoint", "interpolated_adjoint"):
        field = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 3))
        model = prepared(
            NeuralODE(field, sensitivity=sensitivity, solver=solver, atol=1e-8, rtol=1e-8)
        )
        _, path = model(data(4, 3), torch.linspace(0, 1, 6))
        record_step(f"ode.{solver}.{sensitivity}", model, path[-1])

image = data(2, 3, 16, 16).requires_grad_()
for wave, mode in (("db3", "zero"), ("haar", "periodization"), ("bior2.4", "symmetric")):
    low, high = DWTForward(J=2, wave=wave, mode=mode)(image)
    back = DWTInverse(wave=wave, mode=mode)((low, high))
    record(f"dwt.{wave}", [low, *high, back])
    record(f"dwt.{wave}.grad", torch.autograd.grad((low**2).sum() + (high[0] ** 3).sum(), image))
low, high = DTCWTForward(J=2, biort="near_sym_b", qshift="qshift_b")(image)
record("dtcwt", [low, *high, DTCWTInverse(biort="near_sym_b", qshift="qshift_b")((low, high))])

bayes = nn.Sequential(
    torchbnn.BayesLinear(0, 0.1, 4, 8), nn.ReLU(), torchbnn.BayesLinear(0, 0.1, 8, 2)
)
bayes = prepared(bayes)
for layer in (bayes[0], bayes[2]):
    layer.weight_eps = data(*layer.weight_mu.shape, seed=3)
    layer.bias_eps = data(*layer.bias_mu.shape, seed=4)
out = bayes(data(5, 4))
kl = torchbnn.BKLLoss(reduction="mean", last_layer_only=False)(bayes)
record("bnn.kl", kl)
record_step("bnn", bayes, out + kl)

torch.set_default_dtype(torch.float32)
for backend in ("pytorch",):
    conv = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 5)
    )
    macs, params = get_model_complexity_info(
        conv,
        (3, 8, 8),
        backend=backend,
        as_strings=False,
        print_per_layer_stat=False,
        verbose=False,
    )
    record(f"flops.{backend}", [macs, params])
finish()
