"""zuko: flows, conditional and not, their log probabilities, inverses and training."""

import torch
import zuko
from common import data, finish, prepared, record, record_step

torch.set_default_dtype(torch.float64)
x, c = data(9, 3) * 0.5, data(9, 2, seed=1)
for name, make in (
    ("nsf", lambda: zuko.flows.NSF(3, 2, transforms=2, hidden_features=[8, 8])),
    ("maf", lambda: zuko.flows.MAF(3, 2, transforms=2, hidden_features=[8])),
    ("nice", lambda: zuko.flows.NICE(3, 2, transforms=2, hidden_features=[8])),
    ("realnvp", lambda: zuko.flows.RealNVP(3, 2, transforms=2, hidden_features=[8])),
    ("naf", lambda: zuko.flows.NAF(3, 2, transforms=1, hidden_features=[8])),
    ("unaf", lambda: zuko.flows.UNAF(3, 2, transforms=1, hidden_features=[8])),
    ("sospf", lambda: zuko.flows.SOSPF(3, 2, transforms=2, hidden_features=[8])),
    ("bpf", lambda: zuko.flows.BPF(3, 2, transforms=2, hidden_features=[8])),
    ("gf", lambda: zuko.flows.GF(3, 2, transforms=2, hidden_features=[8])),
    ("ncsf", lambda: zuko.flows.NCSF(3, 2, transforms=2, hidden_features=[8])),
    ("gmm", lambda: zuko.mixtures.GMM(3, 2, components=3, hidden_features=[8])),
):
    flow = prepared(make())
    record_step(f"{name}.log_prob", flow, flow(c).log_prob(x))
    if name != "gmm":
        z = flow(c).transform(x)
        record(f"{name}.z", z)
        if name not in ("naf", "unaf", "gf"):
            record(f"{name}.back", flow(c).transform.inv(z))
    record(f"{name}.sample", tuple(flow(c[0]).sample((4,)).shape))
flow = prepared(zuko.flows.CNF(3, 2, hidden_features=[8]))
record_step("cnf", flow, flow(c).log_prob(x))
flow = prepared(zuko.flows.NSF(3, 2, transforms=2, hidden_features=[8]))
optimizer = torch.optim.Adam(flow.parameters(), lr=0.01)
losses = []
for _ in range(6):
    loss = -flow(c).log_prob(x).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
record("losses", losses)
for name, distribution in (
    ("box", zuko.distributions.BoxUniform(torch.tensor([-3.0, -3, -3]), torch.tensor([3.0, 3, 3]))),
    ("diag", zuko.distributions.DiagNormal(torch.zeros(3), torch.ones(3) * 0.7)),
    ("general", zuko.distributions.GeneralizedNormal(torch.tensor(2.5))),
    (
        "joint",
        zuko.distributions.Joint(
            torch.distributions.Gamma(1.0, 2.0), torch.distributions.Normal(0.0, 1.0)
        ),
    ),
):
    record(
        f"distribution.{name}", distribution.log_prob(x.abs()[..., :2] if name == "joint" else x)
    )
net = prepared(zuko.nn.MonotonicMLP(3, 2, hidden_features=[8]))
record_step("monotonic", net, net(x))
record("repr", repr(flow)[:300])
finish()
