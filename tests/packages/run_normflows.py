"""normflows: RealNVP, Glow, neural splines, residual flows; training on forward KL."""

import normflows as nf
import numpy as np
import torch
from common import data, finish, prepared, record, record_step

torch.set_default_dtype(torch.float64)
np.random.seed(0)
x = data(12, 2) * 0.5


def real_nvp():
    parts = []
    for _ in range(4):
        parts.append(nf.flows.AffineCouplingBlock(nf.nets.MLP([1, 8, 2], init_zeros=False)))
        parts.append(nf.flows.Permute(2, mode="swap"))
    return parts


for name, make in (
    ("nvp", real_nvp),
    ("planar", lambda: [nf.flows.Planar((2,)) for _ in range(3)]),
    ("radial", lambda: [nf.flows.Radial((2,)) for _ in range(3)]),
    ("maf", lambda: [nf.flows.MaskedAffineAutoregressive(2, 8)]),
    ("spline", lambda: [nf.flows.AutoregressiveRationalQuadraticSpline(2, 1, 8)]),
    ("coupled", lambda: [nf.flows.CoupledRationalQuadraticSpline(2, 1, 8)]),
    ("lu", lambda: [nf.flows.LULinearPermute(2)]),
    ("act", lambda: [nf.flows.ActNorm(2)]),
    ("circular", lambda: [nf.flows.CircularCoupledRationalQuadraticSpline(2, 1, 8, [1])]),
):
    base = nf.distributions.DiagGaussian(2)
    model = prepared(nf.NormalizingFlow(base, make()))
    if name == "radial" or name == "planar":
        z, log_det = x, 0
        for flow in model.flows:
            z, d = flow(z)
            log_det = log_det + d
        record_step(name, model, log_det)
        continue
    if name == "lu":
        model.flows[0].permutation._permutation.copy_(torch.tensor([1, 0]))
    if name == "act":
        model.log_prob(x)
    record_step(name, model, model.log_prob(x))
    record(f"{name}.inverse", model.inverse(x))
    record(f"{name}.forward", model(model.inverse(x)))

base = nf.distributions.GaussianMixture(3, 2, loc=np.array([[0, 1], [1, 0], [-1, -1.0]]))
model = nf.NormalizingFlow(base, real_nvp())
model = prepared(model)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=1e-5)
losses = []
for _ in range(5):
    optimizer.zero_grad()
    loss = model.forward_kld(x)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
record("losses", losses)
record("samples", [tuple(p.shape) for p in model.sample(5)])

flows = [
    nf.flows.GlowBlock(4, 8, scale=True, split_mode="channel", leaky=0.1, init_zeros=False),
    nf.flows.Squeeze(),
]
image = prepared(nf.NormalizingFlow(nf.distributions.DiagGaussian((4, 4, 4)), flows[:1]))
for name, value in image.named_buffers():
    if name.endswith(".P"):
        value.copy_(torch.eye(4)[[1, 3, 0, 2]])
    elif name.endswith(".sign_S"):
        value.copy_(torch.tensor([1.0, -1.0, 1.0, 1.0]))
pictures = data(3, 4, 4, 4)
image.log_prob(pictures)
record_step("glow", image, image.log_prob(pictures))
target = nf.distributions.TwoMoons()
record("moons", target.log_prob(x))
finish()
