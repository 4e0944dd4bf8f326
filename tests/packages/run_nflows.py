"""nflows: transforms and flows, their log probabilities and training."""

import torch
from common import data, finish, prepared, record, record_step
from nflows import distributions, flows, nn, transforms
from nflows.transforms.base import InputOutsideDomain  # noqa: F401

torch.set_default_dtype(torch.float64)
x = data(10, 4) * 0.5
for name, make in (
    (
        "affine",
        lambda: transforms.MaskedAffineAutoregressiveTransform(features=4, hidden_features=8),
    ),
    (
        "quadratic",
        lambda: transforms.MaskedPiecewiseRationalQuadraticAutoregressiveTransform(
            features=4, hidden_features=8, num_bins=5, tails="linear", tail_bound=3.0
        ),
    ),
    (
        "coupling",
        lambda: transforms.AffineCouplingTransform(
            mask=[1, -1, 1, -1],
            transform_net_create_fn=lambda i, o: nn.nets.ResidualNet(i, o, hidden_features=8),
        ),
    ),
    (
        "spline",
        lambda: transforms.PiecewiseRationalQuadraticCouplingTransform(
            mask=[1, -1, 1, -1],
            transform_net_create_fn=lambda i, o: nn.nets.ResidualNet(i, o, hidden_features=8),
            tails="linear",
            tail_bound=3.0,
        ),
    ),
    ("lu", lambda: transforms.LULinear(4, identity_init=False)),
    ("svd", lambda: transforms.SVDLinear(4, num_householder=2)),
    ("qr", lambda: transforms.QRLinear(4, num_householder=2)),
    ("norm", lambda: transforms.BatchNorm(4)),
    ("act", lambda: transforms.ActNorm(4)),
):
    flow = prepared(
        flows.Flow(
            transforms.CompositeTransform([make(), transforms.ReversePermutation(4)]),
            distributions.StandardNormal([4]),
        )
    )
    record_step(f"{name}.log_prob", flow, flow.log_prob(x))
    flow.eval()
    noise = flow.transform_to_noise(x)
    record(f"{name}.noise", noise)
    back, log_determinant = flow._transform.inverse(noise)
    record(f"{name}.inverse", [back, log_determinant])

flow = prepared(flows.MaskedAutoregressiveFlow(4, 8, 2, 2, batch_norm_between_layers=True))
optimizer = torch.optim.Adam(flow.parameters(), lr=0.01)
losses = []
for _ in range(5):
    optimizer.zero_grad()
    loss = -flow.log_prob(x).mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
record("losses", losses)
flow.eval()
record("samples", tuple(flow.sample(7).shape))
record("state", dict(flow.state_dict()))
finish()
