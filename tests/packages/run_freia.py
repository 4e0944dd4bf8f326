"""FrEIA: invertible networks as sequences and graphs."""

import FrEIA.framework as Ff
import FrEIA.modules as Fm
import torch
from common import data, finish, prepared, record, record_step
from torch import nn

torch.set_default_dtype(torch.float64)


def subnet(i, o):
    return nn.Sequential(nn.Linear(i, 8), nn.ReLU(), nn.Linear(8, o))


def subnet_conv(i, o):
    return nn.Sequential(nn.Conv2d(i, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, o, 3, padding=1))


x = data(7, 4)
for block in (
    Fm.AllInOneBlock,
    Fm.RNVPCouplingBlock,
    Fm.GLOWCouplingBlock,
    Fm.GINCouplingBlock,
    Fm.NICECouplingBlock,
    Fm.AffineCouplingOneSided,
):
    inn = Ff.SequenceINN(4)
    for _ in range(2):
        inn.append(block, subnet_constructor=subnet)
    inn = prepared(inn)
    for name, value in [*inn.named_parameters(), *inn.named_buffers()]:
        if name.endswith(("w_perm", "w_perm_inv")):
            value.data.copy_(
                torch.eye(4)[[1, 2, 3, 0]].T if "inv" in name else torch.eye(4)[[1, 2, 3, 0]]
            )
    z, log_det = inn(x)
    record_step(block.__name__, inn, z * (1 + torch.as_tensor(log_det).mean()))
    back, _ = inn(z, rev=True)
    record(f"{block.__name__}.back", back)

nodes = [Ff.InputNode(2, 8, 8, name="input")]
condition = Ff.ConditionNode(4)
nodes.append(Ff.Node(nodes[-1], Fm.IRevNetDownsampling, {}))
nodes.append(Ff.Node(nodes[-1], Fm.GLOWCouplingBlock, {"subnet_constructor": subnet_conv}))
nodes.append(Ff.Node(nodes[-1], Fm.PermuteRandom, {"seed": 1}))
nodes.append(Ff.Node(nodes[-1], Fm.HaarDownsampling, {}))
nodes.append(Ff.Node(nodes[-1], Fm.Flatten, {}))
nodes.append(
    Ff.Node(
        nodes[-1],
        Fm.GLOWCouplingBlock,
        {"subnet_constructor": subnet, "clamp": 2.0},
        conditions=condition,
    )
)
split = Ff.Node(nodes[-1], Fm.Split, {"section_sizes": [64, 64], "dim": 0})
nodes += [split, condition, Ff.OutputNode(split.out0), Ff.OutputNode(split.out1)]
net = prepared(Ff.GraphINN(nodes))
images = data(3, 2, 8, 8)
(a, b), log_det = net(images, c=[x[:3]])
record_step("graph", net, torch.cat([a, b, log_det[:, None]], 1))
record("graph.back", net([a, b], c=[x[:3]], rev=True)[0])

inn = Ff.SequenceINN(4)
for _ in range(3):
    inn.append(Fm.GLOWCouplingBlock, subnet_constructor=subnet)
inn = prepared(inn)
optimizer = torch.optim.Adam(inn.parameters(), lr=0.01)
losses = []
for _ in range(5):
    optimizer.zero_grad()
    z, log_det = inn(x)
    loss = (0.5 * z.square().sum(1) - log_det).mean() / 4
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
record("losses", losses)
finish()
